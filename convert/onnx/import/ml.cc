// ai.onnx.ml: preprocessing and postprocessing of classic models, and linear models.

#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

namespace coracle::onnx {
namespace {

// The input as floats; integers are accepted too.
Variable FloatsIn(NodeContext& node) {
  const Variable x = node.In(0);
  return IsFloating(x.dtype()) ? x : node.Cast(x, DType::kFloat32);
}

// An attribute with one number, or one number for each element of the last dimension of x.
Variable PerFeature(NodeContext& node, const char* name, const Variable& x) {
  const std::vector<float> values = node.Floats(name, {});
  const Shape& shape = x.shape();
  const int64_t features = shape[shape.rank() - 1], given = static_cast<int64_t>(values.size());
  node.Require(given == 1 || (given > 0 && (features < 0 || features == given)),
               fmt::format("attribute {} must have one number, or one for each of {} features, got "
                           "{}",
                           name, features, given));
  return node.Cast(node.ConstantVar(values), x.dtype());
}

void ImportScaler(NodeContext& node) {
  const Variable x = FloatsIn(node);
  const Variable offset = PerFeature(node, "offset", x), scale = PerFeature(node, "scale", x);
  node.Set(0, node.Cast((x - offset) * scale, DType::kFloat32));
}

void ImportBinarizer(NodeContext& node) {
  const Variable x = node.In(0);
  const auto threshold = static_cast<double>(node.Float("threshold", 0.0f));
  node.Set(0, node.Cast(Greater(x, threshold), x.dtype()), node.IsScalar(0));
}

// Rows divided by their norm; rows of norm 0 are unchanged.
void ImportNormalizer(NodeContext& node) {
  const std::string norm = node.OneOf("norm", "MAX", {"MAX", "L1", "L2"});
  const Variable x = node.Cast(FloatsIn(node), DType::kFloat32);
  node.Require(node.rank(0) == 1 || node.rank(0) == 2, "the input must be a row, or rows");
  const AttrList last = {{"dim", std::vector<int32_t>{node.rank(0) - 1}}, {"keep_dim", true}};
  Variable by;
  if (norm == "MAX")
    by = node.Unary("reduce_max", x, last);
  else if (norm == "L1")
    by = node.Unary("reduce_sum", Abs(x), last);
  else
    by = Sqrt(node.Unary("reduce_sum", Square(x), last));
  node.Set(0, x / (by + node.Cast(Equal(by, ZerosLike(by)), x.dtype())));
}

// Selects elements of the last axis; a vector counts as a row.
void ImportArrayFeatureExtractor(NodeContext& node) {
  Variable x = node.In(0);
  if (node.rank(0) == 1) x = node.Reshape(x, {1, -1});
  const Variable index = node.Reshape(node.Cast(node.In(1), DType::kInt64), {-1});
  node.Set(0, node.Make("gather", {{"X", {x.name()}}, {"Index", {index.name()}}},
                        {{"axis", x.shape().rank() - 1}}));
}

void ImportLinearRegressor(NodeContext& node) {
  const std::string transform =
      node.OneOf("post_transform", "NONE", {"NONE", "LOGISTIC", "SOFTMAX"});
  const int64_t targets = node.Int("targets", 1);
  Variable x = node.Cast(FloatsIn(node), DType::kFloat32);
  if (node.rank(0) == 1) x = node.Reshape(x, {1, -1});
  const std::vector<float> weights = node.Floats("coefficients", {});
  const auto count = static_cast<int64_t>(weights.size());
  node.Require(targets >= 1 && count > 0 && count % targets == 0,
               "attribute coefficients must have a row for each of the targets");
  const Variable w = node.ConstantVar(Tensor::Of<float>({targets, count / targets}, weights));
  Variable y = node.Make("matmul_v2", {{"X", {x.name()}}, {"Y", {w.name()}}}, {{"trans_y", true}});
  const std::vector<float> intercepts = node.Floats("intercepts", {});
  if (!intercepts.empty()) {
    node.Require(static_cast<int64_t>(intercepts.size()) == targets,
                 "attribute intercepts must have a number for each of the targets");
    y = y + node.ConstantVar(intercepts);
  }
  if (transform == "LOGISTIC") y = Sigmoid(y);
  if (transform == "SOFTMAX") y = node.Unary("softmax", y, {{"axis", -1}});
  node.Set(0, y);
}

}  // namespace

void AddMlImporters(NodeImporters& importers) {
  const auto add = [&](const char* type, const char* takes, void (*import)(NodeContext&),
                       const char* maps_to) {
    importers.Add({.op_type = type,
                   .since = 1,
                   .takes = takes,
                   .import = import,
                   .maps_to = maps_to,
                   .domain = "ai.onnx.ml"});
  };
  add("ArrayFeatureExtractor", "T1+ i", ImportArrayFeatureExtractor, "gather");
  add("Binarizer", "n", ImportBinarizer, "greater_than, cast");
  add("LinearRegressor", "n1-2", ImportLinearRegressor, "matmul_v2, elementwise_add");
  add("Normalizer", "n1-2", ImportNormalizer, "reduce_max or reduce_sum, elementwise_div");
  add("Scaler", "n1+", ImportScaler, "elementwise_sub, elementwise_mul");
}

}  // namespace coracle::onnx
