#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/kernels/selected_rows.h>
#include <coracle/operators/kernels/sweep.h>
#include <coracle/operators/update/hyper_parameter.h>
#include <coracle/operators/update/update.h>

namespace coracle::adagrad_op {

template <class T>
struct Args {
  TensorArg param, moment, param_out, moment_out;
  ScalarInput lr;
  double epsilon;
  explicit Args(const PrepareContext& ctx)
      : param(ctx.Input("Param")),
        moment(ctx.Input("Moment")),
        param_out(ctx.Output("ParamOut")),
        moment_out(ctx.Output("MomentOut")),
        lr(ctx.Input("LearningRate")),
        epsilon(HyperParameter(ctx, "epsilon")) {}
};

// Only the stored rows and their moments change.
template <class T>
Kernel AdagradOfRows(const PrepareContext& ctx, decltype(&AdagradUpdate<T>) update) {
  const Args<T> args(ctx);
  const RowsInput grad(ctx, "Grad", 0, args.param.shape);
  const RowGrouper grouper(ctx);
  return [=](Workspace& ws) {
    const RowsView rows = grad(ws);
    const RowGroups groups = grouper(ws, rows);
    T *p = ws.Data<T>(args.param_out), *m = ws.Data<T>(args.moment_out);
    const int64_t bytes = args.param.nbytes();
    CopyBytes(ws.Data<const T>(args.param), p, bytes);
    CopyBytes(ws.Data<const T>(args.moment), m, bytes);
    const AdagradStep step = {args.lr(ws), args.epsilon};
    const int64_t ahead = PrefetchDistance(rows.width * static_cast<int64_t>(sizeof(T)));
    ForEachGroup(groups, rows.data<T>(), rows.width,
                 [&](int64_t k, int64_t begin, const T* g, int64_t n) {
                   PrefetchGroup(groups, k + ahead, rows.width, p, m);
                   const int64_t at = groups.rows[static_cast<size_t>(k)] * rows.width + begin;
                   update(p + at, g, m + at, step, p + at, m + at, n);
                 });
  };
}

template <class T>
Kernel Adagrad(const PrepareContext& ctx, decltype(&AdagradUpdate<T>) update) {
  if (IsSparse(ctx.Input("Grad"))) return AdagradOfRows<T>(ctx, update);
  return SweepItems(ctx, kUpdateGrain, [=](const PrepareContext& item) -> TensorWork {
    const Args<T> args(item);
    const TensorArg grad = item.Input("Grad");
    return {args.param.numel,
            [=](Workspace& ws, int64_t begin, int64_t end) {
              update(ws.Data<const T>(args.param) + begin, ws.Data<const T>(grad) + begin,
                     ws.Data<const T>(args.moment) + begin, {args.lr(ws), args.epsilon},
                     ws.Data<T>(args.param_out) + begin, ws.Data<T>(args.moment_out) + begin,
                     end - begin);
            },
            nullptr};
  });
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("adagrad")
              .Doc("MomentOut = Moment + Grad^2; ParamOut = Param - LearningRate Grad / "
                   "(sqrt(MomentOut) + epsilon). If Grad is selected rows, duplicates are added up "
                   "first, and rows that it does not hold are unchanged.")
              .Constraint("C1", "Grad and Moment must have Param's shape and dtype")
              .Constraint("C2", "LearningRate must hold one element")
              .Input("Param", "the parameter")
              .Input("Grad", "the parameter's gradient, a tensor or selected rows")
              .Input("Moment", "the running sum of squared gradients")
              .Input("LearningRate", "tensor [1], float32 or float64")
              .Output("ParamOut", "the updated parameter, usually Param itself")
              .Output("MomentOut", "the updated moment, usually Moment itself")
              .Attr<float>("epsilon", 1e-6f, "avoids division by zero")
              .Takes(VarType::kSelectedRows, {"Grad"})
              .MultiTensor({"LearningRate"})
              .Inplace("Param", "ParamOut")
              .Inplace("Moment", "MomentOut")
              .Rows(RowRule::kEach)
              .Infer([](InferContext& ctx) {
                InferUpdate(ctx, {{"Moment", "MomentOut"}}, {"LearningRate"});
              })
              .NoGradient("an update of a parameter is not part of the loss")
              .Reference<float, double>(
                  []<class T>(const PrepareContext& c) { return Adagrad<T>(c, AdagradUpdate<T>); })
              .Fast([](const PrepareContext& c) {
                return c.Input("Param").dtype == DType::kFloat32
                           ? Adagrad<float>(c, AdagradUpdateSimd)
                           : Kernel();
              }));
}

}  // namespace coracle::adagrad_op
