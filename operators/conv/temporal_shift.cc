#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/window.h>

#include <cstring>

namespace coracle::temporal_shift_op {

void CheckShift(InferContext& ctx, const char* slot) {
  const Shape& x = ctx.InputShape(slot);
  const int64_t steps = ctx.Attr<int32_t>("seg_num");
  ctx.Require("C1", x.rank() == 4, x);
  ctx.Require("C2", steps > 0 && (x[0] < 0 || x[0] % steps == 0), "images", x[0], "seg_num", steps);
  const float ratio = ctx.Attr<float>("shift_ratio");
  ctx.Require("C3", ratio > 0 && ratio < 0.5f, ratio);
}

// Frames [N, T] of [outer, C, inner]. Channels below `back` come from the previous frame, channels
// from there to `ahead` from the next one.
struct Layout {
  int64_t frames, steps, outer, channels, inner, back, ahead;
};

Layout LayoutOf(const PrepareContext& ctx, const Shape& x) {
  const ImageLayout l = ImageLayoutOf(ctx.Attr<std::string>("data_format"));
  const int64_t channels = x[l.channel()], area = x[l.height()] * x[l.width()];
  const float ratio = ctx.Attr<float>("shift_ratio"), c = static_cast<float>(channels);
  return {x[0],
          ctx.Attr<int32_t>("seg_num"),
          l.channels_last ? area : 1,
          channels,
          l.channels_last ? 1 : area,
          static_cast<int64_t>(c * ratio),
          static_cast<int64_t>(2 * c * ratio)};
}

// Copies channels [first, last) to frame `to` from the frame `by` steps later; writes 0 if that
// frame is outside of the sequence.
void ShiftPart(const Layout& l, int64_t frame, int64_t by, int64_t first, int64_t last, size_t size,
               const char* from, char* to) {
  const int64_t source = frame % l.steps + by;
  const bool inside = source >= 0 && source < l.steps;
  const size_t bytes = static_cast<size_t>((last - first) * l.inner) * size;
  for (int64_t o = 0; o < l.outer; ++o) {
    const auto at = [&](int64_t f) {
      return static_cast<size_t>(((f * l.outer + o) * l.channels + first) * l.inner) * size;
    };
    if (inside)
      std::memcpy(to + at(frame), from + at(frame + by), bytes);
    else
      std::memset(to + at(frame), 0, bytes);
  }
}

// `direction` is 1 for the op and -1 for its gradient.
Kernel Shift(const PrepareContext& ctx, const TensorArg& in, const TensorArg& out,
             int64_t direction) {
  if (out.numel == 0) return [](Workspace&) {};
  const Layout l = LayoutOf(ctx, in.shape);
  const size_t size = SizeOf(in.dtype);
  return [=](Workspace& ws) {
    const char* from = ws.Data<const char>(in);
    char* to = ws.Data<char>(out);
    ParallelFor(l.frames, 1 + 65536 / (l.outer * l.channels * l.inner),
                [&](int64_t begin, int64_t end) {
                  for (int64_t frame = begin; frame < end; ++frame) {
                    ShiftPart(l, frame, -direction, 0, l.back, size, from, to);
                    ShiftPart(l, frame, direction, l.back, l.ahead, size, from, to);
                    ShiftPart(l, frame, 0, l.ahead, l.channels, size, from, to);
                  }
                });
  };
}

Kernel TemporalShift(const PrepareContext& ctx) {
  return Shift(ctx, ctx.Input("X"), ctx.Output("Out"), 1);
}

Kernel TemporalShiftGrad(const PrepareContext& ctx) {
  return Shift(ctx, ctx.Input("Out@GRAD"), ctx.Output("X@GRAD"), -1);
}

void GradGradient(GradientContext& g) {
  g.Set("Out@GRAD", g.Make("temporal_shift", {{"X", {g.OutputGrad("X@GRAD")}}},
                           g.ForwardAttrs("temporal_shift")));
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("temporal_shift")
          .Doc("The images of X are sequences of seg_num frames. Out = X with the first C "
               "shift_ratio channels (rounded down) of each frame taken from the previous frame, "
               "and the next ones, up to 2 C shift_ratio, from the next frame; 0 at the ends.")
          .Constraint("C1", "X must have rank 4")
          .Constraint("C2", "seg_num must be positive and divide the number of images")
          .Constraint("C3", "shift_ratio must lie in (0, 0.5)")
          .Input("X", "images [N seg_num, C, H, W] of any dtype")
          .Output("Out", "tensor of X's shape and dtype")
          .Attr<int32_t>("seg_num", "frames of a sequence")
          .Range(1, {})
          .Attr<float>("shift_ratio", 0.25f, "share of the channels to shift each way")
          .Attr<std::string>("data_format", "NCHW", "layout of X and Out: NCHW or NHWC")
          .OneOf({"NCHW", "NHWC"})
          .ImageLayout("data_format", {"X", "Out"})
          .Rows(RowRule::kMixes)
          .Infer([](InferContext& ctx) {
            CheckShift(ctx, "X");
            ctx.SetOutput("Out", ctx.Input("X"));
          })
          .GradientOp({})
          .Reference(TemporalShift));
  ops.Add(OpDef("temporal_shift_grad")
              .Doc("Gradient of temporal_shift: X@GRAD = Out@GRAD shifted the other way.")
              .ConstraintsOf("temporal_shift", {"C1", "C2", "C3"})
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .AttrsOf("temporal_shift")
              .ImageLayout("data_format", {"Out@GRAD", "X@GRAD"})
              .Infer([](InferContext& ctx) {
                CheckShift(ctx, "Out@GRAD");
                ctx.SetOutput("X@GRAD", ctx.Input("Out@GRAD"));
              })
              .Gradient(GradGradient)
              .Reference(TemporalShiftGrad));
}

}  // namespace coracle::temporal_shift_op
