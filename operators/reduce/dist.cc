#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/operators/kernels/norm_of.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/aligned_dim.h>
#include <coracle/operators/rules/same_type.h>

#include <algorithm>
#include <cmath>

namespace coracle::dist_op {

bool OneRepeats(int64_t a, int64_t b) {
  if (a == 1 || b == 1 || InferContext::Matches(a, b)) return true;
  return a > 0 && b > 0 && (a % b == 0 || b % a == 0);
}

void InferDist(InferContext& ctx) {
  const Shape &x = ctx.InputShape("X"), &y = ctx.InputShape("Y");
  const int rank = std::max(x.rank(), y.rank());
  for (int i = 0; i < rank; ++i) {
    const int64_t a = AlignedDim(x, i, rank), b = AlignedDim(y, i, rank);
    ctx.Require("C1", OneRepeats(a, b), "X", x, "Y", y);
  }
  RequireSameDType(ctx, "C2", "X", "Y");
  ctx.SetOutput("Out", ctx.InputDType("X"), {1});
}

Shape DifferenceShape(const Shape& x, const Shape& y) {
  const int rank = std::max(x.rank(), y.rank());
  Shape shape;
  for (int i = 0; i < rank; ++i) {
    const int64_t a = AlignedDim(x, i, rank), b = AlignedDim(y, i, rank);
    shape.Append(a == 1 ? b : b == 1 ? a : std::max(a, b));
  }
  return shape;
}

// The positions of the elements of an operand that is repeated along the dims of the difference.
struct Operand {
  Operand(const Shape& own, int rank) {
    int64_t next = 1;
    for (int i = rank - 1; i >= 0; --i) {
      size[i] = AlignedDim(own, i, rank);
      step[i] = next;
      next *= size[i];
    }
  }
  int64_t Offset(const int64_t* index, int rank) const {
    int64_t offset = 0;
    for (int i = 0; i < rank; ++i) offset += index[i] % size[i] * step[i];
    return offset;
  }
  int64_t size[Shape::kMaxRank], step[Shape::kMaxRank];
};

template <class T>
KernelOf<T> DistReference(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), y = ctx.Input("Y"), out = ctx.Output("Out");
  const Shape shape = DifferenceShape(x.shape, y.shape);
  const int64_t numel = shape.numel();
  const Operand from_x(x.shape, shape.rank()), from_y(y.shape, shape.rank());
  const double p = static_cast<double>(ctx.Attr<float>("p"));
  return [=](Workspace& ws) {
    const T *a = ws.Data<const T>(x), *b = ws.Data<const T>(y);
    ws.Data<T>(out)[0] = static_cast<T>(NormOf(p, [&](const auto& f) {
      int64_t index[Shape::kMaxRank] = {};
      for (int64_t i = 0; i < numel; ++i) {
        // The difference may have far more elements than the operands.
        if (i % (1 << 20) == 0) CheckTimeLimit("computing a distance");
        const T d = a[from_x.Offset(index, shape.rank())] - b[from_y.Offset(index, shape.rank())];
        f(static_cast<double>(d));
        for (int k = shape.rank() - 1; k >= 0 && ++index[k] == shape[k]; --k) index[k] = 0;
      }
    }));
  };
}

// The attr of a tile op that repeats v along dims in which `other` is a multiple of it; empty if no
// dim is repeated. Unknown dims are assumed to be equal; if they are not, elementwise_sub fails.
std::vector<int32_t> Repeats(const Variable& v, const Variable& other) {
  std::vector<int32_t> times;
  bool any = false;
  const int rank = v.shape().rank();
  for (int i = 0; i < rank; ++i) {
    const int at = i + other.shape().rank() - rank;
    const int64_t own = v.shape()[i], more = at < 0 ? 1 : other.shape()[at];
    times.push_back(own > 1 && more > own ? static_cast<int32_t>(more / own) : 1);
    any |= times.back() > 1;
  }
  return any ? times : std::vector<int32_t>();
}

// Appends p_norm_grad for the difference d, with Out if both have one dtype.
Variable GradientByDifference(GradientContext& g, const Variable& d) {
  const Variable out = g.Out("Out"), dout = Cast(g.Grad("Out"), d.dtype());
  SlotList inputs = {{"X", {d.name()}}, {"Out@GRAD", {dout.name()}}};
  if (out.dtype() == d.dtype()) inputs.push_back({"Out", {out.name()}});
  return g.Make("p_norm_grad", inputs, {{"porder", g.Attr<float>("p")}, {"asvector", true}},
                "X@GRAD");
}

// dX = the gradient of the norm by X - Y, summed over repeated dims, dY = -dX. The difference of
// 16-bit numbers is computed in float32.
void DistGradient(GradientContext& g) {
  const DType own = g.In("X").dtype(), wide = IsHalf(own) ? DType::kFloat32 : own;
  const Variable x = Cast(g.In("X"), wide), y = Cast(g.In("Y"), wide);
  const auto repeated = [&](const Variable& v, const std::vector<int32_t>& times) {
    if (times.empty()) return v;
    return g.Make("tile", {{"X", {v.name()}}}, {{"repeat_times", times}});
  };
  const std::vector<int32_t> times_x = Repeats(x, y), times_y = Repeats(y, x);
  const Variable wide_x = repeated(x, times_x), wide_y = repeated(y, times_y);
  const Variable dd = GradientByDifference(g, wide_x - wide_y);
  const auto set = [&](const char* slot, const Variable& v, const std::vector<int32_t>& times) {
    const std::string output = std::string(slot) + "@GRAD";
    const Variable all = g.Make(
        "elementwise_sub_grad",
        {{"X", {wide_x.name()}}, {"Y", {wide_y.name()}}, {"Out@GRAD", {dd.name()}}}, {}, output);
    if (times.empty()) return g.Set(slot, Cast(all, own));
    const Variable sum = g.Make("tile_grad", {{"X", {v.name()}}, {"Out@GRAD", {all.name()}}},
                                {{"repeat_times", times}}, "X@GRAD");
    g.Set(slot, Cast(sum, own));
  };
  set("X", x, times_x);
  set("Y", y, times_y);
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("dist")
          .ComputesIn(OpPrecision::kFloat32)
          .Doc("Out = the norm of order p of X - Y over all elements, as in p_norm. The operands "
               "align at their last dims; an operand is repeated along a dim if the other "
               "operand's dim is a multiple of its own. For a gradient, such dims above 1 must be "
               "known when the program is built. If X - Y overflows, Out is inf and its gradient "
               "is inf or nan; the difference of 16-bit numbers is computed in float32.")
          .Constraint("C1", "one of two aligned dims of X and Y must divide the other")
          .Constraint("C2", "X and Y must have one dtype")
          .Input("X", "floating-point tensor")
          .Input("Y", "tensor of X's dtype")
          .Output("Out", "tensor [1]")
          .Attr<float>("p", 2.0f, "the order; inf and -inf for the largest and smallest |X - Y|")
          .Rows(RowRule::kMixes)
          .Infer(InferDist)
          .Gradient(DistGradient)
          .Reference(DistReference<float>, DistReference<double>));
}

}  // namespace coracle::dist_op
