#include <coracle/framework/base/text.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/tools/command.h>
#include <coracle/tools/sweep_space.h>
#include <coracle/train/job/job_settings.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coracle::tools {
namespace {

constexpr size_t kMaxGrid = 10'000;

// Splits at commas outside quotes, brackets and braces.
std::vector<std::string> SplitValues(const std::string& text) {
  std::vector<std::string> values(1);
  int depth = 0;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0)
      quote = c == quote ? '\0' : quote;
    else if (c == '"' || c == '\'')
      quote = c;
    else if (c == '{' || c == '[')
      ++depth;
    else if (c == '}' || c == ']')
      --depth;
    if (c == ',' && depth == 0 && quote == 0)
      values.emplace_back();
    else
      values.back() += c;
  }
  for (std::string& value : values) value = Trim(value);
  return values;
}

// Reads "LOW..HIGH". Returns false for another form.
bool ParseRange(const std::string& text, SweepAxis* axis) {
  const size_t dots = text.find("..");
  if (dots == std::string::npos) return false;
  const std::string low(Trim(text.substr(0, dots))), high(Trim(text.substr(dots + 2)));
  if (!ParseDouble(low, &axis->low) || !ParseDouble(high, &axis->high)) return false;
  int64_t ignored = 0;
  axis->whole = ParseInt64(low, &ignored) && ParseInt64(high, &ignored);
  return true;
}

void CheckAxisRange(const std::string& text, const SweepAxis& axis) {
  if (!std::isfinite(axis.low) || !std::isfinite(axis.high) || !(axis.low < axis.high))
    throw UsageError(
        fmt::format("--set={}: a range must go from a number to a larger one", Quote(text)));
  if (axis.log && !(axis.low > 0))
    throw UsageError(fmt::format("--set={}: a logarithmic range must lie above 0", Quote(text)));
  if (axis.whole && std::max(std::abs(axis.low), std::abs(axis.high)) > 0x1p53)
    throw UsageError(fmt::format("--set={}: whole numbers must be below 2^53", Quote(text)));
}

// The value at the place `unit` of the range, in [0, 1).
std::string ValueAt(const SweepAxis& axis, double unit) {
  const double low = axis.low, high = axis.whole ? axis.high + 1 : axis.high;
  double value = axis.log ? low * std::pow(high / low, unit) : low * (1 - unit) + high * unit;
  value = std::clamp(axis.whole ? std::floor(value) : value, axis.low, axis.high);
  // Six digits are enough to repeat a trial by hand.
  return axis.whole ? fmt::format("{:.0f}", value) : fmt::format("{:.6g}", value);
}

std::string DrawnValue(const SweepAxis& axis, double unit) {
  if (axis.values.empty()) return ValueAt(axis, unit);
  const auto count = static_cast<double>(axis.values.size());
  const auto index = static_cast<size_t>(unit * count);
  return axis.values[std::min(index, axis.values.size() - 1)];
}

}  // namespace

SweepAxis ParseSweepAxis(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    throw UsageError(
        fmt::format("--set={}: write FIELD=VALUE,VALUE or FIELD=LOW..HIGH or FIELD=log(LOW..HIGH)",
                    Quote(text)));
  SweepAxis axis;
  axis.field = text.substr(0, equals);
  const std::string value(Trim(text.substr(equals + 1)));
  axis.log = value.starts_with("log(") && value.ends_with(')');
  if (ParseRange(axis.log ? value.substr(4, value.size() - 5) : value, &axis)) {
    CheckAxisRange(text, axis);
    // A place where a range of real numbers hardly has a whole one.
    ParseJobSetting(axis.field + "=" + ValueAt(axis, 0.1234));
    return axis;
  }
  if (axis.log)
    throw UsageError(fmt::format("--set={}: a logarithmic range is log(LOW..HIGH)", Quote(text)));
  axis.values = SplitValues(value);
  for (const std::string& one : axis.values) ParseJobSetting(axis.field + "=" + one);
  return axis;
}

std::vector<TrialSettings> GridOf(const std::vector<SweepAxis>& axes) {
  std::vector<TrialSettings> trials(1);
  for (const SweepAxis& axis : axes) {
    if (axis.values.empty())
      throw UsageError(fmt::format("--set={}: a range needs --trials=N, which draws from it",
                                   Quote(axis.field)));
    std::vector<TrialSettings> longer;
    for (const TrialSettings& trial : trials) {
      for (const std::string& value : axis.values) {
        longer.push_back(trial);
        longer.back().push_back(axis.field + "=" + value);
        if (longer.size() > kMaxGrid)
          throw UsageError(
              fmt::format("the sweep has more than {} combinations; draw some of them "
                          "with --trials=N",
                          kMaxGrid));
      }
    }
    trials = std::move(longer);
  }
  return trials;
}

std::vector<TrialSettings> DrawTrials(const std::vector<SweepAxis>& axes, int64_t count,
                                      uint64_t seed) {
  std::vector<TrialSettings> trials(static_cast<size_t>(count));
  for (size_t t = 0; t < trials.size(); ++t) {
    for (const SweepAxis& axis : axes) {
      const double unit = Philox(seed, HashName(axis.field), 0).UniformDouble(t);
      trials[t].push_back(axis.field + "=" + DrawnValue(axis, unit));
    }
  }
  return trials;
}

}  // namespace coracle::tools
