#include <coracle/framework/base/text.h>
#include <coracle/inspect/json.h>
#include <coracle/tools/bench_report.h>
#include <coracle/tools/command.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace coracle::tools {
namespace {

double Mean(const std::vector<double>& values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double RunsPerSecond(const BenchRow& row) {
  const double elapsed = row.latencies.elapsed;
  return elapsed > 0 ? static_cast<double>(row.latencies.seconds.size()) / elapsed : 0;
}

double Processors(const BenchRow& row) {
  const Latencies& latencies = row.latencies;
  return latencies.elapsed > 0 ? latencies.processor_seconds / latencies.elapsed : 0;
}

std::string InputText(const BenchReport& report, size_t i) {
  std::string text = fmt::format("  {}  {}", Shown(report.input_names[i]), report.input_types[i]);
  if (report.input_sequences[i] > 0)
    text += ", " + Counted(static_cast<size_t>(report.input_sequences[i]), "sequence");
  return text + "\n";
}

std::string Head(const BenchReport& report) {
  std::string text =
      fmt::format("{}: {}, {} ops, {} after the passes; parameters: {}\n", Shown(report.program),
                  report.kind, report.ops, report.ops_after_passes, report.weights);
  for (size_t i = 0; i < report.input_names.size(); ++i) text += InputText(report, i);
  return text;
}

std::string LatencyTable(const BenchReport& report) {
  std::string text =
      fmt::format("\n{:>7} {:>7} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>4}\n",
                  "threads", "clients", "runs", "p50 ms", "p90 ms", "p99 ms", "mean ms", "min ms",
                  "max ms", "runs/s", "samples/s", "CPUs");
  for (const BenchRow& row : report.rows) {
    const std::vector<double>& seconds = row.latencies.seconds;
    text += fmt::format(
        "{:>7} {:>7} {:>6} {:>8.3f} {:>8.3f} {:>8.3f} {:>8.3f} {:>8.3f} {:>8.3f} {:>8.1f} "
        "{:>9.1f} {:>4.1f}\n",
        row.threads, report.concurrency, seconds.size(), 1e3 * Percentile(seconds, 50),
        1e3 * Percentile(seconds, 90), 1e3 * Percentile(seconds, 99), 1e3 * Mean(seconds),
        1e3 * seconds.front(), 1e3 * seconds.back(), RunsPerSecond(row),
        RunsPerSecond(row) * static_cast<double>(report.samples), Processors(row));
  }
  return text;
}

std::string CostTable(const BenchReport& report) {
  std::string text =
      fmt::format("\n{:>7} {:>9} {:>10} {:>9} {:>12} {:>11} {:>11}\n", "threads", "load ms",
                  "compile ms", "plan ms", "first run ms", "workspace", "peak memory");
  for (const BenchRow& row : report.rows) {
    text += fmt::format("{:>7} {:>9.2f} {:>10.2f} {:>9.2f} {:>12.2f} {:>11} {:>11}\n", row.threads,
                        1e3 * row.load, 1e3 * row.compile, 1e3 * row.plan, 1e3 * row.first_run,
                        HumanBytes(row.workspace), HumanBytes(row.peak));
  }
  return text;
}

Json LatencyJson(const std::vector<double>& seconds) {
  return {{"p50", 1e3 * Percentile(seconds, 50)}, {"p90", 1e3 * Percentile(seconds, 90)},
          {"p95", 1e3 * Percentile(seconds, 95)}, {"p99", 1e3 * Percentile(seconds, 99)},
          {"mean", 1e3 * Mean(seconds)},          {"min", 1e3 * seconds.front()},
          {"max", 1e3 * seconds.back()}};
}

Json RowJson(const BenchReport& report, const BenchRow& row) {
  const double runs_per_second = RunsPerSecond(row);
  return {{"threads", row.threads},
          {"concurrency", report.concurrency},
          {"runs", row.latencies.seconds.size()},
          {"seconds", row.latencies.elapsed},
          {"latency_ms", LatencyJson(row.latencies.seconds)},
          {"runs_per_second", runs_per_second},
          {"samples_per_second", runs_per_second * static_cast<double>(report.samples)},
          {"processors", Processors(row)},
          {"load_ms", 1e3 * row.load},
          {"compile_ms", 1e3 * row.compile},
          {"plan_ms", 1e3 * row.plan},
          {"first_run_ms", 1e3 * row.first_run},
          {"workspace_bytes", row.workspace},
          {"peak_memory_bytes", row.peak}};
}

}  // namespace

std::string TextOf(const BenchReport& report) {
  std::string text = Head(report) + LatencyTable(report) + CostTable(report);
  for (const std::string& note : report.notes) text += "\nnote: " + note;
  return report.notes.empty() ? text : text + "\n";
}

std::string JsonOf(const BenchReport& report) {
  Json inputs = Json::array(), notes = Json::array(), rows = Json::array();
  for (size_t i = 0; i < report.input_names.size(); ++i) {
    inputs.push_back({{"name", JsonString(report.input_names[i])},
                      {"type", report.input_types[i]},
                      {"sequences", report.input_sequences[i]}});
  }
  for (const std::string& note : report.notes) notes.push_back(JsonString(note));
  for (const BenchRow& row : report.rows) rows.push_back(RowJson(report, row));
  Json json = JsonDocument("bench");
  json["program"] = JsonString(report.program);
  json["kind"] = report.kind;
  json["parameters"] = report.weights;
  json["ops"] = report.ops;
  json["ops_after_passes"] = report.ops_after_passes;
  json["inputs"] = std::move(inputs);
  json["samples_per_run"] = report.samples;
  json["batches_per_run"] = report.batches;
  json["notes"] = std::move(notes);
  json["rows"] = std::move(rows);
  return JsonText(json);
}

}  // namespace coracle::tools
