#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/json_reader.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/log/format.h>
#include <coracle/train/log/log_records.h>
#include <coracle/train/log/plot.h>
#include <coracle/train/log/run_log.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>

namespace coracle::inline internal {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxSeries = 10'000;

double UnixTime() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Json Values(const std::vector<NamedValue>& values) {
  Json json = Json::object();
  for (const NamedValue& value : values)
    json[Utf8(value.name)] = std::isfinite(value.value) ? Json(value.value) : Json();
  return json;
}

// A list of counts for each label.
Json Matrix(const ConfusionMatrix& confusion) {
  Json rows = Json::array();
  const auto classes = static_cast<size_t>(confusion.classes);
  for (size_t label = 0; label < classes; ++label) {
    const auto begin = confusion.counts.begin() + static_cast<ptrdiff_t>(label * classes);
    rows.push_back(std::vector<int64_t>(begin, begin + confusion.classes));
  }
  return rows;
}

std::vector<NamedValue> Shown(const StepReport& report) {
  std::vector<NamedValue> values = {{report.plan.loss_name, report.MeanLoss()}};
  const std::vector<double>& metrics = report.MeanMetrics();
  for (size_t i = 0; i < metrics.size(); ++i)
    values.push_back({report.plan.metric_names[i], metrics[i]});
  return values;
}

std::vector<NamedValue> WithPrefix(const std::string& prefix, std::vector<NamedValue> values) {
  for (NamedValue& value : values) value.name = prefix + "/" + Utf8(value.name);
  return values;
}

// If there is a single learning rate, it needs no name.
std::vector<NamedValue> Rates(const std::vector<NamedValue>& rates) {
  if (rates.size() == 1) return {{"learning_rate", rates[0].value}};
  return WithPrefix("learning_rate", rates);
}

Json Clips(const std::vector<ClipReport>& clips) {
  Json list = Json::array();
  for (const ClipReport& clip : clips) {
    list.push_back({{"kind", clip.kind == ClipReport::Kind::kError ? "error" : "gradient"},
                    {"name", Utf8(clip.name)},
                    {"times", clip.times},
                    {"acted", clip.acted},
                    {"factor", clip.factor}});
  }
  return list;
}

// Collects series in the order of their first appearance.
class SeriesMaker {
 public:
  void Line(const JsonReader& line) {
    const std::string type = line.At("type").Text();
    const int64_t step = line.At("step").Integer(0);
    if (type == "start") Forget(step);
    if (type == "step") {
      Add("train/", step, line.At("values"));
      Add("", step, line.At("learning_rates"));
    }
    // A restored result already has its point, at the step where it was the best.
    if (type == "test" && !line.Has("restored"))
      Add(line.At("set").Text() + "/", step, line.At("values"));
  }
  std::vector<LogSeries> ReleaseSeries() { return std::move(series_); }

 private:
  // The points of each series are in the order of their steps.
  void Forget(int64_t after) {
    for (LogSeries& series : series_) {
      while (!series.points.empty() && series.points.back().first > after) series.points.pop_back();
    }
  }
  void Add(const std::string& prefix, int64_t step, const JsonReader& values) {
    for (const auto& [name, value] : values.Members()) {
      const auto [found, added] = index_.try_emplace(prefix + name, series_.size());
      if (added) series_.push_back({prefix + name, {}});
      if (series_.size() > kMaxSeries)
        values.Fail(fmt::format("is one of more than {} series", kMaxSeries));
      series_[found->second].points.emplace_back(step, value.Number());
    }
  }

  std::vector<LogSeries> series_;
  std::unordered_map<std::string, size_t> index_;
};

}  // namespace

RunLog::RunLog(const JobConfig& config)
    : config_(config.log), directory_(config.output_dir), settings_(config.settings) {
  if (config.quantize) float_steps_ = config.quantize->start_step;
}

template <class F>
void RunLog::Guarded(F&& write) {
  try {
    write();
  } catch (const Error& e) {
    LogMessage(MessageLevel::kWarning, "no more logs: " + e.message());
    json_.reset();
    events_.reset();
  }
}

void RunLog::Line(const std::string& json) {
  if (json_) json_->Append(json + "\n");
}

void RunLog::Start(const TrainPlan& plan, const ProgramDesc& program) {
  if (directory_.empty()) return;
  const bool resumed = !plan.resumed_from.empty();
  if (config_.json) {
    const std::string path = (std::filesystem::path(directory_) / "log.jsonl").string();
    json_.emplace(path, resumed && FileExists(path));
    // Ends a line that was incomplete when the run was killed.
    if (!json_->EndsWithLine()) Guarded([&] { Line(""); });
  }
  if (config_.tensorboard) events_.emplace(directory_, plan.first_step);
  shown_ = paused_ = Clock::now();
  Json line = {{"type", "start"},
               {"job", Utf8(plan.job)},
               {"step", plan.first_step},
               {"total_steps", plan.total_steps},
               {"steps_per_epoch", plan.steps_per_epoch},
               {"data", Utf8(plan.data)},
               {"parameters", plan.parameters},
               {"time", UnixTime()}};
  if (resumed) line["resumed_from"] = Utf8(plan.resumed_from);
  if (float_steps_) line["float_steps"] = *float_steps_;
  for (const std::string& setting : settings_) line["settings"].push_back(Utf8(setting));
  Guarded([&] {
    Line(line.dump());
    if (events_ && !resumed) events_->Graph(program);
  });
}

void RunLog::Step(const StepReport& report) {
  samples_ += report.rows;
  paused_ = Clock::now();
  if (!report.show || (!json_ && !events_)) return;
  const std::vector<NamedValue> values = Shown(report), rates = Rates(report.learning_rates);
  const std::chrono::duration<double> passed = paused_ - shown_ - away_;
  const double speed = static_cast<double>(samples_) / std::max(passed.count(), 1e-9);
  shown_ = paused_;
  away_ = {};
  samples_ = 0;
  Json line = {{"type", "step"},
               {"step", report.step},
               {"epoch", report.epoch},
               {"values", Values(values)},
               {"learning_rates", Values(rates)},
               {"samples_per_second", speed},
               {"time", UnixTime()}};
  if (!report.clips.empty()) line["clips"] = Clips(report.clips);
  Guarded([&] {
    Line(line.dump());
    if (!events_) return;
    std::vector<NamedValue> scalars = WithPrefix("train", values);
    scalars.insert(scalars.end(), rates.begin(), rates.end());
    scalars.push_back({"samples_per_second", speed});
    events_->Scalars(report.step, scalars);
  });
}

void RunLog::Pause() {
  const Clock::time_point now = Clock::now();
  away_ += now - paused_;
  paused_ = now;
}

void RunLog::Eval(const EvalReport& report) {
  Pause();
  Json line = {{"type", "test"},      {"set", Utf8(report.set)},         {"step", report.step},
               {"rows", report.rows}, {"values", Values(report.values)}, {"time", UnixTime()}};
  if (report.best) line["best"] = true;
  if (report.restored) line["restored"] = true;
  for (const ConfusionMatrix& confusion : report.confusions)
    line["confusion"][Utf8(confusion.name)] = Matrix(confusion);
  Guarded([&] {
    Line(line.dump());
    if (events_ && !report.restored)
      events_->Scalars(report.step, WithPrefix(Utf8(report.set), report.values));
  });
}

void RunLog::Snapshot(int64_t step, const std::string& path) {
  Pause();
  const Json line = {
      {"type", "snapshot"}, {"step", step}, {"path", Utf8(path)}, {"time", UnixTime()}};
  Guarded([&] { Line(line.dump()); });
}

void RunLog::Message(int64_t step, const std::string& text) {
  const Json line = {
      {"type", "message"}, {"step", step}, {"text", Utf8(text)}, {"time", UnixTime()}};
  Guarded([&] { Line(line.dump()); });
}

void RunLog::End(int64_t step, bool stopped) {
  const Json line = {{"type", "end"}, {"step", step}, {"stopped", stopped}, {"time", UnixTime()}};
  Guarded([&] { Line(line.dump()); });
}

bool RunLog::WantsHistograms(int64_t step) const {
  return events_ && config_.histogram_interval > 0 && step % config_.histogram_interval == 0;
}

void RunLog::Histogram(int64_t step, const std::string& tag, const Tensor& values) {
  Guarded([&] {
    if (events_) events_->Histogram(step, Utf8(tag), values);
  });
}

std::vector<LogSeries> ReadRunLog(const std::string& path) {
  SeriesMaker maker;
  ForEachLogRecord(path, [&maker](const JsonReader& record) { maker.Line(record); });
  return maker.ReleaseSeries();
}

}  // namespace coracle::inline internal
