#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/gradient_context.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/kernels/selected_rows.h>

namespace coracle {
namespace {

void InferCast(InferContext& ctx) {
  const DType dtype = static_cast<DType>(ctx.Attr<int32_t>("out_dtype"));
  ctx.Require("C1", IsValid(dtype), ctx.Attr<int32_t>("out_dtype"));
  VarMeta meta = ctx.Input("X");
  meta.dtype = dtype;
  ctx.SetOutput("Out", meta);
}

// As Tensor::Cast: to bool by != 0, float to integer by truncation and saturation.
template <class From, class To>
To Convert(From value) {
  if constexpr (std::is_same_v<From, To>)
    return value;
  else if constexpr (std::is_same_v<To, bool>)
    return static_cast<Wide<From>>(value) != 0;
  else if constexpr (std::is_integral_v<To> && !std::is_integral_v<From>)
    return SaturateTo<To>(static_cast<double>(static_cast<Wide<From>>(value)));
  else
    return static_cast<To>(static_cast<Wide<To>>(static_cast<Wide<From>>(value)));
}

template <class From, class To>
void ConvertAll(const From* in, To* out, int64_t n) {
  constexpr bool widens =
      std::is_same_v<To, float> && sizeof(From) == 2 && !std::is_integral_v<From>;
  constexpr bool narrows =
      std::is_same_v<From, float> && sizeof(To) == 2 && !std::is_integral_v<To>;
  if constexpr (widens || narrows) return ConvertArray(in, out, n);
  ParallelFor(n, 32768, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = Convert<From, To>(in[i]);
  });
}

// Of the stored elements.
Kernel CastRows(const PrepareContext& ctx) {
  const RowsInput x(ctx, "X");
  const RowsOutput out(ctx, "Out");
  return DispatchDType(ctx.Input("X").dtype, [&]<class From>() {
    return DispatchDType(out.dtype(), [&]<class To>() -> Kernel {
      return [x, out](Workspace& ws) {
        const RowsView in = x(ws);
        To* to = out.MakeSame(ws, in).value.template data<To>();
        ConvertAll(in.data<From>(), to, in.value->numel());
      };
    });
  });
}

Kernel CastReference(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (IsSparse(x)) return CastRows(ctx);
  return DispatchDType(x.dtype, [&]<class From>() {
    return DispatchDType(out.dtype, [&]<class To>() -> Kernel {
      return [x, out](Workspace& ws) {
        ConvertAll(ws.Data<const From>(x), ws.Data<To>(out), x.numel);
      };
    });
  });
}

// Back to X's dtype.
void CastGradient(GradientContext& g) {
  g.Append("cast", {{"X", {g.OutputGrad("Out")}}}, {{"Out", {g.InputGrad("X")}}},
           {{"in_dtype", g.Attr<int32_t>("out_dtype")},
            {"out_dtype", static_cast<int32_t>(g.MetaOf(g.Input("X")).dtype)}});
}

}  // namespace

void RegisterCast(OpRegistry& ops) {
  ops.Add(OpDef("cast")
              .Doc("Out = X in another element type. To bool: X != 0. Float to integer: truncated "
                   "and saturated, a nan gives 0.")
              .Constraint("C1", "out_dtype must be the number of an element type (VarType.Type)")
              .Input("X", "tensor or selected rows")
              .Output("Out", "what X is, of its shape")
              .Takes(VarType::kSelectedRows, {"X"})
              .Attr<int32_t>("in_dtype", -1, "X's type; X itself decides")
              .Attr<int32_t>("out_dtype", "Out's type: 0 bool, 2 int32, 3 int64, 5 float32, ...")
              .Infer(InferCast)
              .Gradient(CastGradient)
              .Reference(CastReference));
}

}  // namespace coracle
