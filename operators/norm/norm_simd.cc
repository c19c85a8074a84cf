#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/norm/norm.h>

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "coracle/operators/norm/norm_simd.cc"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <coracle/operators/kernels/simd-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace coracle {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = FloatTag;
using V = FloatVec;
constexpr size_t kMaxLanes = HWY_MAX_BYTES / sizeof(float);

HWY_INLINE int64_t LanesOf() { return static_cast<int64_t>(hn::Lanes(D())); }

// Adds the first `n` lanes to doubles.
HWY_INLINE void AddTo(V v, double* sums, int64_t n) {
  HWY_ALIGN float lanes[kMaxLanes];
  hn::Store(v, D(), lanes);
  for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<double>(lanes[i]);
}

// Float sums are flushed into doubles every so many steps.
constexpr int64_t kFlush = 256;

// For channels last: over `rows` rows, first[c] += sum of a - shift[c] (of dy when given), and
// second[c] += sum of (x - shift[c])^2 (of dy (x - shift[c]) when dy is given).
void RowSums(const float* x, const float* dy, int64_t rows, int64_t channels, const float* shift,
             double* first, double* second) {
  for (int64_t c = 0; c < channels; c += LanesOf()) {
    const int64_t n = std::min(LanesOf(), channels - c);
    const V k = LoadFirst(shift + c, n);
    for (int64_t begin = 0; begin < rows; begin += kFlush) {
      const int64_t end = std::min(rows, begin + kFlush);
      V sum = hn::Zero(D()), product = hn::Zero(D());
      for (int64_t r = begin; r < end; ++r) {
        const V d = hn::Sub(LoadFirst(x + r * channels + c, n), k);
        const V a = dy ? LoadFirst(dy + r * channels + c, n) : d;
        sum = hn::Add(sum, a);
        product = hn::MulAdd(a, d, product);
      }
      AddTo(sum, first + c, n);
      AddTo(product, second + c, n);
    }
  }
}

// The same for `n` contiguous elements of one channel.
void PlaneSums(const float* x, const float* dy, int64_t n, float shift, double* first,
               double* second) {
  const V k = hn::Set(D(), shift);
  const int64_t lanes = LanesOf();
  double sums[kMaxLanes] = {}, products[kMaxLanes] = {};
  const auto add = [&](int64_t at, V& sum, V& product) HWY_ATTR {
    const V d = hn::Sub(hn::LoadU(D(), x + at), k);
    const V a = dy ? hn::LoadU(D(), dy + at) : d;
    sum = hn::Add(sum, a);
    product = hn::MulAdd(a, d, product);
  };
  int64_t i = 0;
  // Four sums at a time: none waits for the one before it.
  while (i + 4 * lanes <= n) {
    const int64_t stop = std::min(n - 4 * lanes, i + (kFlush - 1) * 4 * lanes);
    V s0 = hn::Zero(D()), s1 = s0, s2 = s0, s3 = s0, p0 = s0, p1 = s0, p2 = s0, p3 = s0;
    for (; i <= stop; i += 4 * lanes) {
      add(i, s0, p0);
      add(i + lanes, s1, p1);
      add(i + 2 * lanes, s2, p2);
      add(i + 3 * lanes, s3, p3);
    }
    AddTo(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), sums, lanes);
    AddTo(hn::Add(hn::Add(p0, p1), hn::Add(p2, p3)), products, lanes);
  }
  V rest_sum = hn::Zero(D()), rest_product = hn::Zero(D());
  for (; i + lanes <= n; i += lanes) add(i, rest_sum, rest_product);
  AddTo(rest_sum, sums, lanes);
  AddTo(rest_product, products, lanes);
  double s = 0, p = 0;
  for (int64_t l = 0; l < lanes; ++l) {
    s += sums[l];
    p += products[l];
  }
  for (; i < n; ++i) {
    const double d = static_cast<double>(x[i]) - static_cast<double>(shift);
    const double a = dy ? static_cast<double>(dy[i]) : d;
    s += a;
    p += a * d;
  }
  *first += s;
  *second += p;
}

void RowsAffine(const float* x, int64_t rows, int64_t channels, const float* a, const float* b,
                float* y) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < channels; c += LanesOf()) {
      const int64_t n = channels - c;
      const V v =
          hn::MulAdd(LoadFirst(x + r * channels + c, n), LoadFirst(a + c, n), LoadFirst(b + c, n));
      StoreFirst(v, y + r * channels + c, n);
    }
  }
}

void PlaneAffine(const float* x, int64_t n, float a, float b, float* y) {
  const V va = hn::Set(D(), a), vb = hn::Set(D(), b);
  for (int64_t i = 0; i < n; i += LanesOf())
    StoreFirst(hn::MulAdd(LoadFirst(x + i, n - i), va, vb), y + i, n - i);
}

void RowsGrad(const float* x, const float* dy, int64_t rows, int64_t channels, const float* mean,
              const float* p, const float* q, const float* s, float* dx) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < channels; c += LanesOf()) {
      const int64_t n = channels - c, at = r * channels + c;
      const V d = hn::Sub(LoadFirst(x + at, n), LoadFirst(mean + c, n));
      const V v = hn::MulAdd(d, LoadFirst(q + c, n), LoadFirst(s + c, n));
      StoreFirst(hn::MulAdd(LoadFirst(dy + at, n), LoadFirst(p + c, n), v), dx + at, n);
    }
  }
}

void PlaneGrad(const float* x, const float* dy, int64_t n, float mean, float p, float q, float s,
               float* dx) {
  const V vm = hn::Set(D(), mean), vp = hn::Set(D(), p), vq = hn::Set(D(), q);
  const V vs = hn::Set(D(), s);
  for (int64_t i = 0; i < n; i += LanesOf()) {
    const V v = hn::MulAdd(hn::Sub(LoadFirst(x + i, n - i), vm), vq, vs);
    StoreFirst(hn::MulAdd(LoadFirst(dy + i, n - i), vp, v), dx + i, n - i);
  }
}

// PlaneSums without dy for a row short enough for float sums.
constexpr int64_t kShortRow = 8192;
HWY_INLINE void ShortRowSums(const float* x, int64_t n, float shift, double* first,
                             double* second) {
  const D d;
  const V k = hn::Set(d, shift);
  const int64_t lanes = LanesOf();
  V sums[2] = {hn::Zero(d), hn::Zero(d)}, squares[2] = {hn::Zero(d), hn::Zero(d)};
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const V a = hn::Sub(hn::LoadU(d, x + i), k), b = hn::Sub(hn::LoadU(d, x + i + lanes), k);
    sums[0] = hn::Add(sums[0], a);
    sums[1] = hn::Add(sums[1], b);
    squares[0] = hn::MulAdd(a, a, squares[0]);
    squares[1] = hn::MulAdd(b, b, squares[1]);
  }
  double s = static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(sums[0], sums[1]))));
  double q = static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(squares[0], squares[1]))));
  for (; i < n; ++i) {
    const double v = static_cast<double>(x[i]) - static_cast<double>(shift);
    s += v;
    q += v * v;
  }
  *first += s;
  *second += q;
}

HWY_INLINE void RowMoments(const float* x, int64_t n, float shift, double* first, double* second) {
  if (n <= kShortRow) return ShortRowSums(x, n, shift, first, second);
  PlaneSums(x, nullptr, n, shift, first, second);
}

// One row of layer_norm.
void NormRow(const float* x, int64_t n, const float* scale, const float* bias, float epsilon,
             float* y, float* mean, float* variance) {
  double sum = 0, none = 0, square = 0;
  RowMoments(x, n, x[0], &sum, &none);
  const float m = static_cast<float>(static_cast<double>(x[0]) + sum / static_cast<double>(n));
  sum = 0;
  RowMoments(x, n, m, &sum, &square);
  const double rest = sum / static_cast<double>(n);  // the rounding of m
  const float v = static_cast<float>(std::max(square / static_cast<double>(n) - rest * rest, 0.0));
  const float inv = 1.0f / std::sqrt(v + epsilon);
  *mean = m;
  *variance = v;
  const V vm = hn::Set(D(), m), vi = hn::Set(D(), inv), one = hn::Set(D(), 1.0f);
  for (int64_t i = 0; i < n; i += LanesOf()) {
    const V xh = hn::Mul(hn::Sub(LoadFirst(x + i, n - i), vm), vi);
    const V s = scale ? LoadFirst(scale + i, n - i) : one;
    const V b = bias ? LoadFirst(bias + i, n - i) : hn::Zero(D());
    StoreFirst(hn::MulAdd(xh, s, b), y + i, n - i);
  }
}

// One row of layer_norm's gradient: adds to dscale and dbias (both null or neither).
void NormGradRow(const float* x, const float* dy, int64_t n, const float* scale, float mean,
                 float inv, float* dx, float* dscale, float* dbias) {
  const V vm = hn::Set(D(), mean), vi = hn::Set(D(), inv), one = hn::Set(D(), 1.0f);
  V sum = hn::Zero(D()), along = hn::Zero(D());
  for (int64_t i = 0; i < n; i += LanesOf()) {
    const int64_t k = std::min(LanesOf(), n - i);
    const V d = LoadFirst(dy + i, k);
    const V xh = hn::Mul(hn::Sub(LoadFirst(x + i, k), vm), vi);
    const V g = scale ? hn::Mul(d, LoadFirst(scale + i, k)) : d;
    sum = hn::Add(sum, g);
    along = hn::MulAdd(g, xh, along);  // g is zero in the lanes past k
    if (dscale) {
      StoreFirst(hn::MulAdd(d, xh, LoadFirst(dscale + i, k)), dscale + i, k);
      StoreFirst(hn::Add(d, LoadFirst(dbias + i, k)), dbias + i, k);
    }
  }
  if (!dx) return;
  double s = 0, a = 0;
  HWY_ALIGN float lanes[kMaxLanes];
  hn::Store(sum, D(), lanes);
  for (int64_t l = 0; l < LanesOf(); ++l) s += static_cast<double>(lanes[l]);
  hn::Store(along, D(), lanes);
  for (int64_t l = 0; l < LanesOf(); ++l) a += static_cast<double>(lanes[l]);
  const V vs = hn::Set(D(), static_cast<float>(s / static_cast<double>(n)));
  const V va = hn::Set(D(), static_cast<float>(a / static_cast<double>(n)));
  for (int64_t i = 0; i < n; i += LanesOf()) {
    const int64_t k = std::min(LanesOf(), n - i);
    const V xh = hn::Mul(hn::Sub(LoadFirst(x + i, k), vm), vi);
    const V g = hn::Mul(LoadFirst(dy + i, k), scale ? LoadFirst(scale + i, k) : one);
    const V p = hn::NegMulAdd(xh, va, hn::Sub(g, vs));
    StoreFirst(hn::Mul(vi, p), dx + i, k);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace coracle
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coracle {
namespace {

HWY_EXPORT(RowSums);
HWY_EXPORT(PlaneSums);
HWY_EXPORT(RowsAffine);
HWY_EXPORT(PlaneAffine);
HWY_EXPORT(RowsGrad);
HWY_EXPORT(PlaneGrad);
HWY_EXPORT(NormRow);
HWY_EXPORT(NormGradRow);

// Rows are summed in chunks whose number depends on the shape alone, so that neither threads nor
// their number change a sum.
constexpr int64_t kMaxChunks = 32;
int64_t ChunksOf(int64_t rows, int64_t row_size) {
  return std::clamp<int64_t>(rows * row_size / 16384, 1, std::min(kMaxChunks, rows));
}

// A channels-last image as rows of channels.
bool IsRows(const NormView& v) { return v.inner == 1; }

// first[c], second[c]: the sums that RowSums and PlaneSums describe, over the whole channel.
void ChannelSums(const NormView& v, const float* x, const float* dy, const float* shift,
                 double* scratch, double* first, double* second) {
  const int64_t channels = v.groups;
  if (!IsRows(v)) {
    const auto sums = HWY_DYNAMIC_DISPATCH(PlaneSums);
    ParallelFor(channels, 1 + 32768 / (1 + v.size), [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        first[c] = second[c] = 0;
        for (int64_t i = 0; i < v.size; i += v.inner) {
          const int64_t at = v.At(c, i);
          sums(x + at, dy ? dy + at : nullptr, v.inner, shift[c], first + c, second + c);
        }
      }
    });
    return;
  }
  const auto sums = HWY_DYNAMIC_DISPATCH(RowSums);
  const int64_t chunks = ChunksOf(v.size, channels);
  ParallelFor(chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      double* own = scratch + 2 * k * channels;
      std::fill(own, own + 2 * channels, 0.0);
      const int64_t from = v.size * k / chunks, to = v.size * (k + 1) / chunks;
      sums(x + from * channels, dy ? dy + from * channels : nullptr, to - from, channels, shift,
           own, own + channels);
    }
  });
  for (int64_t c = 0; c < channels; ++c) first[c] = second[c] = 0;
  for (int64_t k = 0; k < chunks; ++k) {
    const double* own = scratch + 2 * k * channels;
    for (int64_t c = 0; c < channels; ++c) {
      first[c] += own[c];
      second[c] += own[channels + c];
    }
  }
}

// rows(first row, number) over blocks of rows, or plane(channel, offset) over planes.
template <class Rows, class Plane>
void ForBlocks(const NormView& v, Rows&& rows, Plane&& plane) {
  if (IsRows(v)) {
    ParallelFor(v.size, 1 + 32768 / (1 + v.groups),
                [&](int64_t begin, int64_t end) { rows(begin, end - begin); });
    return;
  }
  const int64_t planes = v.groups * (v.size / v.inner);
  ParallelFor(planes, 1 + 32768 / (1 + v.inner), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) plane(p % v.groups, p * v.inner);
  });
}

}  // namespace

int64_t ChannelScratch(const NormView& v) {
  // The chunks' sums, and the shifts of ChannelMoments.
  return (IsRows(v) ? ChunksOf(v.size, v.groups) * 2 * v.groups : 0) + v.groups;
}

// Sums of x - x[0], not of x: the variance keeps its digits when the mean is far from zero. They
// are taken again about the mean where x[0] is far from it, as the sums of the first time have lost
// digits then.
void ChannelMoments(const NormView& v, const float* x, double* scratch, double* mean,
                    double* variance) {
  constexpr double kFar = 16;  // a square of a distance, in variances: rarely met
  float* shift = reinterpret_cast<float*>(scratch);
  for (int64_t c = 0; c < v.groups; ++c) shift[c] = x[v.At(c, 0)];
  const double n = static_cast<double>(v.size);
  bool far = true;
  for (int pass = 0; pass < 2 && far; ++pass) {
    ChannelSums(v, x, nullptr, shift, scratch + v.groups, mean, variance);
    far = false;
    for (int64_t c = 0; c < v.groups; ++c) {
      const double d = mean[c] / n;
      variance[c] = std::max(variance[c] / n - d * d, 0.0);
      mean[c] = static_cast<double>(shift[c]) + d;
      if (pass == 1 || !(d * d > kFar * variance[c])) continue;
      shift[c] = static_cast<float>(mean[c]);  // the other groups' sums come out as before
      far = true;
    }
  }
}

void ChannelGradSums(const NormView& v, const float* x, const float* dy, const float* mean,
                     double* scratch, double* sum_dy, double* sum_dyx) {
  ChannelSums(v, x, dy, mean, scratch, sum_dy, sum_dyx);
}

void ChannelAffine(const NormView& v, const float* x, const float* a, const float* b, float* y) {
  const auto rows = HWY_DYNAMIC_DISPATCH(RowsAffine);
  const auto plane = HWY_DYNAMIC_DISPATCH(PlaneAffine);
  ForBlocks(
      v,
      [&](int64_t first, int64_t n) {
        rows(x + first * v.groups, n, v.groups, a, b, y + first * v.groups);
      },
      [&](int64_t c, int64_t at) { plane(x + at, v.inner, a[c], b[c], y + at); });
}

void ChannelGradApply(const NormView& v, const float* x, const float* dy, const float* mean,
                      const float* p, const float* q, const float* r, float* dx) {
  const auto rows = HWY_DYNAMIC_DISPATCH(RowsGrad);
  const auto plane = HWY_DYNAMIC_DISPATCH(PlaneGrad);
  ForBlocks(
      v,
      [&](int64_t first, int64_t n) {
        const int64_t at = first * v.groups;
        rows(x + at, dy + at, n, v.groups, mean, p, q, r, dx + at);
      },
      [&](int64_t c, int64_t at) {
        plane(x + at, dy + at, v.inner, mean[c], p[c], q[c], r[c], dx + at);
      });
}

void RowNorm(int64_t rows, int64_t columns, const float* x, const float* scale, const float* bias,
             float epsilon, float* y, float* mean, float* variance) {
  const auto norm = HWY_DYNAMIC_DISPATCH(NormRow);
  ParallelFor(rows, 1 + 16384 / (1 + columns), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      norm(x + r * columns, columns, scale, bias, epsilon, y + r * columns, mean + r, variance + r);
    }
  });
}

int64_t RowScratch(int64_t rows, int64_t columns) { return ChunksOf(rows, columns) * 2 * columns; }

void RowNormGrad(int64_t rows, int64_t columns, const float* x, const float* scale, const float* dy,
                 const double* mean, const double* inv, float* scratch, float* dx, float* dscale,
                 float* dbias) {
  const auto grad = HWY_DYNAMIC_DISPATCH(NormGradRow);
  const int64_t chunks = ChunksOf(rows, columns);
  ParallelFor(chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      float* own = dscale ? scratch + 2 * k * columns : nullptr;
      if (own) std::fill(own, own + 2 * columns, 0.0f);
      for (int64_t r = rows * k / chunks; r < rows * (k + 1) / chunks; ++r) {
        grad(x + r * columns, dy + r * columns, columns, scale, static_cast<float>(mean[r]),
             static_cast<float>(inv[r]), dx ? dx + r * columns : nullptr, own,
             own ? own + columns : nullptr);
      }
    }
  });
  if (!dscale) return;
  for (int64_t c = 0; c < columns; ++c) {
    double s = 0, b = 0;
    for (int64_t k = 0; k < chunks; ++k) {
      s += static_cast<double>(scratch[2 * k * columns + c]);
      b += static_cast<double>(scratch[(2 * k + 1) * columns + c]);
    }
    dscale[c] = static_cast<float>(s);
    dbias[c] = static_cast<float>(b);
  }
}

}  // namespace coracle
#endif
