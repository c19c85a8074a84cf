#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/detection/roi.h>
#include <coracle/operators/rules/rows.h>

#include <cmath>

namespace coracle::deformable_psroi_pooling_op {

using Ints = std::vector<int32_t>;

Shape OutShape(InferContext& ctx) {
  const VarMeta &x = ctx.Input("Input"), &rois = ctx.Input("ROIs"), &trans = ctx.Input("Trans");
  ctx.Require("C1", x.shape.rank() == 4, x);
  const bool boxes = rois.shape.rank() == 2 && InferContext::Matches(rois.shape[1], 4);
  ctx.Require("C2", boxes && rois.dtype == x.dtype, "ROIs", rois, "Input", x);
  const auto group = ctx.Attr<Ints>("group_size"), part = ctx.Attr<Ints>("part_size");
  bool sizes = group.size() == 2 && part.size() == 2;
  for (const Ints* list : {&group, &part}) {
    for (int32_t v : *list) sizes = sizes && v > 0;
  }
  ctx.Require("C4", sizes, "group_size", group, "part_size", part);
  const int64_t channels = ctx.Attr<int32_t>("output_dim");
  const int64_t wanted = CheckedMul(channels, int64_t{group[0]}, int64_t{group[1]});
  ctx.Require("C5", InferContext::Matches(x.shape[1], wanted), "Input", x, "channels", wanted);
  bool fits = trans.dtype == x.dtype && trans.shape.rank() == 4;
  if (!ctx.Attr<bool>("no_trans")) {
    fits = fits && trans.shape.CompatibleWith({rois.shape[0], -1, part[0], part[1]});
    const int64_t both = fits ? trans.shape[1] : 0;
    fits = fits && (both < 0 || (both > 0 && both % 2 == 0 && channels % (both / 2) == 0));
  }
  ctx.Require("C6", fits, "Trans", trans, "output_dim", channels);
  return {rois.shape[0], channels, ctx.Attr<int32_t>("pooled_height"),
          ctx.Attr<int32_t>("pooled_width")};
}

// Samples of a bin along one axis, moved by `shift` RoI sizes.
struct SampleAxis {
  double size, first, step;  // size of the RoI; position of the first sample, distance of samples
  int64_t limit;             // elements of the map

  SampleAxis(double from, double to, double scale, int64_t bin, int64_t bins, int64_t samples,
             double shift, int64_t elements)
      : limit(elements) {
    const double start = std::round(from) * scale - 0.5;
    size = std::max((std::round(to) + 1) * scale - 0.5 - start, 0.1);
    const double width = size / static_cast<double>(bins);
    first = start + static_cast<double>(bin) * width + shift * size;
    step = width / static_cast<double>(samples);
  }
  // False for a sample outside of the map. A sample in the border is moved inside, and then does
  // not move with the RoI.
  bool At(int64_t i, double* place, bool* moves) const {
    const double at = first + static_cast<double>(i) * step, last = static_cast<double>(limit - 1);
    if (limit < 1 || !(at >= -0.5 && at <= last + 0.5)) return false;
    *moves = at >= 0 && at <= last;
    *place = std::min(std::max(at, 0.0), last);
    return true;
  }
};

struct DeformedBin {
  int64_t out, plane;        // element of Out, first element of the plane that it pools
  int64_t trans_x, trans_y;  // elements of Trans; -1 without
  SampleAxis y, x;
};

class DeformedBins {
 public:
  explicit DeformedBins(const PrepareContext& ctx)
      : x_(ctx.Input("Input")),
        rois_(ctx.Input("ROIs")),
        trans_(ctx.Input("Trans")),
        images_(ctx, nullptr, "Input"),
        group_(ctx.Attr<Ints>("group_size")),
        part_(ctx.Attr<Ints>("part_size")),
        channels_(ctx.Attr<int32_t>("output_dim")),
        height_(ctx.Attr<int32_t>("pooled_height")),
        width_(ctx.Attr<int32_t>("pooled_width")),
        samples_(ctx.Attr<int32_t>("sample_per_part")),
        no_trans_(ctx.Attr<bool>("no_trans")),
        scale_(ctx.Attr<float>("spatial_scale")),
        trans_std_(ctx.Attr<float>("trans_std")) {}

  template <class Visit>
  void ForEach(Workspace& ws, const Visit& visit) const {
    const std::vector<int64_t> image_of = images_(ws);
    const Reals rois(ws, rois_), trans(ws, trans_);
    const int64_t rows = x_.shape[2], columns = x_.shape[3];
    const int64_t part_area = int64_t{part_[0]} * part_[1];
    for (int64_t out = 0; out < rois_.shape[0] * channels_ * height_ * width_; ++out) {
      const int64_t q = out % width_, p = out / width_ % height_;
      const int64_t c = out / width_ / height_ % channels_, r = out / width_ / height_ / channels_;
      if (q == 0) CheckTimeLimit("pooling regions");
      int64_t trans_x = -1, trans_y = -1;
      if (!no_trans_) {
        const int64_t classes = trans_.shape[1] / 2, of_class = c / (channels_ / classes);
        const int64_t at = p * part_[0] / height_ * part_[1] + q * part_[1] / width_;
        trans_x = (r * classes + of_class) * 2 * part_area + at;
        trans_y = trans_x + part_area;
      }
      const double dx = no_trans_ ? 0 : trans[trans_x] * trans_std_;
      const double dy = no_trans_ ? 0 : trans[trans_y] * trans_std_;
      const int64_t channel =
          (c * group_[0] + p * group_[0] / height_) * group_[1] + q * group_[1] / width_;
      const Box b = ReadBox(rois, 4 * r);
      visit(DeformedBin{
          out, (image_of[static_cast<size_t>(r)] * x_.shape[1] + channel) * rows * columns, trans_x,
          trans_y, SampleAxis(b.y1, b.y2, scale_, p, height_, samples_, dy, rows),
          SampleAxis(b.x1, b.x2, scale_, q, width_, samples_, dx, columns)});
    }
  }
  // visit(weights, whether the sample moves along x, along y). Returns the number of samples.
  template <class Visit>
  int64_t ForEachSample(const DeformedBin& bin, const Visit& visit) const {
    int64_t count = 0;
    for (int64_t i = 0; i < samples_; ++i) {
      double y = 0, x = 0;
      bool moves_y = false, moves_x = false;
      if (!bin.y.At(i, &y, &moves_y)) continue;
      for (int64_t j = 0; j < samples_; ++j) {
        if (!bin.x.At(j, &x, &moves_x)) continue;
        ++count;
        visit(BilinearAt(y, x, x_.shape[2], x_.shape[3]), moves_x, moves_y);
      }
    }
    return count;
  }
  int64_t CountSamples(const DeformedBin& bin) const {
    return ForEachSample(bin, [](const PlaneWeights&, bool, bool) {});
  }
  int64_t columns() const { return x_.shape[3]; }
  double trans_std() const { return trans_std_; }

 private:
  TensorArg x_, rois_, trans_;
  RoiImages images_;
  Ints group_, part_;
  int64_t channels_, height_, width_, samples_;
  bool no_trans_;
  double scale_, trans_std_;
};

Kernel Pool(const PrepareContext& ctx) {
  const DeformedBins bins(ctx);
  const TensorArg x = ctx.Input("Input"), out = ctx.Output("Output");
  const TensorArg counts = ctx.Output("TopCount");
  return [=](Workspace& ws) {
    const Reals from(ws, x);
    bins.ForEach(ws, [&](const DeformedBin& bin) {
      double sum = 0;
      const int64_t n = bins.ForEachSample(bin, [&](const PlaneWeights& b, bool, bool) {
        b.ForEach(bins.columns(), [&](int64_t at, double w) { sum += w * from[bin.plane + at]; });
      });
      RealsOut(ws, out).Set(bin.out, n > 0 ? sum / static_cast<double>(n) : 0);
      if (counts) RealsOut(ws, counts).Set(bin.out, static_cast<double>(n));
    });
  };
}

Kernel PoolGrad(const PrepareContext& ctx) {
  const DeformedBins bins(ctx);
  const TensorArg x = ctx.Input("Input"), dout = ctx.Input("Output@GRAD");
  const TensorArg dx = ctx.Output("Input@GRAD"), dtrans = ctx.Output("Trans@GRAD");
  return [=](Workspace& ws) {
    const Reals from(ws, x), grad(ws, dout);
    for (const TensorArg& out : {dx, dtrans}) {
      for (int64_t i = 0; out && i < out.numel; ++i) RealsOut(ws, out).Set(i, 0);
    }
    bins.ForEach(ws, [&](const DeformedBin& bin) {
      const double g =
          grad[bin.out] / static_cast<double>(std::max<int64_t>(bins.CountSamples(bin), 1));
      double slope_x = 0, slope_y = 0;
      bins.ForEachSample(bin, [&](const PlaneWeights& b, bool moves_x, bool moves_y) {
        b.ForEach(bins.columns(), [&](int64_t at, double w) {
          if (dx) RealsOut(ws, dx).Add(bin.plane + at, g * w);
        });
        const auto value = [&](int i, int j) {
          return from[bin.plane + b.y[i] * bins.columns() + b.x[j]];
        };
        for (int i : {0, 1}) {
          if (moves_x) slope_x += b.wy[i] * (value(i, 1) - value(i, 0));
          if (moves_y) slope_y += b.wx[i] * (value(1, i) - value(0, i));
        }
      });
      if (!dtrans || bin.trans_x < 0) return;
      RealsOut(ws, dtrans).Add(bin.trans_x, g * slope_x * bins.trans_std() * bin.x.size);
      RealsOut(ws, dtrans).Add(bin.trans_y, g * slope_y * bins.trans_std() * bin.y.size);
    });
  };
}

void InferPool(InferContext& ctx) {
  const Shape out = OutShape(ctx);
  ctx.SetOutput("Output", ctx.InputDType("Input"), out);
  ctx.SetOutput("TopCount", ctx.InputDType("Input"), out);
}

void InferPoolGrad(InferContext& ctx) {
  const Shape out = OutShape(ctx);
  const VarMeta &x = ctx.Input("Input"), &dout = ctx.Input("Output@GRAD");
  ctx.Require("C7", dout.dtype == x.dtype && dout.shape.CompatibleWith(out), "Output@GRAD", dout,
              "Output", out);
  ctx.SetOutput("Input@GRAD", x);
  ctx.SetOutput("Trans@GRAD", ctx.Input("Trans"));
}

void DeclareDeformed(OpDef& def) {
  def.Input("Input", "feature maps [N, C, H, W]")
      .Input("ROIs", "corners x1, y1, x2, y2 in pixels of the image, [R, 4], with LoD of images")
      .Input("Trans", "tensor [R, 2 classes, rows, columns of part_size]: shifts along x, along y")
      .NoGradientTo({"ROIs"});
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("deformable_psroi_pooling")
          .Doc("Output[r, c, p, q] = the mean of sample_per_part x sample_per_part samples "
               "(bilinear) of bin (p, q) of RoI r, from round(corner) spatial_scale - 0.5 to "
               "(round(corner) + 1) spatial_scale - 0.5, shifted by trans_std Trans times the size "
               "of the RoI, with Trans of the part of the RoI and of the class of c. Channel c "
               "pools channel (c, row, column) of the groups of Input. Samples more than half a "
               "cell outside are ignored.")
          .Constraint("C1", "Input must be [N, C, H, W]")
          .Constraint("C2", "ROIs must be [R, 4], of Input's dtype")
          .Constraint("C3",
                      "there must be a number of RoIs for each image, and they must add up to R")
          .Constraint("C4", "group_size and part_size must be two positive numbers")
          .Constraint("C5", "Input must have output_dim channels for each element of group_size")
          .Constraint(
              "C6",
              "Trans must have Input's dtype and rank 4; unless no_trans is set, it must be [R, 2 "
              "classes, part_size] with a number of classes that divides output_dim")
          .Apply(DeclareDeformed)
          .IntermediateOutput("TopCount", "number of samples used")
          .Output("Output", "tensor [R, output_dim, pooled_height, pooled_width]")
          .Attr<bool>("no_trans", "Trans is not read")
          .Attr<float>("spatial_scale", "cells of Input for a pixel of the image")
          .Attr<int32_t>("output_dim", "channels of Output")
          .Range(1, {})
          .Attr<Ints>("group_size", "rows and columns of groups")
          .Attr<int32_t>("pooled_height", "rows of Output")
          .Range(1, {})
          .Attr<int32_t>("pooled_width", "columns of Output")
          .Range(1, {})
          .Attr<Ints>("part_size", "rows and columns of the parts with separate shifts")
          .Attr<int32_t>("sample_per_part", "samples of a bin along an axis")
          .Range(1, 1024)
          .Attr<float>("trans_std", "factor of the shifts")
          .NoLod()
          .Rows(EachBatchRow, kEachBatchRow)
          .Infer(InferPool)
          .GradientOp({"Input", "ROIs", "Trans"})
          .Reference<float, double>(ForReals{Pool}));
  ops.Add(OpDef("deformable_psroi_pooling_grad")
              .Doc("Gradient of deformable_psroi_pooling.")
              .ConstraintsOf("deformable_psroi_pooling", {"C1", "C2", "C3", "C4", "C5", "C6"})
              .Constraint("C7", "Output@GRAD must have Output's shape and dtype")
              .Apply(DeclareDeformed)
              .Input("Output@GRAD", "gradient of Output")
              .OptionalOutput("Input@GRAD", "gradient of Input")
              .OptionalOutput("Trans@GRAD", "gradient of Trans")
              .AttrsOf("deformable_psroi_pooling")
              .NoGradient("second derivatives of RoI pooling are not provided")
              .Infer(InferPoolGrad)
              .Reference<float, double>(ForReals{PoolGrad}));
}

}  // namespace coracle::deformable_psroi_pooling_op
