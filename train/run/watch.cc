#include <coracle/framework/base/text.h>
#include <coracle/train/log/format.h>
#include <coracle/train/run/watch.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coracle::inline internal {

Watch::Watch(const JobConfig& config, const std::vector<std::string>& set_names,
             const std::vector<std::vector<std::string>>& values)
    : active_(config.best || config.early_stop),
      keeps_best_(config.best.has_value()),
      early_stop_(config.early_stop) {
  if (!active_) return;
  config_ = config.best ? config.best->watch : config.early_stop->watch;
  if (config_.metric.empty()) config_.metric = config.loss_name;
  config_.goal = GoalOf(config, config_);
  // The form "SET/NAME", or NAME for the first set that has it.
  std::vector<std::string> known;
  for (size_t i = 0; i < set_names.size() && set_.empty(); ++i) {
    for (const std::string& name : values[i]) {
      const std::string full = set_names[i] + "/" + name;
      known.insert(known.end(), {name, full});
      if (config_.metric != name && config_.metric != full) continue;
      set_ = set_names[i];
      metric_ = name;
      break;
    }
  }
  shown_ = config_.metric;
  if (!set_.empty()) return;
  throw Error(
      ErrorCode::kNotFound,
      fmt::format("{}: no test set gives {}; there are {}{}",
                  config.Place(config.best ? "best.metric" : "early_stop.metric"),
                  Quote(config_.metric), Join(known, ", "), DidYouMean(config_.metric, known)));
}

bool Watch::Add(int64_t step, const std::vector<NamedValue>& values, bool counts) {
  if (!counts && !keeps_best_) return false;
  const auto found = std::find_if(values.begin(), values.end(),
                                  [this](const NamedValue& v) { return v.name == metric_; });
  const double value = found->value;
  const auto improves = [&](double best) {
    const double gain = config_.goal == WatchGoal::kMinimize ? best - value : value - best;
    return gain > config_.min_delta;
  };
  const bool finite = std::isfinite(value);
  if (counts) {
    best_.counted_metric = shown_;
    ++best_.worse;
  }
  if (counts && finite && (!best_.counted || improves(*best_.counted))) {
    best_.counted = value;
    best_.worse = 0;
  }
  if (!finite || (!best_.metric.empty() && !improves(best_.value))) return false;
  best_.metric = shown_;
  best_.value = value;
  best_.step = step;
  return true;
}

bool Watch::should_stop() const { return early_stop_ && best_.worse >= early_stop_->patience; }

std::string Watch::StopMessage() const {
  const std::string best =
      best_.metric.empty()
          ? "none was a finite number"
          : fmt::format("best {} at step {}", FormatNumber(best_.value), best_.step);
  return fmt::format("early stop: {} evaluation{} without an improvement of {} ({})", best_.worse,
                     best_.worse == 1 ? "" : "s", shown_, best);
}

void Watch::Load(const BestRecord& best) {
  if (best.metric == shown_) {
    best_.metric = best.metric;
    best_.value = best.value;
    best_.step = best.step;
  }
  if (best.counted_metric != shown_) return;
  best_.counted_metric = shown_;
  best_.counted = best.counted;
  best_.worse = best.worse;
}

}  // namespace coracle::inline internal
