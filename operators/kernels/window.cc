#include <coracle/operators/kernels/window.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

using Wide = __int128;  // dims come from files, and their products may exceed 2^63

int64_t Narrow(Wide value) {
  return static_cast<int64_t>(std::clamp<Wide>(value, 0, Wide{1} << 62));
}

bool ArePositive(const std::vector<int32_t>& values, int axes) {
  return values.size() == static_cast<size_t>(axes) &&
         std::all_of(values.begin(), values.end(), [](int32_t v) { return v > 0; });
}

}  // namespace

int AxesOf(std::string_view op_type) { return op_type.find("3d") == op_type.npos ? 2 : 3; }

bool StridesAreValid(const WindowSpec& spec, int axes) { return ArePositive(spec.strides, axes); }
bool DilationsAreValid(const WindowSpec& spec, int axes) {
  return ArePositive(spec.dilations, axes);
}

bool PaddingsAreValid(const WindowSpec& spec, int axes) {
  const auto& p = spec.paddings;
  const auto n = static_cast<size_t>(axes);
  return (p.size() == n || p.size() == 2 * n) &&
         std::all_of(p.begin(), p.end(), [](int32_t v) { return v >= 0; });
}

WindowAxis ResolveAxis(const WindowSpec& spec, int axis, int64_t in, int64_t kernel) {
  WindowAxis w;
  const size_t a = static_cast<size_t>(axis);
  w.in = in;
  w.kernel = kernel;
  w.stride = spec.strides[a];
  w.dilation = spec.dilations[a];
  const bool known = in >= 0 && kernel >= 0;
  if (spec.padding_algorithm == "SAME") {
    w.dilation = 1;
    if (in < 0) return w;
    w.out = in / w.stride + (in % w.stride != 0);
    if (!known) return w;
    if (kernel == 0) w.out = 0;
    int64_t total = Narrow(Wide{w.out - 1} * w.stride + kernel - in);
    w.before = total / 2;
    w.after = total - w.before;
    return w;
  }
  if (spec.padding_algorithm == "EXPLICIT") {
    const auto& p = spec.paddings;
    const bool two = p.size() == 2 * spec.strides.size();
    w.before = p[two ? 2 * a : a];
    w.after = p[two ? 2 * a + 1 : a];
  }
  if (!known) return w;
  Wide span = Wide{in} + w.before + w.after - (Wide{w.dilation} * (kernel - 1) + 1);
  if (span < 0 || kernel == 0) {
    w.out = 0;
  } else {
    w.out = Narrow((span + (spec.ceil_mode ? w.stride - 1 : 0)) / w.stride + 1);
  }
  return w;
}

ImageLayout ImageLayoutOf(const std::string& data_format, int axes) {
  return {data_format == "NHWC" || data_format == "NDHWC", axes};
}

}  // namespace coracle::inline internal
