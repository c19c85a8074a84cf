#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/real_input.h>

#include <limits>

namespace coracle::accuracy_op {

void InferAccuracy(InferContext& ctx) {
  const Shape &indices = ctx.InputShape("Indices"), &label = ctx.InputShape("Label");
  ctx.Require("C1", indices.rank() == 2, indices.rank());
  ctx.Require("C2",
              label.rank() >= 1 && InferContext::Matches(label[0], indices[0]) &&
                  InferContext::Matches(NumelOf(label), label[0]),
              "Label", label, "Indices", indices);
  ctx.Require("C3", IsIndexType(ctx.InputDType("Indices")) && IsIndexType(ctx.InputDType("Label")),
              "Indices", ctx.InputDType("Indices"), "Label", ctx.InputDType("Label"));
  RequireReal(ctx, "Out");
  ctx.SetOutput("Accuracy", DType::kFloat32, {1});
  ctx.SetOutput("Correct", DType::kInt32, {1});
  ctx.SetOutput("Total", DType::kInt32, {1});
}

bool IsNan(const void* values, DType dtype, int64_t i) {
  bool nan = false;
  DispatchDType(dtype, [&]<class T>() {
    const auto value = static_cast<Wide<T>>(static_cast<const T*>(values)[i]);
    nan = value != value;
  });
  return nan;
}

Kernel Accuracy(const PrepareContext& ctx) {
  const TensorArg scores = ctx.Input("Out");
  const TensorArg indices = ctx.Input("Indices"), label = ctx.Input("Label");
  const TensorArg accuracy = ctx.Output("Accuracy"), correct = ctx.Output("Correct");
  const TensorArg total = ctx.Output("Total");
  const int64_t rows = indices.shape[0], k = indices.shape[1];
  if (rows > std::numeric_limits<int32_t>::max())
    ctx.Unsupported("the number of rows does not fit into int32");
  const bool scored = scores.numel == indices.numel && IsFloating(scores.dtype);
  return [=](Workspace& ws) {
    const IndexReader found(ws, indices), wanted(ws, label);
    const void* values = ws.Data<const void>(scores);
    int32_t right = 0;
    for (int64_t i = 0; i < rows; ++i) {
      bool hit = false;
      for (int64_t j = i * k; j < (i + 1) * k; ++j)
        hit = hit || (found[j] == wanted[i] && !(scored && IsNan(values, scores.dtype, j)));
      right += hit;
    }
    ws.Data<float>(accuracy)[0] =
        rows == 0 ? 0.f : static_cast<float>(right) / static_cast<float>(rows);
    if (correct) ws.Data<int32_t>(correct)[0] = right;
    if (total) ws.Data<int32_t>(total)[0] = static_cast<int32_t>(rows);
  };
}

RowEffect AccuracyRows(const RowQuery& query) {
  return {query.output == "Accuracy" ? RowRule::kMean : RowRule::kSum, "Label"};
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("accuracy")
              .Doc("Accuracy = Correct / Total: the share of rows whose label is among the found "
                   "indices (0 without rows). A class found with the score nan is never correct.")
              .Constraint("C1", "Indices must be a matrix")
              .Constraint("C2", "Label must have one label for each row of Indices")
              .Constraint("C3", "Indices and Label must be int32 or int64")
              .Input("Out", "the scores that top_k found")
              .Input("Indices", "classes that top_k found [N, k]")
              .Input("Label", "true classes [N, 1]")
              .Output("Accuracy", "float32 tensor [1]")
              .OptionalOutput("Correct", "int32 tensor [1]: number of correct rows")
              .OptionalOutput("Total", "int32 tensor [1]: number of all rows")
              .NotDifferentiable("a count of hits has no derivative")
              .Rows(AccuracyRows, "a mean over Label (Accuracy), sums over the rows (others)")
              .Infer(InferAccuracy)
              .Reference(Accuracy));
}

}  // namespace coracle::accuracy_op
