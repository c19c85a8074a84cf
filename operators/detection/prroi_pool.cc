#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/detection/roi.h>
#include <coracle/operators/rules/rows.h>

#include <cmath>

namespace coracle::prroi_pool_op {

constexpr const char* kCounts = "BatchRoINums";

// The interpolation weight of an element at distance u from a position.
double Hat(double u) { return std::max(0.0, 1 - std::abs(u)); }
// Its integral up to u.
double HatIntegral(double u) {
  if (u <= -1) return 0;
  if (u >= 1) return 1;
  return u <= 0 ? (1 + u) * (1 + u) / 2 : 0.5 + u - u * u / 2;
}

// Bin p of a RoI along one axis of X, from a to b. The integral of the interpolated elements is the
// sum of Weight(i) * element i over [begin, end).
struct Bin {
  double a = 0, b = 0, size = 0;
  double part, whole, scale;  // p, the number of bins, and spatial_scale
  int64_t begin = 0, end = 0;

  Bin(double from, double to, double scale_of, int64_t p, int64_t pooled, int64_t elements)
      : part(static_cast<double>(p)), whole(static_cast<double>(pooled)), scale(scale_of) {
    size = std::max((to - from) * scale, 0.0) / whole;
    a = from * scale + part * size;
    b = a + size;
    begin = ClipPlace(std::ceil(a - 1), elements);
    end = std::max(begin, ClipPlace(std::floor(b + 1) + 1, elements));
  }
  double Weight(int64_t i) const {
    return HatIntegral(b - static_cast<double>(i)) - HatIntegral(a - static_cast<double>(i));
  }
  double WeightAtA(int64_t i) const { return Hat(a - static_cast<double>(i)); }
  double WeightAtB(int64_t i) const { return Hat(b - static_cast<double>(i)); }
};

class Pooling {
 public:
  explicit Pooling(const PrepareContext& ctx)
      : x_(ctx.Input("X")),
        rois_(ctx.Input("ROIs")),
        images_(ctx, kCounts),
        height_(ctx.Attr<int32_t>("pooled_height")),
        width_(ctx.Attr<int32_t>("pooled_width")),
        scale_(ctx.Attr<float>("spatial_scale")) {}

  // Calls visit(element of Out, RoI, first element of the plane, bin along y, bin along x) for each
  // bin that is not empty.
  template <class Visit>
  void ForEachBin(Workspace& ws, const Visit& visit) const {
    const std::vector<int64_t> image_of = images_(ws);
    const Reals rois(ws, rois_);
    const int64_t channels = x_.shape[1], rows = x_.shape[2], columns = x_.shape[3];
    for (int64_t out = 0; out < rois_.shape[0] * channels * height_ * width_; ++out) {
      const int64_t bin = out % (height_ * width_), c = out / (height_ * width_) % channels;
      const int64_t r = out / (height_ * width_) / channels;
      if (bin == 0) CheckTimeLimit("pooling regions");
      const Box box = ReadBox(rois, 4 * r);
      const Bin y(box.y1, box.y2, scale_, bin / width_, height_, rows);
      const Bin x(box.x1, box.x2, scale_, bin % width_, width_, columns);
      if (!(y.size * x.size > 0)) continue;
      visit(out, r, (image_of[static_cast<size_t>(r)] * channels + c) * rows * columns, y, x);
    }
  }
  int64_t columns() const { return x_.shape[3]; }

 private:
  TensorArg x_, rois_;
  RoiImages images_;
  int64_t height_, width_;
  double scale_;
};

Kernel Pool(const PrepareContext& ctx) {
  const Pooling pooling(ctx);
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  return [=](Workspace& ws) {
    const Reals from(ws, x);
    const RealsOut to(ws, out);
    for (int64_t i = 0; i < out.numel; ++i) to.Set(i, 0);
    pooling.ForEachBin(ws, [&](int64_t o, int64_t, int64_t plane, const Bin& v, const Bin& h) {
      double sum = 0;
      for (int64_t i = v.begin; i < v.end; ++i) {
        for (int64_t j = h.begin; j < h.end; ++j)
          sum += v.Weight(i) * h.Weight(j) * from[plane + i * pooling.columns() + j];
      }
      to.Set(o, sum / (v.size * h.size));
    });
  };
}

// Out = S / (height width). If a corner of the RoI moves, the integral S changes at the borders a
// and b of the bin, and the bin's size changes.
struct CornerSlopes {
  double first, second;  // with respect to x1 (y1) and x2 (y2)

  CornerSlopes(const Bin& bin, double at_a, double at_b, double mean) {
    const double a = bin.part / bin.whole, b = (bin.part + 1) / bin.whole;
    first = bin.scale / bin.size * (at_b * (1 - b) - at_a * (1 - a) + mean / bin.whole);
    second = bin.scale / bin.size * (at_b * b - at_a * a - mean / bin.whole);
  }
};

Kernel PoolGrad(const PrepareContext& ctx) {
  const Pooling pooling(ctx);
  const TensorArg x = ctx.Input("X"), dout = ctx.Input("Out@GRAD");
  const TensorArg dx = ctx.Output("X@GRAD"), drois = ctx.Output("ROIs@GRAD");
  return [=](Workspace& ws) {
    const Reals from(ws, x), grad(ws, dout);
    for (const TensorArg& out : {dx, drois}) {
      for (int64_t i = 0; out && i < out.numel; ++i) RealsOut(ws, out).Set(i, 0);
    }
    pooling.ForEachBin(ws, [&](int64_t o, int64_t r, int64_t plane, const Bin& v, const Bin& h) {
      double sum = 0, top = 0, bottom = 0, left = 0, right = 0;
      for (int64_t i = v.begin; i < v.end; ++i) {
        for (int64_t j = h.begin; j < h.end; ++j) {
          const int64_t at = plane + i * pooling.columns() + j;
          const double wy = v.Weight(i), wx = h.Weight(j), value = from[at];
          if (dx) RealsOut(ws, dx).Add(at, grad[o] * wy * wx / (v.size * h.size));
          sum += wy * wx * value;
          top += v.WeightAtA(i) * wx * value;
          bottom += v.WeightAtB(i) * wx * value;
          left += wy * h.WeightAtA(j) * value;
          right += wy * h.WeightAtB(j) * value;
        }
      }
      if (!drois) return;
      const double mean = sum / (v.size * h.size);
      const CornerSlopes by_x(h, left / v.size, right / v.size, mean);
      const CornerSlopes by_y(v, top / h.size, bottom / h.size, mean);
      const RealsOut to(ws, drois);
      to.Add(4 * r, grad[o] * by_x.first);
      to.Add(4 * r + 1, grad[o] * by_y.first);
      to.Add(4 * r + 2, grad[o] * by_x.second);
      to.Add(4 * r + 3, grad[o] * by_y.second);
    });
  };
}

Shape OutShape(InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  return RequireRois(ctx, kCounts, x.rank() > 1 ? x[1] : -1);
}

void InferPool(InferContext& ctx) { ctx.SetOutput("Out", ctx.InputDType("X"), OutShape(ctx)); }

void InferPoolGrad(InferContext& ctx) {
  InferRoiGrad(ctx, "C4", OutShape(ctx));
  ctx.SetOutput("ROIs@GRAD", ctx.Input("ROIs"));
}

void DeclareMovingRois(OpDef& def) {
  def.Input("X", "feature maps [N, C, H, W]")
      .Input("ROIs",
             "corners x1, y1, x2, y2 in pixels of the image, [R, 4], with LoD of images if "
             "there are no counts")
      .OptionalInput(kCounts,
                     "int32 or int64 vector [N]: RoIs of each image; if absent, LoD gives them")
      .NoGradientTo({kCounts});
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("prroi_pool")
              .Doc("Out[r, c, p, q] = the mean of X over bin (p, q) of RoI r: the integral of X, "
                   "interpolated bilinearly and 0 outside, over the bin's area; 0 for an empty "
                   "bin.")
              .Apply(DeclareRoiConstraints)
              .Apply(DeclareMovingRois)
              .Output("Out", "tensor [R, C, pooled_height, pooled_width]")
              .Apply(DeclarePooling)
              .NoLod()
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer(InferPool)
              .GradientOp({"X", "ROIs", kCounts})
              .Reference<float, double>(ForReals{Pool}));
  ops.Add(OpDef("prroi_pool_grad")
              .Doc("Gradient of prroi_pool. The gradient of a RoI is the change of the integral as "
                   "its borders move, less the effect of the change of area.")
              .ConstraintsOf("prroi_pool", {"C1", "C2", "C3"})
              .Apply(DeclareMovingRois)
              .Constraint("C4", "Out@GRAD must have Out's shape and dtype")
              .Input("Out@GRAD", "gradient of Out")
              .OptionalOutput("X@GRAD", "gradient of X")
              .OptionalOutput("ROIs@GRAD", "gradient of ROIs")
              .AttrsOf("prroi_pool")
              .NoGradient("second derivatives of RoI pooling are not provided")
              .Infer(InferPoolGrad)
              .Reference<float, double>(ForReals{PoolGrad}));
}

}  // namespace coracle::prroi_pool_op
