// ai.onnx.ml: linear models, support vector machines, the steps before and after them, and whole
// pipelines, also exported again.
#include <coracle/test/convert/any_node.h>
#include <coracle/test/convert/one_node.h>
#include <coracle/test/test_data.h>

#include <cmath>

namespace coracle::onnx::onnx_ml_models_test {

using Texts = std::vector<std::string>;
using Doubles = std::vector<double>;

OneNode Ml(const std::string& op_type, const std::vector<std::optional<Tensor>>& inputs) {
  return OneNode(op_type, 3, inputs, "ai.onnx.ml");
}

Doubles WideOf(const Tensor& tensor) {
  const Tensor wide = tensor.Cast(DType::kFloat64);
  return {wide.span<double>().begin(), wide.span<double>().end()};
}

void ExpectClose(const Tensor& got, const Doubles& wanted, double tolerance = 1e-5) {
  const Doubles values = WideOf(got);
  ASSERT_EQ(values.size(), wanted.size());
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(values[i], wanted[i], tolerance * (1 + std::abs(wanted[i]))) << "element " << i;
}

void ExpectRefusal(OneNode node, const std::string& text) {
  EXPECT_NE(node.Refusal().find(text), std::string::npos) << node.Refusal();
}

double Logistic(double x) { return 1 / (1 + std::exp(-x)); }

Tensor ThreeRows() { return F({3, 2}, {-1, 0, 0.5f, 1, 1, -2}); }

// --- linear ---

// 0.3 x0 + 0.2 x1 + 0.1 of the rows above is -0.2, 0.45, 0.
TEST(OnnxMlModels, LinearBinary) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    OneNode node = Ml("LinearClassifier", {ThreeRows().Cast(dtype)});
    node.Set("coefficients", Numbers{0.3f, 0.2f})
        .Set("intercepts", Numbers{0.125f})
        .Set("classlabels_strings", Texts{"no", "yes"})
        .Set("multi_class", int64_t{1})
        .Set("post_transform", std::string("LOGISTIC"));
    const std::vector<Tensor> results = node.Outputs(2).Feed(0, true).Results();
    EXPECT_EQ(results[0].Strings(), (Texts{"no", "yes", "yes"}));
    Doubles wanted;
    for (double score : {-0.175, 0.475, 0.025}) {
      wanted.push_back(Logistic(-score));
      wanted.push_back(Logistic(score));
    }
    ExpectClose(results[1], wanted);
    node.Clear("post_transform");
    ExpectClose(node.Results()[1], {1.175, -0.175, 0.525, 0.475, 0.975, 0.025});
  }
}

TEST(OnnxMlModels, LinearClasses) {
  OneNode node = Ml("LinearClassifier", {I({2, 1, -1, 3}).Reshaped({2, 2})});
  node.Set("coefficients", Numbers{1, 0, 0, 1, -1, -1})
      .Set("intercepts", Numbers{0, 0.5f, 0})
      .Set("classlabels_ints", Integers{10, 20, 30})
      .Set("post_transform", std::string("SOFTMAX"));
  const std::vector<Tensor> results = node.Outputs(2).Results();
  EXPECT_EQ(WideOf(results[0]), (Doubles{10, 20}));
  Doubles wanted;
  for (const Doubles& row : {Doubles{2, 1.5, -3}, Doubles{-1, 3.5, -2}}) {
    const double sum = std::exp(row[0]) + std::exp(row[1]) + std::exp(row[2]);
    for (double score : row) wanted.push_back(std::exp(score) / sum);
  }
  ExpectClose(results[1], wanted);
}

TEST(OnnxMlModels, LinearRefusals) {
  OneNode node = Ml("LinearClassifier", {ThreeRows()});
  node.Set("coefficients", Numbers{1, 2, 3}).Outputs(2);
  ExpectRefusal(node, "one of the attributes classlabels_ints and classlabels_strings must have");
  node.Set("classlabels_ints", Integers{1, 2});
  ExpectRefusal(node, "must have a row for each of 2 results, got 3 numbers");
  node.Set("intercepts", Numbers{1, 2, 3});
  ExpectRefusal(node, "there must be a class for each of 3 intercepts, got 2");
}

// --- support vector machines ---

const Numbers kVectors = {1, 2, -1, 0.5f, 0.25f, 0.5f};

double KernelOf(const std::string& kernel, const double* x, const float* v) {
  const double dot = x[0] * v[0] + x[1] * v[1];
  if (kernel == "LINEAR") return dot;
  if (kernel == "POLY") return std::pow(0.5 * dot + 0.25, 2);
  if (kernel == "SIGMOID") return std::tanh(0.5 * dot + 0.25);
  return std::exp(-0.5 * (std::pow(x[0] - v[0], 2) + std::pow(x[1] - v[1], 2)));
}

OneNode Machine(const std::string& op_type, const std::string& kernel) {
  OneNode node = Ml(op_type, {ThreeRows()});
  node.Set("support_vectors", kVectors)
      .Set("kernel_type", kernel)
      .Set("kernel_params", Numbers{0.5f, 0.25f, 2});
  return node;
}

TEST(OnnxMlModels, SvmRegressor) {
  const Doubles rows = WideOf(ThreeRows());
  for (const std::string kernel : {"LINEAR", "POLY", "RBF", "SIGMOID"}) {
    Doubles wanted, signs;
    for (size_t row = 0; row < 3; ++row) {
      double sum = -0.25;
      const Doubles coefficients = {0.75, 0.5, -0.625};
      for (size_t v = 0; v < 3; ++v)
        sum += coefficients[v] * KernelOf(kernel, &rows[2 * row], &kVectors[2 * v]);
      wanted.push_back(sum);
      signs.push_back(sum > 0 ? 1 : -1);
    }
    OneNode node = Machine("SVMRegressor", kernel);
    node.Set("n_supports", int64_t{3})
        .Set("coefficients", Numbers{0.75f, 0.5f, -0.625f})
        .Set("rho", Numbers{-0.25f});
    node.Feed(0, true);
    ExpectClose(node.Result(), wanted);
    ExpectClose(node.Set("one_class", int64_t{1}).Result(), signs);
  }
}

TEST(OnnxMlModels, SvmRegressorWithoutVectors) {
  OneNode node = Machine("SVMRegressor", "RBF");
  node.Set("coefficients", Numbers{0.5f, 0.25f}).Set("rho", Numbers{1});
  ExpectClose(node.Result(), {0.5, 1.5, 1});
}

// Three classes with one vector each: the pairs (0, 1), (0, 2) and (1, 2).
OneNode ThreeClasses() {
  OneNode node = Machine("SVMClassifier", "RBF");
  node.Set("vectors_per_class", Integers{1, 1, 1})
      .Set("coefficients", Numbers{0.75f, 0.5f, -0.5f, 0.25f, -0.375f, 0.5f})
      .Set("rho", Numbers{0.125f, 0.25f, -0.25f})
      .Set("classlabels_strings", Texts{"a", "b", "c"})
      .Outputs(2);
  return node;
}

// Decisions of the three pairs for one row.
Doubles PairsOf(const double* x) {
  Doubles k;
  for (size_t v = 0; v < 3; ++v) k.push_back(KernelOf("RBF", x, &kVectors[2 * v]));
  return {0.125 + 0.75 * k[0] + 0.5 * k[1], 0.25 + 0.25 * k[0] - 0.5 * k[2],
          -0.25 - 0.375 * k[1] + 0.5 * k[2]};
}

TEST(OnnxMlModels, SvmClassifier) {
  const Doubles rows = WideOf(ThreeRows());
  Doubles wanted;
  Texts labels;
  for (size_t row = 0; row < 3; ++row) {
    const Doubles d = PairsOf(&rows[2 * row]);
    wanted.insert(wanted.end(), d.begin(), d.end());
    std::vector<int> votes(3, 0);
    ++votes[d[0] > 0 ? 0 : 1];
    ++votes[d[1] > 0 ? 0 : 2];
    ++votes[d[2] > 0 ? 1 : 2];
    labels.push_back(std::string(
        1,
        static_cast<char>('a' + (std::max_element(votes.begin(), votes.end()) - votes.begin()))));
  }
  const std::vector<Tensor> results = ThreeClasses().Feed(0, true).Results();
  EXPECT_EQ(results[0].Strings(), labels);
  ExpectClose(results[1], wanted);
}

// The sum over pairs of (r_ji p_i - r_ij p_j)^2, which the probabilities minimise.
double Disagreement(const Doubles& pairs, const double* p) {
  double sum = 0;
  size_t pair = 0;
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = i + 1; j < 3; ++j, ++pair)
      sum += std::pow((1 - pairs[pair]) * p[i] - pairs[pair] * p[j], 2);
  return sum;
}

TEST(OnnxMlModels, SvmProbabilities) {
  OneNode node = ThreeClasses();
  node.Set("prob_a", Numbers{-1.25f, -1, -0.5f}).Set("prob_b", Numbers{0.125f, 0.25f, 0.5f});
  const Tensor result = node.Results()[1];
  ASSERT_EQ(result.shape(), Shape({3, 3}));
  const Doubles values = WideOf(result), rows = WideOf(ThreeRows());
  for (size_t row = 0; row < 3; ++row) {
    const double* p = &values[3 * row];
    EXPECT_NEAR(p[0] + p[1] + p[2], 1, 1e-5);
    Doubles pairs = PairsOf(&rows[2 * row]);
    const Doubles a = {-1.25, -1, -0.5}, b = {0.125, 0.25, 0.5};
    for (size_t k = 0; k < 3; ++k) pairs[k] = Logistic(-(a[k] * pairs[k] + b[k]));
    const double best = Disagreement(pairs, p);
    for (size_t from = 0; from < 3; ++from) {
      for (size_t to = 0; to < 3; ++to) {
        double moved[3] = {p[0], p[1], p[2]};
        moved[from] -= 0.02;
        moved[to] += 0.02;
        EXPECT_LE(best, Disagreement(pairs, moved) + 1e-9);
      }
    }
  }
}

TEST(OnnxMlModels, SvmTwoClasses) {
  OneNode node = Machine("SVMClassifier", "LINEAR");
  node.Set("vectors_per_class", Integers{2, 1})
      .Set("coefficients", Numbers{1, 1, 1})
      .Set("rho", Numbers{0.25f})
      .Set("classlabels_ints", Integers{5, 7})
      .Outputs(2);
  // The sum of the vectors is (0.25, 3).
  const Doubles d = {0, 3.375, -5.5};
  std::vector<Tensor> results = node.Results();
  EXPECT_EQ(WideOf(results[0]), (Doubles{7, 5, 7}));
  ExpectClose(results[1], {-d[0], d[0], -d[1], d[1], -d[2], d[2]});
  node.Set("prob_a", Numbers{-1}).Set("prob_b", Numbers{0});
  ExpectClose(node.Results()[1],
              {0.5, 0.5, Logistic(d[1]), Logistic(-d[1]), Logistic(d[2]), Logistic(-d[2])}, 3e-3);
}

TEST(OnnxMlModels, SvmRefusals) {
  OneNode node = ThreeClasses();
  node.Clear("vectors_per_class").Set("vectors_per_class", Integers{1, 1, 2});
  ExpectRefusal(node, "[svm.C1]");
  node.Clear("vectors_per_class").Set("vectors_per_class", Integers{3});
  ExpectRefusal(node, "attribute vectors_per_class must have a number for each of 3 classes");
  node.Clear("vectors_per_class").Set("vectors_per_class", Integers{-1, 2, 2});
  ExpectRefusal(node, "attribute vectors_per_class has -1");
  node = ThreeClasses();
  ExpectRefusal(node.Set("prob_a", Numbers{1}).Set("prob_b", Numbers{1}), "[svm.C6]");
}

// --- the steps around models ---

TEST(OnnxMlModels, Imputer) {
  OneNode node = Ml("Imputer", {F({2, 2}, {NAN, 2, 3, NAN})});
  node.Set("imputed_value_floats", Numbers{-1, -2}).Set("replaced_value_float", NAN);
  EXPECT_EQ(node.Run(), (Numbers{-1, 2, 3, -2}));
  OneNode one = Ml("Imputer", {Tensor::Of<double>({3}, {0, -0.0, 5})});
  EXPECT_EQ(one.Set("imputed_value_floats", Numbers{7}).Run(), (Numbers{7, 7, 5}));
  OneNode integers = Ml("Imputer", {I({4, 5, 4})});
  integers.Set("imputed_value_int64s", Integers{9}).Set("replaced_value_int64", int64_t{4});
  EXPECT_EQ(integers.Result().dtype(), DType::kInt64);
  EXPECT_EQ(integers.Run(), (Numbers{9, 5, 9}));
  ExpectRefusal(Ml("Imputer", {F({1, 2}, {1, 2})}).Set("imputed_value_floats", Numbers{1, 2, 3}),
                "must have one number, or one for each of 2 features, got 3");
}

TEST(OnnxMlModels, FeatureVectorizer) {
  OneNode node = Ml("FeatureVectorizer", {F({2, 2}, {1, 2, 3, 4}), F({2, 1}, {5, 6})});
  EXPECT_EQ(node.Run(), (Numbers{1, 2, 5, 3, 4, 6}));
  node.Set("inputdimensions", Integers{1, 3}).Feed(0, true).Feed(1, true);
  EXPECT_EQ(node.Run(), (Numbers{1, 5, 0, 0, 3, 6, 0, 0}));
  EXPECT_EQ(Ml("FeatureVectorizer", {I({1, 2})}).Result().shape(), Shape({1, 2}));
}

TEST(OnnxMlModels, ZipMap) {
  OneNode node = Ml("ZipMap", {F({2, 2}, {1, 2, 3, 4})});
  node.Set("classlabels_strings", Texts{"no", "yes"}).Feed(0, true);
  const std::vector<Tensor> results = node.Results();
  ASSERT_EQ(results.size(), 2u);
  ExpectClose(results[0], {1, 2, 3, 4});
  EXPECT_EQ(results[1].Strings(), (Texts{"no", "yes"}));
  ExpectRefusal(Ml("ZipMap", {F({1, 3}, {1, 2, 3})}).Set("classlabels_int64s", Integers{1, 2}),
                "there must be a label for each column, got 2 labels and 3 columns");
}

// --- pipelines ---

void SetInts(NodeProto& node, const char* name, const Integers& values) {
  AttributeProto& attr = AddAttr(node, name, AttributeProto::INTS);
  for (int64_t value : values) attr.add_ints(value);
}
void SetFloats(NodeProto& node, const char* name, const Numbers& values) {
  AttributeProto& attr = AddAttr(node, name, AttributeProto::FLOATS);
  for (float value : values) attr.add_floats(value);
}
void SetTexts(NodeProto& node, const char* name, const Texts& values) {
  AttributeProto& attr = AddAttr(node, name, AttributeProto::STRINGS);
  for (const std::string& value : values) attr.add_strings(value);
}

NodeProto& AddMl(GraphProto& graph, const char* type, const std::string& input,
                 const Texts& outputs) {
  NodeProto& node = AddNode(graph, type, {input}, outputs[0]);
  for (size_t i = 1; i < outputs.size(); ++i) node.add_output(outputs[i]);
  node.set_domain("ai.onnx.ml");
  return node;
}

// Two trees of one node each, with votes for three classes.
void SetTrees(NodeProto& node, const std::string& prefix) {
  SetInts(node, "nodes_treeids", {0, 0, 0, 1, 1, 1});
  SetInts(node, "nodes_nodeids", {0, 1, 2, 0, 1, 2});
  SetInts(node, "nodes_featureids", {0, 0, 0, 1, 0, 0});
  SetInts(node, "nodes_truenodeids", {1, 0, 0, 1, 0, 0});
  SetInts(node, "nodes_falsenodeids", {2, 0, 0, 2, 0, 0});
  SetTexts(node, "nodes_modes", {"BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_GT", "LEAF", "LEAF"});
  SetFloats(node, "nodes_values", {0.5f, 0, 0, -1, 0, 0});
  SetInts(node, (prefix + "_treeids").c_str(), {0, 0, 0, 1, 1});
  SetInts(node, (prefix + "_nodeids").c_str(), {1, 1, 2, 1, 2});
  SetInts(node, (prefix + "_ids").c_str(), {0, 1, 2, 1, 0});
  SetFloats(node, (prefix + "_weights").c_str(), {0.5f, 0.25f, 1, 2, 4});
}

// A scaler, trees, and probabilities as maps: what converters of scikit-learn write.
ModelProto Pipeline() {
  ModelProto model;
  model.set_ir_version(8);
  auto& import = *model.add_opset_import();
  import.set_version(17);
  auto& ml = *model.add_opset_import();
  ml.set_domain("ai.onnx.ml");
  ml.set_version(1);
  GraphProto& graph = *model.mutable_graph();
  Declare(graph, "x", DType::kFloat32, 2);
  auto& dims = *graph.mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape();
  dims.mutable_dim(0)->set_dim_param("n");
  NodeProto& scaler = AddMl(graph, "Scaler", "x", {"scaled"});
  SetFloats(scaler, "offset", {1, 2});
  SetFloats(scaler, "scale", {0.5f, 0.25f});
  NodeProto& trees = AddMl(graph, "TreeEnsembleClassifier", "scaled", {"label", "probabilities"});
  SetTrees(trees, "class");
  SetTexts(trees, "classlabels_strings", {"a", "b", "c"});
  AddAttr(trees, "post_transform", AttributeProto::STRING).set_s("SOFTMAX");
  NodeProto& zip = AddMl(graph, "ZipMap", "probabilities", {"output_probability"});
  SetTexts(zip, "classlabels_strings", {"a", "b", "c"});
  graph.add_output()->set_name("label");
  auto& output = *graph.add_output();
  output.set_name("output_probability");
  auto& map = *output.mutable_type()->mutable_sequence_type()->mutable_elem_type();
  map.mutable_map_type()->set_key_type(proto::onnx::TensorProto::STRING);
  return model;
}

std::vector<Tensor> RunModel(const InferenceModel& model, const Scope& scope, const Tensor& x) {
  Scope own = scope.Clone();
  PreparedProgram prepared = Executor().PrepareOwning(model.program, own);
  std::vector<Tensor> results;
  for (const Tensor& result : prepared.Run(own, {x})) results.push_back(result.Clone());
  return results;
}

TEST(OnnxMlModels, Pipeline) {
  Scope scope;
  const InferenceModel model = ParseOnnx(Pipeline().SerializeAsString(), "m.onnx", scope, {});
  EXPECT_EQ(model.fetch_names,
            (std::vector<std::string>{"label", "output_probability", "output_probability.keys"}));
  // Scaled: (0, -1) and (1.5, 0).
  const std::vector<Tensor> results = RunModel(model, scope, F({2, 2}, {1, -2, 4, 2}));
  EXPECT_EQ(results[0].Strings(), (Texts{"a", "b"}));
  Doubles wanted;
  for (const Doubles& row : {Doubles{4.5, 0.25, 0}, Doubles{0, 2, 1}}) {
    const double sum = std::exp(row[0]) + std::exp(row[1]) + std::exp(row[2]);
    for (double score : row) wanted.push_back(std::exp(score) / sum);
  }
  ExpectClose(results[1], wanted);
  EXPECT_EQ(results[2].Strings(), (Texts{"a", "b", "c"}));
}

// The model of one node, exported and imported again, gives the same.
void ExpectRoundTrip(const ModelProto& model, const Tensor& x) {
  const TemporaryDirectory directory;
  Scope scope, again;
  const InferenceModel first = ParseOnnx(model.SerializeAsString(), "m.onnx", scope, {});
  const std::vector<Tensor> wanted = RunModel(first, scope, x);
  ExportOnnx(directory.File("m.onnx"), first.program, scope, {});
  const InferenceModel second = ImportOnnx(directory.File("m.onnx"), again);
  const std::vector<Tensor> results = RunModel(second, again, x);
  ASSERT_EQ(results.size(), wanted.size());
  for (size_t i = 0; i < results.size(); ++i) {
    ASSERT_EQ(results[i].dtype(), wanted[i].dtype());
    if (results[i].dtype() == DType::kString)
      EXPECT_EQ(results[i].Strings(), wanted[i].Strings());
    else
      ExpectClose(results[i], WideOf(wanted[i]));
  }
}

ModelProto OneMl(const char* type, DType dtype, const Texts& outputs,
                 const std::function<void(NodeProto&)>& fill, int64_t version = 1) {
  ModelProto model;
  model.add_opset_import()->set_version(17);
  auto& ml = *model.add_opset_import();
  ml.set_domain("ai.onnx.ml");
  ml.set_version(version);
  GraphProto& graph = *model.mutable_graph();
  Declare(graph, "x", dtype, 2);
  fill(AddMl(graph, type, "x", outputs));
  for (const std::string& output : outputs) graph.add_output()->set_name(output);
  return model;
}

TEST(OnnxMlModels, TreesComeBack) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (const char* aggregate : {"SUM", "AVERAGE", "MIN", "MAX"}) {
      const auto fill = [&](NodeProto& node) {
        SetTrees(node, "target");
        node.mutable_attribute(7)->set_name("target_treeids");
        AddAttr(node, "n_targets", AttributeProto::INT).set_i(3);
        AddAttr(node, "aggregate_function", AttributeProto::STRING).set_s(aggregate);
        SetFloats(node, "base_values", {1, 2, 3});
      };
      const ModelProto model = OneMl("TreeEnsembleRegressor", dtype, {"y"}, fill);
      if (dtype == DType::kFloat64) continue;  // leaves of several weights are of float32
      ExpectRoundTrip(model, F({2, 2}, {1, -2, 0.25f, 2}));
    }
  }
}

TEST(OnnxMlModels, PipelineComesBack) { ExpectRoundTrip(Pipeline(), F({2, 2}, {1, -2, 4, 2})); }

TEST(OnnxMlModels, MachinesComeBack) {
  for (const size_t classes : {0, 2, 3}) {
    const auto fill = [&](NodeProto& node) {
      SetFloats(node, "support_vectors", kVectors);
      AddAttr(node, "kernel_type", AttributeProto::STRING).set_s("RBF");
      SetFloats(node, "kernel_params", {0.5f, 0, 0});
      if (classes == 0) {
        AddAttr(node, "n_supports", AttributeProto::INT).set_i(3);
        SetFloats(node, "coefficients", {1, 2, -3});
        return SetFloats(node, "rho", {0.5f});
      }
      SetInts(node, "vectors_per_class", classes == 2 ? Integers{2, 1} : Integers{1, 1, 1});
      SetFloats(node, "coefficients",
                classes == 2 ? Numbers{1, 2, -3} : Numbers{1, 2, 3, -1, -2, -3});
      SetFloats(node, "rho", classes == 2 ? Numbers{0.5f} : Numbers{0.5f, -1, 2});
      SetInts(node, "classlabels_ints", classes == 2 ? Integers{4, 6} : Integers{4, 6, 8});
    };
    const Texts outputs = classes == 0 ? Texts{"y"} : Texts{"y", "z"};
    ExpectRoundTrip(
        OneMl(classes == 0 ? "SVMRegressor" : "SVMClassifier", DType::kFloat32, outputs, fill),
        F({2, 2}, {1, -2, 0.25f, 2}));
  }
}

// Trees of float64 become TreeEnsemble.
TEST(OnnxMlModels, WideTreesComeBack) {
  const auto fill = [](NodeProto& node) {
    SetInts(node, "nodes_featureids", {0, 1});
    SetInts(node, "nodes_truenodeids", {1, 0});
    SetInts(node, "nodes_trueleafs", {0, 1});
    SetInts(node, "nodes_falsenodeids", {2, 1});
    SetInts(node, "nodes_falseleafs", {1, 1});
    SetInts(node, "nodes_missing_value_tracks_true", {1, 0});
    SetInts(node, "tree_roots", {0});
    SetInts(node, "leaf_targetids", {0, 0, 0});
    const auto tensor = [&](const char* name, const Doubles& values) {
      auto& proto = *AddAttr(node, name, AttributeProto::TENSOR).mutable_t();
      proto.set_data_type(proto::onnx::TensorProto::DOUBLE);
      proto.add_dims(static_cast<int64_t>(values.size()));
      for (double value : values) proto.add_double_data(value);
    };
    tensor("leaf_weights", {0.1, 0.2, 0.3});
    tensor("nodes_splits", {0.1, 0});
    tensor("membership_values", {0.25, 2});
    auto& modes = *AddAttr(node, "nodes_modes", AttributeProto::TENSOR).mutable_t();
    modes.set_data_type(proto::onnx::TensorProto::UINT8);
    modes.add_dims(2);
    modes.set_raw_data(std::string("\1\6", 2));
  };
  ExpectRoundTrip(OneMl("TreeEnsemble", DType::kFloat64, {"y"}, fill, 5),
                  Tensor::Of<double>({2, 2}, {0.05, 2, 0.05, 3}));
}

}  // namespace coracle::onnx::onnx_ml_models_test
