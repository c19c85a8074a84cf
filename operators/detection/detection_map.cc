#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/detection/boxes.h>
#include <coracle/operators/detection/images.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace coracle::detection_map_op {

void InferMap(InferContext& ctx) {
  const VarMeta &found = ctx.Input("DetectRes"), &label = ctx.Input("Label");
  RequireDTypeOf(ctx, "C1", "DetectRes", {"Label", "TruePos", "FalsePos"});
  ctx.Require("C2", found.shape.rank() == 2 && InferContext::Matches(found.shape[1], 6), found);
  const bool columns = label.shape.rank() == 2 && (InferContext::Matches(label.shape[1], 5) ||
                                                   InferContext::Matches(label.shape[1], 6));
  ctx.Require("C3", columns, label);
  const int64_t classes = ctx.Attr<int32_t>("class_num");
  if (ctx.HasInput("HasState")) {
    const VarMeta& state = ctx.Input("HasState");
    const bool one = !state.shape.IsKnown() || state.shape.numel() == 1;
    ctx.Require("C5", IsIndexType(state.dtype) && one, state);
  }
  const bool all = ctx.HasInput("PosCount") && ctx.HasInput("TruePos") && ctx.HasInput("FalsePos");
  if (ctx.HasInput("HasState") || all) {
    ctx.Require("C6", all, "PosCount", ctx.HasInput("PosCount"), "TruePos", ctx.HasInput("TruePos"),
                "FalsePos", ctx.HasInput("FalsePos"));
    const VarMeta& count = ctx.Input("PosCount");
    const bool one_each =
        count.shape.CompatibleWith({classes, 1}) || count.shape.CompatibleWith({classes});
    ctx.Require("C6", count.dtype == DType::kInt32 && one_each, count);
    for (const char* slot : {"TruePos", "FalsePos"})
      ctx.Require("C6", ctx.InputShape(slot).CompatibleWith({-1, 2}), slot, ctx.Input(slot));
  }
  ctx.SetOutput("AccumPosCount", DType::kInt32, {classes, 1});
  for (const char* slot : {"AccumTruePos", "AccumFalsePos"})
    ctx.SetOutput(slot, {VarType::kLoDTensor, found.dtype, {-1, 2}, 1});
  ctx.SetOutput("MAP", found.dtype, {1});
}

struct MapOptions {
  int64_t classes, background;
  double threshold;
  bool difficult, integral;

  explicit MapOptions(const PrepareContext& ctx)
      : classes(ctx.Attr<int32_t>("class_num")),
        background(ctx.Attr<int32_t>("background_label")),
        threshold(ctx.Attr<float>("overlap_threshold")),
        difficult(ctx.Attr<bool>("evaluate_difficult")),
        integral(ctx.Attr<std::string>("ap_type") == "integral") {}
};

struct Scored {
  double score;
  bool right;
};

// Detections and true boxes, by class.
struct Statistics {
  std::map<int64_t, std::vector<Scored>> found;
  std::map<int64_t, int64_t> positives;
};

struct TrueBox {
  Box box;
  bool difficult, used = false;
};

// One image's boxes by class.
struct ImageBoxes {
  std::map<int64_t, std::vector<TrueBox>> labels;
  std::map<int64_t, std::vector<std::pair<double, Box>>> detections;
};

void Evaluate(const MapOptions& o, ImageBoxes image, Statistics* to) {
  for (const auto& [label, boxes] : image.labels) {
    to->positives[label] += std::count_if(
        boxes.begin(), boxes.end(), [&](const TrueBox& b) { return o.difficult || !b.difficult; });
  }
  for (auto& [label, boxes] : image.detections) {
    CheckTimeLimit("evaluating detections");
    std::stable_sort(boxes.begin(), boxes.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<TrueBox>& truth = image.labels[label];
    for (const auto& [score, box] : boxes) {
      const Box clipped = Clipped(box, 1, 1);
      double highest = -1;
      TrueBox* best = nullptr;
      for (TrueBox& t : truth) {
        const double overlap = Overlap(clipped, t.box, 0);
        if (!(overlap > highest)) continue;
        highest = overlap;
        best = &t;
      }
      if (!best || !(highest > o.threshold)) {
        to->found[label].push_back({score, false});
      } else if (o.difficult || !best->difficult) {
        to->found[label].push_back({score, !best->used});
        best->used = true;
      }
    }
  }
}

// Average precision of the detections of one class.
double AveragePrecision(const MapOptions& o, std::vector<Scored> found, int64_t positives) {
  std::stable_sort(found.begin(), found.end(),
                   [](const Scored& a, const Scored& b) { return a.score > b.score; });
  double right = 0, seen = 0, recall = 0, area = 0;
  double highest[11] = {};  // precision where the recall is at least j / 10
  for (const Scored& s : found) {
    right += s.right;
    const double precision = right / ++seen;
    const double next = right / static_cast<double>(positives);
    if (std::abs(next - recall) > 1e-6) area += precision * std::abs(next - recall);
    recall = next;
    for (int j = 0; j <= 10; ++j) {
      if (recall >= j / 10.0) highest[j] = std::max(highest[j], precision);
    }
  }
  if (o.integral) return area;
  double sum = 0;
  for (double h : highest) sum += h / 11;
  return sum;
}

double MeanPrecision(const MapOptions& o, const Statistics& all) {
  double sum = 0;
  int64_t classes = 0;
  for (const auto& [label, positives] : all.positives) {
    if (label == o.background || positives == 0) continue;
    ++classes;
    const auto found = all.found.find(label);
    if (found != all.found.end()) sum += AveragePrecision(o, found->second, positives);
  }
  return classes > 0 ? sum / static_cast<double>(classes) : 0;
}

class DetectionMap {
 public:
  explicit DetectionMap(const PrepareContext& ctx)
      : o_(ctx),
        detections_(ctx.Input("DetectRes")),
        label_(ctx.Input("Label")),
        has_state_(ctx.Input("HasState")),
        pos_count_(ctx.Input("PosCount")),
        true_pos_(ctx.Input("TruePos")),
        false_pos_(ctx.Input("FalsePos")),
        count_out_(ctx.Output("AccumPosCount")),
        true_out_(ctx.Output("AccumTruePos")),
        false_out_(ctx.Output("AccumFalsePos")),
        map_(ctx.Output("MAP")),
        found_images_(ctx, "DetectRes", nullptr, "C4"),
        label_images_(ctx, "Label", nullptr, "C4"),
        is_class_(ctx, "C7"),
        state_(ctx, "C6") {}

  void operator()(Workspace& ws) const {
    Statistics all;
    if (has_state_ && IndexReader(ws, has_state_)[0] != 0) ReadState(ws, &all);
    const RowOffsets label_rows = label_images_(ws);
    const Sequences labels(label_rows);
    const RowOffsets found_rows = found_images_(ws, labels.count());
    for (int64_t i = 0; i < labels.count(); ++i)
      Evaluate(o_, ReadImage(ws, labels, Sequences(found_rows), i), &all);
    if (count_out_) {
      auto* counts = ws.Data<int32_t>(count_out_);
      std::fill_n(counts, o_.classes, 0);
      for (const auto& [label, count] : all.positives) counts[label] = static_cast<int32_t>(count);
    }
    WriteState(ws, true_out_, true, all);
    WriteState(ws, false_out_, false, all);
    RealsOut(ws, map_).Set(0, MeanPrecision(o_, all));
  }

 private:
  int64_t ClassOf(double value) const {
    is_class_.Require(value >= 0 && value < static_cast<double>(o_.classes), "label", value,
                      "class_num", o_.classes);
    return static_cast<int64_t>(value);
  }

  ImageBoxes ReadImage(Workspace& ws, const Sequences& labels, const Sequences& detections,
                       int64_t i) const {
    const Reals label(ws, label_), found(ws, detections_);
    const int64_t columns = label_.shape[1];
    ImageBoxes image;
    for (int64_t r = labels.begin(i); r < labels.end(i); ++r) {
      const bool difficult = columns == 6 && std::abs(label[6 * r + 1]) >= 1e-6;
      image.labels[ClassOf(label[columns * r])].push_back(
          {ReadBox(label, columns * r + columns - 4), difficult});
    }
    for (int64_t r = detections.begin(i); r < detections.end(i); ++r) {
      image.detections[ClassOf(found[6 * r])].emplace_back(found[6 * r + 1],
                                                           ReadBox(found, 6 * r + 2));
    }
    return image;
  }

  // Rows of score and 1 or 0 for each class, for right and for wrong detections.
  void ReadState(Workspace& ws, Statistics* all) const {
    for (int64_t c = 0; c < o_.classes; ++c) {
      const int64_t count = ws.Data<const int32_t>(pos_count_)[c];
      state_.Require(count >= 0, "PosCount", count);
      if (count > 0) all->positives[c] = count;
    }
    const Reals right(ws, true_pos_);
    const LoD& lod = ws.LodOf(true_pos_);
    const int64_t rows = true_pos_.shape[0];
    const bool by_class = !lod.empty() && Sequences(lod.back()).count() == o_.classes;
    state_.Require(rows == false_pos_.shape[0] && (rows == 0 || by_class), "rows of TruePos", rows,
                   "of FalsePos", false_pos_.shape[0]);
    for (int64_t c = 0; rows > 0 && c < o_.classes; ++c) {
      for (int64_t r = Sequences(lod.back()).begin(c); r < Sequences(lod.back()).end(c); ++r)
        all->found[c].push_back({right[2 * r], right[2 * r + 1] > 0.5});
    }
  }
  void WriteState(Workspace& ws, const TensorArg& out, bool right, const Statistics& all) const {
    if (!out) return;
    RowOffsets offsets{0};
    std::vector<double> rows;
    for (int64_t c = 0; c < o_.classes; ++c) {
      const auto of_class = all.found.find(c);
      if (of_class != all.found.end()) {
        for (const Scored& s : of_class->second)
          rows.insert(rows.end(), {s.score, s.right == right ? 1.0 : 0.0});
      }
      offsets.push_back(rows.size() / 2);
    }
    const Shape shape{static_cast<int64_t>(rows.size() / 2), 2};
    const RealsOut to(ResizeOutput(ws, out, detections_.dtype, shape));
    for (size_t i = 0; i < rows.size(); ++i) to.Set(static_cast<int64_t>(i), rows[i]);
    ws.OutputLod(out) = {std::move(offsets)};
  }

  MapOptions o_;
  TensorArg detections_, label_, has_state_, pos_count_, true_pos_, false_pos_;
  TensorArg count_out_, true_out_, false_out_, map_;
  ImagesArg found_images_, label_images_;
  RunConstraint is_class_, state_;
};

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("detection_map")
          .Doc("Mean average precision. In each image and class, detections are taken by falling "
               "score. A detection is right if it overlaps by more than overlap_threshold with a "
               "true box and the true box of largest overlap was not found before; difficult boxes "
               "are left out unless evaluate_difficult is set. AP of a class = the sum of "
               "precision |change of recall|, or the mean over j = 0..10 of the largest precision "
               "with a recall of at least j / 10. MAP = the mean over the classes with true boxes, "
               "without the background. PosCount, TruePos and FalsePos hold the detections of "
               "previous batches by class, and the outputs add this batch.")
          .Constraint("C1", "floating-point inputs must have one dtype")
          .Constraint("C2", "DetectRes must be [M, 6]")
          .Constraint("C3", "Label must be [N, 5] or [N, 6]")
          .Constraint("C4", "DetectRes and Label must have the same images")
          .Constraint("C5", "HasState must be one int32 or int64 number")
          .Constraint("C6",
                      "with HasState, PosCount must be int32 [class_num, 1] without negative "
                      "counts, TruePos and FalsePos [k, 2] with LoD of class_num sequences")
          .Constraint("C7", "labels must lie in [0, class_num)")
          .Input("DetectRes",
                 "rows label, score, box, with LoD for several images; boxes are "
                 "clipped to [0, 1]")
          .Input("Label", "rows label, box or label, difficult, box, with LoD for several images")
          .OptionalInput("HasState", "[1]; not 0 if the next three inputs are used")
          .OptionalInput("PosCount", "int32 tensor [class_num, 1]: true boxes of previous batches")
          .OptionalInput("TruePos", "rows score, 1 if right, with LoD of classes")
          .OptionalInput("FalsePos", "the same rows with 1 if wrong")
          .Output("AccumPosCount", "int32 tensor [class_num, 1]")
          .Output("AccumTruePos", "rows score, 1 if right, with LoD of classes")
          .Output("AccumFalsePos", "the same rows with 1 if wrong")
          .Output("MAP", "tensor [1]")
          .Attr<int32_t>("class_num", "number of classes")
          .Range(1, 1 << 24)
          .Attr<int32_t>("background_label", 0, "the class to leave out")
          .Attr<float>("overlap_threshold", 0.5f, "overlap that a right detection must exceed")
          .Attr<bool>("evaluate_difficult", true, "use difficult boxes too")
          .Attr<std::string>("ap_type", "integral", "integral or 11point")
          .OneOf({"integral", "11point"})
          .RunTimeShape()
          .MakesLod()
          .NotDifferentiable("counts")
          .Rows(RowRule::kMixes)
          .Infer(InferMap)
          .Reference<float, double>(
              ForReals{[](const PrepareContext& ctx) -> Kernel { return DetectionMap(ctx); }}));
}

}  // namespace coracle::detection_map_op
