// bipartite_match, target_assign, mine_hard_examples: match prior boxes with targets.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/detection/images.h>
#include <coracle/operators/detection/nms.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>
#include <cmath>

namespace coracle::bipartite_match_op {

constexpr double kLeastDistance = 1e-6;

// ---- bipartite_match ----

void InferMatch(InferContext& ctx) {
  const VarMeta& dist = ctx.Input("DistMat");
  ctx.Require("C1", dist.shape.rank() == 2, dist);
  const auto sizes = ctx.LevelSizes("DistMat");
  const int64_t images = !sizes ? -1 : sizes->empty() ? 1 : sizes->back();
  ctx.SetOutput("ColToRowMatchIndices", DType::kInt32, {images, dist.shape[1]});
  ctx.SetOutput("ColToRowMatchDist", dist.dtype, {images, dist.shape[1]});
}

// Rows [begin, end) of the distances of one image, and the rows matched with its columns.
class Matching {
 public:
  Matching(const Reals& dist, int64_t begin, int64_t end, int64_t columns, int32_t* rows,
           double* distances)
      : dist_(dist),
        begin_(begin),
        end_(end),
        columns_(columns),
        rows_(rows),
        distances_(distances) {
    std::fill_n(rows, columns, -1);
    std::fill_n(distances, columns, 0.0);
  }

  // Repeatedly matches the pair with the largest distance. Remembers the best free row of each
  // column, so that only columns whose row was taken are searched again.
  void MatchPairs() {
    std::vector<char> taken(static_cast<size_t>(end_ - begin_), 0);
    std::vector<int64_t> best(static_cast<size_t>(columns_));
    for (int64_t c = 0; c < columns_; ++c) best[static_cast<size_t>(c)] = BestRow(c, &taken);
    for (int64_t n = std::min(columns_, end_ - begin_); n > 0; --n) {
      CheckTimeLimit("matching boxes");
      int64_t column = -1;
      for (int64_t c = 0; c < columns_; ++c) {
        if (rows_[c] >= 0 || best[static_cast<size_t>(c)] < 0) continue;
        if (column < 0 ||
            At(best[static_cast<size_t>(c)], c) > At(best[static_cast<size_t>(column)], column))
          column = c;
      }
      if (column < 0) return;
      const int64_t row = best[static_cast<size_t>(column)];
      Match(column, row);
      taken[static_cast<size_t>(row - begin_)] = 1;
      for (int64_t c = 0; c < columns_; ++c) {
        if (rows_[c] < 0 && best[static_cast<size_t>(c)] == row)
          best[static_cast<size_t>(c)] = BestRow(c, &taken);
      }
    }
  }
  // Matches each free column with its best row if the distance reaches the threshold.
  void MatchColumns(double threshold) {
    for (int64_t c = 0; c < columns_; ++c) {
      if (rows_[c] >= 0) continue;
      const int64_t row = BestRow(c, nullptr);
      if (row >= 0 && At(row, c) >= threshold) Match(c, row);
    }
  }

 private:
  double At(int64_t row, int64_t column) const { return dist_[row * columns_ + column]; }
  void Match(int64_t column, int64_t row) {
    rows_[column] = static_cast<int32_t>(row - begin_);
    distances_[column] = At(row, column);
  }
  // The first row with the largest distance among those that are not taken; -1 if all are.
  int64_t BestRow(int64_t column, const std::vector<char>* taken) const {
    int64_t best = -1;
    for (int64_t r = begin_; r < end_; ++r) {
      if (taken && (*taken)[static_cast<size_t>(r - begin_)]) continue;
      if (!(At(r, column) >= kLeastDistance)) continue;
      if (best < 0 || At(r, column) > At(best, column)) best = r;
    }
    return best;
  }

  const Reals& dist_;
  int64_t begin_, end_, columns_;
  int32_t* rows_;
  double* distances_;
};

Kernel BipartiteMatch(const PrepareContext& ctx) {
  const TensorArg dist = ctx.Input("DistMat"), indices = ctx.Output("ColToRowMatchIndices");
  const TensorArg distances = ctx.Output("ColToRowMatchDist");
  const ImagesArg images(ctx, "DistMat", nullptr, "C1");
  const bool columns_too = ctx.Attr<std::string>("match_type") == "per_prediction";
  const double threshold = ctx.Attr<float>("dist_threshold");
  const int64_t columns = dist.shape[1];
  return [=](Workspace& ws) {
    const RowOffsets offsets = images(ws);
    const Sequences rows(offsets);
    const Reals from(ws, dist);
    const RealsOut to(ws, distances);
    std::vector<double> found(distances.numel > 0 ? static_cast<size_t>(columns) : 0);
    for (int64_t i = 0; i < rows.count(); ++i) {
      Matching matching(from, rows.begin(i), rows.end(i), columns,
                        ws.Data<int32_t>(indices) + i * columns, found.data());
      matching.MatchPairs();
      if (columns_too) matching.MatchColumns(threshold);
      for (int64_t c = 0; c < columns; ++c) to.Set(i * columns + c, found[static_cast<size_t>(c)]);
    }
  };
}

// ---- target_assign ----

void InferAssign(InferContext& ctx) {
  const VarMeta &x = ctx.Input("X"), &match = ctx.Input("MatchIndices");
  ctx.Require("C1", x.shape.rank() == 3, x);
  ctx.Require("C2", match.shape.rank() == 2 && match.dtype == DType::kInt32, match);
  if (ctx.HasInput("NegIndices")) {
    const VarMeta& negative = ctx.Input("NegIndices");
    ctx.Require("C3",
                negative.dtype == DType::kInt32 && negative.shape.rank() == 2 &&
                    InferContext::Matches(negative.shape[1], 1),
                negative);
  }
  const int64_t n = match.shape[0], m = match.shape[1];
  ctx.SetOutput("Out", x.dtype, {n, m, x.shape[2]});
  ctx.SetOutput("OutWeight", DType::kFloat32, {n, m, 1});
}

template <class T>
KernelOf<T> TargetAssign(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), match = ctx.Input("MatchIndices");
  const TensorArg negative = ctx.Input("NegIndices");
  const TensorArg out = ctx.Output("Out"), weight = ctx.Output("OutWeight");
  const ImagesArg images(ctx, "X", nullptr, "C4");
  const ImagesArg negative_images(ctx, negative ? "NegIndices" : "X", nullptr, "C4");
  const RunConstraint inside(ctx, "C5");
  const T mismatch = static_cast<T>(ctx.Attr<int32_t>("mismatch_value"));
  const int64_t columns = match.shape[1], period = x.shape[1], width = x.shape[2];
  return [=](Workspace& ws) {
    const RowOffsets offsets = images(ws, match.shape[0]);
    const Sequences rows(offsets);
    const auto* matched = ws.Data<const int32_t>(match);
    const T* from = ws.Data<const T>(x);
    T* to = ws.Data<T>(out);
    float* w = ws.Data<float>(weight);
    for (int64_t at = 0; at < match.numel; ++at) {
      const int64_t image = at / columns, row = matched[at];
      w[at] = row >= 0 ? 1.f : 0.f;
      if (row < 0) {
        std::fill_n(to + at * width, width, mismatch);
        continue;
      }
      inside.Require(row < rows.length(image) && period > 0, "MatchIndices", row, "rows",
                     rows.length(image));
      std::copy_n(from + ((rows.begin(image) + row) * period + at % columns % period) * width,
                  width, to + at * width);
    }
    if (!negative) return;
    const RowOffsets negative_offsets = negative_images(ws, match.shape[0]);
    const Sequences negatives(negative_offsets);
    const auto* places = ws.Data<const int32_t>(negative);
    for (int64_t i = 0; i < negatives.count(); ++i) {
      for (int64_t k = negatives.begin(i); k < negatives.end(i); ++k) {
        inside.Require(places[k] >= 0 && places[k] < columns, "NegIndices", places[k], "columns",
                       columns);
        const int64_t at = i * columns + places[k];
        std::fill_n(to + at * width, width, mismatch);
        w[at] = 1.f;
      }
    }
  };
}

// ---- mine_hard_examples ----

void InferMine(InferContext& ctx) {
  const VarMeta &loss = ctx.Input("ClsLoss"), &match = ctx.Input("MatchIndices");
  RequireDTypeOf(ctx, "C1", "ClsLoss", {"LocLoss", "MatchDist"});
  ctx.Require("C2", loss.shape.rank() == 2, loss);
  for (const char* slot : {"LocLoss", "MatchIndices", "MatchDist"}) {
    if (ctx.HasInput(slot))
      ctx.Require("C2", ctx.InputShape(slot).CompatibleWith(loss.shape), slot, ctx.Input(slot),
                  "ClsLoss", loss);
  }
  ctx.Require("C3", match.dtype == DType::kInt32, match);
  const bool negatives = ctx.Attr<std::string>("mining_type") == "max_negative";
  const float ratio = ctx.Attr<float>("neg_pos_ratio");
  const int32_t size = ctx.Attr<int32_t>("sample_size");
  ctx.Require("C4", negatives ? ratio > 0 : size > 0, "neg_pos_ratio", ratio, "sample_size", size);
  ctx.SetOutput("NegIndices", {VarType::kLoDTensor, DType::kInt32, {-1, 1}, 1});
  ctx.SetOutput("UpdatedMatchIndices", match);
}

struct MiningOptions {
  bool negatives_only;
  float ratio;
  double most_distance;
  int64_t sample_size;
};

// The candidates of one image with the largest losses, ascending.
std::vector<int64_t> HardExamples(const MiningOptions& options, int64_t count, const double* losses,
                                  const int32_t* match, const Reals& dist, int64_t first) {
  std::vector<int64_t> candidates;
  int64_t positives = 0;
  for (int64_t m = 0; m < count; ++m) {
    positives += match[m] >= 0;
    if (!options.negatives_only || (match[m] < 0 && dist[first + m] < options.most_distance))
      candidates.push_back(m);
  }
  auto most = static_cast<int64_t>(candidates.size());
  if (!options.negatives_only)
    most = std::min(most, options.sample_size);
  else if (const float wanted = static_cast<float>(positives) * options.ratio;
           wanted < static_cast<float>(most))
    most = static_cast<int64_t>(wanted);
  SortByScore(losses, most, &candidates);
  std::sort(candidates.begin(), candidates.end());
  return candidates;
}

Kernel MineHardExamples(const PrepareContext& ctx) {
  const TensorArg cls = ctx.Input("ClsLoss"), loc = ctx.Input("LocLoss");
  const TensorArg match = ctx.Input("MatchIndices"), dist = ctx.Input("MatchDist");
  const TensorArg negative = ctx.Output("NegIndices"), out = ctx.Output("UpdatedMatchIndices");
  const MiningOptions options{
      ctx.Attr<std::string>("mining_type") == "max_negative", ctx.Attr<float>("neg_pos_ratio"),
      ctx.Attr<float>("neg_dist_threshold"), ctx.Attr<int32_t>("sample_size")};
  const int64_t images = cls.shape[0], count = cls.shape[1];
  return [=](Workspace& ws) {
    const Reals a(ws, cls), b(ws, loc), distances(ws, dist);
    const auto* matched = ws.Data<const int32_t>(match);
    auto* updated = ws.Data<int32_t>(out);
    if (updated != matched) std::copy_n(matched, match.numel, updated);
    std::vector<double> losses(cls.numel > 0 ? static_cast<size_t>(count) : 0);
    std::vector<int32_t> negatives;
    RowOffsets offsets{0};
    for (int64_t i = 0; i < images; ++i) {
      const bool both = loc && !options.negatives_only;
      for (int64_t m = 0; m < count; ++m)
        losses[static_cast<size_t>(m)] = a[i * count + m] + (both ? b[i * count + m] : 0);
      int32_t* row = updated + i * count;
      const std::vector<int64_t> hard =
          HardExamples(options, count, losses.data(), row, distances, i * count);
      for (int64_t m : hard) {
        if (row[m] < 0) negatives.push_back(static_cast<int32_t>(m));
      }
      for (int64_t m = 0; m < count && !options.negatives_only; ++m) {
        if (!std::binary_search(hard.begin(), hard.end(), m)) row[m] = -1;
      }
      offsets.push_back(negatives.size());
    }
    Tensor& found =
        ResizeOutput(ws, negative, DType::kInt32, {static_cast<int64_t>(negatives.size()), 1});
    std::copy(negatives.begin(), negatives.end(), found.data<int32_t>());
    ws.OutputLod(negative) = {std::move(offsets)};
  };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("bipartite_match")
          .Doc(
              "For each image: repeatedly matches the row and the column with the largest distance "
              "among the unmatched ones, while it is at least 1e-6 (among equal distances, the "
              "lowest column and then the lowest row). per_prediction then matches each remaining "
              "column with its best row, if their distance is at least dist_threshold.")
          .Constraint("C1", "DistMat must be [rows, columns]")
          .Input("DistMat", "tensor [rows, columns], with LoD for several images")
          .Output("ColToRowMatchIndices",
                  "int32 tensor [images, columns]: a row of the image, or -1")
          .Output("ColToRowMatchDist", "tensor [images, columns]: the distance, or 0")
          .Attr<std::string>("match_type", "bipartite", "bipartite or per_prediction")
          .OneOf({"bipartite", "per_prediction"})
          .Attr<float>("dist_threshold", 0.5f, "of per_prediction")
          .NoLod()
          .NotDifferentiable("a choice has no derivative")
          .Rows(RowRule::kMixes)
          .Infer(InferMatch)
          .Reference<float, double>(ForReals{BipartiteMatch}));
  ops.Add(
      OpDef("target_assign")
          .Doc("Out[n, m] = X[MatchIndices[n, m] of image n, m mod P] with weight 1; "
               "mismatch_value with weight 0 where the index is negative, and with weight 1 at "
               "NegIndices.")
          .Constraint("C1", "X must have rank 3")
          .Constraint("C2", "MatchIndices must be an int32 tensor [N, M]")
          .Constraint("C3", "NegIndices must be an int32 tensor [k, 1]")
          .Constraint("C4", "X and NegIndices must have rows for each of the N images")
          .Constraint("C5", "MatchIndices must be rows of their image, and NegIndices its columns")
          .Input("X", "tensor [rows, P, K], with LoD for several images")
          .Input("MatchIndices", "int32 tensor [N, M]")
          .OptionalInput("NegIndices", "int32 tensor [k, 1], with LoD for several images")
          .Output("Out", "tensor [N, M, K]")
          .Output("OutWeight", "float32 tensor [N, M, 1]")
          .Attr<int32_t>("mismatch_value", 0, "target of unmatched elements")
          .NoLod()
          .NotDifferentiable("assigns targets")
          .Rows(EachBatchRow, kEachBatchRow)
          .Infer(InferAssign)
          .Reference(TargetAssign<float>, TargetAssign<double>, TargetAssign<int32_t>,
                     TargetAssign<int64_t>));
  ops.Add(OpDef("mine_hard_examples")
              .Doc("Chooses negative samples for each image. max_negative: among the unmatched "
                   "with MatchDist below neg_dist_threshold, takes those with the largest ClsLoss, "
                   "neg_pos_ratio for each matched one. hard_example: takes the sample_size with "
                   "the largest ClsLoss + LocLoss; the unmatched ones among them are NegIndices, "
                   "and all matched ones outside of them become unmatched.")
              .Constraint("C1", "floating-point inputs must have one dtype")
              .Constraint("C2", "inputs must be [N, M]")
              .Constraint("C3", "MatchIndices must be int32")
              .Constraint("C4", "neg_pos_ratio (sample_size for hard_example) must be positive")
              .Input("ClsLoss", "tensor [N, M]")
              .OptionalInput("LocLoss", "tensor [N, M], for hard_example")
              .Input("MatchIndices", "int32 tensor [N, M]; -1 is unmatched")
              .Input("MatchDist", "tensor [N, M]")
              .Output("NegIndices", "int32 tensor [k, 1] with LoD of N images, ascending in each")
              .Output("UpdatedMatchIndices", "int32 tensor [N, M]")
              .Attr<float>("neg_pos_ratio", 1.f, "of max_negative")
              .Attr<float>("neg_dist_threshold", 0.5f, "of max_negative")
              .Attr<int32_t>("sample_size", 0, "of hard_example")
              .Attr<std::string>("mining_type", "max_negative", "max_negative or hard_example")
              .OneOf({"max_negative", "hard_example"})
              .RunTimeShape()
              .MakesLod()
              .NotDifferentiable("a choice has no derivative")
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer(InferMine)
              .Reference<float, double>(ForReals{MineHardExamples}));
}

}  // namespace coracle::bipartite_match_op
