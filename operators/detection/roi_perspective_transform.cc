#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/detection/roi.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/rows.h>

#include <cmath>

namespace coracle::roi_perspective_transform_op {

constexpr double kNear = 1e-4;  // positions this close count as equal
constexpr int64_t kCorners = 4;

struct Point {
  double x = 0, y = 0;
};
Point operator-(const Point& a, const Point& b) { return {a.x - b.x, a.y - b.y}; }
double Length(const Point& a) { return std::hypot(a.x, a.y); }
double Cross(const Point& a, const Point& b) { return a.x * b.y - b.x * a.y; }
bool Between(double v, double a, double b) {
  return v > std::min(a, b) - kNear && v < std::max(a, b) + kNear;
}

// A RoI of four corners and the perspective map from the rectangle of Out to it.
class Quad {
 public:
  Quad(const Reals& rois, int64_t r, double scale, int64_t height, int64_t width) {
    for (int64_t k = 0; k < kCorners; ++k) {
      const int64_t at = 2 * (kCorners * r + k);
      p_[k] = {rois[at] * scale, rois[at + 1] * scale};
    }
    const double h = static_cast<double>(std::max<int64_t>(height, 2)) - 1;
    const double w = Width(h, static_cast<double>(width)) - 1;
    const Point d1 = p_[1] - p_[2], d2 = p_[3] - p_[2];
    const Point d3 = {p_[0].x - p_[1].x + p_[2].x - p_[3].x, p_[0].y - p_[1].y + p_[2].y - p_[3].y};
    const double all = Cross(d1, d2) + 1e-5;
    m_[6] = Cross(d3, d2) / all / w;
    m_[7] = Cross(d1, d3) / all / h;
    m_[8] = 1;
    m_[0] = (p_[1].x - p_[0].x + m_[6] * w * p_[1].x) / w;
    m_[1] = (p_[3].x - p_[0].x + m_[7] * h * p_[3].x) / h;
    m_[2] = p_[0].x;
    m_[3] = (p_[1].y - p_[0].y + m_[6] * w * p_[1].y) / w;
    m_[4] = (p_[3].y - p_[0].y + m_[7] * h * p_[3].y) / h;
    m_[5] = p_[0].y;
  }
  double matrix(int64_t k) const { return m_[k]; }
  bool IsFinite() const {
    for (const Point& p : p_) {
      if (!std::isfinite(p.x) || !std::isfinite(p.y)) return false;
    }
    return true;
  }

  // The elements of a plane at the position of column u, row v of Out; false outside of the RoI or
  // of the plane.
  bool WeightsAt(int64_t u, int64_t v, int64_t rows, int64_t columns, PlaneWeights* weights) const {
    const auto col = static_cast<double>(u), row = static_cast<double>(v);
    const double z = m_[6] * col + m_[7] * row + m_[8];
    const Point at = {(m_[0] * col + m_[1] * row + m_[2]) / z,
                      (m_[3] * col + m_[4] * row + m_[5]) / z};
    const double right = static_cast<double>(columns) - 1, bottom = static_cast<double>(rows) - 1;
    const auto inside = [](double x, double last) {
      return x > -0.5 + kNear && x < last + 0.5 - kNear;
    };
    if (!inside(at.x, right) || !inside(at.y, bottom) || !Contains(at)) return false;
    *weights = BilinearAt(std::min(std::max(at.y, 0.0), bottom),
                          std::min(std::max(at.x, 0.0), right), rows, columns);
    return true;
  }

 private:
  // Columns of Out that the RoI fills if it fills h + 1 rows.
  double Width(double h, double most) const {
    const double width = (Length(p_[0] - p_[1]) + Length(p_[2] - p_[3])) / 2;
    const double height = (Length(p_[1] - p_[2]) + Length(p_[3] - p_[0])) / 2;
    const double columns = std::round(width * h / height) + 1;
    return columns > 2 ? std::max(std::min(columns, most), 2.0) : 2;  // 2 for nan too
  }

  // The even-odd rule; the boundary counts as inside.
  bool Contains(const Point& at) const {
    bool inside = false;
    for (int64_t k = 0; k < kCorners; ++k) {
      const Point &a = p_[k], &b = p_[(k + 1) % kCorners];
      const bool level = std::abs(a.y - b.y) < kNear;
      if (!Between(at.y, a.y, b.y)) continue;
      if (level) {
        if (Between(at.x, a.x, b.x)) return true;
        continue;
      }
      const double x = a.x + (at.y - a.y) * (b.x - a.x) / (b.y - a.y);
      if (std::abs(x - at.x) < kNear) return true;
      const bool crossed = at.y > std::min(a.y, b.y) + kNear;
      if (crossed && x > at.x) inside = !inside;
    }
    return inside;
  }

  Point p_[kCorners];
  double m_[9];
};

void DeclareQuads(OpDef& def) {
  def.Input("X", "feature maps [N, C, H, W]")
      .Input("ROIs",
             "corners x, y of the quadrilaterals in pixels of the image, from the upper left one "
             "clockwise, [R, 8], with LoD of images")
      .NoGradientTo({"ROIs"});
}

// Checks C1 and C2; returns the shape of Out.
Shape OutShape(InferContext& ctx) {
  const VarMeta &x = ctx.Input("X"), &rois = ctx.Input("ROIs");
  ctx.Require("C1", x.shape.rank() == 4, x);
  const bool quads = rois.shape.rank() == 2 && InferContext::Matches(rois.shape[1], 2 * kCorners);
  ctx.Require("C2", quads && rois.dtype == x.dtype, "ROIs", rois, "X", x);
  return {rois.shape[0], x.shape[1], ctx.Attr<int32_t>("transformed_height"),
          ctx.Attr<int32_t>("transformed_width")};
}

void InferTransform(InferContext& ctx) {
  const DType dtype = ctx.InputDType("X");
  const Shape out = OutShape(ctx), sampled = {NumelOf(out), 4};
  ctx.SetOutput("Out", dtype, out);
  ctx.SetOutput("Mask", DType::kInt32, {out[0], 1, out[2], out[3]});
  ctx.SetOutput("TransformMatrix", dtype, {out[0], 9});
  ctx.SetOutput("Out2InIdx", DType::kInt64, sampled);
  ctx.SetOutput("Out2InWeights", dtype, sampled);
}

// The elements of Out, and their positions in X.
class Places {
 public:
  Places(const PrepareContext& ctx, const Shape& x, const Shape& out)
      : images_(ctx, nullptr),
        finite_(ctx, "C4"),
        rois_(ctx.Input("ROIs")),
        scale_(ctx.Attr<float>("spatial_scale")),
        x_(x),
        out_(out) {}

  // Calls start(roi, quad), then visit(roi, image, index in a channel of Out, weights of elements
  // of a channel of X) for each element; the weights are null outside of the RoI or of X.
  template <class Start, class Visit>
  void ForEach(Workspace& ws, const Start& start, const Visit& visit) const {
    const std::vector<int64_t> image_of = images_(ws);
    const Reals corners(ws, rois_);
    const int64_t height = out_[2], width = out_[3];
    for (int64_t r = 0; r < rois_.shape[0]; ++r) {
      const Quad quad(corners, r, scale_, height, width);
      finite_.Require(quad.IsFinite(), "RoI", r);
      start(r, quad);
      for (int64_t place = 0; place < height * width; ++place) {
        if (place % 1024 == 0) CheckTimeLimit("transforming regions");
        PlaneWeights b;
        const bool in = quad.WeightsAt(place % width, place / width, x_[2], x_[3], &b);
        visit(r, image_of[static_cast<size_t>(r)], place, in ? &b : nullptr);
      }
    }
  }
  // Calls visit(element of Out, first element of the channel of X) for each channel.
  template <class Visit>
  void ForEachChannel(int64_t roi, int64_t image, int64_t place, const Visit& visit) const {
    const int64_t channels = x_[1];
    for (int64_t c = 0; c < channels; ++c)
      visit((roi * channels + c) * out_[2] * out_[3] + place,
            (image * channels + c) * x_[2] * x_[3]);
  }

 private:
  RoiImages images_;
  RunConstraint finite_;
  TensorArg rois_;
  double scale_;
  Shape x_, out_;
};

template <class T>
KernelOf<T> Transform(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const TensorArg mask = ctx.Output("Mask"), matrix = ctx.Output("TransformMatrix");
  const TensorArg index = ctx.Output("Out2InIdx"), weight = ctx.Output("Out2InWeights");
  const Places places(ctx, x.shape, out.shape);
  const int64_t columns = x.shape[3], size = out.shape[2] * out.shape[3];
  return [=](Workspace& ws) {
    const T* from = ws.Data<const T>(x);
    T* to = ws.Data<T>(out);
    T* map = matrix ? ws.Data<T>(matrix) : nullptr;
    T* weights = weight ? ws.Data<T>(weight) : nullptr;
    auto* inside = mask ? ws.Data<int32_t>(mask) : nullptr;
    auto* indices = index ? ws.Data<int64_t>(index) : nullptr;
    const auto write_map = [&](int64_t r, const Quad& quad) {
      for (int64_t k = 0; map && k < 9; ++k) map[9 * r + k] = static_cast<T>(quad.matrix(k));
    };
    places.ForEach(ws, write_map,
                   [&](int64_t r, int64_t image, int64_t place, const PlaneWeights* b) {
                     if (inside) inside[r * size + place] = b != nullptr;
                     places.ForEachChannel(r, image, place, [&](int64_t o, int64_t plane) {
                       to[o] = T(0);
                       for (int64_t k = 4 * o; k < 4 * o + 4; ++k) {
                         if (indices) indices[k] = -1;
                         if (weights) weights[k] = T(0);
                       }
                       if (!b) return;
                       double sum = 0;
                       int64_t k = 4 * o;
                       b->ForEach(columns, [&](int64_t at, double w) {
                         sum += w * static_cast<double>(from[plane + at]);
                         if (indices) indices[k] = plane + at;
                         if (weights) weights[k] = static_cast<T>(w);
                         ++k;
                       });
                       to[o] = static_cast<T>(sum);
                     });
                   });
  };
}

void InferTransformGrad(InferContext& ctx) {
  const Shape out = OutShape(ctx);
  const VarMeta &x = ctx.Input("X"), &dout = ctx.Input("Out@GRAD");
  ctx.Require("C5", dout.dtype == x.dtype && dout.shape.CompatibleWith(out), "Out@GRAD", dout,
              "Out", out);
  ctx.SetOutput("X@GRAD", x);
}

// Recomputes the sampled elements instead of reading Out2InIdx, which Paddle's CPU kernel does
// not write.
template <class T>
KernelOf<T> TransformGrad(const PrepareContext& ctx) {
  const TensorArg dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const Places places(ctx, dx.shape, dout.shape);
  const int64_t columns = dx.shape[3];
  return [=](Workspace& ws) {
    const T* from = ws.Data<const T>(dout);
    T* to = ws.Data<T>(dx);
    std::fill_n(to, dx.numel, T(0));
    places.ForEach(
        ws, [](int64_t, const Quad&) {},
        [&](int64_t r, int64_t image, int64_t place, const PlaneWeights* b) {
          if (!b) return;
          places.ForEachChannel(r, image, place, [&](int64_t o, int64_t plane) {
            b->ForEach(columns, [&](int64_t at, double w) {
              to[plane + at] += static_cast<T>(w) * from[o];
            });
          });
        });
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("roi_perspective_transform")
              .Doc("Out = X, sampled bilinearly by a perspective map that turns each RoI, a "
                   "quadrilateral, into an upright rectangle. With the corners p0 to p3, times "
                   "spatial_scale, column u and row v of Out lie at ((m0 u + m1 v + m2) / z, (m3 u "
                   "+ m4 v + m5) / z), z = m6 u + m7 v + 1. The RoI fills h = "
                   "max(transformed_height, 2) rows, and as many columns w as keep the ratio of "
                   "the mean lengths of opposite sides, from 2 to transformed_width. d1 = p1 - p2, "
                   "d2 = p3 - p2, d3 = p0 - p1 + p2 - p3; D = d1 x d2 + 1e-5; m6 = (d3 x d2) / D / "
                   "(w - 1), m7 = (d1 x d3) / D / (h - 1); (m0, m3) = (p1 - p0) / (w - 1) + m6 p1, "
                   "(m1, m4) = (p3 - p0) / (h - 1) + m7 p3, (m2, m5) = p0. Positions outside of "
                   "the RoI, or more than half a cell outside of X, are 0.")
              .Constraint("C1", "X must be [N, C, H, W]")
              .Constraint("C2", "ROIs must be [R, 8], of X's dtype")
              .Constraint("C3", "there must be RoIs for each image")
              .Constraint("C4", "corners of RoIs must be finite")
              .Apply(DeclareQuads)
              .Output("Out", "tensor [R, C, transformed_height, transformed_width]")
              .OptionalOutput("Mask",
                              "int32 tensor [R, 1, transformed_height, transformed_width]: 1 "
                              "inside of the RoI and of X, else 0")
              .OptionalOutput(
                  "TransformMatrix",
                  "m0 to m7 and 1 of each RoI, [R, 9]; gradients do not flow back through it")
              .IntermediateOutput("Out2InIdx",
                                  "int64 tensor [elements of Out, 4]: the elements of X that were "
                                  "sampled; -1 where Out is 0")
              .IntermediateOutput("Out2InWeights", "their weights, of the same shape")
              .Attr<float>("spatial_scale", 1.f, "cells of X for a pixel of the image")
              .Attr<int32_t>("transformed_height", 1, "rows of Out")
              .Range(1, {})
              .Attr<int32_t>("transformed_width", 1, "columns of Out")
              .Range(1, {})
              .LodFrom("ROIs")
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer(InferTransform)
              .GradientOp({"X", "ROIs"})
              .Reference(Transform<float>, Transform<double>));
  ops.Add(OpDef("roi_perspective_transform_grad")
              .Doc("Gradient of roi_perspective_transform: each element of Out@GRAD, times the "
                   "weights, is added to the sampled elements of X.")
              .ConstraintsOf("roi_perspective_transform", {"C1", "C2", "C3", "C4"})
              .Apply(DeclareQuads)
              .Constraint("C5", "Out@GRAD must have Out's shape and dtype")
              .OptionalInput("Out2InIdx", "not read")
              .OptionalInput("Out2InWeights", "not read")
              .Input("Out@GRAD", "gradient of Out")
              .Output("X@GRAD", "gradient of X")
              .AttrsOf("roi_perspective_transform")
              .NoGradient("second derivatives of RoI pooling are not provided")
              .Infer(InferTransformGrad)
              .Reference(TransformGrad<float>, TransformGrad<double>));
}

}  // namespace coracle::roi_perspective_transform_op
