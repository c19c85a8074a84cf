#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/detection/boxes.h>
#include <coracle/operators/detection/target_sampling.h>
#include <coracle/operators/kernels/copy.h>

#include <cmath>

namespace coracle::generate_proposal_labels_op {

using Floats = std::vector<float>;

void InferLabels(InferContext& ctx) {
  const VarMeta &rois = ctx.Input("RpnRois"), &gt = ctx.Input("GtBoxes");
  const VarMeta& info = ctx.Input("ImInfo");
  RequireDTypeOf(ctx, "C1", "RpnRois", {"GtBoxes", "ImInfo", "MaxOverlap"});
  for (const VarMeta* m : {&rois, &gt})
    ctx.Require("C2", m->shape.rank() == 2 && InferContext::Matches(m->shape[1], 4), *m);
  for (const char* slot : {"IsCrowd", "GtClasses"}) {
    const VarMeta& m = ctx.Input(slot);
    const int64_t n = m.shape.IsKnown() ? m.shape.numel() : -1;
    ctx.Require("C3", IsIndexType(m.dtype) && InferContext::Matches(n, gt.shape[0]), slot, m,
                "GtBoxes", gt);
  }
  ctx.Require("C4", info.shape.rank() == 2 && InferContext::Matches(info.shape[1], 3), info);
  const bool cascade = ctx.Attr<bool>("is_cascade_rcnn");
  ctx.Require("C5", !cascade || ctx.HasInput("MaxOverlap"), "is_cascade_rcnn", cascade);
  if (ctx.HasInput("MaxOverlap")) {
    const Shape& m = ctx.InputShape("MaxOverlap");
    ctx.Require("C5", InferContext::Matches(m.IsKnown() ? m.numel() : -1, rois.shape[0]), m);
  }
  const auto weights = ctx.Attr<Floats>("bbox_reg_weights");
  bool usable = weights.size() == 4;
  for (float w : weights) usable = usable && w != 0;
  ctx.Require("C6", usable, weights);
  const int64_t classes = ctx.Attr<int32_t>("class_nums");
  ctx.Require("C7", classes >= 2, classes);
  const auto set = [&](const char* slot, DType dtype, int64_t columns) {
    ctx.SetOutput(slot, {VarType::kLoDTensor, dtype, {-1, columns}, 1});
  };
  set("Rois", rois.dtype, 4);
  set("LabelsInt32", DType::kInt32, 1);
  for (const char* slot : {"BboxTargets", "BboxInsideWeights", "BboxOutsideWeights"})
    set(slot, rois.dtype, 4 * classes);
  ctx.SetOutput("MaxOverlapWithGT", {VarType::kLoDTensor, rois.dtype, {-1}, 1});
}

struct LabelOptions {
  bool at_random, cascade, agnostic;
  size_t batch, most_foreground;
  double fg, bg_high, bg_low;
  int64_t classes;
  Floats weights;

  explicit LabelOptions(const PrepareContext& ctx)
      : at_random(ctx.Attr<bool>("use_random")),
        cascade(ctx.Attr<bool>("is_cascade_rcnn")),
        agnostic(ctx.Attr<bool>("is_cls_agnostic")),
        batch(static_cast<size_t>(ctx.Attr<int32_t>("batch_size_per_im"))),
        most_foreground(PartOf(batch, ctx.Attr<float>("fg_fraction"))),
        fg(ctx.Attr<float>("fg_thresh")),
        bg_high(ctx.Attr<float>("bg_thresh_hi")),
        bg_low(ctx.Attr<float>("bg_thresh_lo")),
        classes(ctx.Attr<int32_t>("class_nums")),
        weights(ctx.Attr<Floats>("bbox_reg_weights")) {}
};

struct TrueBox {
  Box box;
  int64_t label;
  bool crowd;
};

// The samples of all images.
struct Labelled {
  GrowingRows rois, labels, overlaps;
  std::vector<int64_t> columns;  // for each RoI: first column of its four targets, or -1
  std::vector<double> targets;   // four for each RoI

  void EndImage() {
    rois.EndImage(4);
    for (GrowingRows* rows : {&labels, &overlaps}) rows->EndImage(1);
  }
  // A tensor [n, width] with the targets, or with 1 in their places, and 0 elsewhere.
  void WriteWide(Workspace& ws, const TensorArg& out, DType dtype, int64_t width, bool ones) const {
    if (!out) return;
    const auto rows = static_cast<int64_t>(columns.size());
    Tensor& to = ResizeOutput(ws, out, dtype, {rows, width});
    FillZeroBytes(to.raw(), to.nbytes());
    const RealsOut values(to);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t column = columns[static_cast<size_t>(row)];
      for (int64_t k = 0; column >= 0 && k < 4; ++k)
        values.Set(row * width + column + k, ones ? 1 : targets[static_cast<size_t>(4 * row + k)]);
    }
    ws.OutputLod(out) = {rois.offsets};
  }
};

// A candidate's largest overlap with a true box, and the first true box within 1e-5 of it.
struct Match {
  double overlap = 0;
  size_t gt = 0;

  Match(const Box& box, const std::vector<TrueBox>& gts) {
    for (const TrueBox& t : gts) overlap = std::max(overlap, GrownOverlap(box, t.box, 1));
    while (gt < gts.size() && std::abs(GrownOverlap(box, gts[gt].box, 1) - overlap) >= 1e-5) ++gt;
  }
};

void AddRoi(const LabelOptions& o, const Box& box, const Match& match, double scale,
            const TrueBox* gt, Labelled* to) {
  to->rois.Add(Scaled(box, scale));
  to->labels.values.push_back(gt ? static_cast<double>(gt->label) : 0);
  to->overlaps.values.push_back(match.overlap);
  const bool has_target = gt && gt->label > 0;
  const BoxDeltas d = has_target ? EncodeBox(gt->box, box, 1) : BoxDeltas();
  to->columns.push_back(!has_target ? -1 : o.agnostic ? 4 : 4 * gt->label);
  to->targets.insert(to->targets.end(), {d.x / o.weights[0], d.y / o.weights[1], d.w / o.weights[2],
                                         d.h / o.weights[3]});
}

// `boxes` are the true boxes and then the RoIs, in the original image.
void LabelImage(const LabelOptions& o, const std::vector<Box>& boxes,
                const std::vector<TrueBox>& gts, double scale, Draws* draws, Labelled* to) {
  std::vector<Match> matches;
  std::vector<int64_t> foreground, background;
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (i % 1024 == 0) CheckTimeLimit("labelling proposals");
    matches.emplace_back(boxes[i], gts);
    double& overlap = matches.back().overlap;
    if (i < gts.size() && gts[i].crowd) overlap = -1;
    if (!gts.empty() && overlap >= o.fg)
      foreground.push_back(static_cast<int64_t>(i));
    else if (overlap >= o.bg_low && overlap < o.bg_high)
      background.push_back(static_cast<int64_t>(i));
  }
  if (!o.cascade) {
    draws->Sample(o.most_foreground, o.at_random, &foreground);
    draws->Sample(o.batch - std::min(o.batch, foreground.size()), o.at_random, &background);
  }
  for (const auto* chosen : {&foreground, &background}) {
    for (int64_t i : *chosen) {
      const Match& match = matches[static_cast<size_t>(i)];
      const TrueBox* gt = chosen == &foreground && match.gt < gts.size() ? &gts[match.gt] : nullptr;
      AddRoi(o, boxes[static_cast<size_t>(i)], match, scale, gt, to);
    }
  }
}

Kernel ProposalLabels(const PrepareContext& ctx) {
  const LabelOptions options(ctx);
  const TensorArg rois = ctx.Input("RpnRois"), gt = ctx.Input("GtBoxes");
  const TensorArg classes = ctx.Input("GtClasses"), crowd = ctx.Input("IsCrowd");
  const TensorArg info = ctx.Input("ImInfo"), before = ctx.Input("MaxOverlap");
  const TensorArg rois_out = ctx.Output("Rois"), labels = ctx.Output("LabelsInt32");
  const TensorArg targets = ctx.Output("BboxTargets"), inside = ctx.Output("BboxInsideWeights");
  const TensorArg outside = ctx.Output("BboxOutsideWeights");
  const TensorArg overlaps = ctx.Output("MaxOverlapWithGT");
  const ImagesArg roi_images(ctx, "RpnRois", nullptr, "C4"),
      gt_images(ctx, "GtBoxes", nullptr, "C4");
  const RunConstraint is_class(ctx, "C7");
  const uint64_t stream = ctx.RandomStream("Rois");
  return [=](Workspace& ws) {
    const RowOffsets roi_rows = roi_images(ws, info.shape[0]);
    const RowOffsets gt_rows = gt_images(ws, info.shape[0]);
    const Reals roi(ws, rois), box(ws, gt), sizes(ws, info), last(ws, before);
    const IndexReader label(ws, classes), is_crowd(ws, crowd);
    Draws draws(ws, stream);
    Labelled found;
    for (int64_t n = 0; n < info.shape[0]; ++n) {
      const double scale = sizes[3 * n + 2];
      std::vector<TrueBox> gts;
      std::vector<Box> boxes;
      for (int64_t r = Sequences(gt_rows).begin(n); r < Sequences(gt_rows).end(n); ++r) {
        is_class.Require(label[r] >= 0 && label[r] < options.classes, "GtClasses", label[r],
                         "class_nums", options.classes);
        gts.push_back({ReadBox(box, 4 * r), label[r], is_crowd[r] != 0});
        boxes.push_back(gts.back().box);
      }
      for (int64_t r = Sequences(roi_rows).begin(n); r < Sequences(roi_rows).end(n); ++r) {
        const Box b = Scaled(ReadBox(roi, 4 * r), 1 / scale);
        const bool usable = b.Width(1) > 0 && b.Height(1) > 0;
        if (!options.cascade || (usable && last[r] < 1)) boxes.push_back(b);
      }
      if (boxes.size() == gts.size() && options.cascade) boxes.push_back({});
      if (Sequences(roi_rows).length(n) > 0) LabelImage(options, boxes, gts, scale, &draws, &found);
      found.EndImage();
    }
    found.rois.Write(ws, rois_out, rois.dtype, 4);
    found.labels.Write(ws, labels, DType::kInt32, 1);
    found.overlaps.Write(ws, overlaps, rois.dtype, 1);
    found.WriteWide(ws, targets, rois.dtype, 4 * options.classes, false);
    for (const TensorArg& out : {inside, outside})
      found.WriteWide(ws, out, rois.dtype, 4 * options.classes, true);
  };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("generate_proposal_labels")
          .Doc("Samples boxes of each image for training. The candidates are its true boxes and "
               "its RoIs (divided by the image's scale). A candidate is foreground if its largest "
               "overlap with a true box is at least fg_thresh, and background, with label 0, if "
               "that overlap lies in [bg_thresh_lo, bg_thresh_hi). A sample has batch_size_per_im "
               "boxes; at most fg_fraction of them are foreground, and these come first. A "
               "foreground box has the class of the first true box within 1e-5 of its largest "
               "overlap, and in the four columns of this class (of class 1 if is_cls_agnostic) the "
               "deltas to that true box, divided by bbox_reg_weights. With is_cascade_rcnn the "
               "candidates are all RoIs that are not empty and whose MaxOverlap is below 1 (a box "
               "of zeros if there are none), and all are used. Crowds are never sampled; images "
               "without RoIs have no samples.")
          .Constraint("C1", "floating-point inputs must have one dtype")
          .Constraint("C2", "RpnRois must be [R, 4] and GtBoxes [G, 4]")
          .Constraint("C3", "there must be one int32 or int64 number for each of GtBoxes")
          .Constraint("C4",
                      "ImInfo must be [N, 3], and there must be boxes for each of the N images")
          .Constraint("C5", "MaxOverlap must have R elements; is_cascade_rcnn needs it")
          .Constraint("C6", "bbox_reg_weights must be four numbers that are not 0")
          .Constraint("C7",
                      "class_nums must be 2 or more, and GtClasses must lie in [0, class_nums)")
          .Input("RpnRois", "[R, 4]; RoIs in the scaled image, with LoD for several images")
          .Input("GtClasses", "int32 or int64 classes of the true boxes, [G, 1]")
          .Input("IsCrowd", "int32 or int64 tensor [G, 1]; 1: a crowd of objects in one box")
          .Input("GtBoxes", "[G, 4]; true boxes, with LoD for several images")
          .Input("ImInfo", "tensor [N, 3]: height, width, scale of each image")
          .OptionalInput("MaxOverlap", "vector [R]: MaxOverlapWithGT of the previous stage")
          .Output("Rois", "RoIs in the scaled image, [n, 4] with LoD of images")
          .Output("LabelsInt32", "int32 tensor [n, 1]")
          .Output("BboxTargets", "tensor [n, 4 class_nums]")
          .Output("BboxInsideWeights", "1 where there is a target, else 0, [n, 4 class_nums]")
          .Output("BboxOutsideWeights", "the same")
          .OptionalOutput("MaxOverlapWithGT", "vector [n]: the largest overlap")
          .Attr<int32_t>("batch_size_per_im", "size of the sample of an image")
          .Range(0, {})
          .Attr<float>("fg_fraction", "largest share of foreground in a sample")
          .Range(0, 1)
          .Attr<float>("fg_thresh", "smallest overlap of foreground")
          .Attr<float>("bg_thresh_hi", "upper bound of the overlaps of background, exclusive")
          .Attr<float>("bg_thresh_lo", "smallest overlap of background")
          .Attr<Floats>("bbox_reg_weights", "divisors of the deltas")
          .Attr<int32_t>("class_nums", "classes with the background")
          .Range(1, 1 << 20)
          .Attr<bool>("use_random", true, "sample at random; otherwise the first ones are taken")
          .Attr<bool>("is_cascade_rcnn", false, "a later stage of a cascade")
          .Attr<bool>("is_cls_agnostic", false, "targets do not depend on the class")
          .RunTimeShape()
          .MakesLod()
          .Random()
          .NotDifferentiable("assigns targets")
          .Rows(RowRule::kEach)
          .Infer(InferLabels)
          .Reference<float, double>(ForReals{ProposalLabels}));
}

}  // namespace coracle::generate_proposal_labels_op
