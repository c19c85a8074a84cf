#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/detection/detections.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace coracle::retinanet_detection_output_op {

void InferOutput(InferContext& ctx) {
  const size_t levels = ctx.NumInputs("BBoxes");
  ctx.Require("C1", ctx.NumInputs("Scores") == levels && ctx.NumInputs("Anchors") == levels,
              "BBoxes", levels, "Scores", ctx.NumInputs("Scores"), "Anchors",
              ctx.NumInputs("Anchors"));
  RequireDTypeOf(ctx, "C2", "BBoxes", {"BBoxes", "Scores", "Anchors", "ImInfo"});
  const VarMeta& info = ctx.Input("ImInfo");
  ctx.Require("C3", info.shape.rank() == 2 && InferContext::Matches(info.shape[1], 3), info);
  int64_t classes = -1;
  for (size_t i = 0; i < levels; ++i) {
    const VarMeta &box = ctx.Input("BBoxes", i), &score = ctx.Input("Scores", i);
    const VarMeta& anchor = ctx.Input("Anchors", i);
    const bool ranks = score.shape.rank() == 3 && anchor.shape.rank() == 2;
    const bool fits = ranks &&
                      score.shape.CompatibleWith({info.shape[0], anchor.shape[0], classes}) &&
                      box.shape.CompatibleWith({info.shape[0], anchor.shape[0], 4}) &&
                      InferContext::Matches(anchor.shape[1], 4);
    ctx.Require("C4", fits, "BBoxes", box, "Scores", score, "Anchors", anchor);
    classes = std::max(classes, score.shape[2]);
  }
  ctx.SetOutput("Out", {VarType::kLoDTensor, ctx.InputDType("BBoxes"), {-1, 6}, 1});
}

struct OutputOptions {
  double threshold;
  int64_t top_k, keep_top_k;
  NmsOptions nms;
};

// Boxes and scores of one class in an image.
struct ClassBoxes {
  std::vector<double> boxes, scores;
};

// One level of the pyramid: deltas [N, A, 4], scores [N, A, C] and anchors [A, 4].
struct Level {
  Reals deltas, scores, anchors;
  int64_t count, classes;

  // Adds the best boxes of an image to their classes.
  void Search(const OutputOptions& o, double threshold, int64_t image, const Box& clip,
              double scale, std::map<int64_t, ClassBoxes>* found) const {
    std::vector<double> all = CopyReals(scores, image * count * classes, count * classes);
    std::vector<int64_t> best;
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i] > threshold) best.push_back(static_cast<int64_t>(i));
    }
    SortByScore(all.data(), o.top_k, &best);
    for (int64_t i : best) {
      const int64_t anchor = i / classes;
      const Box d = ReadBox(deltas, 4 * (image * count + anchor));
      const Box box = DecodeBox({d.x1, d.y1, d.x2, d.y2}, ReadBox(anchors, 4 * anchor), 1);
      const Box b = Clipped(Scaled(box, 1 / scale), clip.x2, clip.y2);
      ClassBoxes& to = (*found)[i % classes];
      to.boxes.insert(to.boxes.end(), {b.x1, b.y1, b.x2, b.y2});
      to.scores.push_back(all[static_cast<size_t>(i)]);
    }
  }
};

std::vector<Detection> Suppress(const OutputOptions& o,
                                const std::map<int64_t, ClassBoxes>& classes) {
  std::vector<Detection> found;
  for (const auto& [c, of] : classes) {
    std::vector<int64_t> order(of.scores.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
    SortByScore(of.scores.data(), -1, &order);
    for (int64_t i : SuppressNonMaxima(o.nms, of.boxes.data(), order)) {
      const auto at = of.boxes.begin() + 4 * i;
      found.push_back({c + 1, of.scores[static_cast<size_t>(i)], i, {at, at + 4}});
    }
  }
  KeepBest(o.keep_top_k, &found);
  return found;
}

Kernel DetectionOutput(const PrepareContext& ctx) {
  const std::vector<TensorArg> boxes = ctx.Inputs("BBoxes"), scores = ctx.Inputs("Scores");
  const std::vector<TensorArg> anchors = ctx.Inputs("Anchors");
  const TensorArg info = ctx.Input("ImInfo"), out = ctx.Output("Out");
  OutputOptions options{ctx.Attr<float>("score_threshold"),
                        ctx.Attr<int32_t>("nms_top_k"),
                        ctx.Attr<int32_t>("keep_top_k"),
                        {ctx.Attr<float>("nms_threshold"), ctx.Attr<float>("nms_eta"), 1}};
  return [=](Workspace& ws) {
    const Reals sizes(ws, info);
    Detections all(4);
    const int64_t classes = scores[0].shape[2];
    for (int64_t n = 0; n < info.shape[0]; ++n) {
      CheckTimeLimit("searching for detections");
      const double scale = sizes[3 * n + 2];
      const Box clip{0, 0, std::round(sizes[3 * n + 1] / scale) - 1,
                     std::round(sizes[3 * n] / scale) - 1};
      std::map<int64_t, ClassBoxes> found;
      for (size_t k = 0; k < boxes.size(); ++k) {
        const Level level{Reals(ws, boxes[k]), Reals(ws, scores[k]), Reals(ws, anchors[k]),
                          anchors[k].shape[0], classes};
        // The last level has no threshold, so that there are always candidates.
        const double threshold = k + 1 < boxes.size() ? options.threshold : 0;
        level.Search(options, threshold, n, clip, scale, &found);
      }
      all.AddImage(Suppress(options, found));
    }
    all.WriteRows(ws, out, info.dtype);
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("retinanet_detection_output")
              .Doc("For each image and level: of all anchors and classes, the nms_top_k largest "
                   "scores over score_threshold (over 0 in the last level) give the boxes with the "
                   "anchors' deltas, divided by the image's scale and clipped to it. In each "
                   "class, over the boxes of all levels, only the best of boxes that overlap by "
                   "more than nms_threshold is kept. The keep_top_k best of each image remain, "
                   "best first. Labels are class + 1.")
              .Constraint("C1", "all slots must have the same number of levels")
              .Constraint("C2", "inputs must have one dtype")
              .Constraint("C3", "ImInfo must be [N, 3]")
              .Constraint("C4", "BBoxes must be [N, A, 4], Scores [N, A, C], Anchors [A, 4]")
              .VariadicInput("BBoxes", "deltas [N, A, 4] of each level")
              .VariadicInput("Scores", "scores [N, A, C] of each level")
              .VariadicInput("Anchors", "anchors [A, 4] of each level")
              .Input("ImInfo", "tensor [N, 3]: height, width, scale of each image")
              .Output("Out", "rows label, score, box, with LoD of images")
              .Attr<float>("score_threshold", "a detection has a larger score")
              .Attr<int32_t>("nms_top_k", "number of best boxes of a level to consider; -1: all")
              .Range(-1, {})
              .Attr<float>("nms_threshold",
                           "of two boxes that overlap by more, the worse one is dropped")
              .Attr<float>("nms_eta",
                           "below 1: factor of the threshold after each kept box, while "
                           "it is over 0.5")
              .Attr<int32_t>("keep_top_k", "best detections of an image that are kept; -1: all")
              .Range(-1, {})
              .RunTimeShape()
              .MakesLod()
              .NotDifferentiable("a choice has no derivative")
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer(InferOutput)
              .Reference<float, double>(ForReals{DetectionOutput}));
}

}  // namespace coracle::retinanet_detection_output_op
