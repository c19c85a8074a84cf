#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/rules/dims.h>

namespace coracle::arg_max_op {

void InferArg(InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  const int32_t dtype = ctx.Attr<int32_t>("dtype");
  ctx.Require("C3", dtype == -1 || dtype == 2 || dtype == 3, dtype);
  const bool keep = ctx.Attr<bool>("keepdims");
  Shape out;
  int64_t searched = 1;
  if (ctx.Attr<bool>("flatten") || x.rank() == 0) {
    searched = NumelOf(x);
    for (int i = 0; keep && i < x.rank(); ++i) out.Append(1);
  } else {
    const int axis = ctx.Axis("C1", ctx.Attr<int64_t>("axis"), x.rank());
    searched = x[axis];
    for (int i = 0; i < x.rank(); ++i) {
      if (i != axis)
        out.Append(x[i]);
      else if (keep)
        out.Append(1);
    }
  }
  ctx.Require("C2", searched != 0, x);
  if (out.rank() == 0) out.Append(1);
  ctx.SetOutput("Out", dtype == 2 ? DType::kInt32 : DType::kInt64, out);
}

// The first best element; a nan wins over every number.
template <bool kMax, class T>
int64_t Find(const T* row, int64_t n, int64_t stride) {
  int64_t best = 0;
  for (int64_t i = 1; i < n; ++i) {
    const T a = row[i * stride], b = row[best * stride];
    if (b != b) break;
    if (a != a || (kMax ? b < a : a < b)) best = i;
  }
  return best;
}

template <bool kMax, class T>
Kernel Arg(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (out.numel == 0 || x.numel == 0) return [](Workspace&) {};
  int axis = 0;
  int64_t outer = 1, n = x.numel, inner = 1;
  if (!ctx.Attr<bool>("flatten") && x.shape.NormalizeAxis(ctx.Attr<int64_t>("axis"), &axis)) {
    outer = x.shape.Product(0, axis);
    n = x.shape[axis];
    inner = x.shape.Product(axis + 1, x.shape.rank());
  }
  const bool narrow = out.dtype == DType::kInt32;
  return [=](Workspace& ws) {
    const T* in = ws.Data<const T>(x);
    void* to = ws.Data<void>(out);
    ParallelFor(outer * inner, 1 + 32768 / n, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t at = Find<kMax>(in + r / inner * n * inner + r % inner, n, inner);
        if (narrow)
          static_cast<int32_t*>(to)[r] = static_cast<int32_t>(at);
        else
          static_cast<int64_t*>(to)[r] = at;
      }
    });
  };
}

template <bool kMax>
OpDef ArgDef(const char* type, const std::string& what) {
  OpDef def(type);
  def.Doc("Out = index of the " + what +
          " element along axis (of all of X with flatten), the first if several are equal; a nan "
          "wins over every number.")
      .Constraint("C1", "axis must lie in [-rank, rank)")
      .Constraint("C2", "the searched dimension must not be empty")
      .Constraint("C3", "dtype must be -1 or 3 (int64), or 2 (int32)")
      .Input("X", "tensor of numbers")
      .Output("Out", "indices; without axis unless keepdims")
      .Attr<int64_t>("axis", "the dimension to search")
      .Attr<bool>("keepdims", false, "keep the searched dimension as 1")
      .Attr<bool>("flatten", false, "search all of X")
      .Attr<int32_t>("dtype", 3, "number of the dtype of Out")
      .NotDifferentiable("an index is an integer")
      .NoLod()
      .Rows(RowRule::kEach)
      .WorksAlong("axis")
      .Infer(InferArg)
      .Reference<float, double, float16, bfloat16, int8_t, uint8_t, int16_t, int32_t, int64_t>(
          []<class T>(const PrepareContext& c) { return Arg<kMax, T>(c); });
  if (kMax) def.Scores({"X"});
  return def;
}

void Register(OpRegistry& ops) {
  ops.Add(ArgDef<true>("arg_max", "largest"));
  ops.Add(ArgDef<false>("arg_min", "smallest"));
}

}  // namespace coracle::arg_max_op
