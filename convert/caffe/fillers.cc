// Initial values of parameters. Formulas of the fillers: caffe/filler.hpp.

#include <coracle/convert/caffe/net_writer.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coracle::caffe {
namespace {

using proto::caffe::FillerParameter;

struct Fans {
  int64_t in, out;
};

// count / dim 0 and count / dim 1, for any blob.
Fans FansOf(const Layer& layer, const Dims& dims) {
  const int64_t count = NumelOf(dims);
  if (count <= 0) layer.Fail(fmt::format("a parameter of the dims {}", ToText(dims)));
  const int64_t first = dims.empty() ? 1 : dims[0], second = dims.size() > 1 ? dims[1] : 1;
  return {count / first, count / second};
}

int64_t First(const Dims& dims) { return dims.empty() ? 1 : std::max<int64_t>(dims[0], 1); }

// uniform in +-sqrt(3 / n), with n = fan_in, fan_out or their mean; the initializer xavier draws
// from +-sqrt(6 / (fan_in + fan_out)).
std::string Xavier(const Fans& fans, FillerParameter::VarianceNorm norm) {
  int64_t in = fans.in, out = fans.out;
  if (norm == FillerParameter::FAN_IN) out = in;
  if (norm == FillerParameter::FAN_OUT) in = out;
  return fmt::format("xavier {{ fan_in: {} fan_out: {} }}", in, out);
}

// normal with std sqrt(2 / n).
std::string Msra(const Fans& fans, FillerParameter::VarianceNorm norm) {
  const double n = norm == FillerParameter::FAN_IN    ? static_cast<double>(fans.in)
                   : norm == FillerParameter::FAN_OUT ? static_cast<double>(fans.out)
                                                      : static_cast<double>(fans.in + fans.out) / 2;
  return fmt::format("msra {{ uniform: false fan_in: {} }}", n);
}

// A kernel that enlarges an image by bilinear interpolation, for every pair of channels.
std::string Bilinear(const Layer& layer, const Dims& dims) {
  if (dims.size() != 4 || dims[2] != dims[3])
    layer.Fail(fmt::format("the filler bilinear is for square kernels, got {}", ToText(dims)));
  const int64_t count = NumelOf(dims), k = dims[3];
  constexpr int64_t kMost = 65536;
  if (count > kMost) {
    layer.Fail(
        fmt::format("the filler bilinear would write {} values into the text: give weights, "
                    "or {} channels as groups",
                    count, dims[0]));
  }
  const double f = std::ceil(static_cast<double>(k) / 2);
  const double c = (static_cast<double>(k) - 1) / (2 * f);
  std::string values;
  for (int64_t i = 0; i < count; ++i) {
    const auto x = static_cast<double>(i % k), y = static_cast<double>(i / k % k);
    const double value = (1 - std::abs(x / f - c)) * (1 - std::abs(y / f - c));
    values += (i > 0 ? ", " : "") + Number(static_cast<float>(value));
  }
  return "array { values: [" + values + "] }";
}

}  // namespace

float DrawnShare(const FillerParameter& filler, const Dims& dims) {
  if (filler.type() != "gaussian" || filler.sparse() < 0) return 1;
  const auto share = static_cast<double>(filler.sparse()) / static_cast<double>(First(dims));
  return static_cast<float>(std::min(share, 1.0));
}

std::string InitializerText(const Layer& layer, const FillerParameter& filler, const Dims& dims) {
  const std::string& type = filler.type();
  if (type == "constant") {
    return filler.value() == 0 ? "constant {}"
                               : fmt::format("constant {{ value: {} }}", Number(filler.value()));
  }
  if (type == "uniform") {
    return fmt::format("uniform {{ low: {} high: {} }}", Number(filler.min()),
                       Number(filler.max()));
  }
  if (type == "gaussian") {
    Entry normal("");
    if (filler.mean() != 0) normal.Float("mean", filler.mean());
    normal.Float("std", filler.std());
    if (const float share = DrawnShare(filler, dims); share < 1) normal.Float("share", share);
    return "normal { " + normal.Body() + " }";
  }
  if (type == "xavier") return Xavier(FansOf(layer, dims), filler.variance_norm());
  if (type == "msra") return Msra(FansOf(layer, dims), filler.variance_norm());
  if (type == "bilinear") return Bilinear(layer, dims);
  if (type == "positive_unitball") {
    layer.Fail(
        "the filler positive_unitball, whose rows sum to 1, has no counterpart: use uniform, "
        "or give weights");
  }
  layer.Fail(fmt::format("no such filler: {}{}", Quote(type),
                         DidYouMean(type, {"constant", "uniform", "gaussian", "xavier", "msra",
                                           "bilinear", "positive_unitball"})));
}

}  // namespace coracle::caffe
