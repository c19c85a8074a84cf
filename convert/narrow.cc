#include <coracle/convert/narrow.h>
#include <coracle/framework/base/error.h>
#include <fmt/format.h>

#include <limits>

namespace coracle::inline internal {

int32_t ToInt32(int64_t value, const std::string& what) {
  using Limits = std::numeric_limits<int32_t>;
  if (value < Limits::min() || value > Limits::max())
    ThrowInvalid(fmt::format("{} of {} is beyond the range of int32", what, value));
  return static_cast<int32_t>(value);
}

std::vector<int32_t> ToInt32(const std::vector<int64_t>& values, const std::string& what) {
  std::vector<int32_t> narrow;
  narrow.reserve(values.size());
  for (int64_t value : values) narrow.push_back(ToInt32(value, what));
  return narrow;
}

}  // namespace coracle::inline internal
