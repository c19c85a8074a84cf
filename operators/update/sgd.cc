#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/kernels/selected_rows.h>
#include <coracle/operators/kernels/sweep.h>
#include <coracle/operators/update/update.h>

namespace coracle::sgd_op {

// Row by row in stored order, so duplicates need not be merged.
template <class T>
Kernel SgdOfRows(const PrepareContext& ctx, decltype(&SgdRowsUpdate<T>) update) {
  const TensorArg param = ctx.Input("Param"), param_out = ctx.Output("ParamOut");
  const RowsInput grad(ctx, "Grad", 0, param.shape);
  const ScalarInput lr(ctx.Input("LearningRate"));
  return [=](Workspace& ws) {
    const RowsView rows = grad(ws);
    T* out = ws.Data<T>(param_out);
    CopyBytes(ws.Data<const T>(param), out, param.nbytes());
    const double rate = lr(ws);
    ForEachRowShare(rows.count() * rows.width,
                    [&](const RowShare& share) { update(rows, rows.data<T>(), rate, share, out); });
  };
}

template <class T>
Kernel Sgd(const PrepareContext& ctx, decltype(&SgdUpdate<T>) update,
           decltype(&SgdRowsUpdate<T>) update_rows) {
  if (IsSparse(ctx.Input("Grad"))) return SgdOfRows<T>(ctx, update_rows);
  const ScalarInput lr(ctx.Input("LearningRate"));
  return SweepItems(ctx, kUpdateGrain, [=](const PrepareContext& item) -> TensorWork {
    const TensorArg param = item.Input("Param"), grad = item.Input("Grad");
    const TensorArg param_out = item.Output("ParamOut");
    return {param.numel,
            [=](Workspace& ws, int64_t begin, int64_t end) {
              update(ws.Data<const T>(param) + begin, ws.Data<const T>(grad) + begin, lr(ws),
                     ws.Data<T>(param_out) + begin, end - begin);
            },
            nullptr};
  });
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("sgd")
              .Doc("ParamOut = Param - LearningRate Grad. If Grad is selected rows, each stored "
                   "row is subtracted, in order.")
              .Constraint("C1", "Grad must have Param's shape and dtype")
              .Constraint("C2", "LearningRate must hold one element")
              .Input("Param", "the parameter")
              .Input("LearningRate", "tensor [1], float32 or float64")
              .Input("Grad", "the parameter's gradient, a tensor or selected rows")
              .Output("ParamOut", "the updated parameter, usually Param itself")
              .Takes(VarType::kSelectedRows, {"Grad"})
              .MultiTensor({"LearningRate"})
              .Inplace("Param", "ParamOut")
              .Rows(RowRule::kEach)
              .Infer([](InferContext& ctx) { InferUpdate(ctx, {}, {"LearningRate"}); })
              .NoGradient("an update of a parameter is not part of the loss")
              .Reference<float, double>([]<class T>(const PrepareContext& c) {
                return Sgd<T>(c, SgdUpdate<T>, SgdRowsUpdate<T>);
              })
              .Fast([](const PrepareContext& c) {
                return c.Input("Param").dtype == DType::kFloat32
                           ? Sgd<float>(c, SgdUpdateSimd, SgdRowsUpdateSimd)
                           : Kernel();
              }));
}

}  // namespace coracle::sgd_op
