#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/arithmetic.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/same_type.h>

#include <limits>

namespace coracle::pad_op {

using Ints = std::vector<int32_t>;

void InferPad(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  const Ints pads = ctx.Attr<Ints>("paddings");
  const int rank = x.shape.rank();
  ctx.Require("C1", pads.size() == 2 * static_cast<size_t>(rank), pads.size(), rank);
  for (int32_t pad : pads) ctx.Require("C2", pad >= 0, pads);
  for (int i = 0; i < rank; ++i) {
    const auto at = 2 * static_cast<size_t>(i);
    x.shape[i] = AddDims(x.shape[i], int64_t{pads[at]} + pads[at + 1]);
  }
  ctx.SetOutput("Out", x);
}

// out = value, except for a copy of `in`, which begins at these indices.
template <class T>
Kernel PutInto(const PrepareContext& ctx, const TensorArg& in, const TensorArg& out,
               const std::vector<int64_t>& begin) {
  if (out.numel == 0) return [](Workspace&) {};
  const T value = SaturateTo<T>(static_cast<double>(ctx.Attr<float>("pad_value")));
  const std::vector<int64_t> dims = in.shape.ToVector();
  const std::vector<int64_t> strides = ContiguousStrides(out.shape.ToVector());
  int64_t offset = 0;
  for (size_t i = 0; i < begin.size() && in.numel > 0; ++i) offset += begin[i] * strides[i];
  const StridedCopy copy(sizeof(T), dims, ContiguousStrides(dims), strides);
  return [=](Workspace& ws) {
    T* to = ws.Data<T>(out);
    if (in.numel != out.numel) FillElements(to, out.numel, &value, sizeof(T));
    if (in.numel > 0) copy(ws.Data<const T>(in), to + offset);
  };
}

template <class T>
KernelOf<T> Pad(const PrepareContext& ctx) {
  const Ints pads = ctx.Attr<Ints>("paddings");
  std::vector<int64_t> begin;
  for (size_t i = 0; i < pads.size(); i += 2) begin.push_back(pads[i]);
  return PutInto<T>(ctx, ctx.Input("X"), ctx.Output("Out"), begin);
}

// X@GRAD = the slice of Out@GRAD at the position of X.
void PadGradient(GradientContext& g) {
  const Ints pads = g.Attr<Ints>("paddings");
  Ints axes, starts, ends;
  for (size_t i = 0; i < pads.size(); i += 2) {
    axes.push_back(static_cast<int32_t>(i / 2));
    starts.push_back(pads[i]);
    ends.push_back(pads[i + 1] == 0 ? std::numeric_limits<int32_t>::max() : -pads[i + 1]);
  }
  g.Set("X", g.Make("slice", {{"Input", {g.OutputGrad("Out")}}},
                    {{"axes", axes}, {"starts", starts}, {"ends", ends}}));
}

// ---- pad_constant_like ----

void InferPadConstantLike(InferContext& ctx) {
  const VarMeta& x = ctx.Input("X");
  const Shape& y = ctx.InputShape("Y");
  RequireSameDType(ctx, "C1", "Y", "X");
  ctx.Require("C2", y.rank() == x.shape.rank(), y, x.shape);
  for (int i = 0; i < y.rank(); ++i)
    ctx.Require("C2", y[i] < 0 || x.shape[i] < 0 || y[i] <= x.shape[i], y, x.shape);
  ctx.SetOutput("Out", x);
}

template <class T>
KernelOf<T> PadConstantLike(const PrepareContext& ctx) {
  const TensorArg y = ctx.Input("Y");
  return PutInto<T>(ctx, y, ctx.Output("Out"),
                    std::vector<int64_t>(static_cast<size_t>(y.shape.rank()), 0));
}

void PadConstantLikeGradient(GradientContext& g) {
  g.Set("Y", g.Make("crop", {{"X", {g.OutputGrad("Out")}}, {"Y", {g.Input("Y")}}}));
}

void DeclareValue(OpDef& def) { def.Attr<float>("pad_value", 0.f, "the value around the input"); }

void Register(OpRegistry& ops) {
  ops.Add(OpDef("pad")
              .Doc("Out = X with pad_value before and after it along each dimension.")
              .Constraint("C1", "there must be two paddings for each dimension")
              .Constraint("C2", "paddings must not be negative")
              .Input("X", "tensor of numbers")
              .Output("Out", "the padded tensor")
              .Attr<Ints>("paddings", "{before, after} for each dimension")
              .Apply(DeclareValue)
              .Rows(RowRule::kEach)
              .Axes("paddings", AxesAttr::kPairs)
              .Infer(InferPad)
              .Gradient(PadGradient)
              .Reference(Pad<float>, Pad<double>, Pad<int32_t>, Pad<int64_t>, Pad<int8_t>,
                         Pad<uint8_t>));
  ops.Add(OpDef("pad_constant_like")
              .Doc("Out = Y with pad_value after it along each dimension, up to the shape of X.")
              .Constraint("C1", "Y must have X's dtype")
              .Constraint("C2", "Y must have X's rank, and no dimension may exceed X's")
              .Input("X", "only its shape is used")
              .Input("Y", "tensor of numbers")
              .Output("Out", "tensor of X's shape")
              .Apply(DeclareValue)
              .NoGradientTo({"X"})
              .Rows(RowRule::kMixes)
              .Infer(InferPadConstantLike)
              .Gradient(PadConstantLikeGradient)
              .Reference(PadConstantLike<float>, PadConstantLike<double>, PadConstantLike<int32_t>,
                         PadConstantLike<int64_t>, PadConstantLike<int8_t>,
                         PadConstantLike<uint8_t>));
}

}  // namespace coracle::pad_op
