#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/train/log/log_records.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string_view>

namespace coracle::inline internal {
namespace {

constexpr uint64_t kMaxLog = uint64_t{1} << 32;

void SetValues(const std::string& set, const JsonReader& record, RunSummary* summary) {
  for (const auto& [name, value] : record.At("values").Members()) {
    const std::string full = set + "/" + name;
    auto found = std::find_if(summary->values.begin(), summary->values.end(),
                              [&full](const NamedValue& v) { return v.name == full; });
    if (found == summary->values.end()) found = summary->values.insert(found, {full, 0});
    found->value = value.Number();
  }
}

void Start(const JsonReader& record, RunSummary* summary) {
  summary->job = record.At("job").Text();
  summary->total_steps = record.At("total_steps").Integer(0);
  summary->steps_per_epoch = record.At("steps_per_epoch").Integer(0);
  summary->float_steps =
      record.Has("float_steps") ? record.At("float_steps").Integer(0) : int64_t{-1};
  summary->settings.clear();
  if (!record.Has("settings")) return;
  for (const JsonReader& setting : record.At("settings").Items())
    summary->settings.push_back(setting.Text());
}

// A value of an evaluation.
struct EvaluatedValue {
  int64_t step;
  std::string name;
  double value;
};

void AddValues(const JsonReader& record, std::vector<EvaluatedValue>* values) {
  for (const auto& [name, value] : record.At("values").Members())
    values->push_back(
        {record.At("step").Integer(0), record.At("set").Text() + "/" + name, value.Number()});
}

void SetExtremes(const std::vector<EvaluatedValue>& values, RunSummary* summary) {
  const auto keep = [](const EvaluatedValue& value, bool larger, std::vector<NamedValue>* list) {
    const auto found = std::find_if(list->begin(), list->end(),
                                    [&](const NamedValue& v) { return v.name == value.name; });
    if (found == list->end())
      list->push_back({value.name, value.value});
    else if (larger ? value.value > found->value : value.value < found->value)
      found->value = value.value;
  };
  for (const EvaluatedValue& value : values) {
    if (std::isnan(value.value)) continue;
    keep(value, false, &summary->smallest);
    keep(value, true, &summary->largest);
  }
}

void AddRecord(const JsonReader& record, RunSummary* summary) {
  const std::string type = record.At("type").Text();
  summary->end = record.At("time").Number();
  if (summary->begin == 0) summary->begin = summary->end;
  summary->step = record.At("step").Integer(0);
  summary->ended = type == "end";
  if (type == "start") Start(record, summary);
  if (type == "step") SetValues("train", record, summary);
  if (type == "test") SetValues(record.At("set").Text(), record, summary);
  if (type == "end") summary->stopped = record.At("stopped").Bool();
}

}  // namespace

void ForEachLogRecord(const std::string& path,
                      const std::function<void(const JsonReader&)>& visit) {
  const std::string text = ReadFile(path, kMaxLog);
  int64_t number = 1;
  for (size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1, ++number) {
    if (end == begin) continue;
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    try {
      visit(JsonReader(line, fmt::format("{}:{}", path, number)));
    } catch (const Error& e) {
      // The next run's "start" follows a line that was incomplete when a run was killed.
      const bool torn = text.compare(end + 1, 16, "{\"type\":\"start\",", 16) == 0;
      if (!torn) throw e.WithPrefix("not a run's log");
    }
  }
}

RunSummary ReadRunSummary(const std::string& run) {
  const std::string file =
      IsDirectory(run) ? (std::filesystem::path(run) / "log.jsonl").string() : run;
  RunSummary summary;
  std::vector<EvaluatedValue> values;
  ForEachLogRecord(file, [&](const JsonReader& record) {
    AddRecord(record, &summary);
    const std::string type = record.At("type").Text();
    if (type == "test") AddValues(record, &values);
    // A resumed run starts at an earlier step.
    if (type == "start")
      std::erase_if(values, [&](const auto& value) { return value.step > summary.step; });
  });
  for (const EvaluatedValue& value : values) {
    if (summary.float_steps >= 0 && value.step > summary.float_steps)
      summary.rounded.push_back(value.name);
  }
  std::sort(summary.rounded.begin(), summary.rounded.end());
  summary.rounded.erase(std::unique(summary.rounded.begin(), summary.rounded.end()),
                        summary.rounded.end());
  std::erase_if(values, [&](const EvaluatedValue& value) {
    return value.step <= summary.float_steps && !summary.OnlyInFloat(value.name);
  });
  SetExtremes(values, &summary);
  return summary;
}

bool RunSummary::OnlyInFloat(const std::string& value) const {
  return float_steps >= 0 && !std::binary_search(rounded.begin(), rounded.end(), value);
}

}  // namespace coracle::inline internal
