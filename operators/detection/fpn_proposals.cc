// distribute_fpn_proposals and collect_fpn_proposals: distribute the boxes of a batch over the
// levels of a pyramid, and collect them.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/detection/boxes.h>
#include <coracle/operators/detection/images.h>
#include <coracle/operators/detection/nms.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace coracle::fpn_proposals_op {

bool IsCounts(const VarMeta& m) { return IsIndexType(m.dtype) && m.shape.rank() == 1; }

// ---- distribute_fpn_proposals ----

void InferDistribute(InferContext& ctx) {
  const VarMeta& rois = ctx.Input("FpnRois");
  ctx.Require("C1", rois.shape.rank() == 2 && InferContext::Matches(rois.shape[1], 4), rois);
  int64_t images = -1;
  if (ctx.HasInput("RoisNum")) {
    ctx.Require("C2", IsCounts(ctx.Input("RoisNum")), ctx.Input("RoisNum"));
    images = ctx.InputShape("RoisNum")[0];
  }
  const int64_t levels =
      int64_t{ctx.Attr<int32_t>("max_level")} - ctx.Attr<int32_t>("min_level") + 1;
  const auto outs = static_cast<int64_t>(ctx.NumOutputs("MultiFpnRois"));
  const auto counts = static_cast<int64_t>(ctx.NumOutputs("MultiLevelRoIsNum"));
  ctx.Require("C3", outs == levels && (counts == 0 || counts == levels), "levels", levels,
              "MultiFpnRois", outs, "MultiLevelRoIsNum", counts);
  for (int64_t i = 0; i < levels; ++i) {
    const auto at = static_cast<size_t>(i);
    ctx.SetOutput("MultiFpnRois", {VarType::kLoDTensor, rois.dtype, {-1, 4}, 1}, at);
    if (counts > 0) ctx.SetOutput("MultiLevelRoIsNum", DType::kInt32, {images}, at);
  }
  ctx.SetOutput("RestoreIndex", DType::kInt32, {rois.shape[0], 1});
}

// The level of a box: floor(log2(sqrt(area) / refer_scale + 1e-6) + refer_level), clamped.
struct LevelRule {
  double min, max, refer_level, refer_scale, extra;

  size_t operator()(const Box& box) const {
    const double side = std::sqrt(Area(box, extra));
    const double level = std::floor(std::log2(side / refer_scale + 1e-6) + refer_level);
    if (!(level > min)) return 0;  // a nan too
    return static_cast<size_t>(std::min(level, max) - min);
  }
};

Kernel Distribute(const PrepareContext& ctx) {
  const TensorArg rois = ctx.Input("FpnRois"), restore = ctx.Output("RestoreIndex");
  const std::vector<TensorArg> outs = ctx.Outputs("MultiFpnRois");
  const std::vector<TensorArg> counts = ctx.Outputs("MultiLevelRoIsNum");
  const ImagesArg images(ctx, "FpnRois", "RoisNum", "C2");
  const LevelRule level_of{static_cast<double>(ctx.Attr<int32_t>("min_level")),
                           static_cast<double>(ctx.Attr<int32_t>("max_level")),
                           static_cast<double>(ctx.Attr<int32_t>("refer_level")),
                           static_cast<double>(ctx.Attr<int32_t>("refer_scale")),
                           ctx.Attr<bool>("pixel_offset") ? 1.0 : 0.0};
  return [=](Workspace& ws) {
    const RowOffsets offsets = images(ws);
    const Sequences rows(offsets);
    const Reals from(ws, rois);
    std::vector<std::vector<int64_t>> members(outs.size());
    std::vector<RowOffsets> ends(outs.size(), RowOffsets{0});
    for (int64_t i = 0; i < rows.count(); ++i) {
      for (int64_t r = rows.begin(i); r < rows.end(i); ++r)
        members[level_of(ReadBox(from, 4 * r))].push_back(r);
      for (size_t k = 0; k < outs.size(); ++k) ends[k].push_back(members[k].size());
    }
    auto* place = ws.Data<int32_t>(restore);
    int32_t next = 0;
    for (size_t k = 0; k < outs.size(); ++k) {
      for (int64_t r : members[k]) place[r] = next++;
      if (outs[k]) {
        const auto count = static_cast<int64_t>(members[k].size());
        const RealsOut to(ResizeOutput(ws, outs[k], rois.dtype, {count, 4}));
        for (int64_t i = 0; i < count; ++i)
          WriteBox(to, 4 * i, ReadBox(from, 4 * members[k][static_cast<size_t>(i)]));
        ws.OutputLod(outs[k]) = {ends[k]};
      }
      if (k >= counts.size() || !counts[k]) continue;
      Tensor& to = ResizeOutput(ws, counts[k], DType::kInt32, {rows.count()});
      for (int64_t i = 0; i < rows.count(); ++i)
        to.data<int32_t>()[i] = static_cast<int32_t>(Sequences(ends[k]).length(i));
    }
  };
}

// ---- collect_fpn_proposals ----

void InferCollect(InferContext& ctx) {
  const size_t levels = ctx.NumInputs("MultiLevelRois");
  const size_t counts = ctx.NumInputs("MultiLevelRoIsNum");
  ctx.Require("C1",
              ctx.NumInputs("MultiLevelScores") == levels && (counts == 0 || counts == levels),
              "MultiLevelRois", levels, "MultiLevelScores", ctx.NumInputs("MultiLevelScores"),
              "MultiLevelRoIsNum", counts);
  RequireDTypeOf(ctx, "C2", "MultiLevelRois", {"MultiLevelRois", "MultiLevelScores"});
  for (size_t i = 0; i < levels; ++i) {
    const VarMeta &rois = ctx.Input("MultiLevelRois", i),
                  &scores = ctx.Input("MultiLevelScores", i);
    ctx.Require("C3", rois.shape.rank() == 2 && InferContext::Matches(rois.shape[1], 4), rois);
    const int64_t n = scores.shape.IsKnown() ? scores.shape.numel() : -1;
    ctx.Require("C3", InferContext::Matches(n, rois.shape[0]), "MultiLevelRois", rois,
                "MultiLevelScores", scores);
    if (counts > 0)
      ctx.Require("C4", IsCounts(ctx.Input("MultiLevelRoIsNum", i)),
                  ctx.Input("MultiLevelRoIsNum", i));
  }
  ctx.SetOutput("FpnRois", {VarType::kLoDTensor, ctx.InputDType("MultiLevelRois"), {-1, 4}, 1});
  ctx.SetOutput("RoisNum", DType::kInt32, {-1});
}

struct ImageRoi {
  Box box;
  int64_t image;
};

Kernel Collect(const PrepareContext& ctx) {
  const std::vector<TensorArg> rois = ctx.Inputs("MultiLevelRois");
  const std::vector<TensorArg> scores = ctx.Inputs("MultiLevelScores");
  const TensorArg out = ctx.Output("FpnRois"), counts = ctx.Output("RoisNum");
  std::vector<ImagesArg> images;
  for (size_t i = 0; i < rois.size(); ++i)
    images.emplace_back(ctx, "MultiLevelRois",
                        ctx.HasInput("MultiLevelRoIsNum") ? "MultiLevelRoIsNum" : nullptr, "C4", i);
  const RunConstraint same_images(ctx, "C4");
  const int64_t most = ctx.Attr<int32_t>("post_nms_topN");
  return [=](Workspace& ws) {
    std::vector<ImageRoi> all;
    std::vector<double> of_all;  // scores
    int64_t count = 0;
    for (size_t k = 0; k < rois.size(); ++k) {
      const RowOffsets offsets = images[k](ws);
      const Sequences rows(offsets);
      same_images.Require(k == 0 || rows.count() == count, "images", rows.count(), "and", count);
      count = rows.count();
      const Reals box(ws, rois[k]), score(ws, scores[k]);
      for (int64_t i = 0; i < count; ++i) {
        for (int64_t r = rows.begin(i); r < rows.end(i); ++r) {
          all.push_back({ReadBox(box, 4 * r), i});
          of_all.push_back(score[r]);
        }
      }
    }
    std::vector<int64_t> best(all.size());
    std::iota(best.begin(), best.end(), int64_t{0});
    SortByScore(of_all.data(), most, &best);
    const auto image_of = [&](int64_t r) { return all[static_cast<size_t>(r)].image; };
    std::stable_sort(best.begin(), best.end(),
                     [&](int64_t a, int64_t b) { return image_of(a) < image_of(b); });
    const auto rows = static_cast<int64_t>(best.size());
    const RealsOut to(ResizeOutput(ws, out, rois[0].dtype, {rows, 4}));
    RowOffsets offsets(static_cast<size_t>(count) + 1, 0);
    for (int64_t r = 0; r < rows; ++r) {
      const ImageRoi& roi = all[static_cast<size_t>(best[static_cast<size_t>(r)])];
      WriteBox(to, 4 * r, roi.box);
      ++offsets[static_cast<size_t>(roi.image) + 1];
    }
    if (counts) {
      Tensor& n = ResizeOutput(ws, counts, DType::kInt32, {count});
      for (int64_t i = 0; i < count; ++i)
        n.data<int32_t>()[i] = static_cast<int32_t>(offsets[static_cast<size_t>(i) + 1]);
    }
    for (size_t i = 1; i < offsets.size(); ++i) offsets[i] += offsets[i - 1];
    ws.OutputLod(out) = {std::move(offsets)};
  };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("distribute_fpn_proposals")
          .Doc("MultiFpnRois[l - min_level] = the boxes of level l = floor(log2(sqrt(area) / "
               "refer_scale + 1e-6) + refer_level), limited to [min_level, max_level], in their "
               "order. RestoreIndex[i] = the position of box i in the concatenation of all levels.")
          .Constraint("C1", "FpnRois must be [R, 4]")
          .Constraint("C2", "RoisNum must be an int32 or int64 vector that adds up to R")
          .Constraint("C3",
                      "MultiFpnRois must have max_level - min_level + 1 variables, and "
                      "MultiLevelRoIsNum the same number or none")
          .Input("FpnRois", "[R, 4]; boxes, with LoD of images if RoisNum is absent")
          .OptionalInput("RoisNum", "boxes of each image")
          .VariadicOutput("MultiFpnRois", "boxes of each level, with LoD of images")
          .Output("RestoreIndex", "int32 tensor [R, 1]")
          .OptionalVariadicOutput("MultiLevelRoIsNum",
                                  "int32 vector [images] for each level: boxes of each image")
          .Attr<int32_t>("min_level", "the first level")
          .Range(0, 1000)
          .Attr<int32_t>("max_level", "the last level")
          .Range(0, 1000)
          .Attr<int32_t>("refer_level", "level of a box of size refer_scale by refer_scale")
          .Attr<int32_t>("refer_scale", "side length of a box of refer_level")
          .Range(1, {})
          .Attr<bool>("pixel_offset", true, "boxes are in whole pixels")
          .RunTimeShape()
          .MakesLod()
          .NotDifferentiable("a choice has no derivative")
          .Rows(RowRule::kMixes)
          .Infer(InferDistribute)
          .Reference<float, double>(ForReals{Distribute}));
  ops.Add(
      OpDef("collect_fpn_proposals")
          .Doc("FpnRois = the post_nms_topN boxes with the largest scores among the boxes of all "
               "levels and images, image by image, and by descending score within an image; boxes "
               "of equal score keep their order.")
          .Constraint("C1", "all slots must have the same number of levels")
          .Constraint("C2", "boxes and scores must have one dtype")
          .Constraint("C3", "a level must have boxes [R, 4] and R scores")
          .Constraint("C4",
                      "the counts of a level must be an int32 or int64 vector that adds "
                      "up to R, and all levels must have the same number of images")
          .VariadicInput("MultiLevelRois",
                         "boxes [R, 4] of each level, with LoD of images if there are no counts")
          .VariadicInput("MultiLevelScores", "scores of each level")
          .OptionalVariadicInput("MultiLevelRoIsNum", "boxes of each image, for each level")
          .Output("FpnRois", "boxes [n, 4] with LoD of images")
          .OptionalOutput("RoisNum", "int32 vector [images]: boxes of each image")
          .Attr<int32_t>("post_nms_topN", "number of boxes to keep")
          .Range(0, {})
          .RunTimeShape()
          .MakesLod()
          .NotDifferentiable("a choice has no derivative")
          .Rows(RowRule::kMixes)
          .Infer(InferCollect)
          .Reference<float, double>(ForReals{Collect}));
}

}  // namespace coracle::fpn_proposals_op
