#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/broadcast.h>
#include <coracle/operators/rules/same_type.h>
#include <fmt/format.h>

#include <string>

namespace coracle::bitwise_op {

void InferBitwise(InferContext& ctx) {
  VarMeta out = ctx.Input(ctx.InputShape("X").rank() >= ctx.InputShape("Y").rank() ? "X" : "Y");
  out.shape = InferBroadcast(ctx, ctx.InputShape("X"), ctx.InputShape("Y"), -1);
  RequireSameDType(ctx, "C4", "X", "Y");
  ctx.SetOutput("Out", out);
}

// The family, one struct for each row.
struct And {
  static constexpr const char *kType = "bitwise_and", *kFormula = "X and Y";
  static int64_t Apply(int64_t x, int64_t y) { return x & y; }
};
struct Or {
  static constexpr const char *kType = "bitwise_or", *kFormula = "X or Y";
  static int64_t Apply(int64_t x, int64_t y) { return x | y; }
};
struct Xor {
  static constexpr const char *kType = "bitwise_xor", *kFormula = "X or Y, but not both";
  static int64_t Apply(int64_t x, int64_t y) { return x ^ y; }
};

template <class F, class T>
Kernel BitwiseKernel(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), out = ctx.Output("Out");
  const BroadcastNest nest = MakeBroadcastNest(x.shape, y.shape, -1);
  return [=](Workspace& ws) {
    BroadcastLoop(nest, ws.Data<const T>(x), ws.Data<const T>(y), ws.Data<T>(out),
                  [](T a, T b) { return static_cast<T>(F::Apply(a, b)); });
  };
}

template <class T>
KernelOf<T> NotKernel(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    T* o = ws.Data<T>(out);
    ParallelFor(x.numel, 32768, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if constexpr (std::is_same_v<T, bool>)
          o[i] = !in[i];
        else
          o[i] = static_cast<T>(~in[i]);
      }
    });
  };
}

template <class F>
void AddRow(OpRegistry& ops) {
  OpDef def(F::kType);
  def.Doc(fmt::format("Out = {}, bit by bit of every element. The operand of lower rank aligns "
                      "with the last dims of the other one, and dims of 1 are broadcast.",
                      F::kFormula))
      .Constraint("C3", "aligned dims must be equal, or one of them 1")
      .Constraint("C4", "X and Y must have one dtype")
      .Input("X", "tensor of integers or bool")
      .Input("Y", "tensor of X's dtype")
      .Output("Out", "tensor of the broadcast shape and of X's dtype")
      .NoGradientTo({"X", "Y"})
      .Inplace("X", "Out")
      .Elementwise()
      .Infer(InferBitwise)
      .NotDifferentiable("the elements are integers");
  def.Reference<bool, uint8_t, int8_t, int16_t, int32_t, int64_t>(
      []<class T>(const PrepareContext& c) { return BitwiseKernel<F, T>(c); });
  ops.Add(std::move(def));
}

void Register(OpRegistry& ops) {
  AddRow<And>(ops);
  AddRow<Or>(ops);
  AddRow<Xor>(ops);
  ops.Add(OpDef("bitwise_not")
              .Doc("Out = not X, bit by bit of every element; for bool the other value.")
              .Input("X", "tensor of integers or bool")
              .Output("Out", "tensor of X's shape and dtype")
              .NoGradientTo({"X"})
              .Inplace("X", "Out")
              .Elementwise()
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", ctx.Input("X")); })
              .NotDifferentiable("the elements are integers")
              .Reference(NotKernel<bool>, NotKernel<uint8_t>, NotKernel<int8_t>, NotKernel<int16_t>,
                         NotKernel<int32_t>, NotKernel<int64_t>));
}

}  // namespace coracle::bitwise_op
