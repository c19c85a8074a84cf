// The importer's framework: names, constants, versions, functions, graphs in nodes, errors.
#include <coracle/convert/models.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/base/file.h>
#include <coracle/proto/onnx.pb.h>
#include <coracle/test/test_data.h>
#include <gtest/gtest.h>

#include <numeric>

namespace coracle::onnx::onnx_import_test {

using proto::onnx::AttributeProto;
using proto::onnx::GraphProto;
using proto::onnx::ModelProto;
using proto::onnx::NodeProto;
using proto::onnx::TensorProto;
using proto::onnx::ValueInfoProto;
using Names = std::vector<std::string>;

template <class Nodes>
NodeProto& AddNode(Nodes& nodes, const std::string& op_type, const Names& inputs,
                   const Names& outputs) {
  NodeProto& node = *nodes.Add();
  node.set_op_type(op_type);
  for (const std::string& name : inputs) node.add_input(name);
  for (const std::string& name : outputs) node.add_output(name);
  return node;
}

AttributeProto& AddAttr(NodeProto& node, const std::string& name,
                        AttributeProto::AttributeType type) {
  AttributeProto& attr = *node.add_attribute();
  attr.set_name(name);
  attr.set_type(type);
  return attr;
}

// A model that is built node by node. Inputs and outputs are float unless said otherwise.
class OnnxImport : public testing::Test {
 protected:
  OnnxImport() { SetOpset(17); }

  void SetOpset(int64_t version) {
    model_.clear_opset_import();
    model_.add_opset_import()->set_version(version);
  }
  GraphProto& graph() { return *model_.mutable_graph(); }
  void Describe(ValueInfoProto& info, const std::string& name, const std::vector<int64_t>& shape,
                int type) {
    info.set_name(name);
    auto& tensor = *info.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(type);
    tensor.mutable_shape();
    for (int64_t dim : shape) {
      auto& added = *tensor.mutable_shape()->add_dim();
      dim < 0 ? added.set_dim_param("n") : added.set_dim_value(dim);
    }
  }
  void Input(const std::string& name, const std::vector<int64_t>& shape,
             int type = TensorProto::FLOAT) {
    Describe(*graph().add_input(), name, shape, type);
  }
  void Output(const std::string& name) { graph().add_output()->set_name(name); }
  NodeProto& Node(const std::string& op_type, const Names& inputs, const Names& outputs) {
    return AddNode(*graph().mutable_node(), op_type, inputs, outputs);
  }
  void Floats(const std::string& name, const std::vector<float>& values) {
    TensorProto& tensor = *graph().add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(TensorProto::FLOAT);
    tensor.add_dims(static_cast<int64_t>(values.size()));
    for (float value : values) tensor.add_float_data(value);
  }
  void Ints(const std::string& name, const std::vector<int64_t>& values) {
    TensorProto& tensor = *graph().add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(TensorProto::INT64);
    tensor.add_dims(static_cast<int64_t>(values.size()));
    for (int64_t value : values) tensor.add_int64_data(value);
  }

  InferenceModel Import() { return ParseOnnx(model_.SerializeAsString(), "m.onnx", scope_); }
  std::vector<Tensor> Run(const std::vector<Tensor>& feeds) {
    const InferenceModel model = Import();
    PreparedProgram prepared = Executor().Prepare(model.program);
    std::vector<Tensor> results;
    for (const Tensor& tensor : prepared.Run(scope_, feeds)) results.push_back(tensor.Clone());
    return results;
  }
  std::string ErrorOf(ErrorCode code) {
    try {
      Import();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      EXPECT_TRUE(scope_.LocalNames().empty());
      return e.message();
    }
    return "no error";
  }
  size_t NumOps(const InferenceModel& model, const std::string& type) {
    size_t count = 0;
    model.program.ForEachOp([&](const OpDesc& op) { count += op.type() == type; });
    return count;
  }

  ModelProto model_;
  Scope scope_;
};

std::vector<float> FloatsOf(const Tensor& tensor) {
  const auto values = tensor.span<float>();
  return {values.begin(), values.end()};
}

TEST_F(OnnxImport, NamesParametersFeedsAndFetches) {
  Input("x", {-1, 2});
  Floats("w", {1, 2});
  Floats("never_read", {1, 2});
  Node("Add", {"x", "w"}, {"h"});
  Node("Relu", {"h"}, {"y"});
  Output("y");
  Output("h");
  const InferenceModel model = Import();
  EXPECT_EQ(model.feed_names, Names{"x"});
  EXPECT_EQ(model.fetch_names, (Names{"y", "h"}));
  EXPECT_EQ(model.program.Root().FindVar("x")->shape(), (Shape{-1, 2}));
  EXPECT_EQ(model.program.Parameters(), Names{"w"});
  EXPECT_EQ(scope_.LocalNames(), Names{"w"});
}

// An initializer among the inputs is a constant; the older IR versions list all of them.
TEST_F(OnnxImport, InputsWithInitializersAreNotFed) {
  Input("x", {2});
  Input("w", {2});
  Floats("w", {1, -5});
  Node("Add", {"x", "w"}, {"y"});
  Output("y");
  const std::vector<Tensor> results = Run({Tensor::Of<float>({2}, {1, 2})});
  EXPECT_EQ(FloatsOf(results[0]), (std::vector<float>{2, -3}));
}

// Shape, Gather, Concat and Reshape as PyTorch writes them leave one reshape.
TEST_F(OnnxImport, ShapesAreFolded) {
  Input("x", {2, 3, 4});
  Node("Shape", {"x"}, {"shape"});
  AddAttr(Node("Slice", {"shape", "zero", "one"}, {"batch"}), "", AttributeProto::UNDEFINED);
  graph().mutable_node(1)->clear_attribute();
  Ints("zero", {0});
  Ints("one", {1});
  Ints("rest", {-1});
  AddAttr(Node("Concat", {"batch", "rest"}, {"wanted"}), "axis", AttributeProto::INT).set_i(0);
  Node("Reshape", {"x", "wanted"}, {"y"});
  Output("y");
  const InferenceModel model = Import();
  EXPECT_EQ(model.program.Root().NumOps(), 3u);  // feed, reshape2, fetch
  EXPECT_EQ(model.program.Root().FindVar("y")->shape(), (Shape{2, 12}));
  EXPECT_TRUE(scope_.LocalNames().empty());
}

TEST_F(OnnxImport, OpsOnParametersAreNotFolded) {
  Input("x", {2});
  Floats("w", {1, 2});
  Node("Neg", {"w"}, {"minus"});
  Node("Add", {"x", "minus"}, {"y"});
  Output("y");
  const InferenceModel model = Import();
  EXPECT_EQ(NumOps(model, "scale"), 1u);
  EXPECT_EQ(model.program.Parameters(), Names{"w"});
}

// Rank 0 is [1] in the program, but the rank of what is computed from it is right.
TEST_F(OnnxImport, RankZeroIsTracked) {
  Input("x", {});
  Ints("axes", {0, 1});
  Node("Unsqueeze", {"x", "axes"}, {"matrix"});
  Node("Shape", {"x"}, {"none"});
  Node("Size", {"none"}, {"rank"});
  Output("matrix");
  Output("rank");
  const std::vector<Tensor> results = Run({Tensor::Of<float>({1}, {7})});
  EXPECT_EQ(results[0].shape(), (Shape{1, 1}));
  EXPECT_EQ(results[1].Item<int64_t>(), 0);
}

TEST_F(OnnxImport, WhereStretchesShapesThatAreNotKnown) {
  Input("x", {-1, 2});
  Input("c", {2}, TensorProto::BOOL);
  Floats("w", {7});
  Node("Where", {"c", "x", "w"}, {"y"});
  Output("y");
  const std::vector<Tensor> results =
      Run({Tensor::Of<float>({2, 2}, {1, 2, 3, 4}), Tensor::Of<bool>({2}, {true, false})});
  EXPECT_EQ(results[0].shape(), (Shape{2, 2}));
  EXPECT_EQ(FloatsOf(results[0]), (std::vector<float>{1, 7, 3, 7}));
}

// uint16 is held as int32, whose sums are reduced.
TEST_F(OnnxImport, UnsignedArithmeticWraps) {
  Input("x", {2}, TensorProto::UINT16);
  Node("Add", {"x", "x"}, {"y"});
  Node("Sub", {"y", "x"}, {"z"});
  Node("Sub", {"z", "y"}, {"negative"});
  Output("y");
  Output("negative");
  const std::vector<Tensor> results = Run({Tensor::Of<int32_t>({2}, {65535, 3})});
  EXPECT_EQ(results[0].data<int32_t>()[0], 65534);
  EXPECT_EQ(results[0].data<int32_t>()[1], 6);
  EXPECT_EQ(results[1].data<int32_t>()[0], 1);      // 65535 - 65534
  EXPECT_EQ(results[1].data<int32_t>()[1], 65533);  // 3 - 6
}

TEST_F(OnnxImport, FunctionsAreInlined) {
  Input("x", {2});
  auto& function = *model_.add_functions();
  function.set_name("Leaky");
  function.set_domain("mine");
  function.add_input("v");
  function.add_output("r");
  function.add_attribute("slope");
  function.add_opset_import()->set_version(17);
  AttributeProto& attr = AddAttr(AddNode(*function.mutable_node(), "LeakyRelu", {"v"}, {"r"}),
                                 "alpha", AttributeProto::FLOAT);
  attr.set_ref_attr_name("slope");
  NodeProto& call = Node("Leaky", {"x"}, {"y"});
  call.set_domain("mine");
  AddAttr(call, "slope", AttributeProto::FLOAT).set_f(0.5f);
  auto& mine = *model_.add_opset_import();
  mine.set_domain("mine");
  mine.set_version(1);
  Output("y");
  EXPECT_EQ(FloatsOf(Run({Tensor::Of<float>({2}, {-4, 4})})[0]), (std::vector<float>{-2, 4}));
}

TEST_F(OnnxImport, FunctionsThatCallThemselves) {
  Input("x", {2});
  auto& function = *model_.add_functions();
  function.set_name("F");
  function.set_domain("mine");
  function.add_input("v");
  function.add_output("r");
  auto& imported = *function.add_opset_import();
  imported.set_domain("mine");
  imported.set_version(1);
  AddNode(*function.mutable_node(), "F", {"v"}, {"r"}).set_domain("mine");
  *model_.add_opset_import() = imported;
  Node("F", {"x"}, {"y"}).set_domain("mine");
  Output("y");
  EXPECT_NE(ErrorOf(ErrorCode::kInvalidArgument)
                .find("functions or sub-graphs are in each other in a cycle"),
            std::string::npos);
}

// then: x + x; else: w.
void AddIf(GraphProto& graph, const std::string& condition) {
  NodeProto& node = AddNode(*graph.mutable_node(), "If", {condition}, {"y"});
  GraphProto& then = *AddAttr(node, "then_branch", AttributeProto::GRAPH).mutable_g();
  AddNode(*then.mutable_node(), "Add", {"x", "x"}, {"double"});
  then.add_output()->set_name("double");
  GraphProto& otherwise = *AddAttr(node, "else_branch", AttributeProto::GRAPH).mutable_g();
  AddNode(*otherwise.mutable_node(), "Identity", {"w"}, {"same"});
  otherwise.add_output()->set_name("same");
}

TEST_F(OnnxImport, IfTakesABranch) {
  Input("x", {2});
  Input("c", {}, TensorProto::BOOL);
  Floats("w", {8, 9});
  AddIf(graph(), "c");
  Output("y");
  const Tensor x = Tensor::Of<float>({2}, {1, 2});
  EXPECT_EQ(FloatsOf(Run({x, Tensor::Full<bool>({1}, true)})[0]), (std::vector<float>{2, 4}));
  EXPECT_EQ(FloatsOf(Run({x, Tensor::Full<bool>({1}, false)})[0]), (std::vector<float>{8, 9}));
}

TEST_F(OnnxImport, IfOnAConstantLeavesOneBranch) {
  Input("x", {2});
  Floats("w", {8, 9});
  Ints("zero", {0});
  Ints("one", {1});
  Node("Less", {"zero", "one"}, {"c"});
  AddIf(graph(), "c");
  Output("y");
  const InferenceModel model = Import();
  EXPECT_EQ(model.program.NumBlocks(), 1);
  EXPECT_EQ(NumOps(model, "elementwise_add"), 1u);
}

// a, b = b, a + b: the values of the next turn are written at once.
TEST_F(OnnxImport, LoopCarriesValuesThatChangePlaces) {
  Input("n", {}, TensorProto::INT64);
  Input("a", {1});
  Input("b", {1});
  NodeProto& loop = Node("Loop", {"n", "", "a", "b"}, {"last_a", "last_b", "all"});
  GraphProto& body = *AddAttr(loop, "body", AttributeProto::GRAPH).mutable_g();
  for (const char* name : {"i", "running", "p", "q"}) body.add_input()->set_name(name);
  AddNode(*body.mutable_node(), "Add", {"p", "q"}, {"sum"});
  AddNode(*body.mutable_node(), "Identity", {"q"}, {"next"});
  AddNode(*body.mutable_node(), "Identity", {"running"}, {"more"});
  for (const char* name : {"more", "next", "sum", "p"}) body.add_output()->set_name(name);
  Output("last_a");
  Output("last_b");
  Output("all");
  const std::vector<Tensor> results = Run(
      {Tensor::Full<int64_t>({1}, 5), Tensor::Of<float>({1}, {1}), Tensor::Of<float>({1}, {1})});
  EXPECT_EQ(FloatsOf(results[0]), std::vector<float>{8});
  EXPECT_EQ(FloatsOf(results[1]), std::vector<float>{13});
  EXPECT_EQ(results[2].shape(), (Shape{5, 1}));
  EXPECT_EQ(FloatsOf(results[2]), (std::vector<float>{1, 1, 2, 3, 5}));
}

// A loop without turns gives as many dims as one with some, and no element.
TEST_F(OnnxImport, LoopThatCollectsNothing) {
  Input("n", {}, TensorProto::INT64);
  Input("a", {2});
  NodeProto& loop = Node("Loop", {"n", "", "a"}, {"last", "vectors", "numbers"});
  GraphProto& body = *AddAttr(loop, "body", AttributeProto::GRAPH).mutable_g();
  for (const char* name : {"i", "running", "p"}) body.add_input()->set_name(name);
  AddNode(*body.mutable_node(), "Add", {"p", "p"}, {"next"});
  NodeProto& sum = AddNode(*body.mutable_node(), "ReduceSum", {"p"}, {"total"});
  AddAttr(sum, "keepdims", AttributeProto::INT).set_i(0);
  AddNode(*body.mutable_node(), "Identity", {"running"}, {"more"});
  for (const char* name : {"more", "next", "p", "total"}) body.add_output()->set_name(name);
  for (const char* name : {"last", "vectors", "numbers"}) Output(name);
  const Tensor a = Tensor::Of<float>({2}, {1, 2});
  const std::vector<Tensor> none = Run({Tensor::Full<int64_t>({1}, 0), a});
  EXPECT_EQ(FloatsOf(none[0]), (std::vector<float>{1, 2}));
  EXPECT_EQ(none[1].shape(), (Shape{0, 2}));
  EXPECT_EQ(none[2].shape(), Shape{0});
  const std::vector<Tensor> two = Run({Tensor::Full<int64_t>({1}, 2), a});
  EXPECT_EQ(FloatsOf(two[1]), (std::vector<float>{1, 2, 2, 4}));
  EXPECT_EQ(FloatsOf(two[2]), (std::vector<float>{3, 6}));
}

// Nor another dtype: what is done with the result needs it.
TEST_F(OnnxImport, LoopThatCollectsNothingOfAnyType) {
  Input("n", {}, TensorProto::INT64);
  Input("x", {3});
  Input("d", {}, TensorProto::DOUBLE);
  NodeProto& loop = Node("Loop", {"n", ""}, {"numbers", "flags", "doubles"});
  GraphProto& body = *AddAttr(loop, "body", AttributeProto::GRAPH).mutable_g();
  for (const char* name : {"i", "running"}) body.add_input()->set_name(name);
  AddNode(*body.mutable_node(), "Identity", {"running"}, {"more"});
  AddNode(*body.mutable_node(), "Identity", {"i"}, {"number"});
  AddNode(*body.mutable_node(), "Identity", {"running"}, {"flag"});
  AddNode(*body.mutable_node(), "Identity", {"d"}, {"double"});
  for (const char* name : {"more", "number", "flag", "double"}) body.add_output()->set_name(name);
  Node("Gather", {"x", "numbers"}, {"found"});
  Node("Add", {"numbers", "numbers"}, {"twice"});
  for (const char* name : {"numbers", "flags", "doubles", "found", "twice"}) Output(name);
  const DType dtypes[] = {DType::kInt64, DType::kBool, DType::kFloat64, DType::kFloat32,
                          DType::kInt64};
  for (const int64_t turns : {0, 2}) {
    const std::vector<Tensor> results =
        Run({Tensor::Full<int64_t>({1}, turns), Tensor::Of<float>({3}, {1, 2, 3}),
             Tensor::Full<double>({1}, 4)});
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(results[i].dtype(), dtypes[i]) << turns << " turns, output " << i;
      EXPECT_EQ(results[i].shape(), Shape{turns}) << "output " << i;
    }
  }
}

// Fetches have ONNX's names, even if sub-graphs have values of the same name.
TEST_F(OnnxImport, OutputsOfNodesWithGraphsKeepTheirNames) {
  Input("x", {2});
  Input("c", {}, TensorProto::BOOL);
  Input("n", {}, TensorProto::INT64);
  NodeProto& node = Node("If", {"c"}, {"y"});
  for (const char* branch : {"then_branch", "else_branch"}) {
    GraphProto& graph = *AddAttr(node, branch, AttributeProto::GRAPH).mutable_g();
    AddNode(*graph.mutable_node(), branch[0] == 't' ? "Relu" : "Neg", {"x"}, {"y"});
    graph.add_output()->set_name("y");
  }
  NodeProto& loop = Node("Loop", {"n", "", "x"}, {"last", "v"});
  GraphProto& body = *AddAttr(loop, "body", AttributeProto::GRAPH).mutable_g();
  for (const char* name : {"i", "running", "p"}) body.add_input()->set_name(name);
  AddNode(*body.mutable_node(), "Neg", {"p"}, {"v"});
  AddNode(*body.mutable_node(), "Identity", {"running"}, {"more"});
  for (const char* name : {"more", "v", "v"}) body.add_output()->set_name(name);
  for (const char* name : {"y", "last", "v"}) Output(name);
  EXPECT_EQ(Import().fetch_names, (Names{"y", "last", "v"}));
  const std::vector<Tensor> results =
      Run({Tensor::Of<float>({2}, {-1, 2}), Tensor::Full<bool>({1}, false),
           Tensor::Full<int64_t>({1}, 2)});
  EXPECT_EQ(FloatsOf(results[0]), (std::vector<float>{1, -2}));
  EXPECT_EQ(FloatsOf(results[1]), (std::vector<float>{-1, 2}));
  EXPECT_EQ(FloatsOf(results[2]), (std::vector<float>{1, -2, -1, 2}));
}

// A body that declares the counter as [1] uses it as a vector.
TEST_F(OnnxImport, CountersOfLoopsMayBeVectors) {
  Input("x", {5, 2});
  for (const auto& [name, value] : {std::pair("n", 3), std::pair("one", 1), std::pair("zero", 0)})
    Ints(name, {value});
  NodeProto& loop = Node("Loop", {"n", ""}, {"y"});
  GraphProto& body = *AddAttr(loop, "body", AttributeProto::GRAPH).mutable_g();
  for (const char* name : {"i", "c"}) body.add_input()->set_name(name);
  auto& type = *body.mutable_input(0)->mutable_type()->mutable_tensor_type();
  type.set_elem_type(TensorProto::INT64);
  type.mutable_shape()->add_dim()->set_dim_value(1);
  AddNode(*body.mutable_node(), "Add", {"i", "one"}, {"end"});
  AddNode(*body.mutable_node(), "Slice", {"x", "i", "end", "zero"}, {"row"});
  AddNode(*body.mutable_node(), "Identity", {"c"}, {"more"});
  for (const char* name : {"more", "row"}) body.add_output()->set_name(name);
  Output("y");
  const std::vector<Tensor> results =
      Run({Tensor::Of<float>({5, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10})});
  EXPECT_EQ(FloatsOf(results[0]), (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST_F(OnnxImport, SequencesAreListsOfTheImporter) {
  Input("x", {3});
  Ints("second", {1});
  Node("SplitToSequence", {"x"}, {"parts"});
  Node("SequenceErase", {"parts", "second"}, {"fewer"});
  Node("SequenceInsert", {"fewer", "x"}, {"more"});
  AddAttr(Node("ConcatFromSequence", {"more"}, {"y"}), "axis", AttributeProto::INT).set_i(0);
  Node("SequenceLength", {"more"}, {"length"});
  Output("y");
  Output("length");
  const std::vector<Tensor> results = Run({Tensor::Of<float>({3}, {1, 2, 3})});
  EXPECT_EQ(FloatsOf(results[0]), (std::vector<float>{1, 3, 1, 2, 3}));
  EXPECT_EQ(results[1].Item<int64_t>(), 3);
}

// Axes that are fed are taken from the feeds.
TEST_F(OnnxImport, ForTheseInputs) {
  Input("x", {1, 3, 1});
  Input("axes", {1}, TensorProto::INT64);
  AddAttr(Node("ReduceSum", {"x", "axes"}, {"y"}), "keepdims", AttributeProto::INT).set_i(0);
  Output("y");
  EXPECT_EQ(ErrorOf(ErrorCode::kUnimplemented),
            "m.onnx: node 'y' (ReduceSum, opset 17): axes (input 1, 'axes') must be a constant: "
            "give the inputs' shapes with --shape if it follows from them");
  const TemporaryDirectory directory;
  WriteFileAtomic(directory.File("m.onnx"), model_.SerializeAsString());
  const Tensor x = Tensor::Of<float>({1, 3, 1}, {1, 2, 3});
  const InferenceModel model = ImportOnnxFor(
      directory.File("m.onnx"), {{"x", x}, {"axes", Tensor::Full<int64_t>({1}, 2)}}, scope_);
  EXPECT_EQ(model.feed_names, Names{"x"});
  EXPECT_EQ(Executor().Run(model.program, scope_, {{"x", x}})[0].shape(), (Shape{1, 3}));
}

TEST_F(OnnxImport, ShapesOfInputsAreGiven) {
  Input("x", {-1, 2});
  Node("Shape", {"x"}, {"y"});
  Output("y");
  OnnxImportOptions options;
  options.input_shapes["x"] = {5, 2};
  const InferenceModel model = ParseOnnx(model_.SerializeAsString(), "m.onnx", scope_, options);
  EXPECT_EQ(NumOps(model, "shape"), 0u);
  options.input_shapes["x"] = {5, 3};
  EXPECT_THROW(ParseOnnx(model_.SerializeAsString(), "m.onnx", scope_, options), Error);
  options.input_shapes = {{"z", {1}}};
  EXPECT_THROW(ParseOnnx(model_.SerializeAsString(), "m.onnx", scope_, options), Error);
}

// --- errors: the first line names the model, the node, its op type and version ---

TEST_F(OnnxImport, ErrorsNameTheNode) {
  Input("x", {2});
  Output("y");
  NodeProto& node = Node("Rleu", {"x"}, {"y"});
  node.set_name("act");
  EXPECT_EQ(ErrorOf(ErrorCode::kUnimplemented),
            "m.onnx: node 'act' (Rleu, opset 17): the op type has no counterpart; did you mean "
            "Relu?");
  node.set_op_type("Relu");
  AddAttr(node, "alpha", AttributeProto::FLOAT);
  EXPECT_EQ(ErrorOf(ErrorCode::kUnimplemented),
            "m.onnx: node 'act' (Relu, opset 17): attribute 'alpha' has no counterpart");
  node.set_op_type("LeakyRelu");
  node.mutable_attribute(0)->set_type(AttributeProto::INT);
  EXPECT_EQ(ErrorOf(ErrorCode::kInvalidArgument),
            "m.onnx: node 'act' (LeakyRelu, opset 17): attribute alpha must be FLOAT, got INT");
  node.clear_attribute();
  node.set_input(0, "z");
  EXPECT_EQ(ErrorOf(ErrorCode::kNotFound),
            "m.onnx: node 'act' (LeakyRelu, opset 17): no input, initializer or earlier node of "
            "the graph gives the value 'z'");
  node.set_input(0, "x");
  SetOpset(1000);
  EXPECT_EQ(ErrorOf(ErrorCode::kUnimplemented),
            "m.onnx: node 'act' (LeakyRelu, opset 1000): operator set 1000 is too new: the op is "
            "known up to 28");
}

TEST_F(OnnxImport, ErrorsOfTheGraph) {
  Input("x", {2}, 99);
  Node("Relu", {"x"}, {"y"});
  Output("y");
  EXPECT_EQ(ErrorOf(ErrorCode::kUnimplemented),
            "m.onnx: the input 'x' is 99, which no dtype holds");
  graph().clear_input();
  Input("x", {2});
  Output("z");
  EXPECT_NE(ErrorOf(ErrorCode::kNotFound).find("gives the value 'z'"), std::string::npos);
  graph().mutable_output()->RemoveLast();
  Node("Relu", {"x"}, {"y"});
  EXPECT_NE(ErrorOf(ErrorCode::kInvalidArgument).find("the value 'y' is defined twice"),
            std::string::npos);
}

// The same LSTM as the op rnn and, because of a clip that never acts, as a cell of single ops.
TEST_F(OnnxImport, LstmByStepsIsThatOfRnn) {
  constexpr int64_t kSteps = 4, kBatch = 3, kInputs = 2, kHidden = 5;
  Input("x", {kSteps, kBatch, kInputs});
  Input("w", {2, 4 * kHidden, kInputs});
  Input("r", {2, 4 * kHidden, kHidden});
  Input("b", {2, 8 * kHidden});
  Input("lengths", {kBatch}, TensorProto::INT32);
  std::vector<Tensor> feeds;
  for (const Shape& shape : {Shape{kSteps, kBatch, kInputs}, Shape{2, 4 * kHidden, kInputs},
                             Shape{2, 4 * kHidden, kHidden}, Shape{2, 8 * kHidden}}) {
    Tensor tensor(DType::kFloat32, shape);
    for (int64_t i = 0; i < tensor.numel(); ++i)
      tensor.data<float>()[i] = static_cast<float>((i * 37 + 11) % 101) / 101.0f - 0.5f;
    feeds.push_back(tensor);
  }
  feeds.push_back(Tensor::Of<int32_t>({kBatch}, {2, 4, 3}));
  NodeProto& node = Node("LSTM", {"x", "w", "r", "b", "lengths"}, {"y", "h", "c"});
  AddAttr(node, "hidden_size", AttributeProto::INT).set_i(kHidden);
  AddAttr(node, "direction", AttributeProto::STRING).set_s("bidirectional");
  for (const char* name : {"y", "h", "c"}) Output(name);
  EXPECT_EQ(NumOps(Import(), "rnn"), 1u);
  const std::vector<Tensor> one = Run(feeds);
  AddAttr(node, "clip", AttributeProto::FLOAT).set_f(1e6f);
  EXPECT_EQ(NumOps(Import(), "recurrent"), 2u);
  const std::vector<Tensor> other = Run(feeds);
  for (size_t i = 0; i < one.size(); ++i) {
    ASSERT_EQ(one[i].shape(), other[i].shape());
    for (int64_t k = 0; k < one[i].numel(); ++k)
      ASSERT_NEAR(one[i].data<float>()[k], other[i].data<float>()[k], 1e-5f) << i << " " << k;
  }
}

// A transposed weight is transposed once, so that product and bias can become one op.
TEST_F(OnnxImport, GemmOfATransposedParameterIsAPlainProduct) {
  Input("x", {2, 3});
  TensorProto& w = *graph().add_initializer();
  w.set_name("w");
  w.set_data_type(TensorProto::FLOAT);
  w.add_dims(2);
  w.add_dims(3);
  for (int i = 0; i < 6; ++i) w.add_float_data(static_cast<float>(i));
  Floats("b", {10, 20});
  AddAttr(Node("Gemm", {"x", "w", "b"}, {"y"}), "transB", AttributeProto::INT).set_i(1);
  Output("y");
  Import().program.ForEachOp([](const OpDesc& op) {
    if (op.type() == "matmul_v2") {
      EXPECT_FALSE(op.GetAttr<bool>("trans_y", false));
    }
  });
  EXPECT_EQ(FloatsOf(Run({Tensor::Of<float>({2, 3}, {1, 1, 1, 0, 0, 1})})[0]),
            (std::vector<float>{13, 32, 12, 25}));
}
}  // namespace coracle::onnx::onnx_import_test
