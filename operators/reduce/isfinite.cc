#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/kernels/selected_rows.h>
#include <coracle/operators/kernels/simd.h>
#include <coracle/operators/rules/real_input.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace coracle::isfinite_op {

// The family, one struct for each pair of rows: the test of one element, and whether the op on a
// whole tensor requires it for all elements (else for any). Integers count as finite.
struct IsFinite {
  static constexpr const char *kType = "isfinite", *kElement = "is neither infinite nor a nan",
                              *kWhole = "whether all elements of X are finite";
  static constexpr bool kAll = true;
  template <class T>
  static bool Holds(T value) {
    return std::isfinite(value);
  }
};
struct IsInf {
  static constexpr const char *kType = "isinf", *kElement = "is infinite",
                              *kWhole = "whether an element of X is infinite";
  static constexpr bool kAll = false;
  template <class T>
  static bool Holds(T value) {
    return std::isinf(value);
  }
};
struct IsNan {
  static constexpr const char *kType = "isnan", *kElement = "is a nan",
                              *kWhole = "whether an element of X is a nan";
  static constexpr bool kAll = false;
  template <class T>
  static bool Holds(T value) {
    return std::isnan(value);
  }
};

template <class F, class T>
bool HoldsFor(T value) {
  if constexpr (std::is_integral_v<T>)
    return F::kAll;
  else
    return F::Holds(static_cast<Wide<T>>(value));
}

template <class F, class T>
bool HoldsForWhole(std::span<const T> values) {
  const auto exception = [](T value) { return HoldsFor<F>(value) != F::kAll; };
  return std::any_of(values.begin(), values.end(), exception) != F::kAll;
}

// Tests the stored elements.
template <class F>
Kernel WholeRows(const PrepareContext& ctx) {
  const RowsInput x(ctx, "X");
  const TensorArg out = ctx.Output("Out");
  return DispatchDType(ctx.Input("X").dtype, [&]<class T>() -> Kernel {
    return [=](Workspace& ws) {
      const Tensor& value = *x(ws).value;
      ws.Data<bool>(out)[0] = HoldsForWhole<F, T>(value.template span<T>());
    };
  });
}

template <class F>
Kernel WholeReference(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (IsSparse(x)) return WholeRows<F>(ctx);
  return DispatchDType(x.dtype, [&]<class T>() -> Kernel {
    return [=](Workspace& ws) { ws.Data<bool>(out)[0] = HoldsForWhole<F, T>(ws.Span<const T>(x)); };
  });
}

Kernel IsFiniteFast(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (x.dtype != DType::kFloat32 || IsSparse(x)) return {};
  return [=](Workspace& ws) {
    ws.Data<bool>(out)[0] = simd::AllFinite(ws.Data<const float>(x), x.numel);
  };
}

template <class F>
Kernel ElementReference(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  return DispatchDType(x.dtype, [&]<class T>() -> Kernel {
    return [=](Workspace& ws) {
      const T* in = ws.Data<const T>(x);
      bool* o = ws.Data<bool>(out);
      ParallelFor(x.numel, 32768, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) o[i] = HoldsFor<F>(in[i]);
      });
    };
  });
}

template <class F>
OpDef WholeDef() {
  OpDef def(F::kType);
  def.Doc(fmt::format("Out = {} ({} when X is empty).", F::kWhole, F::kAll))
      .Input("X", "tensor or selected rows")
      .Output("Out", "bool tensor [1]")
      .Takes(VarType::kSelectedRows, {"X"})
      .NoGradientTo({"X"})
      .Rows(RowRule::kMixes)
      .Infer([](InferContext& ctx) {
        RequireReal(ctx, "X");
        ctx.SetOutput("Out", DType::kBool, {1});
      })
      .NotDifferentiable("a test is piecewise constant")
      .Reference(WholeReference<F>);
  return def;
}

template <class F>
OpDef ElementDef() {
  OpDef def(fmt::format("{}_v2", F::kType));
  def.Doc(fmt::format("Out = whether X {}, element by element.", F::kElement))
      .Input("X", "tensor")
      .Output("Out", "bool tensor of X's shape")
      .NoGradientTo({"X"})
      .Rows(RowRule::kEach)
      .Infer([](InferContext& ctx) {
        RequireReal(ctx, "X");
        ctx.SetOutput("Out", DType::kBool, ctx.InputShape("X"));
      })
      .NotDifferentiable("a test is piecewise constant")
      .Reference(ElementReference<F>);
  return def;
}

void Register(OpRegistry& ops) {
  ops.Add(WholeDef<IsFinite>().Fast(IsFiniteFast));
  ops.Add(WholeDef<IsInf>());
  ops.Add(WholeDef<IsNan>());
  ops.Add(ElementDef<IsFinite>());
  ops.Add(ElementDef<IsInf>());
  ops.Add(ElementDef<IsNan>());
}

}  // namespace coracle::isfinite_op
