#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/kernels/broadcast.h>
#include <coracle/operators/rules/real_input.h>
#include <coracle/operators/rules/same_type.h>

#include <string>

namespace coracle::logical_op {

void InferLogical(InferContext& ctx) {
  RequireReal(ctx, "X");
  const Shape out = InferBroadcast(ctx, ctx.InputShape("X"), ctx.InputShape("Y"), -1);
  RequireSameDType(ctx, "C4", "X", "Y");
  ctx.SetOutput("Out", DType::kBool, out);
}

struct And {
  static constexpr const char *kType = "logical_and", *kFormula = "X and Y";
  static bool Apply(bool x, bool y) { return x && y; }
};
struct Or {
  static constexpr const char *kType = "logical_or", *kFormula = "X or Y";
  static bool Apply(bool x, bool y) { return x || y; }
};
struct Xor {
  static constexpr const char *kType = "logical_xor", *kFormula = "X or Y, but not both";
  static bool Apply(bool x, bool y) { return x != y; }
};

template <class F>
Kernel LogicalKernel(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), out = ctx.Output("Out");
  const BroadcastNest nest = MakeBroadcastNest(x.shape, y.shape, -1);
  return DispatchDType(x.dtype, [&]<class T>() -> Kernel {
    return [=](Workspace& ws) {
      BroadcastLoop(nest, ws.Data<const T>(x), ws.Data<const T>(y), ws.Data<bool>(out),
                    [](T a, T b) { return F::Apply(Wide<T>(a) != 0, Wide<T>(b) != 0); });
    };
  });
}

Kernel NotKernel(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  return DispatchDType(x.dtype, [&]<class T>() -> Kernel {
    return [=](Workspace& ws) {
      const T* in = ws.Data<const T>(x);
      bool* o = ws.Data<bool>(out);
      for (int64_t i = 0; i < x.numel; ++i) o[i] = Wide<T>(in[i]) == 0;
    };
  });
}

template <class F>
void AddRow(OpRegistry& ops) {
  std::string doc = "Out = ";
  doc += F::kFormula;
  doc +=
      ", element by element; a number counts as true if it is not 0. The operand of lower rank "
      "aligns with the last dims of the other one, and dims of 1 are broadcast.";
  ops.Add(OpDef(F::kType)
              .Doc(doc)
              .Constraint("C3", "aligned dims must be equal, or one of them 1")
              .Constraint("C4", "X and Y must have one dtype")
              .Input("X", "tensor, usually bool")
              .Input("Y", "tensor of X's dtype")
              .Output("Out", "bool tensor of the broadcast shape")
              .NoGradientTo({"X", "Y"})
              .Inplace("X", "Out")
              .Elementwise()
              .Infer(InferLogical)
              .NotDifferentiable("logic is piecewise constant")
              .Reference(LogicalKernel<F>));
}

void Register(OpRegistry& ops) {
  AddRow<And>(ops);
  AddRow<Or>(ops);
  AddRow<Xor>(ops);
  ops.Add(OpDef("logical_not")
              .Doc("Out = not X, element by element; a number counts as true if it is not 0.")
              .Input("X", "tensor, usually bool")
              .Output("Out", "bool tensor of X's shape")
              .NoGradientTo({"X"})
              .Inplace("X", "Out")
              .Elementwise()
              .Infer([](InferContext& ctx) {
                RequireReal(ctx, "X");
                ctx.SetOutput("Out", DType::kBool, ctx.InputShape("X"));
              })
              .NotDifferentiable("logic is piecewise constant")
              .Reference(NotKernel));
}

}  // namespace coracle::logical_op
