// ai.onnx.ml: linear models and support vector machines.

#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/ml_scores.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <numeric>

namespace coracle::onnx {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<int64_t>;

// x [N, F] times the coefficients [outputs, F], plus one number or one for each output.
Variable LinearScores(NodeContext& node, const Variable& x, const Floats& coefficients,
                      int64_t outputs, const Floats& added) {
  const auto count = static_cast<int64_t>(coefficients.size());
  node.Require(outputs >= 1 && count > 0 && count % outputs == 0,
               fmt::format("attribute coefficients must have a row for each of {} results, got {} "
                           "numbers",
                           outputs, count));
  const Variable w = node.ConstantVar(Tensor::Of<float>({outputs, count / outputs}, coefficients));
  const Variable y =
      node.Make("matmul_v2", {{"X", {x.name()}}, {"Y", {w.name()}}}, {{"trans_y", true}});
  return added.empty() ? y : y + node.ConstantVar(added);
}

void ImportLinearRegressor(NodeContext& node) {
  const PostTransform transform = PostTransformAttr(node);
  const int64_t targets = node.Int("targets", 1);
  const Floats intercepts = node.Floats("intercepts", {});
  node.Require(intercepts.empty() || static_cast<int64_t>(intercepts.size()) == targets,
               "attribute intercepts must have a number for each of the targets");
  const Variable y = LinearScores(node, RowsIn(node, DType::kFloat32),
                                  node.Floats("coefficients", {}), targets, intercepts);
  node.Set(0, Transformed(node, transform, y));
}

// One row of coefficients and two labels: the score is of the second class.
void ImportLinearClassifier(NodeContext& node) {
  const ClassLabels labels = LabelsAttr(node, "classlabels_ints");
  const PostTransform transform = PostTransformAttr(node);
  node.attributes().Ignore("multi_class");  // of the training
  const Floats coefficients = node.Floats("coefficients", {});
  const Floats intercepts = node.Floats("intercepts", {});
  const int64_t outputs =
      intercepts.empty() ? labels.size() : static_cast<int64_t>(intercepts.size());
  node.Require(outputs == labels.size() || (outputs == 1 && labels.size() == 2),
               fmt::format("there must be a class for each of {} intercepts, got {}", outputs,
                           labels.size()));
  const Variable scores =
      LinearScores(node, RowsIn(node, DType::kFloat32), coefficients, outputs, intercepts);
  if (outputs == labels.size())
    return SetClasses(node, labels, TopClass(node, scores), Transformed(node, transform, scores));
  SetClasses(node, labels, SecondIf(node, Greater(scores, 0.0)),
             TwoColumns(node, transform, 1.0 - scores, scores));
}

// The attrs of the op svm that SVMClassifier and SVMRegressor share, for this number of vectors.
AttrList MachineAttrs(NodeContext& node, int64_t vectors) {
  const std::string kernel =
      node.OneOf("kernel_type", "LINEAR", {"LINEAR", "POLY", "RBF", "SIGMOID"});
  Floats params = node.Floats("kernel_params", {});
  node.Require(params.empty() || params.size() == 3,
               "attribute kernel_params must have three numbers: gamma, coef0, degree");
  params.resize(3);
  return {{"kernel", LowerCase(kernel)},
          {"gamma", params[0]},
          {"coef0", params[1]},
          {"degree", params[2]},
          {"vectors", vectors},
          {"support_vectors", node.Floats("support_vectors", {})},
          {"coefficients", node.Floats("coefficients", {})},
          {"rho", node.Floats("rho", {})}};
}

// Without support vectors, the coefficients are a linear model, to which the first rho is added.
Variable WithoutVectors(NodeContext& node, const Variable& x, int64_t outputs) {
  for (const char* name : {"kernel_type", "kernel_params", "support_vectors", "prob_a", "prob_b"})
    node.attributes().Ignore(name);
  Floats rho = node.Floats("rho", {});
  node.Require(!rho.empty(), "attribute rho is missing");
  rho.resize(1);
  return LinearScores(node, x, node.Floats("coefficients", {}), outputs, rho);
}

void ImportSvmRegressor(NodeContext& node) {
  const PostTransform transform = PostTransformAttr(node);
  const bool one_class = node.Flag("one_class", false);
  const int64_t vectors = node.Int("n_supports", 0);
  const Variable x = RowsIn(node, DType::kFloat32);
  const Variable y =
      vectors == 0 ? WithoutVectors(node, x, 1) : node.Unary("svm", x, MachineAttrs(node, vectors));
  if (!one_class) return node.Set(0, Transformed(node, transform, y));
  node.Set(0, 2.0 * node.Cast(Greater(y, 0.0), DType::kFloat32) - 1.0);
}

// Decisions of pairs of classes, or probabilities of classes. A decision of one pair becomes two
// columns as in ONNX Runtime.
Variable SvmScores(NodeContext& node, PostTransform transform, const Variable& out, bool one_pair) {
  if (!one_pair) return Transformed(node, transform, out);
  const bool none = transform == PostTransform::kNone;
  return TwoColumns(node, transform, none ? -out : 1.0 - out, out);
}

void ImportSvmClassifier(NodeContext& node) {
  const ClassLabels labels = LabelsAttr(node, "classlabels_ints");
  const PostTransform transform = PostTransformAttr(node);
  const Ints counts = node.Ints("vectors_per_class", {});
  const Variable x = RowsIn(node, DType::kFloat32);
  int64_t vectors = 0;
  for (int64_t count : counts) {
    node.Require(count >= 0 && count <= INT32_MAX,
                 fmt::format("attribute vectors_per_class has {}", count));
    vectors += count;
  }
  if (vectors == 0) {
    const Variable scores = WithoutVectors(node, x, labels.size());
    return SetClasses(node, labels, TopClass(node, scores), Transformed(node, transform, scores));
  }
  node.Require(static_cast<int64_t>(counts.size()) == labels.size(),
               fmt::format("attribute vectors_per_class must have a number for each of {} classes, "
                           "got {}",
                           labels.size(), counts.size()));
  const Floats prob_a = node.Floats("prob_a", {});
  AttrList attrs = MachineAttrs(node, vectors);
  attrs.push_back({"vectors_per_class", counts});
  attrs.push_back({"prob_a", prob_a});
  attrs.push_back({"prob_b", node.Floats("prob_b", {})});
  const std::string out = node.NewName("decisions"), label = node.NewName("label");
  node.writer().Append("svm", {{"X", {x.name()}}}, {{"Out", {out}}, {"Label", {label}}}, attrs);
  const bool one_pair = labels.size() == 2 && prob_a.empty();
  SetClasses(node, labels, node.writer().Var(label),
             SvmScores(node, transform, node.writer().Var(out), one_pair));
}

}  // namespace

void AddMlModelImporters(NodeImporters& importers) {
  const auto add = [&](const char* type, void (*import)(NodeContext&), const char* maps_to) {
    importers.Add({.op_type = type,
                   .since = 1,
                   .takes = "n1-2",
                   .import = import,
                   .maps_to = maps_to,
                   .domain = "ai.onnx.ml"});
  };
  add("LinearClassifier", ImportLinearClassifier,
      "matmul_v2, elementwise_add, arg_max or greater_than, gather, softmax or sigmoid");
  add("LinearRegressor", ImportLinearRegressor, "matmul_v2, elementwise_add");
  add("SVMClassifier", ImportSvmClassifier, "svm, gather");
  add("SVMRegressor", ImportSvmRegressor, "svm");
}

}  // namespace coracle::onnx
