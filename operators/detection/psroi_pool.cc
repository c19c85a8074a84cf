#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/detection/roi.h>
#include <coracle/operators/rules/rows.h>

#include <cmath>

namespace coracle::psroi_pool_op {

Shape OutShape(InferContext& ctx) {
  const int64_t channels = ctx.Attr<int32_t>("output_channels");
  const Shape out = RequireRois(ctx, nullptr, channels);
  const VarMeta& x = ctx.Input("X");
  const int64_t wanted = CheckedMul(channels, out[2], out[3]);
  ctx.Require("C4", InferContext::Matches(x.shape[1], wanted), "X", x, "Out", out);
  return out;
}

// Rows or columns [begin, end) of bin p of `pooled` bins of a RoI between two corners.
struct BinRange {
  int64_t begin, end;

  BinRange(double from, double to, double scale, int64_t p, int64_t pooled, int64_t size) {
    const double start = std::round(from) * scale, stop = (std::round(to) + 1) * scale;
    const double bin = std::max(stop - start, 0.1) / static_cast<double>(pooled);
    begin = ClipPlace(std::floor(static_cast<double>(p) * bin + start), size);
    end = ClipPlace(std::ceil(static_cast<double>(p + 1) * bin + start), size);
  }
};

class Bins {
 public:
  explicit Bins(const PrepareContext& ctx)
      : x_(ctx.Input("X")),
        rois_(ctx.Input("ROIs")),
        images_(ctx, nullptr),
        height_(ctx.Attr<int32_t>("pooled_height")),
        width_(ctx.Attr<int32_t>("pooled_width")),
        scale_(ctx.Attr<float>("spatial_scale")) {}

  // Calls visit(element of Out, element of X, weight): Out is the sum of weight * X.
  template <class Visit>
  void ForEach(Workspace& ws, const Visit& visit) const {
    const std::vector<int64_t> image_of = images_(ws);
    const Reals rois(ws, rois_);
    const int64_t channels = x_.shape[1], rows = x_.shape[2], columns = x_.shape[3];
    for (int64_t out = 0; out < rois_.shape[0] * channels; ++out) {
      const int64_t r = out / channels, channel = out % channels;  // each pools its own bin
      const int64_t p = channel / width_ % height_, q = channel % width_;
      if (channel == 0) CheckTimeLimit("pooling regions");
      const Box box = ReadBox(rois, 4 * r);
      const BinRange y(box.y1, box.y2, scale_, p, height_, rows);
      const BinRange x(box.x1, box.x2, scale_, q, width_, columns);
      const double weight =
          1 / (static_cast<double>(y.end - y.begin) * static_cast<double>(x.end - x.begin));
      const int64_t plane = image_of[static_cast<size_t>(r)] * channels + channel;
      for (int64_t i = y.begin; i < y.end; ++i) {
        for (int64_t j = x.begin; j < x.end; ++j)
          visit(out, (plane * rows + i) * columns + j, weight);
      }
    }
  }

 private:
  TensorArg x_, rois_;
  RoiImages images_;
  int64_t height_, width_;
  double scale_;
};

Kernel Pool(const PrepareContext& ctx) {
  const Bins bins(ctx);
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  return [=](Workspace& ws) {
    const Reals from(ws, x);
    const RealsOut to(ws, out);
    for (int64_t i = 0; i < out.numel; ++i) to.Set(i, 0);
    bins.ForEach(ws, [&](int64_t o, int64_t i, double w) { to.Add(o, w * from[i]); });
  };
}

Kernel PoolGrad(const PrepareContext& ctx) {
  const Bins bins(ctx);
  const TensorArg dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  return [=](Workspace& ws) {
    const Reals from(ws, dout);
    const RealsOut to(ws, dx);
    for (int64_t i = 0; i < dx.numel; ++i) to.Set(i, 0);
    bins.ForEach(ws, [&](int64_t o, int64_t i, double w) { to.Add(i, w * from[o]); });
  };
}

void InferPool(InferContext& ctx) { ctx.SetOutput("Out", ctx.InputDType("X"), OutShape(ctx)); }

void InferPoolGrad(InferContext& ctx) { InferRoiGrad(ctx, "C5", OutShape(ctx)); }

void Register(OpRegistry& ops) {
  ops.Add(OpDef("psroi_pool")
              .Doc("Out[r, c, p, q] = the mean of channel (c pooled_height + p) pooled_width + q "
                   "of X over bin (p, q) of RoI r, from round(corner) spatial_scale to "
                   "(round(corner) + 1) spatial_scale; 0 for an empty bin.")
              .Apply(DeclareRoiConstraints)
              .Apply(DeclareRois, nullptr)
              .Constraint("C4", "X must have output_channels pooled_height pooled_width channels")
              .Output("Out", "tensor [R, output_channels, pooled_height, pooled_width]")
              .Attr<int32_t>("output_channels", "channels of Out")
              .Range(1, {})
              .Apply(DeclarePooling)
              .NoLod()
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer(InferPool)
              .GradientOp({"X", "ROIs"})
              .Reference<float, double>(ForReals{Pool}));
  ops.Add(OpDef("psroi_pool_grad")
              .Doc("Gradient of psroi_pool: each element of Out@GRAD, over the size of its bin, "
                   "goes to the elements of the bin.")
              .ConstraintsOf("psroi_pool", {"C1", "C2", "C3", "C4"})
              .Apply(DeclareRois, nullptr)
              .Constraint("C5", "Out@GRAD must have Out's shape and dtype")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .AttrsOf("psroi_pool")
              .NoGradient("second derivatives of RoI pooling are not provided")
              .Infer(InferPoolGrad)
              .Reference<float, double>(ForReals{PoolGrad}));
}

}  // namespace coracle::psroi_pool_op
