#pragma once
// Attention as double loops, for tests of its importers.

#include <coracle/test/convert/one_node.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace coracle::onnx {

inline constexpr double kHiddenKey = -std::numeric_limits<double>::infinity();

inline Tensor Waves(const Shape& shape, float phase) {
  Tensor tensor(DType::kFloat32, shape);
  for (int64_t i = 0; i < tensor.numel(); ++i)
    tensor.data<float>()[i] = std::sin(phase + 0.7f * static_cast<float>(i));
  return tensor;
}

inline Numbers NumbersOf(const Tensor& tensor) {
  const Tensor wide = tensor.Cast(DType::kFloat32);
  const auto values = wide.span<float>();
  return {values.begin(), values.end()};
}

// Element [b, h, i, d] of a tensor with heads.
struct HeadTensor {
  int64_t batch, heads, length, size;
  std::vector<double> values;

  HeadTensor(int64_t b, int64_t h, int64_t l, int64_t s)
      : batch(b), heads(h), length(l), size(s), values(static_cast<size_t>(b * h * l * s)) {}
  double& at(int64_t b, int64_t h, int64_t i, int64_t d) {
    return values[static_cast<size_t>(((b * heads + h) * length + i) * size + d)];
  }
  double at(int64_t b, int64_t h, int64_t i, int64_t d) const {
    return values[static_cast<size_t>(((b * heads + h) * length + i) * size + d)];
  }
  // In this order.
  Numbers ToNumbers() const { return {values.begin(), values.end()}; }
  // In the order [batch, length, heads * size].
  Numbers Packed() const {
    Numbers numbers;
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t i = 0; i < length; ++i)
        for (int64_t h = 0; h < heads; ++h)
          for (int64_t d = 0; d < size; ++d) numbers.push_back(static_cast<float>(at(b, h, i, d)));
    return numbers;
  }
};

// Of a tensor [batch, length, heads * size].
inline HeadTensor Split(const Tensor& x, int64_t heads) {
  HeadTensor split(x.shape()[0], heads, x.shape()[1], x.shape()[2] / heads);
  const float* from = x.data<float>();
  for (int64_t b = 0; b < split.batch; ++b)
    for (int64_t i = 0; i < split.length; ++i)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t d = 0; d < split.size; ++d) split.at(b, h, i, d) = double{*from++};
  return split;
}

// Of a tensor [batch, heads, length, size].
inline HeadTensor WithHeadsOf(const Tensor& x) {
  HeadTensor heads(x.shape()[0], x.shape()[1], x.shape()[2], x.shape()[3]);
  const auto values = x.span<float>();
  heads.values.assign(values.begin(), values.end());
  return heads;
}

inline HeadTensor After(const HeadTensor& past, const HeadTensor& added) {
  HeadTensor all(added.batch, added.heads, past.length + added.length, added.size);
  for (int64_t b = 0; b < all.batch; ++b)
    for (int64_t h = 0; h < all.heads; ++h)
      for (int64_t i = 0; i < all.length; ++i)
        for (int64_t d = 0; d < all.size; ++d)
          all.at(b, h, i, d) =
              i < past.length ? past.at(b, h, i, d) : added.at(b, h, i - past.length, d);
  return all;
}

struct AttentionRule {
  // Added to the score of query i and key j.
  std::function<double(int64_t b, int64_t h, int64_t i, int64_t j)> bias =
      [](int64_t, int64_t, int64_t, int64_t) { return 0.0; };
  double scale = 0;                // 0: 1 / sqrt(size)
  double softcap = 0;              // 0: none
  std::vector<double> sinks = {};  // of the heads
};

// A head of k and v serves several of q. A query without keys gives zeros.
inline HeadTensor AttentionOf(const HeadTensor& q, const HeadTensor& k, const HeadTensor& v,
                              const AttentionRule& rule = {}) {
  HeadTensor y(q.batch, q.heads, q.length, v.size);
  const double scale = rule.scale != 0 ? rule.scale : 1 / std::sqrt(static_cast<double>(q.size));
  for (int64_t b = 0; b < q.batch; ++b) {
    for (int64_t h = 0; h < q.heads; ++h) {
      const int64_t of = h * k.heads / q.heads;
      for (int64_t i = 0; i < q.length; ++i) {
        std::vector<double> scores;
        for (int64_t j = 0; j < k.length; ++j) {
          double score = 0;
          for (int64_t d = 0; d < q.size; ++d) score += q.at(b, h, i, d) * k.at(b, of, j, d);
          score *= scale;
          if (rule.softcap > 0) score = rule.softcap * std::tanh(score / rule.softcap);
          scores.push_back(score + rule.bias(b, h, i, j));
        }
        // The largest score may be far from 0; without keys, any number will do.
        const double sink = rule.sinks.empty() ? kHiddenKey : rule.sinks[static_cast<size_t>(h)];
        double most = sink;
        for (double score : scores) most = std::max(most, score);
        if (most == kHiddenKey) most = 0;
        double total = std::exp(sink - most);
        for (int64_t j = 0; j < k.length; ++j) {
          const double weight = std::exp(scores[static_cast<size_t>(j)] - most);
          total += weight;
          for (int64_t d = 0; d < v.size; ++d) y.at(b, h, i, d) += weight * v.at(b, of, j, d);
        }
        for (int64_t d = 0; d < v.size; ++d)
          y.at(b, h, i, d) = total > 0 ? y.at(b, h, i, d) / total : 0;
      }
    }
  }
  return y;
}

}  // namespace coracle::onnx
