#include <coracle/operators/sequence/sequence_simd.h>

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/sequence/sequence_simd.cc"

// clang-format off
#include <hwy/foreach_target.h>  // first: it compiles this file for each target
#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace coracle::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of states are padded to 8 doubles.
using D = hn::CappedTag<double, 8>;
using V = hn::Vec<D>;
constexpr D d{};

// exp for arguments that are not positive; approximately 0 below -700.
HWY_INLINE V ExpNegative(V x) { return hn::Exp(d, hn::Max(x, hn::Set(d, -700.0))); }

// log(1 + x) for x in [0, 1], accurate to 1e-13: 2 atanh(z) as a series, with z = x / (2 + x) in
// [0, 1/3].
HWY_INLINE V LogOnePlus(V x) {
  const V z = hn::Div(x, hn::Add(x, hn::Set(d, 2.0))), w = hn::Mul(z, z);
  V sum = hn::Set(d, 1.0 / 23);
  for (int k = 21; k > 0; k -= 2) sum = hn::MulAdd(sum, w, hn::Set(d, 1.0 / k));
  return hn::Mul(hn::Add(z, z), sum);
}

// log(exp(a) + exp(b))
HWY_INLINE V LogAdd(V a, V b) {
  const V high = hn::Max(a, b);
  return hn::Add(high, LogOnePlus(ExpNegative(hn::Sub(hn::Min(a, b), high))));
}

HWY_INLINE double Sum(V v) { return hn::GetLane(hn::SumOfLanes(d, v)); }

HWY_INLINE int64_t Lanes() { return static_cast<int64_t>(hn::Lanes(d)); }

// --- connectionist temporal classification ---

// The states of one label: which symbols differ from the previous one, and their log-probabilities
// in a frame.
struct Label {
  const CtcSequence& x;
  int64_t width;
  double *skips, *logs;

  Label(const CtcSequence& sequence, double* room)
      : x(sequence), width(CtcWidth(x.size)), skips(room), logs(room + width + 8) {
    std::fill_n(skips, width + 8, 0.0);
    for (int64_t k = 1; k < x.size; ++k) skips[k] = x.symbols[k] != x.symbols[k - 1] ? 1 : 0;
    std::fill_n(logs, width, kCtcNever);
  }
  // Fills `logs` with the log-probabilities of the symbols in a frame; returns the one of blank.
  double ReadFrame(int64_t t) const {
    const float* frame = x.logits + t * x.step;
    const double log_sum = x.log_sums[t];
    for (int64_t k = 0; k < x.size; ++k)
      logs[k] = std::max(static_cast<double>(frame[x.symbols[k]]) - log_sum, kCtcNever);
    return std::max(static_cast<double>(frame[x.blank]) - log_sum, kCtcNever);
  }
  // `yes` if a path may go from a symbol to the next one without a blank, else `no`.
  HWY_INLINE V IfSkips(int64_t k, V yes, V no) const {
    return hn::IfThenElse(hn::Gt(hn::LoadU(d, skips + k), hn::Zero(d)), yes, no);
  }
};

double Forward(const CtcSequence& x, double* alpha, double* room) {
  const Label label(x, room);
  const int64_t width = label.width, row = CtcRowSize(x.size);
  std::fill_n(alpha, row, kCtcNever);
  alpha[0] = 0;
  for (int64_t t = 0; t < x.count; ++t) {
    const double *blanks = alpha + t * row, *symbols = blanks + width;
    double *next_blanks = alpha + (t + 1) * row, *next_symbols = next_blanks + width;
    const V blank = hn::Set(d, label.ReadFrame(t));
    next_symbols[0] = kCtcNever;
    for (int64_t k = 0; k < width; k += Lanes()) {
      const V at_blank = hn::LoadU(d, blanks + k);
      const V either = LogAdd(at_blank, hn::LoadU(d, symbols + k));
      const V from = label.IfSkips(k, either, at_blank);
      const V at_symbol = LogAdd(hn::LoadU(d, symbols + k + 1), from);
      hn::StoreU(hn::Add(either, blank), d, next_blanks + k);
      hn::StoreU(hn::Add(at_symbol, hn::LoadU(d, label.logs + k)), d, next_symbols + k + 1);
    }
  }
  const double* last = alpha + x.count * row;
  const double a = last[x.size], b = last[width + x.size];
  return std::max(a, b) + std::log1p(std::exp(std::min(a, b) - std::max(a, b)));
}

void Backward(const CtcSequence& x, const double* alpha, double total, double* room, float* grad,
              int64_t grad_step) {
  const Label label(x, room);
  const int64_t width = label.width, row = CtcRowSize(x.size);
  // `next_` has the probability of the following states, including that of their own frame.
  double *next_blanks = label.logs + width, *next_symbols = next_blanks + width + 8;
  double *after_blanks = next_symbols + width, *shares = after_blanks + width + 8;
  std::fill(next_blanks, shares, kCtcNever);
  next_blanks[x.size] = 0;
  const V all = hn::Set(d, total);
  for (int64_t t = x.count - 1; t >= 0; --t) {
    const double *blanks = alpha + (t + 1) * row, *symbols = blanks + width;
    const V blank = hn::Set(d, label.ReadFrame(t));
    for (int64_t k = 0; k < width; k += Lanes()) {
      hn::StoreU(LogAdd(hn::LoadU(d, next_blanks + k), hn::LoadU(d, next_symbols + k)), d,
                 after_blanks + k);
    }
    V at_blank = hn::Zero(d);
    for (int64_t k = 0; k < width; k += Lanes()) {
      const V after = hn::LoadU(d, after_blanks + k);
      const V to = label.IfSkips(k + 1, hn::LoadU(d, after_blanks + k + 1),
                                 hn::LoadU(d, next_blanks + k + 1));
      const V after_symbol = LogAdd(hn::LoadU(d, next_symbols + k), to);
      at_blank =
          hn::Add(at_blank, ExpNegative(hn::Sub(hn::Add(hn::LoadU(d, blanks + k), after), all)));
      hn::StoreU(ExpNegative(hn::Sub(hn::Add(hn::LoadU(d, symbols + k + 1), after_symbol), all)), d,
                 shares + k);
      hn::StoreU(hn::Add(after, blank), d, next_blanks + k);
      hn::StoreU(hn::Add(after_symbol, hn::LoadU(d, label.logs + k)), d, next_symbols + k);
    }
    float* to = grad + t * grad_step;
    to[x.blank] -= static_cast<float>(Sum(at_blank));
    for (int64_t k = 0; k < x.size; ++k) to[x.symbols[k]] -= static_cast<float>(shares[k]);
  }
}

// --- small matrices ---

// Loads and stores the first `count` lanes, zeros above: like those of simd-inl.h, for doubles.
HWY_INLINE V LoadFirst(const double* p, int64_t count) {
  if (count >= Lanes()) return hn::LoadU(d, p);
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(count)), d, p);
#else
  double buffer[8] = {};
  std::copy_n(p, count, buffer);
  return hn::LoadU(d, buffer);
#endif
}
HWY_INLINE void StoreFirst(V v, double* p, int64_t count) {
  if (count >= Lanes()) return hn::StoreU(v, d, p);
  double buffer[8];
  hn::StoreU(v, d, buffer);
  std::copy_n(buffer, count, p);
}

void VectorTimes(const double* v, const double* m, int64_t n, double* out) {
  const int64_t lanes = Lanes();
  int64_t j = 0;
  for (; j + 4 * lanes <= n; j += 4 * lanes) {
    V sum[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    for (int64_t i = 0; i < n; ++i) {
      const V factor = hn::Set(d, v[i]);
      const double* row = m + i * n + j;
      for (int64_t q = 0; q < 4; ++q)
        sum[q] = hn::MulAdd(factor, hn::LoadU(d, row + q * lanes), sum[q]);
    }
    for (int64_t q = 0; q < 4; ++q) hn::StoreU(sum[q], d, out + j + q * lanes);
  }
  for (; j < n; j += lanes) {
    const int64_t count = std::min(lanes, n - j);
    V sum = hn::Zero(d);
    for (int64_t i = 0; i < n; ++i)
      sum = hn::MulAdd(hn::Set(d, v[i]), LoadFirst(m + i * n + j, count), sum);
    StoreFirst(sum, out + j, count);
  }
}

double Dot(const double* x, const double* y, int64_t n) {
  const int64_t lanes = Lanes();
  V sum = hn::Zero(d);
  int64_t j = 0;
  for (; j + lanes <= n; j += lanes)
    sum = hn::MulAdd(hn::LoadU(d, x + j), hn::LoadU(d, y + j), sum);
  if (j < n) sum = hn::MulAdd(LoadFirst(x + j, n - j), LoadFirst(y + j, n - j), sum);
  return Sum(sum);
}

void TimesVector(const double* m, const double* v, int64_t n, double* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = Dot(m + i * n, v, n);
}

void AddScaled(const double* a, const double* m, const double* b, int64_t n, double* sums) {
  const int64_t lanes = Lanes();
  for (int64_t i = 0; i < n; ++i, m += n, sums += n) {
    const V factor = hn::Set(d, a[i]);
    int64_t j = 0;
    for (; j + lanes <= n; j += lanes) {
      const V scaled = hn::Mul(factor, hn::LoadU(d, m + j));
      hn::StoreU(hn::MulAdd(scaled, hn::LoadU(d, b + j), hn::LoadU(d, sums + j)), d, sums + j);
    }
    for (; j < n; ++j) sums[j] += a[i] * m[j] * b[j];
  }
}

double Multiply(const double* y, int64_t n, double* x) {
  const int64_t lanes = Lanes();
  V sum = hn::Zero(d);
  int64_t j = 0;
  for (; j + lanes <= n; j += lanes) {
    const V product = hn::Mul(hn::LoadU(d, x + j), hn::LoadU(d, y + j));
    hn::StoreU(product, d, x + j);
    sum = hn::Add(sum, product);
  }
  double total = Sum(sum);
  for (; j < n; ++j) total += x[j] *= y[j];
  return total;
}

// exp for arguments that are not positive, and nan.
HWY_INLINE V ExpOrNan(V x) { return hn::IfThenElse(hn::IsNaN(x), x, ExpNegative(x)); }

// max + log(sum) if max is finite; else max, since the sum is meaningless then.
HWY_INLINE V LogOfSum(V max, V sum) {
  return hn::IfThenElse(hn::IsFinite(max), hn::Add(max, hn::Log(d, sum)), max);
}

void LogVectorTimes(const double* v, const double* m, int64_t n, double* out) {
  const int64_t lanes = Lanes();
  for (int64_t j = 0; j < n; j += lanes) {
    const int64_t count = std::min(lanes, n - j);
    const auto term = [&](int64_t i) {
      return hn::Add(hn::Set(d, v[i]), LoadFirst(m + i * n + j, count));
    };
    V max = term(0), sum = hn::Zero(d);
    // hn::Max may lose a nan.
    auto nans = hn::IsNaN(max);
    for (int64_t i = 1; i < n; ++i) {
      const V next = term(i);
      max = hn::Max(max, next);
      nans = hn::Or(nans, hn::IsNaN(next));
    }
    max = hn::IfThenElse(nans, hn::Set(d, std::numeric_limits<double>::quiet_NaN()), max);
    for (int64_t i = 0; i < n; ++i) sum = hn::Add(sum, ExpOrNan(hn::Sub(term(i), max)));
    StoreFirst(LogOfSum(max, sum), out + j, count);
  }
}

void LogTimesVector(const double* m, const double* v, int64_t n, double* out) {
  const int64_t lanes = Lanes();
  for (int64_t i = 0; i < n; ++i, m += n) {
    double max = m[0] + v[0], total = 0;
    for (int64_t j = 1; j < n; ++j) {
      const double next = m[j] + v[j];
      if (next > max || std::isnan(next)) max = next;
    }
    V sum = hn::Zero(d);
    int64_t j = 0;
    for (; j + lanes <= n; j += lanes) {
      const V term = hn::Add(hn::LoadU(d, m + j), hn::LoadU(d, v + j));
      sum = hn::Add(sum, ExpOrNan(hn::Sub(term, hn::Set(d, max))));
    }
    for (; j < n; ++j) total += std::exp(m[j] + v[j] - max);
    out[i] = std::isfinite(max) ? max + std::log(total + Sum(sum)) : max;
  }
}

void AddExps(const double* a, const double* m, const double* b, int64_t n, double scale,
             double* sums) {
  const int64_t lanes = Lanes();
  for (int64_t i = 0; i < n; ++i, m += n, sums += n) {
    const V first = hn::Set(d, a[i]), factor = hn::Set(d, scale);
    int64_t j = 0;
    for (; j + lanes <= n; j += lanes) {
      const V term = hn::Add(hn::Add(first, hn::LoadU(d, m + j)), hn::LoadU(d, b + j));
      hn::StoreU(hn::MulAdd(factor, ExpOrNan(term), hn::LoadU(d, sums + j)), d, sums + j);
    }
    for (; j < n; ++j) sums[j] += scale * std::exp(a[i] + m[j] + b[j]);
  }
}

void Exps(double max, int64_t n, double* x) {
  const int64_t lanes = Lanes();
  const V most = hn::Set(d, max);
  const auto exp = [&](V v) { return ExpOrNan(hn::Sub(v, most)); };
  int64_t j = 0;
  for (; j + lanes <= n; j += lanes) hn::StoreU(exp(hn::LoadU(d, x + j)), d, x + j);
  if (j < n) StoreFirst(exp(LoadFirst(x + j, n - j)), x + j, n - j);
}

}  // namespace
}  // namespace coracle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle::inline internal {

HWY_EXPORT(Forward);
HWY_EXPORT(Backward);
HWY_EXPORT(VectorTimes);
HWY_EXPORT(TimesVector);
HWY_EXPORT(AddScaled);
HWY_EXPORT(Multiply);
HWY_EXPORT(Exps);
HWY_EXPORT(LogVectorTimes);
HWY_EXPORT(LogTimesVector);
HWY_EXPORT(AddExps);

double CtcForward(const CtcSequence& x, double* alpha, double* room) {
  return HWY_DYNAMIC_DISPATCH(Forward)(x, alpha, room);
}
void CtcBackward(const CtcSequence& x, const double* alpha, double total, double* room, float* grad,
                 int64_t grad_step) {
  HWY_DYNAMIC_DISPATCH(Backward)(x, alpha, total, room, grad, grad_step);
}
void VectorTimesSquare(const double* v, const double* m, int64_t n, double* out) {
  HWY_DYNAMIC_DISPATCH(VectorTimes)(v, m, n, out);
}
void SquareTimesVector(const double* m, const double* v, int64_t n, double* out) {
  HWY_DYNAMIC_DISPATCH(TimesVector)(m, v, n, out);
}
void AddScaledSquare(const double* a, const double* m, const double* b, int64_t n, double* sums) {
  HWY_DYNAMIC_DISPATCH(AddScaled)(a, m, b, n, sums);
}
double MultiplyBy(const double* y, int64_t n, double* x) {
  return HWY_DYNAMIC_DISPATCH(Multiply)(y, n, x);
}
void LogVectorTimesSquare(const double* v, const double* m, int64_t n, double* out) {
  HWY_DYNAMIC_DISPATCH(LogVectorTimes)(v, m, n, out);
}
void LogSquareTimesVector(const double* m, const double* v, int64_t n, double* out) {
  HWY_DYNAMIC_DISPATCH(LogTimesVector)(m, v, n, out);
}
void AddExpSquare(const double* a, const double* m, const double* b, int64_t n, double scale,
                  double* sums) {
  HWY_DYNAMIC_DISPATCH(AddExps)(a, m, b, n, scale, sums);
}
void ExpBelow(double max, int64_t n, double* x) { HWY_DYNAMIC_DISPATCH(Exps)(max, n, x); }

}  // namespace coracle::inline internal
#endif
