#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/data/standardize.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <numeric>

namespace coracle::inline internal {

std::vector<int64_t> ChosenRows(const RowChoice& choice, int64_t size) {
  if (choice) return choice(size);
  std::vector<int64_t> rows(static_cast<size_t>(size));
  std::iota(rows.begin(), rows.end(), int64_t{0});
  return rows;
}

ValueScale ScaleFor(double mean, double deviation, const std::string& file,
                    const std::string& name) {
  ValueScale scale = {static_cast<float>(mean), 1};
  const double inverse = 1 / deviation;
  if (deviation > 0 && inverse <= static_cast<double>(std::numeric_limits<float>::max())) {
    scale.scale = static_cast<float>(inverse);
    return scale;
  }
  LogMessage(MessageLevel::kWarning,
             fmt::format("{}: all training values of {} are {:g}; standardize only subtracts it",
                         file, Quote(name), mean));
  return scale;
}

ValueScale ScaleOf(std::vector<float>& values, int64_t width, int64_t column,
                   const std::vector<int64_t>& rows, const std::string& file,
                   const std::string& name) {
  const auto at = [&](int64_t row) -> float& {
    return values[static_cast<size_t>(row * width + column)];
  };
  if (rows.empty()) return {};
  double sum = 0, squares = 0;
  bool differ = false;
  for (const int64_t row : rows) sum += static_cast<double>(at(row));
  const double mean = sum / static_cast<double>(rows.size());
  for (const int64_t row : rows) {
    const double d = static_cast<double>(at(row)) - mean;
    squares += d * d;
    differ |= at(row) != at(rows[0]);
  }
  // The mean of equal values may be rounded, so their deviation may not be 0.
  const double deviation = differ ? std::sqrt(squares / static_cast<double>(rows.size())) : 0;
  const ValueScale scale =
      ScaleFor(differ ? mean : static_cast<double>(at(rows[0])), deviation, file, name);
  for (int64_t row = 0; row < static_cast<int64_t>(values.size()) / width; ++row) {
    const float value = at(row);
    at(row) = (value - scale.mean) * scale.scale;
    if (!std::isfinite(at(row))) {
      ThrowInvalid(fmt::format("{}: float32 cannot hold {} - {:g}, the mean of {}", file, value,
                               scale.mean, Quote(name)));
    }
  }
  return scale;
}

}  // namespace coracle::inline internal
