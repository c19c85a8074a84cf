// rpn_target_assign and retinanet_target_assign: assign targets to anchors.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/detection/boxes.h>
#include <coracle/operators/detection/target_sampling.h>

#include <cmath>
#include <limits>

namespace coracle::rpn_target_assign_op {

constexpr double kNearlyBest = 1e-5;

bool IsRetina(const std::string& type) { return type == "retinanet_target_assign"; }

void InferAssign(InferContext& ctx) {
  const bool retina = IsRetina(ctx.op().type());
  const VarMeta &anchor = ctx.Input("Anchor"), &gt = ctx.Input("GtBoxes");
  const VarMeta& info = ctx.Input("ImInfo");
  RequireDTypeOf(ctx, "C1", "Anchor", {"GtBoxes", "ImInfo"});
  for (const VarMeta* m : {&anchor, &gt})
    ctx.Require("C2", m->shape.rank() == 2 && InferContext::Matches(m->shape[1], 4), *m);
  for (const char* slot : {"IsCrowd", "GtLabels"}) {
    if (slot == std::string_view("GtLabels") && !retina) continue;
    const VarMeta& m = ctx.Input(slot);
    const int64_t n = m.shape.IsKnown() ? m.shape.numel() : -1;
    ctx.Require("C3", IsIndexType(m.dtype) && InferContext::Matches(n, gt.shape[0]), slot, m,
                "GtBoxes", gt);
  }
  ctx.Require("C4", info.shape.rank() == 2 && InferContext::Matches(info.shape[1], 3), info);
  const auto set = [&](const char* slot, DType dtype, const Shape& shape) {
    ctx.SetOutput(slot, {VarType::kLoDTensor, dtype, shape, 1});
  };
  set("LocationIndex", DType::kInt32, {-1});
  set("ScoreIndex", DType::kInt32, {-1});
  set("TargetLabel", DType::kInt32, {-1, 1});
  set("TargetBBox", anchor.dtype, {-1, 4});
  set("BBoxInsideWeight", anchor.dtype, {-1, 4});
  if (retina) ctx.SetOutput("ForegroundNumber", DType::kInt32, {info.shape[0], 1});
}

struct AssignOptions {
  bool retina, at_random = false;
  double positive, negative, straddle = -1, foreground = 1;
  size_t batch = std::numeric_limits<size_t>::max(), most_foreground = batch;

  explicit AssignOptions(const PrepareContext& ctx) : retina(IsRetina(ctx.op().type())) {
    positive = ctx.Attr<float>(retina ? "positive_overlap" : "rpn_positive_overlap");
    negative = ctx.Attr<float>(retina ? "negative_overlap" : "rpn_negative_overlap");
    if (retina) return;
    at_random = ctx.Attr<bool>("use_random");
    straddle = ctx.Attr<float>("rpn_straddle_thresh");
    batch = static_cast<size_t>(ctx.Attr<int32_t>("rpn_batch_size_per_im"));
    most_foreground = PartOf(batch, ctx.Attr<float>("rpn_fg_fraction"));
  }
};

struct GroundTruth {
  Box box;
  int64_t label;
};

// The anchors of one image that may be sampled, and their overlaps with its ground truth.
struct Overlaps {
  std::vector<int64_t> anchors;  // their indices
  std::vector<double> largest;   // for each of them
  std::vector<size_t> best;   // the ground truth with that overlap, the first if several are equal
  std::vector<bool> is_best;  // nearly the best anchor of some ground truth

  Overlaps(const Reals& anchor, const std::vector<int64_t>& kept,
           const std::vector<GroundTruth>& gts)
      : anchors(kept), largest(kept.size(), 0), best(kept.size(), 0), is_best(kept.size(), false) {
    std::vector<double> of_gt(gts.size(), 0);
    for (size_t i = 0; i < anchors.size(); ++i) {
      if (i % 4096 == 0) CheckTimeLimit("matching anchors");
      const Box box = ReadBox(anchor, 4 * anchors[i]);
      for (size_t j = 0; j < gts.size(); ++j) {
        const double overlap = GrownOverlap(box, gts[j].box, 1);
        of_gt[j] = std::max(of_gt[j], overlap);
        if (!(overlap > largest[i])) continue;
        largest[i] = overlap;
        best[i] = j;
      }
    }
    for (size_t i = 0; i < anchors.size(); ++i) {
      if (i % 4096 == 0) CheckTimeLimit("matching anchors");
      const Box box = ReadBox(anchor, 4 * anchors[i]);
      for (size_t j = 0; j < gts.size() && !is_best[i]; ++j)
        is_best[i] = std::abs(GrownOverlap(box, gts[j].box, 1) - of_gt[j]) < kNearlyBest;
    }
  }
};

// The results for all images.
struct Assigned {
  GrowingRows location, score, label, target, weight;

  void Write(Workspace& ws, const std::vector<TensorArg>& outs, DType dtype) const {
    const GrowingRows* rows[] = {&location, &score, &label, &target, &weight};
    for (size_t i = 0; i < 3; ++i) rows[i]->Write(ws, outs[i], DType::kInt32, 1);
    for (size_t i = 3; i < 5; ++i) rows[i]->Write(ws, outs[i], dtype, 4);
  }
};

// Indices below refer to `o.anchors`; `first` is the index of the image's first anchor.
void AssignImage(const AssignOptions& options, const Overlaps& o, const Reals& anchor,
                 const std::vector<GroundTruth>& gts, int64_t first, Draws* draws, Assigned* to) {
  std::vector<int64_t> foreground, background;
  for (size_t i = 0; i < o.anchors.size(); ++i) {
    if (!gts.empty() && (o.is_best[i] || o.largest[i] >= options.positive))
      foreground.push_back(static_cast<int64_t>(i));
    if (o.largest[i] < options.negative) background.push_back(static_cast<int64_t>(i));
  }
  draws->Sample(options.most_foreground, options.at_random, &foreground);
  draws->Sample(options.batch - std::min(options.batch, foreground.size()), options.at_random,
                &background);
  const auto locate = [&](int64_t i, double weight) {
    const auto at = static_cast<size_t>(i);
    to->location.values.push_back(static_cast<double>(first + o.anchors[at]));
    const BoxDeltas d = EncodeBox(gts[o.best[at]].box, ReadBox(anchor, 4 * o.anchors[at]), 1);
    to->target.Add({d.x, d.y, d.w, d.h});
    to->weight.Add({weight, weight, weight, weight});
  };
  const auto score = [&](int64_t i, int64_t label) {
    to->score.values.push_back(static_cast<double>(first + o.anchors[static_cast<size_t>(i)]));
    to->label.values.push_back(static_cast<double>(label));
  };
  const auto is_background = [&](int64_t i) {
    return std::binary_search(background.begin(), background.end(), i);
  };
  // A placeholder with weight 0 for each foreground anchor that became background.
  for (int64_t i : foreground) {
    if (is_background(i)) locate(foreground[0], 0);
  }
  for (int64_t i : foreground) {
    if (is_background(i)) continue;
    locate(i, 1);
    score(i, options.retina ? gts[o.best[static_cast<size_t>(i)]].label : 1);
  }
  for (int64_t i : background) score(i, 0);
  for (GrowingRows* rows : {&to->location, &to->score, &to->label}) rows->EndImage(1);
  for (GrowingRows* rows : {&to->target, &to->weight}) rows->EndImage(4);
}

// Anchors that leave the image by at most `straddle` pixels; all if `straddle` is negative.
std::vector<int64_t> AnchorsInside(const Reals& anchor, int64_t count, double straddle,
                                   double height, double width) {
  std::vector<int64_t> kept;
  for (int64_t i = 0; i < count; ++i) {
    const Box b = ReadBox(anchor, 4 * i);
    if (straddle < 0 || (b.x1 >= -straddle && b.y1 >= -straddle && b.x2 < width + straddle &&
                         b.y2 < height + straddle))
      kept.push_back(i);
  }
  return kept;
}

Kernel TargetAssign(const PrepareContext& ctx) {
  const AssignOptions options(ctx);
  const TensorArg anchor = ctx.Input("Anchor"), gt = ctx.Input("GtBoxes");
  const TensorArg crowd = ctx.Input("IsCrowd"), info = ctx.Input("ImInfo");
  const TensorArg labels = options.retina ? ctx.Input("GtLabels") : TensorArg();
  std::vector<TensorArg> outs;
  for (const char* slot :
       {"LocationIndex", "ScoreIndex", "TargetLabel", "TargetBBox", "BBoxInsideWeight"})
    outs.push_back(ctx.Output(slot));
  const TensorArg number = options.retina ? ctx.Output("ForegroundNumber") : TensorArg();
  const ImagesArg images(ctx, "GtBoxes", nullptr, "C4");
  const uint64_t stream = ctx.RandomStream("LocationIndex");
  const int64_t count = anchor.shape[0];
  return [=](Workspace& ws) {
    const RowOffsets offsets = images(ws, info.shape[0]);
    const Reals anchors(ws, anchor), boxes(ws, gt), sizes(ws, info);
    const IndexReader is_crowd(ws, crowd);
    Draws draws(ws, stream);
    Assigned found;
    for (int64_t n = 0; n < info.shape[0]; ++n) {
      std::vector<GroundTruth> gts;
      for (int64_t r = Sequences(offsets).begin(n); r < Sequences(offsets).end(n); ++r) {
        if (is_crowd[r] != 0) continue;
        gts.push_back({Scaled(ReadBox(boxes, 4 * r), sizes[3 * n + 2]),
                       options.retina ? IndexReader(ws, labels)[r] : 1});
      }
      const std::vector<int64_t> kept =
          AnchorsInside(anchors, count, options.straddle, sizes[3 * n], sizes[3 * n + 1]);
      AssignImage(options, Overlaps(anchors, kept, gts), anchors, gts, n * count, &draws, &found);
      if (number)
        ws.Data<int32_t>(number)[n] =
            static_cast<int32_t>(Sequences(found.location.offsets).length(n) + 1);
    }
    found.Write(ws, outs, anchor.dtype);
  };
}

OpDef AssignOp(const std::string& type) {
  OpDef def(type);
  def.Constraint("C1", "floating-point inputs must have one dtype")
      .Constraint("C2", "Anchor must be [A, 4] and GtBoxes [G, 4]")
      .Constraint("C3", "there must be one int32 or int64 number for each of GtBoxes")
      .Constraint("C4",
                  "ImInfo must be [N, 3], and GtBoxes must have boxes for each of the N images")
      .Input("Anchor", "[A, 4]")
      .Input("GtBoxes", "true boxes [G, 4], with LoD for several images")
      .Input("IsCrowd", "int32 or int64 tensor [G, 1]; true boxes with 1 are left out")
      .Input("ImInfo", "tensor [N, 3]: height, width, scale of each image")
      .Output("LocationIndex", "int32 vector: image A + anchor, for the loss of boxes")
      .Output("ScoreIndex", "int32 vector: image A + anchor, for the loss of classes")
      .Output("TargetBBox", "deltas of the true box, [locations, 4]")
      .Output("TargetLabel", "int32 tensor [scores, 1]")
      .Output("BBoxInsideWeight", "weights 1 or 0, [locations, 4]")
      .RunTimeShape()
      .MakesLod()
      .NotDifferentiable("assigns targets")
      .Rows(RowRule::kMixes)
      .Infer(InferAssign)
      .Reference<float, double>(ForReals{TargetAssign});
  return def;
}

void Register(OpRegistry& ops) {
  ops.Add(AssignOp("rpn_target_assign")
              .Doc("Samples anchors of each image for training, among the anchors that leave the "
                   "image by at most rpn_straddle_thresh pixels. An anchor is foreground if its "
                   "overlap with a true box (times scale) is within 1e-5 of the best for this box, "
                   "or at least rpn_positive_overlap. It is background, with label 0, if its "
                   "largest overlap is below rpn_negative_overlap. A sample has at most "
                   "rpn_batch_size_per_im anchors, at most rpn_fg_fraction of them foreground. A "
                   "foreground anchor that is also sampled as background is background; the first "
                   "foreground anchor takes its place with weight 0.")
              .Attr<int32_t>("rpn_batch_size_per_im", 256, "size of the sample of an image")
              .Range(0, {})
              .Attr<float>("rpn_straddle_thresh",
                           "largest number of pixels that an anchor may leave the image by; "
                           "negative: any number")
              .Attr<float>("rpn_positive_overlap", 0.7f, "smallest overlap of foreground")
              .Attr<float>("rpn_negative_overlap", 0.3f, "overlaps of background are below")
              .Attr<float>("rpn_fg_fraction", 0.25f, "largest share of foreground in a sample")
              .Range(0, 1)
              .Attr<bool>("use_random", true, "sample at random, or else the first")
              .Random());
  ops.Add(AssignOp("retinanet_target_assign")
              .Doc("Assigns targets to the anchors of each image. An anchor is foreground if its "
                   "overlap with a true box (times scale) is within 1e-5 of the best for this box, "
                   "or at least positive_overlap. It is background, with label 0, if its largest "
                   "overlap is below negative_overlap. An anchor that is both is background; the "
                   "first foreground anchor takes its place with weight 0.")
              .Input("GtLabels", "int32 or int64 labels of the true boxes, [G, 1]")
              .Output("ForegroundNumber", "int32 tensor [N, 1]: locations of the image, plus 1")
              .Attr<float>("positive_overlap", 0.5f, "smallest overlap of foreground")
              .Attr<float>("negative_overlap", 0.4f, "overlaps of background are below"));
}

}  // namespace coracle::rpn_target_assign_op
