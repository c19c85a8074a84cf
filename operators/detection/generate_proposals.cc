// generate_proposals and generate_proposals_v2: the best boxes of a region proposal network.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/detection/images.h>
#include <coracle/operators/detection/nms.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/rows.h>

#include <cmath>
#include <numeric>

namespace coracle::generate_proposals_op {

bool IsFirst(const std::string& type) { return type == "generate_proposals"; }

void InferProposals(InferContext& ctx) {
  const bool first = IsFirst(ctx.op().type());
  const char* size_slot = first ? "ImInfo" : "ImShape";
  const VarMeta &scores = ctx.Input("Scores"), &deltas = ctx.Input("BboxDeltas");
  RequireDTypeOf(ctx, "C1", "Scores", {"BboxDeltas", size_slot, "Anchors", "Variances"});
  const Shape &s = scores.shape, &d = deltas.shape;
  bool fits = s.rank() == 4 && d.rank() == 4;
  if (fits) {
    const Shape wanted{s[0], MulDims(s[1], 4), s[2], s[3]};
    fits = d.CompatibleWith(wanted);
  }
  ctx.Require("C2", fits, "Scores", scores, "BboxDeltas", deltas);
  const Shape anchors{s[2], s[3], s[1], 4};
  for (const char* slot : {"Anchors", "Variances"})
    ctx.Require("C3", ctx.InputShape(slot).CompatibleWith(anchors), slot, ctx.Input(slot), "wanted",
                anchors);
  const VarMeta& size = ctx.Input(size_slot);
  ctx.Require("C4", size.shape.CompatibleWith({s[0], first ? 3 : 2}), size);
  ctx.SetOutput("RpnRois", {VarType::kLoDTensor, scores.dtype, {-1, 4}, 1});
  ctx.SetOutput("RpnRoiProbs", {VarType::kLoDTensor, scores.dtype, {-1, 1}, 1});
  ctx.SetOutput("RpnRoisNum", DType::kInt32, {s[0]});
}

struct ProposalOptions {
  bool first;
  int64_t pre_top, post_top, anchors, area;
  double threshold, least_size, eta, extra;

  explicit ProposalOptions(const PrepareContext& ctx)
      : first(IsFirst(ctx.op().type())),
        pre_top(ctx.Attr<int32_t>("pre_nms_topN")),
        post_top(ctx.Attr<int32_t>("post_nms_topN")),
        anchors(ctx.Input("Scores").shape[1]),
        area(ctx.Input("Scores").shape.Product(2, 4)),
        threshold(ctx.Attr<float>("nms_thresh")),
        least_size(std::max(ctx.Attr<float>("min_size"), 1.f)),
        eta(ctx.Attr<float>("eta")),
        extra(first || ctx.Attr<bool>("pixel_offset") ? 1 : 0) {}
};

// The proposals of an image. Boxes are counted by cell, and in a cell by anchor.
class Proposals {
 public:
  Proposals(const ProposalOptions& options, const Reals& deltas, const Reals& anchors,
            const Reals& variances, int64_t image)
      : o_(options), deltas_(deltas), anchors_(anchors), variances_(variances), image_(image) {}

  Box Decode(int64_t i) const {
    const int64_t cell = i / o_.anchors, anchor = i % o_.anchors;
    const auto delta = [&](int64_t k) {
      const int64_t at = (image_ * o_.anchors + anchor) * 4 + k;
      return variances_[4 * i + k] * deltas_[at * o_.area + cell];
    };
    static const double most = std::log(1000.0 / 16.0);
    return DecodeBox({delta(0), delta(1), delta(2), delta(3)}, ReadBox(anchors_, 4 * i), o_.extra,
                     most);
  }

 private:
  const ProposalOptions& o_;
  const Reals &deltas_, &anchors_, &variances_;
  int64_t image_;
};

// Height, width and scale of an image.
struct ImageSize {
  double height, width, scale;

  Box Clip(const Box& box, double extra) const {
    return Clipped(box, width - extra, height - extra);
  }
  // Whether a box is large enough and has its centre in the image.
  bool Accepts(const Box& b, const ProposalOptions& o) const {
    const double w = (b.x2 - b.x1) / scale + o.extra, h = (b.y2 - b.y1) / scale + o.extra;
    if (!(w >= o.least_size && h >= o.least_size)) return false;
    return o.extra == 0 || (b.x1 + b.Width(1) / 2 <= width && b.y1 + b.Height(1) / 2 <= height);
  }
};

struct Found {
  std::vector<double> boxes, probs;
  RowOffsets offsets{0};

  void Add(const double* box, double prob) {
    boxes.insert(boxes.end(), box, box + 4);
    probs.push_back(prob);
  }
  // Adds the boxes of an image.
  void Append(const Found& image) {
    boxes.insert(boxes.end(), image.boxes.begin(), image.boxes.end());
    probs.insert(probs.end(), image.probs.begin(), image.probs.end());
    offsets.push_back(probs.size());
  }
};

void AddImage(const ProposalOptions& o, const Proposals& proposals, const ImageSize& size,
              const Reals& scores, int64_t image, Found* found) {
  const int64_t count = o.anchors * o.area;
  std::vector<double> by_box(static_cast<size_t>(count));
  for (int64_t anchor = 0; anchor < o.anchors; ++anchor) {
    const int64_t from = (image * o.anchors + anchor) * o.area;
    for (int64_t cell = 0; cell < o.area; ++cell)
      by_box[static_cast<size_t>(cell * o.anchors + anchor)] = scores[from + cell];
  }
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  SortByScore(by_box.data(), o.pre_top > 0 ? o.pre_top : -1, &order);
  std::vector<double> boxes, probs;
  for (int64_t i : order) {
    const Box box = size.Clip(proposals.Decode(i), o.extra);
    if (!size.Accepts(box, o)) continue;
    boxes.insert(boxes.end(), {box.x1, box.y1, box.x2, box.y2});
    probs.push_back(by_box[static_cast<size_t>(i)]);
  }
  std::vector<int64_t> kept(probs.size());
  std::iota(kept.begin(), kept.end(), int64_t{0});
  NmsOptions nms{o.threshold, o.eta, o.extra};
  if (o.post_top > 0) nms.most = o.post_top;
  if (o.threshold > 0)
    kept = SuppressNonMaxima(nms, boxes.data(), kept);
  else if (static_cast<int64_t>(kept.size()) > nms.most)
    kept.resize(static_cast<size_t>(nms.most));
  for (int64_t i : kept)
    found->Add(&boxes[static_cast<size_t>(4 * i)], probs[static_cast<size_t>(i)]);
  const double none[4] = {};
  if (kept.empty()) found->Add(none, 0);
}

Kernel GenerateProposals(const PrepareContext& ctx) {
  const ProposalOptions options(ctx);
  const TensorArg scores = ctx.Input("Scores"), deltas = ctx.Input("BboxDeltas");
  const TensorArg sizes = ctx.Input(options.first ? "ImInfo" : "ImShape");
  const TensorArg anchors = ctx.Input("Anchors"), variances = ctx.Input("Variances");
  const TensorArg rois = ctx.Output("RpnRois"), probs = ctx.Output("RpnRoiProbs");
  const TensorArg counts = ctx.Output("RpnRoisNum");
  const int64_t columns = sizes.shape[1];
  return [=](Workspace& ws) {
    const Reals s(ws, scores), d(ws, deltas), a(ws, anchors), v(ws, variances), z(ws, sizes);
    std::vector<Found> images(static_cast<size_t>(scores.shape[0]));
    ParallelFor(scores.shape[0], 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        CheckTimeLimit("generating proposals");
        const ImageSize size{z[i * columns], z[i * columns + 1],
                             options.first ? z[i * columns + 2] : 1};
        AddImage(options, Proposals(options, d, a, v, i), size, s, i,
                 &images[static_cast<size_t>(i)]);
      }
    });
    Found found;
    for (size_t i = 0; i < images.size(); ++i) {
      found.Append(images[i]);
      if (counts) ws.Data<int32_t>(counts)[i] = static_cast<int32_t>(images[i].probs.size());
    }
    const auto rows = static_cast<int64_t>(found.probs.size());
    const RealsOut boxes_to(ResizeOutput(ws, rois, scores.dtype, {rows, 4}));
    const RealsOut probs_to(ResizeOutput(ws, probs, scores.dtype, {rows, 1}));
    for (int64_t i = 0; i < 4 * rows; ++i) boxes_to.Set(i, found.boxes[static_cast<size_t>(i)]);
    for (int64_t i = 0; i < rows; ++i) probs_to.Set(i, found.probs[static_cast<size_t>(i)]);
    ws.OutputLod(rois) = {found.offsets};
    ws.OutputLod(probs) = {found.offsets};
  };
}

OpDef ProposalsOp(const std::string& type) {
  const bool first = IsFirst(type);
  OpDef def(type);
  def.Constraint("C1", "inputs must have one dtype")
      .Constraint("C2", "Scores must be [N, A, H, W] and BboxDeltas [N, 4 A, H, W]")
      .Constraint("C3", "Anchors and Variances must be [H, W, A, 4]")
      .Constraint("C4", first ? "ImInfo must be [N, 3]" : "ImShape must be [N, 2]")
      .Input("Scores", "tensor [N, A, H, W]")
      .Input("BboxDeltas", "tensor [N, 4 A, H, W]")
      .Input(first ? "ImInfo" : "ImShape",
             first ? "tensor [N, 3]: height, width, scale" : "tensor [N, 2]: height, width")
      .Input("Anchors", "tensor [H, W, A, 4]")
      .Input("Variances", "tensor [H, W, A, 4]: factors of the deltas")
      .Output("RpnRois", "boxes [R, 4] with LoD of images")
      .Output("RpnRoiProbs", "their scores [R, 1]")
      .OptionalOutput("RpnRoisNum", "int32 vector [N]: boxes of each image")
      .Attr<int32_t>("pre_nms_topN", "number of best boxes of an image to consider; 0 or less: all")
      .Attr<int32_t>("post_nms_topN", "number of best boxes of an image to keep; 0 or less: all")
      .Attr<float>(
          "nms_thresh",
          "of two boxes that overlap by more, the worse one is dropped; 0 or less: none is dropped")
      .Attr<float>("min_size", "smallest width and height; values below 1 count as 1")
      .Attr<float>(
          "eta",
          "if below 1: nms_thresh is multiplied by it after each kept box while it exceeds 0.5")
      .RunTimeShape()
      .MakesLod()
      .NotDifferentiable("a choice has no derivative")
      .Rows(EachBatchRow, kEachBatchRow)
      .Infer(InferProposals)
      .Reference<float, double>(ForReals{GenerateProposals});
  return def;
}

constexpr const char* kDoc =
    "For each image: the pre_nms_topN best anchors, moved by their deltas times variances (with "
    "logarithms of ratios of at most log(1000 / 16)) and clipped to the image; of these, boxes "
    "that are too small are dropped, and the post_nms_topN best remain that overlap with no better "
    "kept box by more than nms_thresh. An image without boxes has one box of zeros with score 0. ";

void Register(OpRegistry& ops) {
  ops.Add(ProposalsOp("generate_proposals")
              .Doc(std::string(kDoc) +
                   "Boxes are in whole pixels, sizes are divided by the image's scale, and a "
                   "centre must lie in the image."));
  ops.Add(ProposalsOp("generate_proposals_v2")
              .Attr<bool>("pixel_offset", true, "corners are whole pixels; otherwise points")
              .Doc(std::string(kDoc) +
                   "With pixel_offset boxes are in whole pixels and a centre must lie in the "
                   "image."));
}

}  // namespace coracle::generate_proposals_op
