#pragma once
// Softmax and related functions along one axis of a tensor seen as [outer, n, inner]. A line is the
// n elements along the axis, `stride` (= inner) apart. Input and output may be the same memory.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/tensor/tensor.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace coracle::inline internal {

struct AxisView {
  int64_t outer = 1, n = 1, inner = 1;
  int64_t lines() const { return outer * inner; }
  // Offset of the first element of a line.
  int64_t Offset(int64_t line) const { return line / inner * n * inner + line % inner; }
};

// REQUIRES: every dimension is known. A tensor of rank 0 is one line of one element; an axis
// outside of the shape counts as the last one.
inline AxisView ViewAxis(const Shape& shape, int64_t axis) {
  int at = 0;
  if (shape.rank() == 0) return {};
  if (!shape.NormalizeAxis(axis, &at)) at = shape.rank() - 1;
  return {shape.Product(0, at), shape[at], shape.Product(at + 1, shape.rank())};
}

// Calls body(line, offset) for every line, on several threads. Does nothing for empty lines.
template <class Body>
void ForEachLine(const AxisView& view, Body&& body) {
  if (view.n == 0) return;
  const int64_t grain = std::max<int64_t>(1, 16384 / view.n);
  ParallelFor(view.lines(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) body(line, view.Offset(line));
  });
}

// Intermediate values of the softmax of a line: y_i = exp(x_i - max) / sum.
template <class T>
struct LineStats {
  T max, sum;
};

template <class T>
LineStats<T> SoftmaxLine(const T* x, T* y, int64_t n, int64_t stride) {
  T max = -std::numeric_limits<T>::infinity(), sum = 0;
  for (int64_t i = 0; i < n; ++i) max = std::max(max, x[i * stride]);
  for (int64_t i = 0; i < n; ++i) sum += y[i * stride] = std::exp(x[i * stride] - max);
  for (int64_t i = 0; i < n; ++i) y[i * stride] /= sum;
  return {max, sum};
}

// Computes only the intermediate values.
template <class T>
LineStats<T> ExpSumLine(const T* x, int64_t n, int64_t stride) {
  T max = -std::numeric_limits<T>::infinity(), sum = 0;
  for (int64_t i = 0; i < n; ++i) max = std::max(max, x[i * stride]);
  for (int64_t i = 0; i < n; ++i) sum += std::exp(x[i * stride] - max);
  return {max, sum};
}

template <class T>
void LogSoftmaxLine(const T* x, T* y, int64_t n, int64_t stride) {
  T max = -std::numeric_limits<T>::infinity(), sum = 0;
  for (int64_t i = 0; i < n; ++i) max = std::max(max, x[i * stride]);
  for (int64_t i = 0; i < n; ++i) sum += std::exp(x[i * stride] - max);
  const T log_sum = std::log(sum);
  for (int64_t i = 0; i < n; ++i) y[i * stride] = x[i * stride] - max - log_sum;
}

// dx = y (dy - sum(dy y))
template <class T>
void SoftmaxGradLine(const T* y, const T* dy, T* dx, int64_t n, int64_t stride) {
  const auto wide = [stride](const T* v, int64_t i) { return static_cast<double>(v[i * stride]); };
  double dot = 0;
  for (int64_t i = 0; i < n; ++i) dot += wide(y, i) * wide(dy, i);
  for (int64_t i = 0; i < n; ++i) dx[i * stride] = static_cast<T>(wide(y, i) * (wide(dy, i) - dot));
}

// dx = dy - exp(y) sum(dy)
template <class T>
void LogSoftmaxGradLine(const T* y, const T* dy, T* dx, int64_t n, int64_t stride) {
  const auto wide = [stride](const T* v, int64_t i) { return static_cast<double>(v[i * stride]); };
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += wide(dy, i);
  for (int64_t i = 0; i < n; ++i)
    dx[i * stride] = static_cast<T>(wide(dy, i) - std::exp(wide(y, i)) * sum);
}

// The same on contiguous lines with the machine's vector instructions.
LineStats<float> SoftmaxRow(const float* x, float* y, int64_t n);
// Prefetches the line that the caller will read next, if given.
LineStats<float> ExpSumRow(const float* x, int64_t n, const float* next = nullptr);
// y = scale (softmax(x) - 1 at the label). With `stream`, meant for results that do not stay in the
// caches anyway, y is written past the caches and must not share memory with x; other threads may
// read it after FinishStreams.
LineStats<float> CrossEntropyRow(const float* x, float* y, int64_t n, int64_t label, float scale,
                                 bool stream, const float* next);
void FinishStreams();
void LogSoftmaxRow(const float* x, float* y, int64_t n);
void SoftmaxGradRow(const float* y, const float* dy, float* dx, int64_t n);
void LogSoftmaxGradRow(const float* y, const float* dy, float* dx, int64_t n);

}  // namespace coracle::inline internal
