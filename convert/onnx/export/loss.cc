// Losses that occur in inference programs, and other formulas on whole tensors.
#include <coracle/convert/onnx/export/rows.h>

namespace coracle::onnx {
namespace {

// -log(softmax) at the label's class, 0 for ignored labels. Labels have size 1 along the axis.
void ExportSoftmaxWithCrossEntropy(OpContext& op) {
  const int64_t axis = op.Axis(op.Attr<int32_t>("axis"), op.Rank("Logits"));
  const DType dtype = op.InType("Logits");
  op.Require(op.Attr<bool>("use_softmax"), "use_softmax = false has no counterpart");
  const Value logits = op.In("Logits");
  op.Out("Softmax", op.Node("Softmax", {logits}, {{"axis", axis}}));
  if (!op.Wants("Loss")) return;
  const Value log = op.Node("LogSoftmax", {logits}, {{"axis", axis}});
  const Value label = op.In("Label");
  if (op.Attr<bool>("soft_label")) {
    const Value sum = op.Reduce("ReduceSum", op.Node("Mul", {label, log}), {axis}, true);
    return op.Out("Loss", op.Node("Neg", {sum}));
  }
  const DType type = op.InType("Label");
  const Value ignored =
      op.Node("Equal", {label, op.Scalar(op.Attr<int32_t>("ignore_index"), type)});
  const Value safe = op.Node("Where", {ignored, op.Scalar(0, type), label});
  const Value found = op.Node("GatherElements", {log, safe}, {{"axis", axis}});
  op.Out("Loss", op.Node("Where", {ignored, op.Scalar(0, dtype), op.Node("Neg", {found})}));
}

// The sum is ONNX's; the mean is not: if all labels are ignored, ONNX divides by 0, but the op
// does not.
void ExportNllLoss(OpContext& op) {
  const DType dtype = op.InType("X"), type = op.InType("Label");
  const int64_t ignore_index = op.Attr<int64_t>("ignore_index");
  const std::string reduction = op.Attr<std::string>("reduction");
  const Value label = op.In("Label");
  Values inputs = {op.In("X"), label};
  if (op.Has("Weight")) inputs.push_back(op.In("Weight"));
  const Value loss = op.Node(
      "NegativeLogLikelihoodLoss", inputs,
      {{"ignore_index", ignore_index}, {"reduction", reduction == "none" ? "none" : "sum"}});
  if (reduction == "none") {
    op.Out("Total_weight", op.Constant(Tensor::Zeros(dtype, {1})));
    return op.Out("Out", loss);
  }
  const Value ignored =
      op.Node("Equal", {label, op.Scalar(static_cast<double>(ignore_index), type)});
  const Value zero = op.Scalar(0, dtype), one = op.Scalar(1, dtype);
  const Value safe = op.Node("Where", {ignored, op.Scalar(0, type), label});
  const Value weight = op.Has("Weight") ? op.Node("Gather", {inputs[2], safe}) : one;
  const Value counted = op.Node("Where", {ignored, zero, weight});
  const Value total = op.Reduce("ReduceSum", counted, {}, false);
  op.Out("Total_weight", op.Reshape(total, {1}));
  if (reduction == "sum") return op.Out("Out", op.Reshape(loss, {1}));
  const Value divisor = op.Node("Where", {op.Node("Equal", {total, zero}), one, total});
  op.Out("Out", op.Reshape(op.Node("Div", {loss, divisor}), {1}));
}

void ExportSquareErrorCost(OpContext& op) {
  const Value error = op.Node("Sub", {op.In("X"), op.In("Y")});
  op.Out("Out", op.Node("Mul", {error, error}));
}

// (1 - epsilon) X + epsilon PriorDist, which is 1 / K if absent.
void ExportLabelSmooth(OpContext& op) {
  const DType dtype = op.InType("X");
  const float epsilon = op.Attr<float>("epsilon");
  const int64_t classes = op.InShape("X")[op.Rank("X") - 1];
  op.Require(classes > 0 || op.Has("PriorDist"), "the number of classes must be known");
  const Value kept = op.Node("Mul", {op.In("X"), op.Scalar(1.0f - epsilon, dtype)});
  const Value prior =
      op.Has("PriorDist")
          ? op.Node("Mul", {op.Reshape(op.In("PriorDist"), {-1}), op.Scalar(epsilon, dtype)})
          : op.Scalar(epsilon / static_cast<double>(classes), dtype);
  op.Out("Out", op.Node("Add", {kept, prior}));
}

// Max(X, 0) - X Label + log(1 + exp(-|X|)).
void ExportSigmoidCrossEntropy(OpContext& op) {
  op.Require(!op.Attr<bool>("normalize"), "normalize has no counterpart");
  const DType dtype = op.InType("X");
  const Value x = op.In("X"), label = op.In("Label");
  const Value loss = op.Node("Sub", {op.Node("Softplus", {x}), op.Node("Mul", {x, label})});
  const Value ignored =
      op.Node("Equal", {label, op.Scalar(op.Attr<int32_t>("ignore_index"), dtype)});
  op.Out("Out", op.Node("Where", {ignored, op.Scalar(0, dtype), loss}));
}

constexpr ExportRow kRows[] = {
    {"label_smooth", ExportLabelSmooth, "Mul, Add"},
    {"nll_loss", ExportNllLoss, "NegativeLogLikelihoodLoss; Gather, ReduceSum, Div for a mean"},
    {"sigmoid_cross_entropy_with_logits", ExportSigmoidCrossEntropy, "Softplus, Mul, Sub"},
    {"softmax_with_cross_entropy", ExportSoftmaxWithCrossEntropy,
     "Softmax, LogSoftmax, GatherElements"},
    {"square_error_cost", ExportSquareErrorCost, "Sub, Mul"},
};

}  // namespace

ExportRows LossRows() { return kRows; }

}  // namespace coracle::onnx
