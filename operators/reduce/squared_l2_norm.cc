#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/kernels/selected_rows.h>
#include <coracle/operators/kernels/sum_of_squares.h>
#include <coracle/operators/kernels/sweep.h>
#include <coracle/operators/operators.h>

namespace coracle::squared_l2_norm_op {

// Of the rows that the stored ones add up to, in ascending order.
template <class T>
Kernel SquaredNormOfRows(const PrepareContext& ctx) {
  const RowsInput x(ctx, "X");
  const TensorArg out = ctx.Output("Out");
  const RowGrouper grouper(ctx);
  return [=](Workspace& ws) {
    const RowsView in = x(ws);
    const RowGroups groups = grouper(ws, in);
    double squares = 0;
    for (int64_t k = 0; k < groups.count(); ++k) {
      SumGroup(groups, k, in.data<T>(), in.width, [&](int64_t, const T* sum, int64_t n) {
        for (int64_t j = 0; j < n; ++j)
          squares += static_cast<double>(sum[j]) * static_cast<double>(sum[j]);
      });
    }
    ws.Data<T>(out)[0] = static_cast<T>(squares);
  };
}

template <class T>
KernelOf<T> SquaredNormReference(const PrepareContext& ctx) {
  if (IsSparse(ctx.Input("X"))) return SquaredNormOfRows<T>(ctx);
  const std::vector<TensorArg> x = ctx.Inputs("X"), out = ctx.Outputs("Out");
  return [=](Workspace& ws) {
    for (size_t k = 0; k < x.size(); ++k) {
      double sum = 0;
      for (T value : ws.Span<const T>(x[k]))
        sum += static_cast<double>(value) * static_cast<double>(value);
      ws.Data<T>(out[k])[0] = static_cast<T>(sum);
    }
  };
}

Kernel SquaredNormFast(const PrepareContext& ctx) {
  if (ctx.Input("X").dtype != DType::kFloat32 || IsSparse(ctx.Input("X"))) return {};
  return SweepItems(ctx, 65536, [](const PrepareContext& item) -> TensorWork {
    const TensorArg x = item.Input("X"), out = item.Output("Out");
    const SumOfSquares squares(item, x);
    return {x.numel,
            [=](Workspace& ws, int64_t begin, int64_t end) { squares.SumBlocks(ws, begin, end); },
            [=](Workspace& ws) { *ws.Data<float>(out) = static_cast<float>(squares.Total(ws)); }};
  });
}

// dX = 2 dOut X.
void SquaredNormGradient(GradientContext& g) {
  const Variable x = g.In("X"), product = x * g.Grad("Out");
  // Out is [1], and so is its product with an X of rank 0.
  g.Set("X", 2.0 * (x.shape().rank() == 0 ? Reshape(product, {}) : product));
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("squared_l2_norm")
              .ComputesIn(OpPrecision::kFloat32)
              .Doc("Out = the sum of the squares of all elements of X. Duplicates in selected "
                   "rows are added up first.")
              .Input("X", "floating-point tensor or selected rows")
              .Output("Out", "tensor [1]")
              .Takes(VarType::kSelectedRows, {"X"})
              .MultiTensor({})
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", ctx.InputDType("X"), {1}); })
              .Gradient(SquaredNormGradient)
              .Reference(SquaredNormReference<float>, SquaredNormReference<double>)
              .Fast(SquaredNormFast));
}

}  // namespace coracle::squared_l2_norm_op
