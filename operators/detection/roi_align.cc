#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/detection/roi.h>
#include <coracle/operators/rules/rows.h>

#include <cmath>

namespace coracle::roi_align_op {

// The positions of the samples of a bin along one axis.
struct Axis {
  double start, bin;
  int64_t samples;  // in each bin

  // A RoI between two corners.
  Axis(double from, double to, int64_t pooled, int64_t ratio, bool aligned)
      : start(from),
        bin((aligned ? to - from : std::max(to - from, 1.0)) / static_cast<double>(pooled)) {
    const double wanted = ratio > 0 ? static_cast<double>(ratio) : std::ceil(bin);
    samples = wanted >= 1 ? static_cast<int64_t>(std::min(wanted, 1e9)) : 0;
  }
  double At(int64_t p, int64_t i) const {
    return start + static_cast<double>(p) * bin +
           (static_cast<double>(i) + 0.5) * bin / static_cast<double>(samples);
  }
};

// Whether a position belongs to the plane; moves a position in the border into the plane.
bool MoveInside(double* at, int64_t size) {
  if (!(*at >= -1 && *at <= static_cast<double>(size))) return false;
  *at = std::min(std::max(*at, 0.0), static_cast<double>(size - 1));
  return true;
}

class RoiAlign {
 public:
  explicit RoiAlign(const PrepareContext& ctx)
      : x_(ctx.Input("X")),
        rois_(ctx.Input("ROIs")),
        images_(ctx, "RoisNum"),
        finite_(ctx, "C4"),
        height_(ctx.Attr<int32_t>("pooled_height")),
        width_(ctx.Attr<int32_t>("pooled_width")),
        ratio_(ctx.Attr<int32_t>("sampling_ratio")),
        aligned_(ctx.Attr<bool>("aligned")),
        scale_(ctx.Attr<float>("spatial_scale")) {}

  // Some samples of a bin: the sum of weight[i] times element at[i] of a plane of X.
  struct Taps {
    static constexpr int64_t kSize = 256;
    int64_t size = 0;
    int64_t at[kSize];
    double weight[kSize];
  };

  // Calls visit(element of Out, plane of X, taps): Out is the sum of weight * X. All visits of an
  // element of Out are consecutive. Threads split the channels.
  template <class Visit>
  void ForEach(Workspace& ws, const Visit& visit) const {
    const std::vector<int64_t> image_of = images_(ws);
    const Reals rois(ws, rois_);
    const int64_t area = x_.shape[2] * x_.shape[3];
    if (area == 0) return;
    // Runs at least once, to check the RoIs.
    if (channels() == 0) return ForChannels(image_of, rois, 0, 0, visit);
    const int64_t work = std::max<int64_t>(1, rois_.shape[0] * height_ * width_);
    ParallelFor(channels(), 8 + 16384 / work, [&](int64_t begin, int64_t end) {
      ForChannels(image_of, rois, begin, end, visit);
    });
  }
  int64_t channels() const { return x_.shape[1]; }
  int64_t area() const { return x_.shape[2] * x_.shape[3]; }

 private:
  static constexpr double kMostSamples = 1 << 24;

  template <class Visit>
  void ForChannels(const std::vector<int64_t>& image_of, const Reals& rois, int64_t begin,
                   int64_t end, const Visit& visit) const {
    for (int64_t r = 0; r < rois_.shape[0]; ++r) {
      const Box box = Scaled(ReadBox(rois, 4 * r), scale_);
      const double shift = aligned_ ? 0.5 : 0;
      const Axis y(box.y1 - shift, box.y2 - shift, height_, ratio_, aligned_);
      const Axis x(box.x1 - shift, box.x2 - shift, width_, ratio_, aligned_);
      const double samples = static_cast<double>(y.samples) * static_cast<double>(x.samples);
      finite_.Require(std::isfinite(y.bin + x.bin) && samples <= kMostSamples, "RoI", r, "samples",
                      samples);
      for (int64_t bin = 0; bin < height_ * width_; ++bin) {
        VisitBin(y, x, bin, [&](const Taps& taps) {
          const int64_t image = image_of[static_cast<size_t>(r)];
          for (int64_t c = begin; c < end; ++c) {
            visit((r * channels() + c) * height_ * width_ + bin, (image * channels() + c) * area(),
                  taps);
          }
        });
      }
    }
  }

  // Calls f(taps) for all samples of a bin.
  template <class F>
  void VisitBin(const Axis& y, const Axis& x, int64_t bin, const F& f) const {
    const int64_t rows = x_.shape[2], columns = x_.shape[3];
    const double count = static_cast<double>(std::max<int64_t>(y.samples * x.samples, 1));
    Taps taps;
    for (int64_t i = 0; i < y.samples; ++i) {
      CheckTimeLimit("aligning regions");
      double py = y.At(bin / width_, i);
      if (!MoveInside(&py, rows)) continue;
      for (int64_t j = 0; j < x.samples; ++j) {
        double px = x.At(bin % width_, j);
        if (!MoveInside(&px, columns)) continue;
        BilinearAt(py, px, rows, columns).ForEach(columns, [&](int64_t at, double w) {
          taps.at[taps.size] = at;
          taps.weight[taps.size++] = w / count;
        });
        if (taps.size + 4 <= Taps::kSize) continue;
        f(taps);
        taps.size = 0;
      }
    }
    f(taps);
  }

  TensorArg x_, rois_;
  RoiImages images_;
  RunConstraint finite_;
  int64_t height_, width_, ratio_;
  bool aligned_;
  double scale_;
};

template <class T>
KernelOf<T> Align(const PrepareContext& ctx) {
  const RoiAlign align(ctx);
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  return [=](Workspace& ws) {
    const T* from = ws.Data<const T>(x);
    T* to = ws.Data<T>(out);
    std::fill_n(to, out.numel, T(0));
    align.ForEach(ws, [&](int64_t o, int64_t plane, const RoiAlign::Taps& taps) {
      for (int64_t i = 0; i < taps.size; ++i)
        to[o] += static_cast<T>(taps.weight[i]) * from[plane + taps.at[i]];
    });
  };
}

template <class T>
KernelOf<T> AlignGrad(const PrepareContext& ctx) {
  const RoiAlign align(ctx);
  const TensorArg dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  return [=](Workspace& ws) {
    const T* from = ws.Data<const T>(dout);
    T* to = ws.Data<T>(dx);
    std::fill_n(to, dx.numel, T(0));
    align.ForEach(ws, [&](int64_t o, int64_t plane, const RoiAlign::Taps& taps) {
      for (int64_t i = 0; i < taps.size; ++i)
        to[plane + taps.at[i]] += static_cast<T>(taps.weight[i]) * from[o];
    });
  };
}

Shape OutShape(InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  return RequireRois(ctx, "RoisNum", x.rank() > 1 ? x[1] : -1);
}

void InferAlign(InferContext& ctx) { ctx.SetOutput("Out", ctx.InputDType("X"), OutShape(ctx)); }

void InferAlignGrad(InferContext& ctx) { InferRoiGrad(ctx, "C5", OutShape(ctx)); }

void Register(OpRegistry& ops) {
  ops.Add(OpDef("roi_align")
              .Doc("Out[r, c, p, q] = the mean of samples of X (bilinear) on a grid over bin (p, "
                   "q) of RoI r. A RoI begins at corner * spatial_scale, less 0.5 if aligned, and "
                   "is 1 by 1 or larger unless aligned. The grid has sampling_ratio points along "
                   "an axis, or the bin's size rounded up. Samples more than one cell outside of "
                   "X are 0.")
              .Apply(DeclareRoiConstraints)
              .Apply(DeclareRois, "RoisNum")
              .Constraint("C4", "RoIs must be finite, with at most 2^24 samples in a bin")
              .Output("Out", "tensor [R, C, pooled_height, pooled_width]")
              .Apply(DeclarePooling)
              .Attr<int32_t>("sampling_ratio", -1,
                             "samples of a bin along an axis; 0 or less: the bin's size rounded up")
              .Attr<bool>("aligned", false, "pixels have their centres at whole numbers")
              .NoLod()
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer(InferAlign)
              .GradientOp({"X", "ROIs", "RoisNum"})
              .Reference(Align<float>, Align<double>));
  ops.Add(OpDef("roi_align_grad")
              .Doc("Gradient of roi_align: each element of Out@GRAD, times the sampling weights, "
                   "is added to the sampled elements.")
              .ConstraintsOf("roi_align", {"C1", "C2", "C3", "C4"})
              .Apply(DeclareRois, "RoisNum")
              .Constraint("C5", "Out@GRAD must have Out's shape and dtype")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .AttrsOf("roi_align")
              .NoGradient("second derivatives of RoI pooling are not provided")
              .Infer(InferAlignGrad)
              .Reference(AlignGrad<float>, AlignGrad<double>));
}

}  // namespace coracle::roi_align_op
