#pragma once
// Random cases of quantized_conv2d, and what they have to give.

#include <coracle/operators/kernels/window.h>
#include <coracle/test/operators/quantize/prepared_op.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

namespace coracle {

using Ints = std::vector<int32_t>;

struct QuantizedConvCase {
  int64_t batch = 1, channels = 4, filters = 5, groups = 1, height = 5, width = 6, kh = 3, kw = 3;
  Ints strides{1, 1}, paddings{0, 0}, dilations{1, 1};
  std::string algorithm = "EXPLICIT", format = "NHWC", activation;
  float alpha = 0, beta = 0;
  DType input = DType::kUInt8, filter = DType::kInt8, out = DType::kUInt8;
  std::optional<DType> bias, residual;
  std::vector<int32_t> filter_zeros;  // absent, one, or one for each filter
  int32_t input_zero = 0, residual_zero = 0, out_zero = 0;
  bool scale_of_filters = true;  // one for each
  int32_t least_weight = -127, largest_weight = 127;
  float out_scale = 0.05f;

  AttrList Attrs() const {
    return {{"strides", strides},
            {"paddings", paddings},
            {"dilations", dilations},
            {"padding_algorithm", algorithm},
            {"data_format", format},
            {"groups", static_cast<int32_t>(groups)},
            {"fuse_activation", activation},
            {"fuse_alpha", alpha},
            {"fuse_beta", beta},
            {"out_dtype", static_cast<int32_t>(out)}};
  }
};

inline int64_t IntegerOf(const Tensor& t, int64_t i) {
  switch (t.dtype()) {
    case DType::kInt8:
      return t.data<int8_t>()[i];
    case DType::kUInt8:
      return t.data<uint8_t>()[i];
    default:
      return t.data<int32_t>()[i];
  }
}

// The inputs of a case with random elements.
class QuantizedConvInputs {
 public:
  QuantizedConvInputs(const QuantizedConvCase& c, std::mt19937& random) : c_(c), random_(random) {
    const bool last = c.format == "NHWC";
    const WindowAxis h = Axis(0), w = Axis(1);
    in_ = last ? Shape{c.batch, c.height, c.width, c.channels}
               : Shape{c.batch, c.channels, c.height, c.width};
    out_ = last ? Shape{c.batch, h.out, w.out, c.filters} : Shape{c.batch, c.filters, h.out, w.out};
    const bool real = c.out != DType::kInt32, bytes = real && c.out != DType::kFloat32;
    Add("Input", Bytes(c.input, in_, -128, 127));
    if (real) Add("InputScale", Tensor::Of<float>({1}, {0.02f}));
    if (c.input_zero != 0) Add("InputZeroPoint", Zeros(c.input, {c.input_zero}));
    const Shape filter{c.filters, c.channels / c.groups, c.kh, c.kw};
    Add("Filter", Bytes(c.filter, filter, c.least_weight, c.largest_weight));
    if (real) AddFilterScale();
    if (!c.filter_zeros.empty()) Add("FilterZeroPoint", Zeros(c.filter, c.filter_zeros));
    if (c.bias) Add("Bias", Bias());
    if (c.residual) AddResidual();
    if (bytes) Add("OutScale", Tensor::Of<float>({1}, {c.out_scale}));
    if (bytes && c.out_zero != 0) Add("OutZeroPoint", Zeros(c.out, {c.out_zero}));
  }

  const PreparedOp::Inputs& all() const { return inputs_; }
  Tensor* Find(const std::string& slot) {
    for (auto& [name, value] : inputs_)
      if (name == slot) return &value;
    return nullptr;
  }
  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& [name, value] : inputs_)
      if (name != "Input" && name != "Residual") names.insert(name);
    return names;
  }

  const Shape& out_shape() const { return out_; }
  // The sum of output i, and its channel.
  int64_t Sum(int64_t i, int64_t* channel) {
    const bool last = c_.format == "NHWC";
    const WindowAxis h = Axis(0), w = Axis(1);
    int64_t n, m, y, x, rest = i;
    if (last) {
      m = rest % c_.filters, rest /= c_.filters;
      x = rest % w.out, rest /= w.out;
      y = rest % h.out, n = rest / h.out;
    } else {
      x = rest % w.out, rest /= w.out;
      y = rest % h.out, rest /= h.out;
      m = rest % c_.filters, n = rest / c_.filters;
    }
    *channel = m;
    const int64_t of_group = c_.channels / c_.groups;
    const int64_t first = m / (c_.filters / c_.groups) * of_group;
    const int64_t zero =
        c_.filter_zeros.empty() ? 0 : c_.filter_zeros[c_.filter_zeros.size() == 1 ? 0 : m];
    int64_t sum = 0;
    for (int64_t c = 0; c < of_group; ++c) {
      for (int64_t a = 0; a < c_.kh; ++a) {
        for (int64_t b = 0; b < c_.kw; ++b) {
          const int64_t row = h.Start(y) + a * h.dilation, col = w.Start(x) + b * w.dilation;
          if (row < 0 || row >= h.in || col < 0 || col >= w.in) continue;
          const int64_t at = last ? ((n * h.in + row) * w.in + col) * c_.channels + first + c
                                  : ((n * c_.channels + first + c) * h.in + row) * w.in + col;
          sum += (IntegerOf(*Find("Input"), at) - c_.input_zero) *
                 (IntegerOf(*Find("Filter"), ((m * of_group + c) * c_.kh + a) * c_.kw + b) - zero);
        }
      }
    }
    return sum;
  }
  // Output i in real units. `size`: of the terms that it is a sum of.
  double Real(int64_t i, double* size) {
    int64_t m = 0;
    const auto sum = static_cast<double>(Sum(i, &m));
    const Tensor& scales = *Find("FilterScale");
    const double scale = static_cast<double>(Find("InputScale")->data<float>()[0]) *
                         static_cast<double>(scales.data<float>()[scales.numel() == 1 ? 0 : m]);
    double bias = 0, residual = 0;
    if (const Tensor* b = Find("Bias"))
      bias = b->dtype() == DType::kInt32 ? scale * b->data<int32_t>()[m]
                                         : static_cast<double>(b->data<float>()[m]);
    if (const Tensor* r = Find("Residual"))
      residual = r->dtype() == DType::kFloat32
                     ? static_cast<double>(r->data<float>()[i])
                     : static_cast<double>(Find("ResidualScale")->data<float>()[0]) *
                           static_cast<double>(IntegerOf(*r, i) - c_.residual_zero);
    *size = std::abs(scale * sum) + std::abs(bias) + std::abs(residual);
    return Activated(scale * sum + bias + residual);
  }

 private:
  double Activated(double x) const {
    const auto alpha = static_cast<double>(c_.alpha), beta = static_cast<double>(c_.beta);
    const std::string& name = c_.activation;
    if (name == "relu") return std::max(x, 0.0);
    if (name == "relu6") return std::min(std::max(x, 0.0), alpha);
    if (name == "clip") return std::min(std::max(x, alpha), beta);
    if (name == "leaky_relu") return x < 0 ? alpha * x : x;
    if (name == "hard_swish") return x * std::min(std::max(x + 3, 0.0), 6.0) / 6;
    if (name == "swish") return x / (1 + std::exp(-alpha * x));
    if (name == "sigmoid") return 1 / (1 + std::exp(-x));
    if (name == "tanh") return std::tanh(x);
    EXPECT_EQ("", name);
    return x;
  }
  WindowAxis Axis(int axis) const {
    WindowSpec spec;
    spec.strides = c_.strides;
    spec.paddings = c_.paddings;
    spec.dilations = c_.dilations;
    spec.padding_algorithm = c_.algorithm;
    return ResolveAxis(spec, axis, axis == 0 ? c_.height : c_.width, axis == 0 ? c_.kh : c_.kw);
  }
  void Add(const std::string& slot, Tensor value) { inputs_.emplace_back(slot, std::move(value)); }
  int64_t Draw(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  // Numbers of int8; uint8 are larger by 128.
  Tensor Bytes(DType dtype, const Shape& shape, int32_t low, int32_t high) {
    Tensor made(dtype, shape);
    auto* data = static_cast<uint8_t*>(made.raw());
    const int shift = dtype == DType::kUInt8 ? 128 : 0;
    for (int64_t i = 0; i < made.numel(); ++i)
      data[i] = static_cast<uint8_t>(Draw(low, high) + shift);
    return made;
  }
  static Tensor Zeros(DType dtype, const std::vector<int32_t>& values) {
    Tensor made(dtype, {static_cast<int64_t>(values.size())});
    for (size_t i = 0; i < values.size(); ++i)
      static_cast<uint8_t*>(made.raw())[i] = static_cast<uint8_t>(values[i]);
    return made;
  }
  void AddFilterScale() {
    const double taps = static_cast<double>(c_.channels / c_.groups * c_.kh * c_.kw);
    std::vector<float> scales(static_cast<size_t>(c_.scale_of_filters ? c_.filters : 1));
    for (float& s : scales)
      s = static_cast<float>(static_cast<double>(Draw(50, 200)) * 0.0002 / std::sqrt(taps + 1));
    Add("FilterScale", Tensor::Of<float>({static_cast<int64_t>(scales.size())}, scales));
  }
  Tensor Bias() {
    Tensor made(*c_.bias, {c_.filters});
    for (int64_t i = 0; i < c_.filters; ++i) {
      if (*c_.bias == DType::kInt32)
        made.data<int32_t>()[i] = static_cast<int32_t>(Draw(-20000, 20000));
      else
        made.data<float>()[i] = static_cast<float>(Draw(-1000, 1000)) * 0.003f;
    }
    return made;
  }
  void AddResidual() {
    if (*c_.residual == DType::kFloat32) {
      Tensor made(DType::kFloat32, out_);
      for (float& x : made.span<float>()) x = static_cast<float>(Draw(-1000, 1000)) * 0.002f;
      return Add("Residual", made);
    }
    Add("Residual", Bytes(*c_.residual, out_, -128, 127));
    Add("ResidualScale", Tensor::Of<float>({1}, {0.03f}));
    if (c_.residual_zero != 0) Add("ResidualZeroPoint", Zeros(*c_.residual, {c_.residual_zero}));
  }

  QuantizedConvCase c_;
  std::mt19937& random_;
  Shape in_, out_;
  PreparedOp::Inputs inputs_;
};

// Compares one output with the written-out sums. Fast kernels may round to the other side if the
// value lies near a tie: within the rounding errors, which are `relative` to the terms.
inline void ExpectConv(QuantizedConvInputs& inputs, const QuantizedConvCase& c, const Tensor& out,
                       bool fast, double relative = 3e-6) {
  ASSERT_EQ(inputs.out_shape(), out.shape());
  ASSERT_EQ(c.out, out.dtype());
  for (int64_t i = 0; i < out.numel(); ++i) {
    int64_t m = 0;
    if (c.out == DType::kInt32) {
      ASSERT_EQ(inputs.Sum(i, &m) +
                    (c.bias ? IntegerOf(*inputs.Find("Bias"), (inputs.Sum(i, &m), m)) : 0),
                out.data<int32_t>()[i])
          << "output " << i;
      continue;
    }
    double size = 0;
    const double real = inputs.Real(i, &size);
    if (c.out == DType::kFloat32) {
      ASSERT_NEAR(real, static_cast<double>(out.data<float>()[i]), relative * (1 + size)) << i;
      continue;
    }
    const double units = real / static_cast<double>(c.out_scale);
    const double low = c.out == DType::kInt8 ? -128 : 0, high = low + 255;
    const double right = std::clamp(std::nearbyint(units) + c.out_zero, low, high);
    const double got = static_cast<double>(IntegerOf(out, i));
    if (right == got) continue;
    const double tie = std::abs(std::abs(units - std::trunc(units)) - 0.5);
    const double rounding =
        relative * (1 + (size + std::abs(real)) / static_cast<double>(c.out_scale));
    ASSERT_TRUE(fast && std::abs(right - got) == 1 && tie <= rounding)
        << "output " << i << ": " << got << " instead of " << units << " + " << c.out_zero;
  }
}

}  // namespace coracle
