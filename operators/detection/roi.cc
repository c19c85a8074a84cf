#include <coracle/operators/detection/roi.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/output_grad.h>

namespace coracle::inline internal {

void DeclareRoiConstraints(OpDef& def) {
  def.Constraint("C1", "X must be [N, C, H, W]")
      .Constraint("C2", "ROIs must be [R, 4], of X's dtype")
      .Constraint("C3", "there must be a number of RoIs for each image, and R in all");
}

void DeclareRois(OpDef& def, const char* counts_slot) {
  def.Input("X", "feature maps [N, C, H, W]")
      .Input("ROIs", std::string("corners x1, y1, x2, y2 in pixels of the image, [R, 4], with LoD "
                                 "of images") +
                         (counts_slot ? " if there are no counts" : ""))
      .NoGradientTo({"ROIs"});
  if (!counts_slot) return;
  def.OptionalInput(counts_slot, "int32 or int64 vector [N]: RoIs of each image; absent: by LoD")
      .NoGradientTo({counts_slot});
}

void DeclarePooling(OpDef& def) {
  def.Attr<float>("spatial_scale", 1.f, "cells of X for a pixel of the image")
      .Attr<int32_t>("pooled_height", 1, "rows of Out")
      .Range(1, {})
      .Attr<int32_t>("pooled_width", 1, "columns of Out")
      .Range(1, {});
}

Shape RequireRois(InferContext& ctx, const char* counts_slot, int64_t channels) {
  const VarMeta &x = ctx.Input("X"), &rois = ctx.Input("ROIs");
  ctx.Require("C1", x.shape.rank() == 4, x);
  const bool boxes = rois.shape.rank() == 2 && InferContext::Matches(rois.shape[1], 4);
  ctx.Require("C2", boxes && rois.dtype == x.dtype, "ROIs", rois, "X", x);
  if (counts_slot && ctx.HasInput(counts_slot)) {
    const VarMeta& counts = ctx.Input(counts_slot);
    const bool fits = IsIndexType(counts.dtype) && counts.shape.rank() == 1 &&
                      InferContext::Matches(counts.shape[0], x.shape[0]);
    ctx.Require("C3", fits, counts_slot, counts, "X", x);
  }
  return {rois.shape[0], channels, ctx.Attr<int32_t>("pooled_height"),
          ctx.Attr<int32_t>("pooled_width")};
}

void InferRoiGrad(InferContext& ctx, std::string_view id, const Shape& out) {
  InferXGrad(ctx, id, {VarType::kLoDTensor, ctx.InputDType("X"), out, 0});
}

std::vector<int64_t> RoiImages::operator()(Workspace& ws) const {
  const RowOffsets offsets = images_(ws, count_);
  std::vector<int64_t> image_of(offsets.back());
  for (int64_t i = 0; i < count_; ++i) {
    for (int64_t r = Sequences(offsets).begin(i); r < Sequences(offsets).end(i); ++r)
      image_of[static_cast<size_t>(r)] = i;
  }
  return image_of;
}

PlaneWeights BilinearAt(double y, double x, int64_t rows, int64_t columns) {
  PlaneWeights b;
  const auto set = [](double at, int64_t size, int64_t* index, double* weight) {
    index[0] = static_cast<int64_t>(at);
    index[1] = std::min(index[0] + 1, size - 1);
    weight[1] = index[0] + 1 < size ? at - static_cast<double>(index[0]) : 0;
    weight[0] = 1 - weight[1];
  };
  set(y, rows, b.y, b.wy);
  set(x, columns, b.x, b.wx);
  return b;
}

}  // namespace coracle::inline internal
