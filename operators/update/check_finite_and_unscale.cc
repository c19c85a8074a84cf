#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/kernels/selected_rows.h>
#include <coracle/operators/kernels/simd.h>
#include <fmt/format.h>

#include <atomic>
#include <cmath>

namespace coracle::check_finite_and_unscale_op {

void InferCheckFinite(InferContext& ctx) {
  ctx.Require("C1", ctx.NumInputs("X") == ctx.NumOutputs("Out"), ctx.NumInputs("X"),
              ctx.NumOutputs("Out"));
  for (size_t i = 0; i < ctx.NumInputs("X"); ++i) {
    const VarMeta& x = ctx.Input("X", i);
    ctx.Require("C2", IsFloating(x.dtype), x);
    ctx.SetOutput("Out", x, i);
  }
  const VarMeta& scale = ctx.Input("Scale");
  const bool one = !scale.shape.IsKnown() || scale.shape.numel() == 1;
  if (scale.dtype != DType::kFloat32 || !one) ctx.Fail("C3", scale);
  ctx.SetOutput("FoundInfinite", DType::kBool, {1});
}

// out = in * factor for the range; returns whether all results are finite.
template <class T>
bool Multiply(const T* in, T* out, int64_t n, float factor) {
  bool finite = true;
  for (int64_t i = 0; i < n; ++i) {
    out[i] = static_cast<T>(static_cast<Wide<T>>(in[i]) * static_cast<Wide<T>>(factor));
    finite &= std::isfinite(static_cast<Wide<T>>(out[i]));
  }
  return finite;
}

// Works in pieces that stay in the first-level cache between the two loops.
bool MultiplySimd(const float* in, float* out, int64_t n, float factor) {
  static const simd::UnaryLoop scale = simd::FindUnary(simd::Unary::kScale);
  constexpr int64_t kPiece = 4096;
  bool finite = true;
  for (int64_t at = 0; at < n; at += kPiece) {
    const int64_t count = std::min(kPiece, n - at);
    if (in != out || factor != 1) scale(in + at, out + at, count, {factor, 0, 0});
    finite &= simd::AllFinite(out + at, count);
  }
  return finite;
}

template <class T>
bool MultiplyAll(const T* in, T* out, int64_t n, float factor, bool fast) {
  std::atomic<bool> finite{true};
  ParallelFor(n, 65536, [&](int64_t begin, int64_t end) {
    bool all;
    if constexpr (std::is_same_v<T, float>) {
      all = fast ? MultiplySimd(in + begin, out + begin, end - begin, factor)
                 : Multiply(in + begin, out + begin, end - begin, factor);
    } else {
      all = Multiply(in + begin, out + begin, end - begin, factor);
    }
    if (!all) finite.store(false, std::memory_order_relaxed);
  });
  return finite;
}

// One X with its Out.
struct Gradient {
  TensorArg x, out;
  std::string name;

  // Finds the elements; gives Out the rows of X.
  void Find(Workspace& ws, const void** in, void** to, int64_t* n) const {
    if (!IsSparse(x)) {
      *in = ws.Data<const void>(x);
      *to = ws.Data<void>(out);
      *n = x.numel;
      return;
    }
    const auto* from = std::get_if<SelectedRows>(&ws.ValueOf(x));
    if (!from || from->value.dtype() != x.dtype) {
      ThrowInvalid(fmt::format("check_finite_and_unscale: X {} must hold selected rows of {}",
                               Quote(name), ToString(x.dtype)));
    }
    VarValue& value = ws.ValueOf(out);
    if (!std::holds_alternative<SelectedRows>(value)) value = SelectedRows();
    auto& rows = std::get<SelectedRows>(value);
    if (&rows != from) {
      rows.rows.assign(from->rows.begin(), from->rows.end());
      rows.height = from->height;
      rows.value.Resize(x.dtype, from->value.shape());
    }
    *in = from->value.raw();
    *to = rows.value.raw();
    *n = from->value.numel();
  }

  // Returns whether Out is finite.
  bool Run(Workspace& ws, float factor, bool fast) const {
    const void* in;
    void* to;
    int64_t n;
    Find(ws, &in, &to, &n);
    switch (x.dtype) {
      case DType::kFloat16:
        return Typed<float16>(in, to, n, factor, fast);
      case DType::kBFloat16:
        return Typed<bfloat16>(in, to, n, factor, fast);
      case DType::kFloat64:
        return Typed<double>(in, to, n, factor, fast);
      default:
        return Typed<float>(in, to, n, factor, fast);
    }
  }

 private:
  template <class T>
  static bool Typed(const void* in, void* to, int64_t n, float factor, bool fast) {
    return MultiplyAll(static_cast<const T*>(in), static_cast<T*>(to), n, factor, fast);
  }
};

Kernel CheckFinite(const PrepareContext& ctx, bool fast) {
  std::vector<Gradient> gradients;
  const auto& names = ctx.op().Input("X");
  for (size_t i = 0; i < names.size(); ++i)
    gradients.push_back({ctx.Input("X", i), ctx.Output("Out", i), names[i]});
  const TensorArg scale = ctx.Input("Scale"), found = ctx.Output("FoundInfinite");
  return [=](Workspace& ws) {
    const float inverse = static_cast<float>(1.0 / double{*ws.Data<const float>(scale)});
    bool overflow = false;
    for (const Gradient& gradient : gradients)
      overflow |= !gradient.Run(ws, overflow ? 0.0f : inverse, fast);
    *ws.Data<bool>(found) = overflow;
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("check_finite_and_unscale")
              .Doc("Out = X (1 / Scale) for every X, and FoundInfinite = whether some Out is "
                   "infinite or a nan (because an X is, or because Scale is too small). After the "
                   "first such X, the remaining ones are multiplied by 0.")
              .Constraint("C1", "there must be one Out for each X")
              .Constraint("C2", "X must be floating-point")
              .Constraint("C3", "Scale must be one float32")
              .VariadicInput("X", "gradients: tensors or selected rows, of one dtype or several")
              .Input("Scale", "float32 tensor [1], the factor of the loss")
              .VariadicOutput("Out", "same kind of value as X, with its shape and dtype; may be X")
              .Output("FoundInfinite", "bool tensor [1]")
              .Takes(VarType::kSelectedRows, {"X"})
              .Inplace("X", "Out")
              .Rows(RowRule::kMixes)
              .Infer(InferCheckFinite)
              .NoGradient("it is applied to gradients, after differentiation")
              .Reference([](const PrepareContext& c) { return CheckFinite(c, false); })
              .Fast([](const PrepareContext& c) { return CheckFinite(c, true); }));
}

}  // namespace coracle::check_finite_and_unscale_op
