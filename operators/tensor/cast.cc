#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/kernels/selected_rows.h>
#include <coracle/operators/kernels/string_numbers.h>

#include <cstddef>

namespace coracle::cast_op {

void InferCast(InferContext& ctx) {
  const DType dtype = static_cast<DType>(ctx.Attr<int32_t>("out_dtype"));
  ctx.Require("C1", IsValid(dtype), ctx.Attr<int32_t>("out_dtype"));
  VarMeta meta = ctx.Input("X");
  meta.dtype = dtype;
  ctx.SetOutput("Out", meta);
}

// Converts like Tensor::Cast: to bool by != 0, float to integer by truncation and saturation,
// complex to real by the real part.
template <class From, class To>
To Convert(From value) {
  if constexpr (std::is_same_v<From, To>)
    return value;
  else if constexpr (kIsComplex<From> && kIsComplex<To>)
    return To(static_cast<RealType<To>>(value.real()), static_cast<RealType<To>>(value.imag()));
  else if constexpr (kIsComplex<To>)
    return To(Convert<From, RealType<To>>(value));
  else if constexpr (kIsComplex<From> && std::is_same_v<To, bool>)
    return value != From(0);
  else if constexpr (kIsComplex<From>)
    return Convert<RealType<From>, To>(value.real());
  else if constexpr (std::is_same_v<To, bool>)
    return static_cast<Wide<From>>(value) != 0;
  else if constexpr (sizeof(To) == 2 && !std::is_integral_v<To>)
    return ToHalf<To>(value);
  else if constexpr (std::is_integral_v<To> && !std::is_integral_v<From>)
    return SaturateTo<To>(static_cast<double>(static_cast<Wide<From>>(value)));
  else
    return static_cast<To>(static_cast<Wide<To>>(static_cast<Wide<From>>(value)));
}

using ConvertFn = void (*)(const void* in, void* out, int64_t n);
template <class From, class To>
void ConvertRange(const void* in, void* out, int64_t n) {
  const auto* from = static_cast<const From*>(in);
  auto* to = static_cast<To*>(out);
  constexpr bool widens =
      std::is_same_v<To, float> && sizeof(From) == 2 && !std::is_integral_v<From>;
  constexpr bool narrows =
      std::is_same_v<From, float> && sizeof(To) == 2 && !std::is_integral_v<To>;
  if constexpr (widens || narrows) return ConvertArray(from, to, n);
  for (int64_t i = 0; i < n; ++i) to[i] = Convert<From, To>(from[i]);
}
ConvertFn FindConvert(DType from, DType to) {
  return DispatchAnyDType(from, [&]<class From>() {
    return DispatchAnyDType(to, [&]<class To>() -> ConvertFn { return ConvertRange<From, To>; });
  });
}

// A cast between two dtypes.
struct Caster {
  Caster(DType from, DType to)
      : convert(FindConvert(from, to)),
        from_size(static_cast<int64_t>(SizeOf(from))),
        to_size(static_cast<int64_t>(SizeOf(to))) {}
  void operator()(const void* in, void* out, int64_t n) const {
    ParallelFor(n, 32768, [&](int64_t begin, int64_t end) {
      convert(static_cast<const std::byte*>(in) + begin * from_size,
              static_cast<std::byte*>(out) + begin * to_size, end - begin);
    });
  }
  ConvertFn convert;
  int64_t from_size, to_size;
};

// Strings are made one by one, since the arena belongs to the thread of the run.
Kernel CastStrings(const TensorArg& x, const TensorArg& out) {
  return [x, out](Workspace& ws) {
    const void* from = ws.Data<const void>(x);
    void* to = ws.Data<void>(out);
    if (x.dtype == out.dtype)
      CopyBytes(from, to, x.nbytes());
    else if (out.dtype == DType::kString)
      NumbersToStrings(x.dtype, from, x.numel, static_cast<StringRef*>(to));
    else
      StringsToNumbers(static_cast<const StringRef*>(from), x.numel, out.dtype, to);
  };
}

Kernel CastReference(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (IsSparse(x)) {  // casts its stored elements
    const RowsInput rows(ctx, "X");
    const RowsOutput to(ctx, "Out");
    return [rows, to, cast = Caster(x.dtype, to.dtype())](Workspace& ws) {
      const RowsView in = rows(ws);
      cast(in.value->raw(), to.MakeSame(ws, in).value.raw(), in.value->numel());
    };
  }
  if (x.dtype == DType::kString || out.dtype == DType::kString) return CastStrings(x, out);
  return [x, out, cast = Caster(x.dtype, out.dtype)](Workspace& ws) {
    cast(ws.Data<const void>(x), ws.Data<void>(out), x.numel);
  };
}

// Back to X's dtype.
void CastGradient(GradientContext& g) {
  g.Append("cast", {{"X", {g.OutputGrad("Out")}}}, {{"Out", {g.InputGrad("X")}}},
           {{"in_dtype", g.Attr<int32_t>("out_dtype")},
            {"out_dtype", static_cast<int32_t>(g.MetaOf(g.Input("X")).dtype)}});
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("cast")
              .Doc("Out = X in another element type. To bool: X != 0. Float to integer: truncated "
                   "and saturated, a nan gives 0. Complex to real: the real part; real to complex: "
                   "the imaginary part is 0. To uint64, negative integers wrap. A number becomes "
                   "the shortest text that gives it again, in the form of Python's str (1.5, "
                   "1e-07, inf, nan; bool: 0, 1); a text becomes the number that it spells (also "
                   "inf, infinity and nan, in any case, with a sign), and one that spells none is "
                   "an error.")
              .Constraint("C1", "out_dtype must be the number of an element type (VarType.Type)")
              .Input("X", "tensor or selected rows")
              .Output("Out", "same kind of value as X, with its shape")
              .Takes(VarType::kSelectedRows, {"X"})
              .Attr<int32_t>("in_dtype", -1, "X's type; X itself decides")
              .Attr<int32_t>("out_dtype", "Out's type: 0 bool, 2 int32, 3 int64, 5 float32, ...")
              .Elementwise()
              .Rows(RowRule::kMoves)
              .Infer(InferCast)
              .Gradient(CastGradient)
              .Strings()
              .Reference(CastReference));
}

}  // namespace coracle::cast_op
