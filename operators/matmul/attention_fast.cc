// Attention in tiles (T. Dao et al., "FlashAttention", 2022; M. Rabe and C. Staats, "Self-attention
// does not need O(n^2) memory", 2021): at any time, only a tile of scores for some rows and some
// keys exists. The softmax of a row continues from tile to tile: a larger maximum scales down the
// sums so far.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/kernels/matrix_tile.h>
#include <coracle/operators/kernels/panels.h>
#include <coracle/operators/kernels/simd.h>
#include <coracle/operators/matmul/attention.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace coracle::inline internal {
namespace {

constexpr int64_t kRows = 64, kKeys = kMostKeptKeys, kBackwardKeys = 128;
// Largest number of rows that share packed keys.
constexpr int64_t kBlock = 512;
// The largest score of a row that sees no keys.
constexpr float kNothing = -std::numeric_limits<float>::infinity();

int64_t PanelWidth() { return 2 * VectorLanes(); }

// rows x columns of A B, where A(i, p) = a[i * a_row + p * a_step]. B is stored in panels of
// PanelWidth() columns each: it is read often, and elements several kilobytes apart soon evict each
// other from the first-level cache.
struct TileProduct {
  const float* a;
  int64_t a_row, a_step;
  const float* b;
  int64_t rows, depth, columns;
};
void Multiply(const TileProduct& t, float* out, int64_t out_step, bool add) {
  const int64_t lanes = VectorLanes(), width = 2 * lanes;
  const int64_t height = MaxTileHeight();
  MatrixTile tile;
  tile.a_step = t.a_row;
  tile.a_k = t.a_step;
  tile.b_k = width;
  tile.k = t.depth;
  tile.out_step = out_step;
  tile.add = add;
  for (int64_t j = 0; j < t.columns; j += width) {
    tile.b = t.b + j * t.depth;
    tile.lanes = std::min(width, t.columns - j);
    tile.vectors = tile.lanes > lanes ? 2 : 1;
    for (int64_t i = 0; i < t.rows; i += height) {
      tile.a = t.a + i * t.a_row;
      tile.out = out + i * out_step + j;
      tile.height = static_cast<int>(std::min(height, t.rows - i));
      RunMatrixTile(tile);
    }
  }
}

int64_t PackedSize(int64_t columns, int64_t depth) { return (columns + 31) / 32 * 32 * depth; }

// The step between rows of a tile of scores: not a power of two, for the same reason.
int64_t ScoreStep(int64_t keys) { return (keys + 15) / 16 * 16 + 16; }

// The mask of row i from key j on.
ScoreMask MaskOf(const AttentionPlan& p, const float* mask, int64_t b, int64_t h, int64_t i,
                 int64_t j) {
  if (!mask) return {};
  return {mask + p.mask.At(b, h, i) + j * p.mask.column, p.mask.column};
}

// The number of the keys [first, first + count) that row i sees.
int64_t Seen(const AttentionPlan& p, int64_t i, int64_t first, int64_t count) {
  return std::clamp<int64_t>(p.Visible(i) - first, 0, count);
}

class Forward {
 public:
  Forward(const AttentionPlan& plan, const AttentionDrop& drop, const Philox& random,
          const AttentionInput<float>& in, const AttentionOutput<float>& out, float* scratch)
      : p_(plan),
        drop_(drop),
        random_(random),
        in_(in),
        out_(out),
        packed_k_(scratch),
        packed_v_(packed_k_ + PackedSize(std::min(p_.keys, kKeys), p_.depth)),
        scores_(packed_v_ + PackedSize(p_.width, std::min(p_.keys, kKeys))) {}

  static int64_t Scratch(const AttentionPlan& p) {
    const int64_t keys = std::min(p.keys, kKeys);
    return PackedSize(keys, p.depth) + PackedSize(p.width, keys) + kRows * ScoreStep(keys);
  }

  // Computes rows [begin, begin + count) of a matrix; count is at most kBlock.
  void Run(int64_t b, int64_t h, int64_t begin, int64_t count) {
    b_ = b;
    h_ = h;
    std::fill_n(max_, count, kNothing);
    std::fill_n(sum_, count, 0.0f);
    const int64_t end = p_.Visible(begin + count - 1);
    for (int64_t j = 0; j < end; j += kKeys) {
      CheckTimeLimit("computing attention");
      const int64_t keys = std::min(kKeys, end - j);
      PackColumns(in_.k + p_.k.At(b, h, j), p_.k.row, keys, p_.depth, PanelWidth(), packed_k_);
      PackRows(in_.v + p_.v.At(b, h, j), p_.v.row, keys, p_.width, PanelWidth(), packed_v_);
      for (int64_t i = 0; i < count; i += kRows)
        Tile(begin, i, std::min(kRows, count - i), j, keys);
    }
    for (int64_t i = 0; i < count; ++i) Finish(begin + i, max_[i], sum_[i]);
  }

 private:
  void Tile(int64_t begin, int64_t first, int64_t rows, int64_t j, int64_t keys) {
    const int64_t top = begin + first;
    if (Seen(p_, top + rows - 1, j, keys) == 0) return;
    // If weights are kept, there is one tile of keys, and its rows have memory for all keys.
    const int64_t step = ScoreStep(keys), kept = out_.weights ? p_.keys : keys;
    Multiply({in_.q + p_.q.At(b_, h_, top), p_.q.row, 1, packed_k_, rows, p_.depth, keys}, scores_,
             step, false);
    for (int64_t r = 0; r < rows; ++r) {
      float* row = scores_ + r * step;
      Row(top + r, j, keys, row, &max_[first + r], &sum_[first + r]);
      if (out_.weights) {
        float* weights = out_.weights + RowOf(top + r) * kept;
        std::copy_n(row, keys, weights);
        std::fill(weights + keys, weights + kept, 0.0f);
        ScaleRow(weights, Seen(p_, top + r, j, keys), 1 / sum_[first + r]);
      }
      if (drop_.IsIdentity()) continue;
      DropWeights(drop_, random_,
                  AttentionDrop::Word(p_, b_, h_, top + r) + static_cast<uint64_t>(j), keys, row);
    }
    Multiply({scores_, step, 1, packed_v_, rows, keys, p_.width}, out_.out + p_.out.At(b_, h_, top),
             p_.out.row, j > 0);
  }

  // Replaces scores by weights, without the division by their sum. Finish divides the result, so
  // that its bits do not depend on whether weights are kept.
  void Row(int64_t i, int64_t j, int64_t keys, float* s, float* max, float* sum) {
    const int64_t seen = Seen(p_, i, j, keys);
    float more = 0;
    const float most = ExpScores(s, seen, static_cast<float>(p_.scale),
                                 MaskOf(p_, in_.mask, b_, h_, i, j), *max, &more);
    // The weights of a row that sees nothing (all scores so far are -inf) are nan, as in a softmax;
    // dropped ones become 0.
    if (most == kNothing) std::fill_n(s, seen, std::numeric_limits<float>::quiet_NaN());
    std::fill(s + seen, s + keys, 0.0f);
    if (j > 0 && most != *max) {
      float* row = out_.out + p_.out.At(b_, h_, i);
      const float shrink = *max == kNothing ? 0.0f : std::exp(*max - most);
      *sum *= shrink;
      if (*max == kNothing)
        std::fill_n(row, p_.width, 0.0f);
      else
        ScaleRow(row, p_.width, shrink);
    }
    *max = most;
    *sum += more;
  }

  void Finish(int64_t i, float max, float sum) {
    if (max == kNothing)
      sum = std::numeric_limits<float>::quiet_NaN();
    else
      ScaleRow(out_.out + p_.out.At(b_, h_, i), p_.width, 1 / sum);
    if (!out_.stats) return;
    out_.stats[2 * RowOf(i)] = max;
    out_.stats[2 * RowOf(i) + 1] = sum;
  }

  int64_t RowOf(int64_t i) const { return (b_ * p_.heads + h_) * p_.rows + i; }

  const AttentionPlan& p_;
  const AttentionDrop& drop_;
  const Philox& random_;
  const AttentionInput<float>& in_;
  const AttentionOutput<float>& out_;
  float *packed_k_, *packed_v_, *scores_;
  float max_[kBlock], sum_[kBlock];
  int64_t b_ = 0, h_ = 0;
};

class Backward {
 public:
  Backward(const AttentionPlan& plan, const AttentionDrop& drop, const Philox& random,
           const AttentionInput<float>& in, const AttentionGrads<float>& grads, float* scratch)
      : p_(plan), drop_(drop), random_(random), in_(in), grads_(grads) {
    const int64_t keys = std::min(p_.keys, kBackwardKeys);
    const auto next = [&](int64_t size) {
      float* at = scratch;
      scratch += size;
      return at;
    };
    const int64_t rows = std::min(p_.rows, kRows);
    columns_k_ = next(PackedSize(keys, p_.depth));
    columns_v_ = next(PackedSize(keys, p_.width));
    rows_k_ = next(PackedSize(p_.depth, keys));
    rows_q_ = next(PackedSize(p_.depth, rows));
    rows_dout_ = next(PackedSize(p_.width, rows));
    scores_ = next(kRows * ScoreStep(keys));
    products_ = next(kRows * ScoreStep(keys));
    factors_ = next(keys);
    delta_ = next(p_.rows);
  }

  static int64_t Scratch(const AttentionPlan& p) {
    const int64_t keys = std::min(p.keys, kBackwardKeys), rows = std::min(p.rows, kRows);
    return PackedSize(keys, p.depth) + PackedSize(keys, p.width) + PackedSize(p.depth, keys) +
           PackedSize(p.depth, rows) + PackedSize(p.width, rows) + 2 * kRows * ScoreStep(keys) +
           keys + p.rows;
  }

  void Run(int64_t b, int64_t h) {
    b_ = b;
    h_ = h;
    for (int64_t i = 0; i < p_.rows; ++i) {
      const int64_t at = p_.out.At(b, h, i);
      delta_[i] = simd::Dot(grads_.out + at, grads_.dout + at, p_.width);
    }
    for (int64_t j = 0; j < p_.keys; j += kBackwardKeys) {
      CheckTimeLimit("differentiating attention");
      const int64_t keys = std::min(kBackwardKeys, p_.keys - j);
      const float* k = in_.k + p_.k.At(b, h, j);
      if (!grads_.weights) PackColumns(k, p_.k.row, keys, p_.depth, PanelWidth(), columns_k_);
      if (grads_.dq) PackRows(k, p_.k.row, keys, p_.depth, PanelWidth(), rows_k_);
      PackColumns(in_.v + p_.v.At(b, h, j), p_.v.row, keys, p_.width, PanelWidth(), columns_v_);
      bool add = false;
      for (int64_t i = 0; i < p_.rows; i += kRows) {
        const int64_t rows = std::min(kRows, p_.rows - i);
        if (Seen(p_, i + rows - 1, j, keys) == 0) continue;
        Tile(i, rows, j, keys, add);
        add = true;
      }
    }
  }

 private:
  void Tile(int64_t i, int64_t rows, int64_t j, int64_t keys, bool add) {
    const float* q = in_.q + p_.q.At(b_, h_, i);
    const float* dout = grads_.dout + p_.out.At(b_, h_, i);
    const int64_t first = (b_ * p_.heads + h_) * p_.rows + i;
    const float* kept = grads_.weights ? grads_.weights + first * p_.keys + j : nullptr;
    // The weights after dropout: the kept weights, or the weights of a tile.
    const bool as_kept = kept && drop_.IsIdentity();
    const int64_t step = ScoreStep(keys);
    if (!kept) {
      Multiply({q, p_.q.row, 1, columns_k_, rows, p_.depth, keys}, scores_, step, false);
    }
    Multiply({dout, p_.out.row, 1, columns_v_, rows, p_.width, keys}, products_, step, false);
    for (int64_t r = 0; r < rows; ++r) {
      Row(i + r, j, keys, kept ? kept + r * p_.keys : nullptr,
          as_kept ? nullptr : scores_ + r * step, products_ + r * step);
    }
    if (grads_.dv) {
      PackRows(dout, p_.out.row, rows, p_.width, PanelWidth(), rows_dout_);
      Multiply(
          {as_kept ? kept : scores_, 1, as_kept ? p_.keys : step, rows_dout_, keys, rows, p_.width},
          grads_.dv + p_.v.At(b_, h_, j), p_.v.row, add);
    }
    if (grads_.dk) {
      PackRows(q, p_.q.row, rows, p_.depth, PanelWidth(), rows_q_);
      Multiply({products_, 1, step, rows_q_, keys, rows, p_.depth}, grads_.dk + p_.k.At(b_, h_, j),
               p_.k.row, add);
    }
    if (grads_.dq) {
      Multiply({products_, step, 1, rows_k_, rows, keys, p_.depth}, grads_.dq + p_.q.At(b_, h_, i),
               p_.q.row, j > 0);
    }
  }

  void Row(int64_t i, int64_t j, int64_t keys, const float* weights, float* s, float* dp) {
    const int64_t matrix = b_ * p_.heads + h_, seen = Seen(p_, i, j, keys);
    const float* stats = grads_.stats + 2 * (matrix * p_.rows + i);
    WeightRow row;
    row.scale = static_cast<float>(p_.scale);
    row.max = stats[0];
    row.sum = stats[1];
    row.delta = delta_[i];
    row.mask = MaskOf(p_, in_.mask, b_, h_, i, j);
    row.weights = weights;
    if (grads_.dmask) row.dmask = grads_.dmask + p_.mask.At(b_, h_, i) + j * p_.mask.column;
    if (!drop_.IsIdentity()) {
      std::fill_n(factors_, seen, 1.0f);
      const uint64_t word = AttentionDrop::Word(p_, b_, h_, i);
      DropWeights(drop_, random_, word + static_cast<uint64_t>(j), seen, factors_);
      row.factors = factors_;
    }
    WeightGradients(row, seen, s, dp);
    if (s && row.factors && row.max == kNothing) {  // nans, some of which are dropped
      for (int64_t k = 0; k < seen; ++k) s[k] = factors_[k] == 0 ? 0.0f : s[k];
    }
    if (s) std::fill(s + seen, s + keys, 0.0f);
    std::fill(dp + seen, dp + keys, 0.0f);
  }

  const AttentionPlan& p_;
  const AttentionDrop& drop_;
  const Philox& random_;
  const AttentionInput<float>& in_;
  const AttentionGrads<float>& grads_;
  float *columns_k_, *columns_v_, *rows_k_, *rows_q_, *rows_dout_;  // panels of the named matrices
  float *scores_, *products_, *factors_, *delta_;
  int64_t b_ = 0, h_ = 0;
};

}  // namespace

int64_t AttentionFastScratch(const AttentionPlan& plan, bool backward) {
  // The memory of each part begins at a cache line.
  return ((backward ? Backward::Scratch(plan) : Forward::Scratch(plan)) + 15) / 16 * 16;
}

void AttentionFast(const AttentionPlan& p, const AttentionDrop& drop, const Philox& random,
                   const AttentionInput<float>& in, const AttentionOutput<float>& out,
                   float* scratch, int64_t parts) {
  // A few blocks for each part, for an even distribution. The result of a row does not depend on
  // its block.
  const int64_t matrices = p.batch * p.heads;
  const int64_t share = matrices * p.rows / (4 * parts) / kRows * kRows;
  const int64_t block = std::clamp(share, kRows, kBlock);
  const int64_t blocks = (p.rows + block - 1) / block, tasks = matrices * blocks;
  ParallelFor(parts, 1, [&](int64_t first, int64_t last) {
    Forward forward(p, drop, random, in, out, scratch + first * AttentionFastScratch(p, false));
    for (int64_t t = tasks * first / parts; t < tasks * last / parts; ++t) {
      const int64_t m = t / blocks, begin = t % blocks * block;
      forward.Run(m / p.heads, m % p.heads, begin, std::min(block, p.rows - begin));
    }
  });
}

void AttentionGradFast(const AttentionPlan& p, const AttentionDrop& drop, const Philox& random,
                       const AttentionInput<float>& in, const AttentionGrads<float>& grads,
                       float* scratch, int64_t parts) {
  const int64_t matrices = p.batch * p.heads;
  ParallelFor(parts, 1, [&](int64_t first, int64_t last) {
    Backward backward(p, drop, random, in, grads, scratch + first * AttentionFastScratch(p, true));
    for (int64_t m = matrices * first / parts; m < matrices * last / parts; ++m)
      backward.Run(m / p.heads, m % p.heads);
  });
}

}  // namespace coracle::inline internal
