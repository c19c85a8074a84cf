#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/kernels/broadcast.h>
#include <coracle/operators/rules/real_input.h>
#include <coracle/operators/rules/same_type.h>
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <type_traits>

namespace coracle::compare_op {

void InferCompare(InferContext& ctx) {
  const Shape out =
      InferBroadcast(ctx, ctx.InputShape("X"), ctx.InputShape("Y"), ctx.Attr<int32_t>("axis"));
  RequireSameDType(ctx, "C4", "X", "Y");
  RequireReal(ctx, "X");
  ctx.SetOutput("Out", DType::kBool, out);
}

struct Less {
  static constexpr const char *kType = "less_than", *kFormula = "X < Y";
  template <class T>
  static bool Apply(T x, T y) {
    return x < y;
  }
};
struct LessEqual {
  static constexpr const char *kType = "less_equal", *kFormula = "X <= Y";
  template <class T>
  static bool Apply(T x, T y) {
    return x <= y;
  }
};
struct Greater {
  static constexpr const char *kType = "greater_than", *kFormula = "X > Y";
  template <class T>
  static bool Apply(T x, T y) {
    return x > y;
  }
};
struct GreaterEqual {
  static constexpr const char *kType = "greater_equal", *kFormula = "X >= Y";
  template <class T>
  static bool Apply(T x, T y) {
    return x >= y;
  }
};
struct Equal {
  static constexpr const char *kType = "equal", *kFormula = "X == Y";
  template <class T>
  static bool Apply(T x, T y) {
    return x == y;
  }
};
struct NotEqual {
  static constexpr const char *kType = "not_equal", *kFormula = "X != Y";
  template <class T>
  static bool Apply(T x, T y) {
    return x != y;
  }
};

template <class F>
constexpr bool kTakesStrings = std::is_same_v<F, Equal> || std::is_same_v<F, NotEqual>;

template <class F>
Kernel CompareKernel(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), out = ctx.Output("Out");
  const BroadcastNest nest = MakeBroadcastNest(x.shape, y.shape, ctx.Attr<int32_t>("axis"));
  const auto kernel_for = [&]<class T>() -> Kernel {
    return [=](Workspace& ws) {
      BroadcastLoop(nest, ws.Data<const T>(x), ws.Data<const T>(y), ws.Data<bool>(out),
                    [](T a, T b) { return F::template Apply<Wide<T>>(a, b); });
    };
  };
  if (x.dtype == DType::kUInt64) return kernel_for.template operator()<uint64_t>();
  if constexpr (kTakesStrings<F>) {
    if (x.dtype == DType::kString) {
      return [=](Workspace& ws) {
        BroadcastLoop(nest, ws.Data<const StringRef>(x), ws.Data<const StringRef>(y),
                      ws.Data<bool>(out), [](StringRef a, StringRef b) {
                        return F::template Apply<std::string_view>(a.view(), b.view());
                      });
      };
    }
  }
  return DispatchDType(x.dtype, kernel_for);
}

template <class F>
void AddRow(OpRegistry& ops) {
  const bool unequal = std::string(F::kType) == "not_equal";
  const std::string doc = fmt::format("Out = {}, element by element; with a nan {}. {}",
                                      F::kFormula, unequal, kBroadcastDoc);
  OpDef def(F::kType);
  def.Doc(doc)
      .Apply(DeclareBroadcast)
      .Constraint("C4", "X and Y must have one dtype")
      .Input("X", "tensor")
      .Input("Y", "tensor of X's dtype")
      .Output("Out", "bool tensor of the broadcast shape")
      .Attr<int32_t>("axis", -1,
                     "dim of the other operand at which the operand of lower rank begins")
      .Attr<bool>("force_cpu", false, "accepted for old files, no effect")
      .NoGradientTo({"X", "Y"})
      .Elementwise()
      .Infer(InferCompare)
      .NotDifferentiable("a comparison is piecewise constant")
      .Reference(CompareKernel<F>);
  if (kTakesStrings<F>) def.Strings();
  ops.Add(std::move(def));
}

void Register(OpRegistry& ops) {
  AddRow<Less>(ops);
  AddRow<LessEqual>(ops);
  AddRow<Greater>(ops);
  AddRow<GreaterEqual>(ops);
  AddRow<Equal>(ops);
  AddRow<NotEqual>(ops);
}

}  // namespace coracle::compare_op
