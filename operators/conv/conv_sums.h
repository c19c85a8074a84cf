#pragma once
// The reference loops of convolutions: each output is the sum over its window in the order of the
// filter, channel by channel, after the bias. Several outputs are computed at a time, which does
// not change the order of any sum, so that a loop without SIMD instructions does not take minutes.

#include <coracle/operators/conv/conv.h>

#include <algorithm>
#include <cstdint>

namespace coracle::inline internal {

constexpr int64_t kSumsAtATime = 64;

// Calls f(offset in the image, offset in a filter) for the rows of all windows of output row (z,
// y), where channels [first, first + in_channels / groups) are read.
template <class F>
void ForKernelRows(const ConvGeometry& g, int64_t first, int64_t z, int64_t y, F&& f) {
  const ImageStrides s = g.InStrides();
  for (int64_t c = 0; c < g.in_channels / g.groups; ++c) {
    for (int64_t l = 0; l < g.d.kernel; ++l) {
      const int64_t slice = g.d.Start(z) + l * g.d.dilation;
      if (slice < 0 || slice >= g.d.in) continue;
      for (int64_t i = 0; i < g.h.kernel; ++i) {
        const int64_t row = g.h.Start(y) + i * g.h.dilation;
        if (row < 0 || row >= g.h.in) continue;
        f((first + c) * s.c + slice * s.d + row * s.h,
          ((c * g.d.kernel + l) * g.h.kernel + i) * g.w.kernel);
      }
    }
  }
}

// The first output whose window has its tap `start` after the beginning of the image.
inline int64_t FirstInside(const WindowAxis& axis, int64_t start) {
  return start >= 0 ? 0 : (-start + axis.stride - 1) / axis.stride;
}
// The number of outputs whose windows have it before the end of the image.
inline int64_t EndInside(const WindowAxis& axis, int64_t start) {
  return start >= axis.in ? 0 : std::min(axis.out, (axis.in - 1 - start) / axis.stride + 1);
}

// Outputs [begin, end) of row (z, y) of one channel, which has this filter; channels first.
template <class T>
void SumPixels(const ConvGeometry& g, const T* image, const T* filter, int64_t first, int64_t z,
               int64_t y, int64_t begin, int64_t end, T* sums) {
  ForKernelRows(g, first, z, y, [&](int64_t from, int64_t tap) {
    for (int64_t j = 0; j < g.w.kernel; ++j) {
      const int64_t start = j * g.w.dilation - g.w.before;
      const int64_t low = std::max(begin, FirstInside(g.w, start));
      const int64_t high = std::min(end, EndInside(g.w, start));
      const T weight = filter[tap + j];
      const T* line = image + from;
      for (int64_t x = low; x < high; ++x) sums[x - begin] += line[x * g.w.stride + start] * weight;
    }
  });
}

// `count` channels of the output at (z, y, x), channels last. `filter` is [taps][stride], from the
// first of these channels on.
template <class T>
void SumChannels(const ConvGeometry& g, const T* image, const T* filter, int64_t stride,
                 int64_t first, int64_t z, int64_t y, int64_t x, int64_t count, T* sums) {
  ForKernelRows(g, first, z, y, [&](int64_t from, int64_t tap) {
    for (int64_t j = 0; j < g.w.kernel; ++j) {
      const int64_t column = g.w.Start(x) + j * g.w.dilation;
      if (column < 0 || column >= g.w.in) continue;
      const T value = image[from + column * g.InStrides().w];
      const T* weights = filter + (tap + j) * stride;
      for (int64_t m = 0; m < count; ++m) sums[m] += value * weights[m];
    }
  });
}

// Filter [M, taps] as [groups][taps][M / groups].
template <class T>
void TransposeFilter(const ConvGeometry& g, const T* filter, T* transposed) {
  const int64_t per_group = g.out_channels / g.groups;
  const int64_t taps = g.FilterNumel() / std::max<int64_t>(g.out_channels, 1);
  for (int64_t m = 0; m < g.out_channels; ++m) {
    T* to = transposed + m / per_group * per_group * taps + m % per_group;
    for (int64_t t = 0; t < taps; ++t) to[t * per_group] = filter[m * taps + t];
  }
}

// The arrays of a run.
template <class T>
struct ConvArrays {
  const T *in, *filter, *bias, *residual;  // bias and residual may be null
  T* out;
};

template <class T>
void ConvPlaneFirst(const ConvGeometry& g, const ConvArrays<T>& a, int64_t n, int64_t m) {
  const ImageStrides s = g.OutStrides();
  const int64_t per_group = g.out_channels / g.groups;
  const int64_t taps = g.FilterNumel() / g.out_channels;
  const int64_t first = m / per_group * (g.in_channels / g.groups);
  for (int64_t r = 0; r < g.d.out * g.h.out; ++r) {
    const int64_t z = r / g.h.out, y = r % g.h.out;
    for (int64_t x = 0; x < g.w.out; x += kSumsAtATime) {
      const int64_t count = std::min(kSumsAtATime, g.w.out - x);
      T sums[kSumsAtATime];
      std::fill_n(sums, count, a.bias ? a.bias[m] : T(0));
      SumPixels(g, a.in + n * g.InStrides().n, a.filter + m * taps, first, z, y, x, x + count,
                sums);
      const int64_t at = n * s.n + m * s.c + z * s.d + y * s.h + x;
      for (int64_t i = 0; i < count; ++i)
        a.out[at + i] = sums[i] + (a.residual ? a.residual[at + i] : T(0));
    }
  }
}

// Row r of image n; the filter is transposed.
template <class T>
void ConvRowLast(const ConvGeometry& g, const ConvArrays<T>& a, int64_t n, int64_t r) {
  const ImageStrides s = g.OutStrides();
  const int64_t z = r / g.h.out, y = r % g.h.out, per_group = g.out_channels / g.groups;
  const int64_t taps = g.FilterNumel() / g.out_channels;
  for (int64_t x = 0; x < g.w.out; ++x) {
    for (int64_t group = 0; group < g.groups; ++group) {
      for (int64_t k = 0; k < per_group; k += kSumsAtATime) {
        const int64_t count = std::min(kSumsAtATime, per_group - k), m = group * per_group + k;
        T sums[kSumsAtATime];
        for (int64_t i = 0; i < count; ++i) sums[i] = a.bias ? a.bias[m + i] : T(0);
        SumChannels(g, a.in + n * g.InStrides().n, a.filter + group * per_group * taps + k,
                    per_group, group * (g.in_channels / g.groups), z, y, x, count, sums);
        const int64_t at = n * s.n + z * s.d + y * s.h + x * s.w + m;
        for (int64_t i = 0; i < count; ++i)
          a.out[at + i] = sums[i] + (a.residual ? a.residual[at + i] : T(0));
      }
    }
  }
}

}  // namespace coracle::inline internal
