#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/rules/dims.h>

#include <cmath>
#include <type_traits>

namespace coracle::range_op {

// Number of elements; -1 if step is 0 or leads away from end, or the length is not finite.
template <class T>
int64_t Count(T start, T end, T step) {
  if constexpr (std::is_integral_v<T>) {
    // Differences of int64 values fit into uint64.
    if (start == end) return step == 0 ? -1 : 0;
    if (step == 0 || (end > start) != (step > 0)) return -1;
    const uint64_t low = static_cast<uint64_t>(static_cast<int64_t>(step > 0 ? start : end));
    const uint64_t high = static_cast<uint64_t>(static_cast<int64_t>(step > 0 ? end : start));
    const uint64_t wide = static_cast<uint64_t>(static_cast<int64_t>(step));
    const uint64_t size = step > 0 ? wide : uint64_t{0} - wide;
    const uint64_t count = (high - low - 1) / size + 1;
    return count > (uint64_t{1} << 62) ? -1 : static_cast<int64_t>(count);
  } else {
    const double count = std::ceil((static_cast<double>(end) - static_cast<double>(start)) /
                                   static_cast<double>(step));
    return count >= 0 && count <= 0x1p62 ? static_cast<int64_t>(count) : -1;  // nan: -1
  }
}

int64_t CountFrom(const Tensor& start, const Tensor& end, const Tensor& step) {
  if (IsFloating(start.dtype())) {
    auto value = [](const Tensor& t) { return t.Cast(DType::kFloat64).Item<double>(); };
    return Count<double>(value(start), value(end), value(step));
  }
  auto value = [](const Tensor& t) { return t.Cast(DType::kInt64).Item<int64_t>(); };
  return Count<int64_t>(value(start), value(end), value(step));
}

void InferRange(InferContext& ctx) {
  const DType dtype = ctx.InputDType("Start");
  for (const char* slot : {"Start", "End", "Step"}) {
    ctx.Require("C1", InferContext::Matches(NumelOf(ctx.InputShape(slot)), 1), slot,
                ctx.InputShape(slot));
    ctx.Require("C2", ctx.InputDType(slot) == dtype, "Start", dtype, slot, ctx.InputDType(slot));
  }
  const Tensor* start = ctx.Constant("Start");
  const Tensor* end = ctx.Constant("End");
  const Tensor* step = ctx.Constant("Step");
  int64_t count = -1;
  if (start && end && step) {
    count = CountFrom(*start, *end, *step);
    const auto text = [](const Tensor* t) { return t->ToString(); };
    if (count < 0) ctx.Fail("C3", "Start", text(start), "End", text(end), "Step", text(step));
  }
  ctx.SetOutput("Out", dtype, {count});
}

// first + i * by; the product alone may overflow int64 even if the sum does not.
template <class T>
T Element(T first, T by, int64_t i) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(first) +
                          static_cast<uint64_t>(i) * static_cast<uint64_t>(by));
  else
    return first + static_cast<T>(i) * by;
}

template <class T>
KernelOf<T> Range(const PrepareContext& ctx) {
  const TensorArg start = ctx.Input("Start"), step = ctx.Input("Step"), out = ctx.Output("Out");
  return [=](Workspace& ws) {
    T* o = ws.Data<T>(out);
    const T first = ws.Data<const T>(start)[0], by = ws.Data<const T>(step)[0];
    for (int64_t i = 0; i < out.numel; ++i) o[i] = Element(first, by, i);
  };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("range")
          .Doc("Out = Start, Start + Step, ... up to End, which is not included.")
          .Constraint("C1", "Start, End and Step must hold one element")
          .Constraint("C2", "Start, End and Step must have one dtype")
          .Constraint("C3",
                      "Step must not be 0 and must lead from Start to End in less than 2^62 steps")
          .Input("Start", "tensor [1]: the first element")
          .Input("End", "tensor [1]: the limit")
          .Input("Step", "tensor [1]: the difference of consecutive elements")
          .Output("Out", "vector of the inputs' dtype")
          .NotDifferentiable("the shape of the output depends on the inputs")
          .Rows(RowRule::kEach)
          .Infer(InferRange)
          .Reference(Range<float>, Range<double>, Range<int32_t>, Range<int64_t>));
}

}  // namespace coracle::range_op
