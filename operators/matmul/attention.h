#pragma once
// scaled_dot_product_attention: declarations shared by its kernels.

#include <coracle/framework/op/op_def.h>
#include <coracle/framework/tensor/rng.h>

#include <cstdint>

namespace coracle::inline internal {

// With at most this many keys, the weights are kept for the gradient: there are few of them, so
// storing them is faster than recomputing.
constexpr int64_t kMostKeptKeys = 256;

// The operands as [batch, heads, rows or keys, columns].
struct AttentionShapes {
  Shape q, k, v, mask;
};
// Missing leading dims, and an absent Mask, become 1s. `heads_inside`: Q, K and V are [batch, rows,
// heads, columns].
AttentionShapes AlignAttention(const Shape& q, const Shape& k, const Shape& v, const Shape* mask,
                               bool heads_inside);

// Sizes; -1 if unknown.
struct AttentionDims {
  int64_t batch = 1, heads = 1, rows = 1, keys = 1, depth = 1, width = 1;
};
AttentionDims DimsOf(const AttentionShapes& shapes);

// The step of each dim in elements; 0: the operand is repeated along it. Only the mask uses
// `column`: the columns of Q, K, V and Out are contiguous.
struct AttentionSteps {
  int64_t batch = 0, head = 0, row = 0, column = 1;
  int64_t At(int64_t b, int64_t h, int64_t i = 0) const { return b * batch + h * head + i * row; }
};

struct AttentionPlan : AttentionDims {
  AttentionSteps q, k, v, out, mask;
  bool has_mask = false, causal = false;
  double scale = 1;
  bool repeats = false;  // whether Q, K or V is repeated along some dim
  int64_t part = 0;      // elements from Q to K, and from K to V, in a joint tensor
  // Steps of the draws for the weights: if only V has several batches or heads, they share them.
  int64_t drawn_batch = 0, drawn_head = 0;

  // Number of keys that row i sees; they are the first ones.
  int64_t Visible(int64_t i) const { return causal ? i + 1 + keys - rows : keys; }
};

// Dropout of the weights; element i of them has word i of the stream.
struct AttentionDrop {
  bool draws = false;
  double p = 0;
  double factor = 1;  // of kept weights

  bool IsIdentity() const { return !draws && factor == 1; }
  // The index of the first word of a row.
  static uint64_t Word(const AttentionPlan& plan, int64_t b, int64_t h, int64_t i) {
    const auto row = static_cast<uint64_t>(b * plan.drawn_batch + h * plan.drawn_head + i);
    return row * static_cast<uint64_t>(plan.keys);
  }
};
// weights[j] *= factor, or 0 if word first + j drops it.
template <class T>
void DropWeights(const AttentionDrop& drop, const Philox& random, uint64_t first, int64_t n,
                 T* weights);

template <class T>
struct AttentionInput {
  const T *q, *k, *v, *mask;  // mask: null if there is none
};
// stats: for each row, the maximum of its scores and the sum of exp(score - maximum). weights:
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

// Whether no two matrices (a batch and a head) add to the same gradient, so that they can be
// computed in parallel.
bool MatricesAreApart(const AttentionPlan& plan, bool dmask);

// The kernels. Gradients are added to the outputs, except that the fast kernel writes dq, dk and
// dv. The work is cut into `parts`, each with this many elements of scratch memory.
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

// The mask of a row's scores; with step 0, one number for all.
struct ScoreMask {
  const float* values = nullptr;  // null: nothing
  int64_t step = 0;
};
// Computes s = s * scale + mask, then s = exp(s - m) with m the maximum of `max` and the largest
// score. Returns m, and the sum of the new s in *sum.
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

}  // namespace coracle::inline internal
