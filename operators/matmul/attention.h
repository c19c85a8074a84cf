#pragma once
// scaled_dot_product_attention: what its kernels share.

#include <coracle/framework/op/op_spec.h>
#include <coracle/framework/tensor/rng.h>

#include <cstdint>

namespace coracle {

// With at most so many keys the weights are kept for the gradient: writing and reading them takes
// less time than computing them again, and they are few.
constexpr int64_t kMostKeptKeys = 256;

// The operands as [batch, heads, rows or keys, columns].
struct AttentionShapes {
  Shape q, k, v, mask;
};
// 1s stand for leading dims that are missing, and for an absent Mask. `heads_inside`: Q, K and V
// are [batch, rows, heads, columns].
AttentionShapes AlignAttention(const Shape& q, const Shape& k, const Shape& v, const Shape* mask,
                               bool heads_inside);

// -1 for a size that is not known.
struct AttentionDims {
  int64_t batch = 1, heads = 1, rows = 1, keys = 1, depth = 1, width = 1;
};
AttentionDims DimsOf(const AttentionShapes& shapes);

// Elements to go for one step in a dim; 0: the operand is repeated along it. `column` counts for
// the mask alone: the columns of Q, K, V and Out stand side by side.
struct AttentionSteps {
  int64_t batch = 0, head = 0, row = 0, column = 1;
  int64_t At(int64_t b, int64_t h, int64_t i = 0) const { return b * batch + h * head + i * row; }
};

struct AttentionPlan : AttentionDims {
  AttentionSteps q, k, v, out, mask;
  bool has_mask = false, causal = false;
  double scale = 1;
  bool repeats = false;  // along some dim Q, K or V is repeated
  int64_t part = 0;      // elements from Q on to K, and to V, if they stand in one tensor
  // Of the weights' draws: where V alone has several batches or heads, they share them.
  int64_t drawn_batch = 0, drawn_head = 0;

  // The keys that row i sees are the first ones.
  int64_t Visible(int64_t i) const { return causal ? i + 1 + keys - rows : keys; }
};

// Dropout of the weights; element i of them has word i of the stream.
struct AttentionDrop {
  bool draws = false;
  double p = 0;
  double factor = 1;  // of weights that are kept

  bool IsIdentity() const { return !draws && factor == 1; }
  // The first of a row's words.
  static uint64_t Word(const AttentionPlan& plan, int64_t b, int64_t h, int64_t i) {
    const auto row = static_cast<uint64_t>(b * plan.drawn_batch + h * plan.drawn_head + i);
    return row * static_cast<uint64_t>(plan.keys);
  }
};
// weights[j] *= factor, or = 0 where word first + j says so.
template <class T>
void DropWeights(const AttentionDrop& drop, const Philox& random, uint64_t first, int64_t n,
                 T* weights);

template <class T>
struct AttentionInput {
  const T *q, *k, *v, *mask;  // mask: null if there is none
};
// stats: of each row the maximum of its scores, and the sum of exp(score - maximum). weights:
// [batch, heads, rows, keys], before dropout; null: not kept.
template <class T>
struct AttentionOutput {
  T *out, *stats, *weights;  // stats may be null too
};
template <class T>
struct AttentionGrads {
  const T *out, *stats, *weights, *dout;
  T *dq, *dk, *dv, *dmask;  // null: not wanted
};

// Whether no two matrices (a batch and a head) add to one gradient, so that they may be computed
// side by side.
bool MatricesAreApart(const AttentionPlan& plan, bool dmask);

// The kernels. Gradients are added to, but the fast kernel writes dq, dk and dv. The work is cut
// into `parts`; each has so many elements of scratch memory.
inline int64_t AttentionScratch(const AttentionPlan& plan) { return 2 * plan.keys + plan.width; }
template <class T>
void AttentionReference(const AttentionPlan& plan, const AttentionDrop& drop, const Philox& random,
                        const AttentionInput<T>& in, const AttentionOutput<T>& out, double* scratch,
                        int64_t parts);
template <class T>
void AttentionGradReference(const AttentionPlan& plan, const AttentionDrop& drop,
                            const Philox& random, const AttentionInput<T>& in,
                            const AttentionGrads<T>& grads, double* scratch, int64_t parts);

// Fast kernels: tiles of some rows and some keys. REQUIRES: no dim is 0; backward: !plan.repeats.
int64_t AttentionFastScratch(const AttentionPlan& plan, bool backward);
void AttentionFast(const AttentionPlan& plan, const AttentionDrop& drop, const Philox& random,
                   const AttentionInput<float>& in, const AttentionOutput<float>& out,
                   float* scratch, int64_t parts);
void AttentionGradFast(const AttentionPlan& plan, const AttentionDrop& drop, const Philox& random,
                       const AttentionInput<float>& in, const AttentionGrads<float>& grads,
                       float* scratch, int64_t parts);

// --- loops in the machine's vectors (attention_simd.cc) ---

// What was added to a row's scores; with step 0 one number to all.
struct ScoreMask {
  const float* values = nullptr;  // null: nothing
  int64_t step = 0;
};
// s = s * scale + mask, then s = exp(s - max) with the larger of `max` and the largest score.
// Returns that, and in *sum the sum of the new s.
float ExpScores(float* s, int64_t n, float scale, const ScoreMask& mask, float max, float* sum);
// With weight = weights[j], or (weights null) exp(s * scale + mask - max) / sum:
//   dp = weight * (dp * factor - delta),  s = weight * factor (unless s is null),
// and `dp` is added to dmask[j * mask.step] (unless null), then multiplied by `scale`. `factors`
// null: ones.
struct WeightRow {
  float scale = 1, max = 0, sum = 1, delta = 0;
  ScoreMask mask;
  const float* weights = nullptr;
  const float* factors = nullptr;
  float* dmask = nullptr;
};
void WeightGradients(const WeightRow& row, int64_t n, float* s, float* dp);
// x *= factor.
void ScaleRow(float* x, int64_t n, float factor);

}  // namespace coracle
