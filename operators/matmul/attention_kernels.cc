// The sizes of an attention, and its plain kernels, which work row by row, so that only one row of
// scores exists at a time.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/matmul/attention.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace coracle::inline internal {
namespace {

// The broadcast dim; dims are equal, or one of them is 1 or unknown.
int64_t Stretch(int64_t a, int64_t b) { return a == 1 ? b : b == 1 ? a : std::max(a, b); }

template <class T>
double Dot(const T* a, const T* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

// One row of scores, weights and gradients. The two arrays have an element for every key.
template <class T>
class AttentionRow {
 public:
  AttentionRow(const AttentionPlan& plan, const AttentionDrop& drop, const Philox& random,
               const AttentionInput<T>& in, double* weights, double* gradients)
      : plan_(plan), drop_(drop), random_(random), in_(in), w_(weights), g_(gradients) {}

  void MoveTo(int64_t b, int64_t h, int64_t i) {
    b_ = b;
    h_ = h;
    i_ = i;
    seen_ = plan_.Visible(i);
    q_ = in_.q + plan_.q.At(b, h, i);
    k_ = in_.k + plan_.k.At(b, h);
    v_ = in_.v + plan_.v.At(b, h);
    mask_ = in_.mask ? in_.mask + plan_.mask.At(b, h, i) : nullptr;
  }

  // Scores are rounded to T, like their maximum if it is stored.
  void Scores() {
    for (int64_t j = 0; j < seen_; ++j) {
      T score = static_cast<T>(plan_.scale * Dot(q_, k_ + j * plan_.k.row, plan_.depth));
      if (mask_) score += mask_[j * plan_.mask.column];
      w_[j] = static_cast<double>(score);
    }
  }
  // Replaces scores by exp(score - max) / sum.
  void Weights(double max, double sum) {
    for (int64_t j = 0; j < seen_; ++j) w_[j] = std::exp(w_[j] - max) / sum;
  }
  void Softmax(T* stats) {
    double max = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t j = 0; j < seen_; ++j) max = std::max(max, w_[j]);
    for (int64_t j = 0; j < seen_; ++j) sum += std::exp(w_[j] - max);
    Weights(max, sum);
    if (!stats) return;
    stats[0] = static_cast<T>(max);
    stats[1] = static_cast<T>(sum);
  }
  void Keep(T* weights) const {
    for (int64_t j = 0; j < plan_.keys; ++j) weights[j] = j < seen_ ? static_cast<T>(w_[j]) : T(0);
  }
  void Drop(double* x) const {
    if (!drop_.IsIdentity())
      DropWeights(drop_, random_, AttentionDrop::Word(plan_, b_, h_, i_), seen_, x);
  }
  // The weighted sum of values; sums has `width` elements.
  void Mix(T* out, double* sums) {
    Drop(w_);
    std::fill_n(sums, plan_.width, 0.0);
    for (int64_t j = 0; j < seen_; ++j) {
      const T* v = v_ + j * plan_.v.row;
      for (int64_t c = 0; c < plan_.width; ++c) sums[c] += w_[j] * static_cast<double>(v[c]);
    }
    for (int64_t c = 0; c < plan_.width; ++c) out[c] = static_cast<T>(sums[c]);
  }
  // From weights and dout, computes g = gradients of the scores, w = weights after dropout.
  void Backward(const T* dout) {
    for (int64_t j = 0; j < seen_; ++j) g_[j] = Dot(dout, v_ + j * plan_.v.row, plan_.width);
    Drop(g_);
    double mean = 0;
    for (int64_t j = 0; j < seen_; ++j) mean += w_[j] * g_[j];
    for (int64_t j = 0; j < seen_; ++j) g_[j] = w_[j] * (g_[j] - mean);
    Drop(w_);
  }
  // Adds the gradients from this row to the matrices of its batch and head.
  void AddGradients(const T* dout, T* dq, T* dk, T* dv, T* dmask) const {
    for (int64_t j = 0; j < seen_; ++j) {
      const double score = plan_.scale * g_[j];
      const T* k = k_ + j * plan_.k.row;
      for (int64_t c = 0; c < plan_.depth; ++c) {
        if (dq) dq[c] += static_cast<T>(score * static_cast<double>(k[c]));
        if (dk) dk[j * plan_.k.row + c] += static_cast<T>(score * static_cast<double>(q_[c]));
      }
      for (int64_t c = 0; dv && c < plan_.width; ++c)
        dv[j * plan_.v.row + c] += static_cast<T>(w_[j] * static_cast<double>(dout[c]));
      if (dmask) dmask[j * plan_.mask.column] += static_cast<T>(g_[j]);
    }
  }

 private:
  const AttentionPlan& plan_;
  const AttentionDrop& drop_;
  const Philox& random_;
  const AttentionInput<T>& in_;
  double *w_, *g_;
  int64_t b_ = 0, h_ = 0, i_ = 0, seen_ = 0;
  const T *q_ = nullptr, *k_ = nullptr, *v_ = nullptr, *mask_ = nullptr;
};

}  // namespace

AttentionShapes AlignAttention(const Shape& q, const Shape& k, const Shape& v, const Shape* mask,
                               bool heads_inside) {
  const auto align = [](const Shape& shape, bool exchange) {
    Shape aligned;
    for (int i = shape.rank(); i < 4; ++i) aligned.Append(1);
    for (int i = 0; i < shape.rank(); ++i) aligned.Append(shape[i]);
    if (exchange) std::swap(aligned[1], aligned[2]);
    return aligned;
  };
  return {align(q, heads_inside), align(k, heads_inside), align(v, heads_inside),
          mask ? align(*mask, false) : Shape{1, 1, 1, 1}};
}

AttentionDims DimsOf(const AttentionShapes& s) {
  const auto common = [&](int i) {
    return Stretch(Stretch(s.q[i], s.k[i]), Stretch(s.v[i], s.mask[i]));
  };
  return {common(0),
          common(1),
          Stretch(s.q[2], s.mask[2]),
          Stretch(s.k[2], s.mask[3]),
          std::max(s.q[3], s.k[3]),
          s.v[3]};
}

bool MatricesAreApart(const AttentionPlan& p, bool dmask) {
  const auto repeats = [](int64_t dim, int64_t step) { return dim > 1 && step == 0; };
  return !p.repeats &&
         !(dmask && (repeats(p.batch, p.mask.batch) || repeats(p.heads, p.mask.head)));
}

template <class T>
void DropWeights(const AttentionDrop& drop, const Philox& random, uint64_t first, int64_t n,
                 T* weights) {
  const T factor = static_cast<T>(drop.factor);
  if (!drop.draws) {
    for (int64_t j = 0; j < n; ++j) weights[j] *= factor;
    return;
  }
  constexpr int64_t kChunk = 256;
  uint32_t words[kChunk];
  const auto threshold = static_cast<uint64_t>(drop.p * 0x1p32);
  for (int64_t j = 0; j < n;) {
    const auto skip = static_cast<int64_t>((first + static_cast<uint64_t>(j)) % 4);
    const int64_t count = std::min(n - j, kChunk - skip);
    random.Blocks((first + static_cast<uint64_t>(j)) / 4, (skip + count + 3) / 4, words);
    for (int64_t i = 0; i < count; ++i)
      weights[j + i] = words[skip + i] >= threshold ? weights[j + i] * factor : T(0);
    j += count;
  }
}
template void DropWeights<float>(const AttentionDrop&, const Philox&, uint64_t, int64_t, float*);

template <class T>
void AttentionReference(const AttentionPlan& p, const AttentionDrop& drop, const Philox& random,
                        const AttentionInput<T>& in, const AttentionOutput<T>& out, double* scratch,
                        int64_t parts) {
  const int64_t matrices = p.batch * p.heads, rows = matrices * p.rows;
  ParallelFor(parts, 1, [&](int64_t first, int64_t last) {
    double* lines = scratch + first * AttentionScratch(p);
    AttentionRow<T> row(p, drop, random, in, lines, lines + p.keys);
    for (int64_t r = rows * first / parts; r < rows * last / parts; ++r) {
      const int64_t m = r / p.rows, i = r % p.rows, b = m / p.heads, h = m % p.heads;
      if (r % 16 == 0) CheckTimeLimit("computing attention");
      row.MoveTo(b, h, i);
      row.Scores();
      row.Softmax(out.stats ? out.stats + 2 * r : nullptr);
      if (out.weights) row.Keep(out.weights + r * p.keys);
      row.Mix(out.out + p.out.At(b, h, i), lines + 2 * p.keys);
    }
  });
}

template <class T>
void AttentionGradReference(const AttentionPlan& p, const AttentionDrop& drop, const Philox& random,
                            const AttentionInput<T>& in, const AttentionGrads<T>& grads,
                            double* scratch, int64_t parts) {
  const int64_t matrices = p.batch * p.heads;
  const auto at = [](T* x, int64_t offset) { return x ? x + offset : nullptr; };
  ParallelFor(parts, 1, [&](int64_t first, int64_t last) {
    double* lines = scratch + first * AttentionScratch(p);
    AttentionRow<T> row(p, drop, random, in, lines, lines + p.keys);
    for (int64_t m = matrices * first / parts; m < matrices * last / parts; ++m) {
      const int64_t b = m / p.heads, h = m % p.heads;
      for (int64_t i = 0; i < p.rows; ++i) {
        if (i % 16 == 0) CheckTimeLimit("differentiating attention");
        const T* dout = grads.dout + p.out.At(b, h, i);
        const T* stats = grads.stats + 2 * (m * p.rows + i);
        row.MoveTo(b, h, i);
        row.Scores();
        row.Weights(static_cast<double>(stats[0]), static_cast<double>(stats[1]));
        row.Backward(dout);
        row.AddGradients(dout, at(grads.dq, p.q.At(b, h, i)), at(grads.dk, p.k.At(b, h)),
                         at(grads.dv, p.v.At(b, h)), at(grads.dmask, p.mask.At(b, h, i)));
      }
    }
  });
}

template void AttentionReference<float>(const AttentionPlan&, const AttentionDrop&, const Philox&,
                                        const AttentionInput<float>&, const AttentionOutput<float>&,
                                        double*, int64_t);
template void AttentionReference<double>(const AttentionPlan&, const AttentionDrop&, const Philox&,
                                         const AttentionInput<double>&,
                                         const AttentionOutput<double>&, double*, int64_t);
template void AttentionGradReference<float>(const AttentionPlan&, const AttentionDrop&,
                                            const Philox&, const AttentionInput<float>&,
                                            const AttentionGrads<float>&, double*, int64_t);
template void AttentionGradReference<double>(const AttentionPlan&, const AttentionDrop&,
                                             const Philox&, const AttentionInput<double>&,
                                             const AttentionGrads<double>&, double*, int64_t);

}  // namespace coracle::inline internal
