#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/detection/roi.h>
#include <coracle/operators/kernels/total_order.h>
#include <coracle/operators/rules/rows.h>

#include <cmath>

namespace coracle::roi_pool_op {

// Part [begin, end) of an axis of X.
struct Range {
  int64_t begin, end;
};

// Bin p of `pooled` bins of a RoI between two corners, within [0, size).
Range BinRange(double from, double to, int64_t p, int64_t pooled, int64_t size) {
  const double start = std::round(from), length = std::max(std::round(to) - start + 1, 1.0);
  const double bin = length / static_cast<double>(pooled);
  return {ClipPlace(start + std::floor(static_cast<double>(p) * bin), size),
          ClipPlace(start + std::ceil(static_cast<double>(p + 1) * bin), size)};
}

Shape OutShape(InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  return RequireRois(ctx, "RoisNum", x.rank() > 1 ? x[1] : -1);
}

void InferPool(InferContext& ctx) {
  const Shape out = OutShape(ctx);
  ctx.SetOutput("Out", ctx.InputDType("X"), out);
  ctx.SetOutput("Argmax", DType::kInt64, out);
}

template <class T>
KernelOf<T> Pool(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), rois = ctx.Input("ROIs");
  const TensorArg out = ctx.Output("Out"), argmax = ctx.Output("Argmax");
  const RoiImages images(ctx, "RoisNum");
  const double scale = ctx.Attr<float>("spatial_scale");
  const Shape s = x.shape, o = out.shape;
  return [=](Workspace& ws) {
    const std::vector<int64_t> image_of = images(ws);
    const Reals boxes(ws, rois);
    const T* from = ws.Data<const T>(x);
    T* to = ws.Data<T>(out);
    auto* where = argmax ? ws.Data<int64_t>(argmax) : nullptr;
    for (int64_t at = 0; at < out.numel; ++at) {
      const int64_t q = at % o[3], p = at / o[3] % o[2];
      const int64_t plane = at / o[3] / o[2], r = plane / s[1], c = plane % s[1];
      if (p == 0 && q == 0) CheckTimeLimit("pooling regions");
      const Box box = Scaled(ReadBox(boxes, 4 * r), scale);
      const Range rows = BinRange(box.y1, box.y2, p, o[2], s[2]);
      const Range columns = BinRange(box.x1, box.x2, q, o[3], s[3]);
      const T* in = from + (image_of[static_cast<size_t>(r)] * s[1] + c) * s[2] * s[3];
      int64_t best = -1;
      for (int64_t y = rows.begin; y < rows.end; ++y) {
        for (int64_t i = y * s[3] + columns.begin; i < y * s[3] + columns.end; ++i) {
          if (best < 0 || Exceeds(in[i], in[best])) best = i;
        }
      }
      to[at] = best < 0 ? T(0) : in[best];
      if (where) where[at] = best;
    }
  };
}

void InferPoolGrad(InferContext& ctx) {
  const Shape out = OutShape(ctx);
  const VarMeta& argmax = ctx.Input("Argmax");
  InferRoiGrad(ctx, "C4", out);
  ctx.Require("C5", argmax.dtype == DType::kInt64 && argmax.shape.CompatibleWith(out), argmax);
}

template <class T>
KernelOf<T> PoolGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), argmax = ctx.Input("Argmax"), dout = ctx.Input("Out@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD");
  const RoiImages images(ctx, "RoisNum");
  const RunConstraint inside(ctx, "C5");
  const int64_t area = x.shape[2] * x.shape[3], channels = x.shape[1];
  const int64_t bins = dout.shape.Product(2, 4);
  return [=](Workspace& ws) {
    const std::vector<int64_t> image_of = images(ws);
    const auto* where = ws.Data<const int64_t>(argmax);
    const T* from = ws.Data<const T>(dout);
    T* to = ws.Data<T>(dx);
    std::fill_n(to, dx.numel, T(0));
    for (int64_t at = 0; at < dout.numel; ++at) {
      const int64_t plane = at / bins, image = image_of[static_cast<size_t>(plane / channels)];
      inside.Require(where[at] >= -1 && where[at] < area, where[at], "elements of a map", area);
      if (where[at] >= 0) to[(image * channels + plane % channels) * area + where[at]] += from[at];
    }
  };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("roi_pool")
          .Doc("Out[r, c, p, q] = the largest element of X in bin (p, q) of RoI r, whose "
               "corners are rounded to whole cells; 0 for an empty bin, a nan for one with a nan.")
          .Apply(DeclareRoiConstraints)
          .Apply(DeclareRois, "RoisNum")
          .Output("Out", "tensor [R, C, pooled_height, pooled_width]")
          .IntermediateOutput("Argmax",
                              "int64: row W + column of that element, the first if several are "
                              "equal; -1 for an empty bin")
          .Apply(DeclarePooling)
          .NoLod()
          .Rows(EachBatchRow, kEachBatchRow)
          .Infer(InferPool)
          .GradientOp({"X", "ROIs", "RoisNum", "Argmax"})
          .Reference(Pool<float>, Pool<double>));
  ops.Add(OpDef("roi_pool_grad")
              .Doc("Gradient of roi_pool: each element of Out@GRAD goes to the largest element of "
                   "its bin.")
              .ConstraintsOf("roi_pool", {"C1", "C2", "C3"})
              .Apply(DeclareRois, "RoisNum")
              .Constraint("C4", "Out@GRAD must have Out's shape and dtype")
              .Constraint("C5", "Argmax must be int64, of Out's shape, with elements of a map")
              .Input("Argmax", "the value in the forward op")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .AttrsOf("roi_pool")
              .NoGradient("second derivatives of RoI pooling are not provided")
              .Infer(InferPoolGrad)
              .Reference(PoolGrad<float>, PoolGrad<double>));
}

}  // namespace coracle::roi_pool_op
