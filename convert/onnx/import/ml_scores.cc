#include <coracle/convert/onnx/import/ml_scores.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <numeric>

namespace coracle::onnx {
namespace {

// The exponentials of numbers other than 0, divided by their sum; numbers next to 0 stay there.
Variable SoftmaxZero(NodeContext& node, const Variable& x) {
  const AttrList last = {{"dim", std::vector<int32_t>{x.shape().rank() - 1}}, {"keep_dim", true}};
  const Variable top = node.Unary("reduce_max", x, last), zeros = ZerosLike(x);
  const Variable counts = Greater(Abs(x), 1e-7);
  const Variable powers = Where(counts, Exp(x - top), zeros);
  const Variable sum = node.Unary("reduce_sum", powers, last);
  const Variable parts = Where(counts, powers, x * Exp(-top));
  return parts / (sum + node.Cast(Equal(sum, ZerosLike(sum)), x.dtype()));
}

// The normal distribution's quantile, sqrt(2) erfinv(2 x - 1), with Winitzki's approximation of
// erfinv in the rounded constants of ONNX's reference implementation.
Variable Probit(const Variable& x) {
  const Variable y = 2.0 * x - 1.0;
  const Variable log = Log((1.0 - y) * (1.0 + y));
  const Variable v = 0.5 * log + 2.0 / (3.14159 * 0.147);
  const Variable squared = Sqrt(Square(v) - log * (1.0 / 0.147)) - v;
  return Sign(y) * Sqrt(squared) * 1.41421356;
}

}  // namespace

PostTransform PostTransformAttr(NodeContext& node) {
  static const std::vector<std::string> names = {"NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO",
                                                 "PROBIT"};
  const std::string name = node.OneOf("post_transform", "NONE", names);
  return static_cast<PostTransform>(std::find(names.begin(), names.end(), name) - names.begin());
}

Variable Transformed(NodeContext& node, PostTransform transform, const Variable& scores) {
  switch (transform) {
    case PostTransform::kLogistic:
      return Sigmoid(scores);
    case PostTransform::kSoftmax:
      return node.Unary("softmax", scores, {{"axis", -1}});
    case PostTransform::kSoftmaxZero:
      return SoftmaxZero(node, scores);
    case PostTransform::kProbit:
      return Probit(scores);
    default:
      return scores;
  }
}

Variable TwoColumns(NodeContext& node, PostTransform transform, const Variable& first,
                    const Variable& score) {
  const bool logistic = transform == PostTransform::kLogistic;
  const Variable columns = variable_functions::Concat({logistic ? -score : first, score}, 1);
  const bool applies = logistic || transform == PostTransform::kProbit;
  return applies ? Transformed(node, transform, columns) : columns;
}

std::string LowerCase(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

Variable RowsIn(NodeContext& node, DType dtype) {
  const Variable x = node.Cast(node.In(0), dtype);
  return node.rank(0) == 1 ? node.Reshape(x, {1, -1}) : x;
}

ClassLabels LabelsAttr(NodeContext& node, const char* integers) {
  ClassLabels labels{
      .integers = node.Ints(integers, {}),
      .strings =
          node.attributes().Strings("classlabels_strings").value_or(std::vector<std::string>())};
  node.Require(
      labels.integers.empty() != labels.strings.empty(),
      fmt::format("one of the attributes {} and classlabels_strings must have labels", integers));
  return labels;
}

Tensor LabelTensor(const ClassLabels& labels) {
  return labels.strings.empty() ? Tensor::Of<int64_t>({labels.size()}, labels.integers)
                                : Tensor::OfStrings({labels.size()}, labels.strings);
}

void SetClasses(NodeContext& node, const ClassLabels& labels, const Variable& index,
                const Variable& scores) {
  std::vector<int64_t> own(labels.integers.size());
  std::iota(own.begin(), own.end(), 0);
  if (labels.strings.empty() && own == labels.integers) {
    node.Set(0, index);
  } else {
    const Variable names = node.ConstantVar(LabelTensor(labels));
    node.Set(0, node.Make("gather", {{"X", {names.name()}}, {"Index", {index.name()}}}));
  }
  node.Set(1, node.Cast(scores, DType::kFloat32));
}

Variable TopClass(NodeContext& node, const Variable& scores) {
  return node.Unary("arg_max", scores, {{"axis", int64_t{1}}});
}

Variable SecondIf(NodeContext& node, const Variable& condition) {
  return node.Reshape(node.Cast(condition, DType::kInt64), {-1});
}

}  // namespace coracle::onnx
