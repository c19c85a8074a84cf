#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/detection/boxes.h>
#include <coracle/operators/detection/images.h>
#include <coracle/operators/detection/polygon_mask.h>
#include <coracle/operators/detection/reals.h>

namespace coracle::generate_mask_labels_op {

void InferMasks(InferContext& ctx) {
  const VarMeta &info = ctx.Input("ImInfo"), &gt = ctx.Input("GtClasses");
  const VarMeta &points = ctx.Input("GtSegms"), &rois = ctx.Input("Rois");
  RequireDTypeOf(ctx, "C1", "ImInfo", {"GtSegms", "Rois"});
  ctx.Require("C2", info.shape.rank() == 2 && InferContext::Matches(info.shape[1], 3), info);
  ctx.Require("C2", points.shape.rank() == 2 && InferContext::Matches(points.shape[1], 2), points);
  ctx.Require("C2", rois.shape.rank() == 2 && InferContext::Matches(rois.shape[1], 4), rois);
  const auto numel = [](const VarMeta& m) { return m.shape.IsKnown() ? m.shape.numel() : -1; };
  const VarMeta &crowd = ctx.Input("IsCrowd"), &labels = ctx.Input("LabelsInt32");
  ctx.Require("C3",
              IsIndexType(gt.dtype) && IsIndexType(crowd.dtype) &&
                  InferContext::Matches(numel(crowd), numel(gt)),
              "GtClasses", gt, "IsCrowd", crowd);
  ctx.Require("C4",
              IsIndexType(labels.dtype) && InferContext::Matches(numel(labels), rois.shape[0]),
              "LabelsInt32", labels, "Rois", rois);
  const int64_t side = ctx.Attr<int32_t>("resolution");
  const int64_t width = CheckedMul(side, side, int64_t{ctx.Attr<int32_t>("num_classes")});
  ctx.SetOutput("MaskRois", {VarType::kLoDTensor, rois.dtype, {-1, 4}, 1});
  ctx.SetOutput("RoiHasMaskInt32", {VarType::kLoDTensor, DType::kInt32, {-1, 1}, 1});
  ctx.SetOutput("MaskInt32", {VarType::kLoDTensor, DType::kInt32, {-1, width}, 1});
}

// The levels of GtSegms: objects of each image, polygons of each object, points of each polygon.
// Without LoD, all points belong to one polygon.
class SegmentLevels {
 public:
  SegmentLevels(const PrepareContext& ctx, std::string_view id)
      : points_(ctx.Input("GtSegms")),
        images_(ctx.Input("ImInfo").shape[0]),
        objects_(ctx.Input("GtClasses").numel),
        fits_(ctx, id) {}

  LoD operator()(Workspace& ws) const {
    LoD levels = ws.LodOf(points_);
    if (levels.empty()) levels = {{0, 1}, {0, 1}, {0, static_cast<uint64_t>(points_.shape[0])}};
    fits_.Require(levels.size() == 3, "levels", levels.size());
    fits_.Require(Sequences(levels[0]).count() == images_, "images of GtSegms",
                  Sequences(levels[0]).count(), "images", images_);
    fits_.Require(Sequences(levels[1]).count() == objects_, "objects of GtSegms",
                  Sequences(levels[1]).count(), "classes", objects_);
    fits_.Require(levels[2].back() == static_cast<uint64_t>(points_.shape[0]), "points",
                  levels[2].back(), "rows", points_.shape[0]);
    return levels;
  }

 private:
  TensorArg points_;
  int64_t images_, objects_;
  RunConstraint fits_;
};

// An object with a mask: its polygons, and their bounding box.
struct Outline {
  int64_t first, last;  // polygons
  Box hull;
};

Outline OutlineOf(const LoD& levels, const Reals& points, int64_t object) {
  const Sequences polygons(levels[1]), of_polygon(levels[2]);
  Outline o = {polygons.begin(object), polygons.end(object), {}};
  const int64_t begin = of_polygon.begin(o.first), end = of_polygon.begin(o.last);
  for (int64_t i = begin; i < end; ++i) {
    const double x = points[2 * i], y = points[2 * i + 1];
    const Box& h = o.hull;
    o.hull = i == begin
                 ? Box{x, y, x, y}
                 : Box{std::min(h.x1, x), std::min(h.y1, y), std::max(h.x2, x), std::max(h.y2, y)};
  }
  return o;
}

// A row of the outputs.
struct MaskRow {
  int64_t roi, of_image;  // row of Rois, counted over all images and in the image
  int64_t label;          // 0: without a mask
  Outline outline;
  Box box;  // in the original image
};

// Adds the rows of an image: its foreground RoIs, each with the outline that overlaps most; without
// foreground, the first background RoI.
void AddRows(const Reals& rois, const IndexReader& labels, int64_t begin, int64_t end, double scale,
             const std::vector<Outline>& outlines, std::vector<MaskRow>* to) {
  const size_t before = to->size();
  for (int64_t r = begin; r < end && !outlines.empty(); ++r) {
    if (labels[r] <= 0) continue;
    CheckTimeLimit("labelling masks");
    const Box box = Scaled(ReadBox(rois, 4 * r), 1 / scale);
    const Outline* best = nullptr;
    double most = -1;
    for (const Outline& o : outlines) {
      const double overlap = Overlap(box, o.hull, 1);
      if (overlap > most) best = &o, most = overlap;
    }
    to->push_back({r, r - begin, labels[r], *best, box});
  }
  for (int64_t r = begin; r < end && to->size() == before; ++r) {
    if (labels[r] == 0) to->push_back({r, r - begin, 0, {}, {}});
  }
}

// Draws the polygons of a row, relative to its RoI, into a mask of side * side numbers
// (logical or).
void DrawOutline(const MaskRow& row, const LoD& levels, const Reals& points, int64_t side,
                 const RunConstraint& small, PolygonMask* mask, int32_t* to) {
  const Sequences of_polygon(levels[2]);
  const double x_scale = static_cast<double>(side) / std::max(row.box.Width(0), 1.0);
  const double y_scale = static_cast<double>(side) / std::max(row.box.Height(0), 1.0);
  for (int64_t p = row.outline.first; p < row.outline.last; ++p) {
    CheckTimeLimit("labelling masks");
    mask->Begin();
    for (int64_t i = of_polygon.begin(p); i < of_polygon.end(p); ++i) {
      if (i % 1024 == 0) CheckTimeLimit("labelling masks");
      const double x = (points[2 * i] - row.box.x1) * x_scale;
      const double y = (points[2 * i + 1] - row.box.y1) * y_scale;
      small.Require(PolygonMask::Reaches(x, y), "point", i, "RoI", row.roi, "x", x, "y", y);
      mask->LineTo(x, y);
    }
    mask->End(to);
  }
}

Kernel MaskLabels(const PrepareContext& ctx) {
  const TensorArg info = ctx.Input("ImInfo"), classes = ctx.Input("GtClasses");
  const TensorArg crowd = ctx.Input("IsCrowd"), segments = ctx.Input("GtSegms");
  const TensorArg rois = ctx.Input("Rois"), labels = ctx.Input("LabelsInt32");
  const TensorArg boxes_out = ctx.Output("MaskRois"), roi_out = ctx.Output("RoiHasMaskInt32");
  const TensorArg mask_out = ctx.Output("MaskInt32");
  const SegmentLevels levels_of(ctx, "C5");
  const ImagesArg images(ctx, "Rois", nullptr, "C5");
  const RunConstraint is_class(ctx, "C6"), small(ctx, "C7");
  const int64_t side = ctx.Attr<int32_t>("resolution"), area = side * side;
  const int64_t num_classes = ctx.Attr<int32_t>("num_classes");
  return [=](Workspace& ws) {
    const LoD levels = levels_of(ws);
    const RowOffsets roi_rows = images(ws, info.shape[0]);
    const Reals sizes(ws, info), points(ws, segments), roi(ws, rois);
    const IndexReader label(ws, labels), gt_class(ws, classes), is_crowd(ws, crowd);
    for (int64_t r = 0; r < rois.shape[0]; ++r)
      is_class.Require(label[r] < num_classes, "LabelsInt32", label[r], "num_classes", num_classes);

    std::vector<MaskRow> rows;
    RowOffsets offsets{0};
    for (int64_t n = 0; n < info.shape[0]; ++n) {
      std::vector<Outline> outlines;
      for (int64_t g = Sequences(levels[0]).begin(n); g < Sequences(levels[0]).end(n); ++g) {
        if (gt_class[g] > 0 && is_crowd[g] == 0) outlines.push_back(OutlineOf(levels, points, g));
      }
      AddRows(roi, label, Sequences(roi_rows).begin(n), Sequences(roi_rows).end(n),
              sizes[3 * n + 2], outlines, &rows);
      offsets.push_back(rows.size());
    }

    const auto count = static_cast<int64_t>(rows.size());
    const RealsOut boxes(ResizeOutput(ws, boxes_out, rois.dtype, {count, 4}));
    auto* indices = ResizeOutput(ws, roi_out, DType::kInt32, {count, 1}).data<int32_t>();
    auto* masks =
        ResizeOutput(ws, mask_out, DType::kInt32, {count, num_classes * area}).data<int32_t>();
    for (const TensorArg& out : {boxes_out, roi_out, mask_out}) ws.OutputLod(out) = {offsets};
    std::fill_n(masks, count * num_classes * area, -1);
    PolygonMask mask(side);
    for (int64_t i = 0; i < count; ++i) {
      const MaskRow& row = rows[static_cast<size_t>(i)];
      WriteBox(boxes, 4 * i, ReadBox(roi, 4 * row.roi));
      indices[i] = static_cast<int32_t>(row.of_image);
      if (row.label == 0) continue;
      int32_t* to = masks + (i * num_classes + row.label) * area;
      std::fill_n(to, area, 0);
      DrawOutline(row, levels, points, side, small, &mask, to);
    }
  };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("generate_mask_labels")
          .Doc(
              "Outputs the foreground RoIs (label above 0) of each image, and for each a mask of "
              "resolution M in the block of its label: 1 inside the object, else 0; all other "
              "blocks are -1. The object of a RoI is the one whose bounding box overlaps most with "
              "the RoI (divided by the image's scale), among the objects of positive class that "
              "are not crowds; the first one if overlaps are equal. A cell of the mask is 1 if at "
              "least one polygon of the object covers it; polygons are drawn by the even-odd rule "
              "on a grid five times as fine as the M by M cells of the RoI. An image without "
              "foreground or objects has one row, filled with -1, for its first RoI of label 0.")
          .Constraint("C1", "floating-point inputs must have one dtype")
          .Constraint("C2", "ImInfo must be [N, 3], GtSegms [P, 2] and Rois [R, 4]")
          .Constraint("C3",
                      "GtClasses and IsCrowd must be int32 or int64, a number for each object")
          .Constraint("C4", "LabelsInt32 must be int32 or int64, a number for each RoI")
          .Constraint("C5",
                      "LoD must have N images, and the LoD of GtSegms three levels with the "
                      "objects of GtClasses")
          .Constraint("C6", "labels must be below num_classes")
          .Constraint("C7", "points must lie within 2^20 mask cells of their RoI")
          .Input("ImInfo", "tensor [N, 3]: height, width, scale of each image")
          .Input("GtClasses", "int32 or int64 classes of the objects, [G, 1]")
          .Input("IsCrowd", "int32 or int64 tensor [G, 1]; 1: a crowd of objects")
          .Input("GtSegms",
                 "points x, y of polygons in the original image, [P, 2], with LoD of objects of "
                 "each image, polygons of each object, points of each polygon; without it, one "
                 "polygon")
          .Input("Rois", "RoIs in the scaled image, [R, 4], with LoD for several images")
          .Input("LabelsInt32", "int32 or int64 labels of the RoIs, [R, 1]")
          .Output("MaskRois", "the chosen RoIs, [n, 4] with LoD of images")
          .Output("RoiHasMaskInt32", "int32 tensor [n, 1]: their numbers in the image")
          .Output("MaskInt32", "int32 tensor [n, num_classes M^2]")
          .Attr<int32_t>("num_classes", "number of classes, including the background")
          .Range(1, 1 << 20)
          .Attr<int32_t>("resolution", "M, rows and columns of a mask")
          .Range(1, 1 << 12)
          .RunTimeShape()
          .MakesLod()
          .NotDifferentiable("assigns targets")
          .Rows(RowRule::kEach)
          .Infer(InferMasks)
          .Reference<float, double>(ForReals{MaskLabels}));
}

}  // namespace coracle::generate_mask_labels_op
