#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/broadcast.h>
#include <coracle/operators/rules/same_type.h>
#include <fmt/format.h>

#include <string>
#include <type_traits>
#include <utility>

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
  def.Reference<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, uint64_t>(
      []<class T>(const PrepareContext& c) { return BitwiseKernel<F, T>(c); });
  ops.Add(std::move(def));
}

// Shifts by less than 0, or by all bits or more, leave no bit of x.
template <class T>
bool ShiftsAll(T by) {
  return std::cmp_less(by, 0) || std::cmp_greater_equal(by, 8 * sizeof(T));
}

template <class T>
T ShiftLeft(T x, T by) {
  return ShiftsAll(by) ? T(0) : static_cast<T>(static_cast<uint64_t>(x) << by);
}
template <class T>
T ShiftRight(T x, T by) {
  using Bits = std::make_unsigned_t<T>;
  return ShiftsAll(by) ? T(0) : static_cast<T>(static_cast<Bits>(x) >> by);
}
template <class T>
T ShiftRightSigned(T x, T by) {
  if (ShiftsAll(by)) return x < 0 ? static_cast<T>(-1) : T(0);
  return static_cast<T>(x >> by);
}

template <class T>
KernelOf<T> ShiftKernel(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), out = ctx.Output("Out");
  const BroadcastNest nest = MakeBroadcastNest(x.shape, y.shape, -1);
  T(*shift)
  (T, T) = ctx.op().type() == "bitwise_left_shift" ? ShiftLeft<T>
           : ctx.Attr<bool>("is_arithmetic")       ? ShiftRightSigned<T>
                                                   : ShiftRight<T>;
  return [=](Workspace& ws) {
    BroadcastLoop(nest, ws.Data<const T>(x), ws.Data<const T>(y), ws.Data<T>(out), shift);
  };
}

void AddShift(OpRegistry& ops, const char* type, const char* doc) {
  ops.Add(OpDef(type)
              .Doc(std::string(doc) +
                   " The operand of lower rank aligns with the last dims of the other one, and "
                   "dims of 1 are broadcast.")
              .Constraint("C3", "aligned dims must be equal, or one of them 1")
              .Constraint("C4", "X and Y must have one dtype")
              .Input("X", "tensor of integers")
              .Input("Y", "tensor of X's dtype: the number of bits")
              .Output("Out", "tensor of the broadcast shape and of X's dtype")
              .Attr<bool>("is_arithmetic", true,
                          "whether a right shift repeats the sign; else zeros enter")
              .NoGradientTo({"X", "Y"})
              .Inplace("X", "Out")
              .Elementwise()
              .Infer(InferBitwise)
              .NotDifferentiable("the elements are integers")
              .Reference(ShiftKernel<uint8_t>, ShiftKernel<int8_t>, ShiftKernel<int16_t>,
                         ShiftKernel<int32_t>, ShiftKernel<int64_t>, ShiftKernel<uint64_t>));
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
                         NotKernel<int32_t>, NotKernel<int64_t>, NotKernel<uint64_t>));
  AddShift(ops, "bitwise_left_shift",
           "Out = X shifted left by Y bits; bits that leave X are lost. A negative Y, or one of "
           "all bits of X or more, gives 0.");
  AddShift(ops, "bitwise_right_shift",
           "Out = X shifted right by Y bits. A negative Y, or one of all bits of X or more, leaves "
           "only the bits that enter.");
}

}  // namespace coracle::bitwise_op
