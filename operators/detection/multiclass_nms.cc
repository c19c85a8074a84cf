// multiclass_nms, 2 and 3, matrix_nms, locality_aware_nms: choose detections from boxes with a
// score for each class.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/detection/detections.h>
#include <coracle/operators/detection/overlap_simd.h>
#include <coracle/operators/rules/dims.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace coracle::multiclass_nms_op {

// ---- what they share ----

bool IsBoxWidth(int64_t w) { return w < 0 || w == 4 || w == 8 || w == 16 || w == 24 || w == 32; }

// C1 to C3 of all these ops. With `rows`, Scores may have rank 2.
void RequireScoredBoxes(InferContext& ctx, bool rows) {
  const VarMeta &boxes = ctx.Input("BBoxes"), &scores = ctx.Input("Scores");
  RequireDTypeOf(ctx, "C1", "BBoxes", {"Scores"});
  const int rank = scores.shape.rank();
  bool fits = boxes.shape.rank() == 3 && (rank == 3 || (rows && rank == 2));
  if (fits) {
    fits = InferContext::Matches(boxes.shape[0], scores.shape[0]) &&
           InferContext::Matches(boxes.shape[1], rank == 3 ? scores.shape[2] : scores.shape[1]);
  }
  ctx.Require("C2", fits, "BBoxes", boxes, "Scores", scores);
  ctx.Require("C3",
              IsBoxWidth(boxes.shape[2]) && (rank == 3 || InferContext::Matches(boxes.shape[2], 4)),
              boxes);
}

// The boxes of an image that compete for one class.
struct Candidates {
  const double* boxes = nullptr;
  std::vector<double> scores;
  std::vector<double> own;  // the boxes, if only this class has them

  // A copy for a search that moves the boxes.
  double* OwnBoxes(int64_t width) {
    if (own.empty()) own.assign(boxes, boxes + static_cast<int64_t>(scores.size()) * width);
    boxes = own.data();
    return own.data();
  }

  // The candidates with a score over the threshold, best first, at most top_k.
  std::vector<int64_t> Best(double threshold, int64_t top_k) const {
    std::vector<int64_t> best;
    for (size_t i = 0; i < scores.size(); ++i) {
      if (scores[i] > threshold) best.push_back(static_cast<int64_t>(i));
    }
    SortByScore(scores.data(), top_k, &best);
    return best;
  }
  Detection At(int64_t i, int64_t label, int64_t index, int64_t width) const {
    const double* box = boxes + i * width;
    return {label, scores[static_cast<size_t>(i)], index, {box, box + width}};
  }
};

// One image: `rows` boxes; in the rank-2 form, `rows` boxes for each class.
struct ImagePart {
  int64_t rows, first_row, classes, width;
  bool by_class;  // BBoxes are [rows, classes, 4], Scores [rows, classes]

  // The boxes that all classes share.
  std::vector<double> Shared(const Reals& boxes, int64_t image) const {
    if (by_class) return {};
    return CopyReals(boxes, image * rows * width, rows * width);
  }
  Candidates Of(const Reals& boxes, const std::vector<double>& shared, const Reals& scores,
                int64_t image, int64_t label) const {
    Candidates c;
    if (!by_class) {
      c.boxes = shared.data();
      c.scores = CopyReals(scores, (image * classes + label) * rows, rows);
      return c;
    }
    for (int64_t r = first_row; r < first_row + rows; ++r) {
      c.scores.push_back(scores[r * classes + label]);
      for (int64_t k = 0; k < width; ++k) c.own.push_back(boxes[(r * classes + label) * width + k]);
    }
    c.boxes = c.own.data();
    return c;
  }
  int64_t Index(int64_t image, int64_t label, int64_t i) const {
    return by_class ? (first_row + i) * classes + label : image * rows + i;
  }
};

struct SearchOptions {
  int64_t background, top_k, keep_top_k;
  double score_threshold;
  NmsOptions nms;

  explicit SearchOptions(const PrepareContext& ctx)
      : background(ctx.Attr<int32_t>("background_label")),
        top_k(ctx.Attr<int32_t>("nms_top_k")),
        keep_top_k(ctx.Attr<int32_t>("keep_top_k")),
        score_threshold(ctx.Attr<float>("score_threshold")) {
    nms.extra = ctx.Attr<bool>("normalized") ? 0 : 1;
    nms.width = ctx.Input("BBoxes").shape[2];
    if (!ctx.spec().FindAttr("nms_threshold")) return;
    // An image cannot keep more boxes of one class.
    if (keep_top_k >= 0) nms.most = keep_top_k;
    nms.threshold = ctx.Attr<float>("nms_threshold");
    nms.eta = ctx.Attr<float>("nms_eta");
  }
};

// find(candidates, label) returns the detections of a class. Several threads search the classes.
template <class Find>
std::vector<Detection> ForEachClass(const SearchOptions& options, const ImagePart& part,
                                    int64_t image, const Reals& boxes, const Reals& scores,
                                    const Find& find) {
  if (part.rows == 0) return {};
  // Limits the lists held in memory, since there may be very many classes.
  constexpr int64_t kTogether = 1024;
  const std::vector<double> shared = part.Shared(boxes, image);
  std::vector<std::vector<Detection>> by_label(
      static_cast<size_t>(std::min(kTogether, part.classes)));
  std::vector<Detection> found;
  for (int64_t first = 0; first < part.classes; first += kTogether) {
    const int64_t n = std::min(kTogether, part.classes - first);
    ParallelFor(n, 1 + 4096 / part.rows, [&](int64_t begin, int64_t end) {
      for (int64_t label = first + begin; label < first + end; ++label) {
        if (label == options.background) continue;
        CheckTimeLimit("searching for detections");
        Candidates candidates = part.Of(boxes, shared, scores, image, label);
        by_label[static_cast<size_t>(label - first)] = find(&candidates, label);
      }
    });
    for (std::vector<Detection>& of_class : by_label) {
      std::move(of_class.begin(), of_class.end(), std::back_inserter(found));
      of_class.clear();
    }
  }
  return found;
}

// If there are more than keep_top_k detections, keeps the best, ordered by label and within a class
// by score.
void LimitByLabel(int64_t most, bool by_index, std::vector<Detection>* found) {
  if (most < 0 || static_cast<int64_t>(found->size()) <= most) return;
  KeepBest(most, found);
  std::stable_sort(found->begin(), found->end(), [by_index](const auto& a, const auto& b) {
    if (a.label != b.label) return a.label < b.label;
    return by_index && a.index < b.index;
  });
}

// ---- multiclass_nms ----

std::vector<Detection> SearchClass(const SearchOptions& options, const ImagePart& part,
                                   int64_t image, const Candidates& c, int64_t label) {
  std::vector<int64_t> kept =
      SuppressNonMaxima(options.nms, c.boxes, c.Best(options.score_threshold, options.top_k));
  if (part.by_class) std::sort(kept.begin(), kept.end());
  std::vector<Detection> found;
  for (int64_t i : kept)
    found.push_back(c.At(i, label, part.Index(image, label, i), options.nms.width));
  return found;
}

void SetNone(Workspace& ws, const TensorArg& out, DType dtype) {
  RealsOut(ResizeOutput(ws, out, dtype, {1, 1})).Set(0, -1);
  ws.OutputLod(out) = {{0, 1}};
}

void InferMulticlass(InferContext& ctx) {
  RequireScoredBoxes(ctx, true);
  const VarMeta& boxes = ctx.Input("BBoxes");
  const bool first = ctx.op().type() == "multiclass_nms";
  if (ctx.HasInput("RoisNum")) {
    const VarMeta& num = ctx.Input("RoisNum");
    const int rank = num.shape.rank();
    const bool list = rank == 1 || (rank == 2 && InferContext::Matches(num.shape[1], 1));
    ctx.Require("C5", IsIndexType(num.dtype) && list, num);
  }
  if (ctx.HasInput("NmsThreshold")) {
    const VarMeta& threshold = ctx.Input("NmsThreshold");
    ctx.Require("C6",
                threshold.dtype == boxes.dtype &&
                    (!threshold.shape.IsKnown() || threshold.shape.numel() == 1),
                threshold);
  }
  const int64_t width = first ? -1 : AddDims(boxes.shape[2], 2);
  ctx.SetOutput("Out", {VarType::kLoDTensor, boxes.dtype, {-1, width}, 1});
  if (first) return;
  ctx.SetOutput("Index", {VarType::kLoDTensor, DType::kInt32, {-1, 1}, 1});
  if (ctx.spec().FindOutput("NmsRoisNum")) ctx.SetOutput("NmsRoisNum", DType::kInt32, {-1});
}

Kernel MulticlassNms(const PrepareContext& ctx) {
  const TensorArg boxes = ctx.Input("BBoxes"), scores = ctx.Input("Scores");
  const bool first = ctx.op().type() == "multiclass_nms";
  const bool third = ctx.op().type() == "multiclass_nms3";
  const TensorArg out = ctx.Output("Out"), index = first ? TensorArg() : ctx.Output("Index");
  const TensorArg counts = third ? ctx.Output("NmsRoisNum") : TensorArg();
  const SearchOptions fixed(ctx);
  const TensorArg threshold = third ? ctx.Input("NmsThreshold") : TensorArg();
  const bool by_class = scores.shape.rank() == 2;
  const ImagesArg images(ctx, "BBoxes", third && by_class ? "RoisNum" : nullptr,
                         third ? "C5" : "C2");
  return [=](Workspace& ws) {
    const Reals b(ws, boxes), s(ws, scores);
    SearchOptions options = fixed;
    if (threshold) options.nms.threshold = Reals(ws, threshold)[0];
    RowOffsets offsets;
    if (by_class) offsets = images(ws);
    const int64_t count = by_class ? Sequences(offsets).count() : scores.shape[0];
    Detections all(options.nms.width);
    for (int64_t i = 0; i < count; ++i) {
      const ImagePart part{by_class ? Sequences(offsets).length(i) : scores.shape[2],
                           by_class ? Sequences(offsets).begin(i) : 0, scores.shape[1],
                           options.nms.width, by_class};
      std::vector<Detection> found =
          ForEachClass(options, part, i, b, s, [&](const Candidates* c, int64_t label) {
            return SearchClass(options, part, i, *c, label);
          });
      LimitByLabel(options.keep_top_k, by_class, &found);
      all.AddImage(std::move(found));
    }
    if (first && all.empty()) return SetNone(ws, out, boxes.dtype);
    all.WriteRows(ws, out, boxes.dtype);
    all.WriteIndices(ws, index, counts);
  };
}

// ---- matrix_nms ----

// The boxes of a class, best first. Each lowers the scores of worse ones that overlap with it; see
// the formulas of FindDecay in overlap_simd.h.
class DecayedBoxes {
 public:
  DecayedBoxes(const NmsOptions& options, double sigma, size_t count)
      : options_(options), sigma_(sigma) {
    of_better_.reserve(count);
    if (options.width == 4) boxes_.Reserve(count);
  }

  // Adds a box and returns the factor of its score.
  double Add(const double* corners) {
    const bool gaussian = sigma_ >= 0;
    const Decay decay = options_.width == 4 ? OfBox(corners) : OfPolygon(corners);
    const double m = decay.largest;
    // A copy of a better box has no effect of its own.
    of_better_.push_back(gaussian ? m * m : m < 1 ? 1 / (1 - m) : 0);
    return gaussian ? std::min(1.0, std::exp(decay.least * sigma_)) : decay.least;
  }

 private:
  Decay OfBox(const double* corners) {
    const Box box{corners[0], corners[1], corners[2], corners[3]};
    const Decay decay =
        FindDecay(boxes_, boxes_.size(), box, options_.extra, sigma_ >= 0, of_better_.data());
    boxes_.Add(box, options_.extra);
    return decay;
  }
  Decay OfPolygon(const double* corners) {
    const bool gaussian = sigma_ >= 0;
    Decay decay{0, gaussian ? 0.0 : 1.0};
    for (size_t j = 0; j < polygons_.size(); ++j) {
      const double iou = PolygonOverlap(polygons_[j], corners, options_.width / 2);
      const double m = of_better_[j];
      decay.largest = std::max(decay.largest, iou);
      decay.least = std::min(decay.least, gaussian ? m - iou * iou : m > 0 ? (1 - iou) * m : 1.0);
    }
    polygons_.push_back(corners);
    return decay;
  }

  NmsOptions options_;
  double sigma_;  // negative: f(u) = 1 - u
  BoxColumns boxes_;
  std::vector<const double*> polygons_;
  std::vector<double> of_better_;
};

// Instead of suppressing boxes, lowers their scores according to their overlaps with better ones,
// but less if those overlap with better ones themselves.
std::vector<Detection> DecayScores(const SearchOptions& options, double post_threshold,
                                   double sigma, const ImagePart& part, int64_t image,
                                   const Candidates& c, int64_t label) {
  const std::vector<int64_t> order = c.Best(options.score_threshold, options.top_k);
  DecayedBoxes before(options.nms, sigma, order.size());
  std::vector<Detection> found;
  const int64_t width = options.nms.width;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i % 256 == 0) CheckTimeLimit("lowering scores of overlapping boxes");
    const double decay = before.Add(c.boxes + order[i] * width);
    const double score = c.scores[static_cast<size_t>(order[i])] * decay;
    if (!(score > post_threshold)) continue;
    found.push_back(c.At(order[i], label, part.Index(image, label, order[i]), width));
    found.back().score = score;
  }
  return found;
}

void InferMatrix(InferContext& ctx) {
  RequireScoredBoxes(ctx, false);
  const VarMeta& boxes = ctx.Input("BBoxes");
  ctx.SetOutput("Out", {VarType::kLoDTensor, boxes.dtype, {-1, AddDims(boxes.shape[2], 2)}, 1});
  ctx.SetOutput("Index", {VarType::kLoDTensor, DType::kInt32, {-1, 1}, 1});
  ctx.SetOutput("RoisNum", DType::kInt32, {-1});
}

Kernel MatrixNms(const PrepareContext& ctx) {
  const TensorArg boxes = ctx.Input("BBoxes"), scores = ctx.Input("Scores");
  const TensorArg out = ctx.Output("Out"), index = ctx.Output("Index");
  const TensorArg counts = ctx.Output("RoisNum");
  const SearchOptions options(ctx);
  const double post_threshold = ctx.Attr<float>("post_threshold");
  const double sigma = ctx.Attr<bool>("use_gaussian") ? ctx.Attr<float>("gaussian_sigma") : -1;
  const ImagePart part{scores.shape[2], 0, scores.shape[1], options.nms.width, false};
  return [=](Workspace& ws) {
    const Reals b(ws, boxes), s(ws, scores);
    Detections all(options.nms.width);
    for (int64_t i = 0; i < scores.shape[0]; ++i) {
      std::vector<Detection> found =
          ForEachClass(options, part, i, b, s, [&](const Candidates* c, int64_t label) {
            return DecayScores(options, post_threshold, sigma, part, i, *c, label);
          });
      KeepBest(options.keep_top_k, &found);
      all.AddImage(std::move(found));
    }
    all.WriteRows(ws, out, boxes.dtype);
    all.WriteIndices(ws, index, counts);
  };
}

// ---- locality_aware_nms ----

// One pass over the boxes in order: a box that overlaps with the previous one is merged with it, as
// a mean weighted by the scores. A box merged into another has no score any more.
void MergeNeighbours(const NmsOptions& options, Candidates* c) {
  const int64_t width = options.width;
  double* boxes = c->OwnBoxes(width);
  const auto lost = -std::numeric_limits<double>::infinity();
  size_t head = 0;
  for (size_t i = 1; i < c->scores.size(); ++i) {
    double* into = boxes + static_cast<int64_t>(head) * width;
    const double* box = boxes + static_cast<int64_t>(i) * width;
    if (!(OverlapOf(box, into, width, options.extra) > options.threshold)) {
      head = i;
      continue;
    }
    const double a = c->scores[head], b = c->scores[i];
    if (a + b != 0) {
      for (int64_t k = 0; k < width; ++k) into[k] = (a * into[k] + b * box[k]) / (a + b);
    }
    c->scores[head] = a + b;
    c->scores[i] = lost;
  }
}

void InferLocality(InferContext& ctx) {
  RequireScoredBoxes(ctx, false);
  ctx.SetOutput("Out", {VarType::kLoDTensor, ctx.InputDType("BBoxes"), {-1, -1}, 1});
}

Kernel LocalityAwareNms(const PrepareContext& ctx) {
  const TensorArg boxes = ctx.Input("BBoxes"), scores = ctx.Input("Scores");
  const TensorArg out = ctx.Output("Out");
  const SearchOptions options(ctx);
  const ImagePart part{scores.shape[2], 0, scores.shape[1], options.nms.width, false};
  return [=](Workspace& ws) {
    const Reals b(ws, boxes), s(ws, scores);
    Detections all(options.nms.width);
    for (int64_t i = 0; i < scores.shape[0]; ++i) {
      std::vector<Detection> found =
          ForEachClass(options, part, i, b, s, [&](Candidates* c, int64_t label) {
            MergeNeighbours(options.nms, c);
            return SearchClass(options, part, i, *c, label);
          });
      LimitByLabel(options.keep_top_k, false, &found);
      all.AddImage(std::move(found));
    }
    if (all.empty()) return SetNone(ws, out, boxes.dtype);
    all.WriteRows(ws, out, boxes.dtype);
  };
}

// ---- declarations ----

OpDef SearchOp(const std::string& type, int32_t background) {
  OpDef def(type);
  def.Constraint("C1", "BBoxes and Scores must have one dtype")
      .Constraint("C2", "BBoxes and Scores must have the same images and boxes")
      .Constraint("C3", "a box must have 4, 8, 16, 24 or 32 numbers, 4 if Scores has rank 2")
      .Attr<int32_t>("background_label", background, "the class to leave out")
      .Attr<float>("score_threshold", "score that a detection must exceed")
      .Attr<int32_t>("nms_top_k", "number of best boxes of a class to consider; -1: all")
      .Range(-1, {})
      .Attr<int32_t>("keep_top_k", "number of best detections of an image to keep; -1: all")
      .Range(-1, {})
      .Attr<bool>("normalized", true,
                  "boxes are normalized; otherwise their corners are whole pixels")
      .RunTimeShape()
      .MakesLod()
      .Rows(RowRule::kMixes)
      .NotDifferentiable("a choice has no derivative");
  return def;
}

void DeclareSuppression(OpDef& def) {
  def.Attr<float>("nms_threshold", 0.3f,
                  "of two boxes that overlap by more, the worse one is dropped")
      .Attr<float>(
          "nms_eta", 1.f,
          "if below 1: the threshold is multiplied by it after each kept box while it exceeds 0.5");
}

OpDef MulticlassOp(const std::string& type) {
  OpDef def = SearchOp(type, 0);
  def.Apply(DeclareSuppression)
      .Input("BBoxes", "boxes or polygons [N, M, 4 to 32]; boxes [R, C, 4] if Scores is [R, C]")
      .Input("Scores", "tensor [N, C, M], or [R, C] with the images by LoD of BBoxes")
      .Output("Out", "rows label, score, box, with LoD of images")
      .Infer(InferMulticlass)
      .Reference<float, double>(ForReals{MulticlassNms});
  return def;
}

constexpr const char* kMulticlassDoc =
    "For each image and each class except the background, keeps those of the nms_top_k boxes with "
    "the largest scores over score_threshold that overlap with no better kept box by more than "
    "nms_threshold. The keep_top_k best of an image remain, ordered by label and score (by index "
    "if Scores has rank 2, as in Paddle's kernel; Paddle's test expects the order of scores if no "
    "box is dropped). ";

void Register(OpRegistry& ops) {
  ops.Add(MulticlassOp("multiclass_nms")
              .Doc(std::string(kMulticlassDoc) + "If there are none at all, Out is [[-1]]."));
  for (const char* type : {"multiclass_nms2", "multiclass_nms3"}) {
    OpDef def = MulticlassOp(type);
    def.Doc(std::string(kMulticlassDoc) +
            "Index = the index of each detection among the boxes of all images.");
    if (type == std::string_view("multiclass_nms3"))
      def.Constraint("C5",
                     "RoisNum must be int32 or int64, [n] or [n, 1], and must add up to the rows")
          .Constraint("C6", "NmsThreshold must hold one number of BBoxes' dtype")
          .OptionalInput("NmsThreshold", "tensor [1]; replaces attr nms_threshold; not in Paddle")
          .OptionalInput("RoisNum",
                         "rows of BBoxes [R, C, 4] of each image; if absent, LoD gives them")
          .OptionalOutput("NmsRoisNum",
                          "int32 vector [images]: number of detections of each image");
    def.IntermediateOutput("Index", "int32 tensor [n, 1]: image M + box, or row C + class");
    ops.Add(std::move(def));
  }
  ops.Add(
      SearchOp("matrix_nms", 0)
          .Doc("For each class, the nms_top_k boxes with scores over score_threshold, best first: "
               "score i becomes score min over j < i of f(IoU(i, j)) / f(m_j), but never grows, "
               "where m_j is the largest IoU of j with a better box, and f(u) = 1 - u, or "
               "exp(-sigma u^2). Of the boxes with scores over post_threshold, the keep_top_k best "
               "of each image remain, best first.")
          .Input("BBoxes", "boxes or polygons [N, M, 4 to 32]")
          .Input("Scores", "[N, C, M]")
          .Output("Out", "rows label, score, box, with LoD of images")
          .Output("Index", "int32 tensor [n, 1]: image M + box")
          .OptionalOutput("RoisNum", "int32 vector [images]: number of detections of each image")
          .Attr<float>("post_threshold", 0.f, "lower bound of the lowered scores, exclusive")
          .Attr<bool>("use_gaussian", false, "f(u) = exp(-sigma u^2)")
          .Attr<float>("gaussian_sigma", 2.f, "sigma")
          .Range(0, {})
          .Infer(InferMatrix)
          .Reference<float, double>(ForReals{MatrixNms}));
  ops.Add(SearchOp("locality_aware_nms", -1)
              .Apply(DeclareSuppression)
              .Doc("As multiclass_nms, after merging neighbours: in one pass over the boxes of a "
                   "class in their order, a box that overlaps by more than nms_threshold with the "
                   "previous one is merged with it. The corners become the mean weighted by "
                   "scores, and the scores add up.")
              .Input("BBoxes", "boxes or polygons [N, M, 4 to 32]")
              .Input("Scores", "[N, C, M]")
              .Output("Out", "rows label, score, box, with LoD of images; [[-1]] if there are none")
              .Infer(InferLocality)
              .Reference<float, double>(ForReals{LocalityAwareNms}));
}

}  // namespace coracle::multiclass_nms_op
