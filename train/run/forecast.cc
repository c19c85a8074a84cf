#include <coracle/distribute/all_reduce.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/run/forecast.h>
#include <coracle/train/run/timed_step.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>

namespace coracle {
namespace {

constexpr std::array kBucketsMb = {0.0, 0.1, 0.25, 0.5,  1.0,  2.0,
                                   4.0, 8.0, 16.0, 25.0, 50.0, 100.0};

void Check(const JobConfig& job, const TimedStep& step, const AllReduceReport& report) {
  for (size_t i = 0; step.length == 0 && i < step.columns; ++i) {
    const Shape& shape = step.main.Root().FindVar(step.inputs[i])->shape();
    for (int dim = 1; dim < shape.rank(); ++dim) {
      if (shape[dim] >= 0) continue;
      ThrowInvalid(
          fmt::format("a forecast for ranks needs all dims of an input but the first, and "
                      "{} is {}: declare them in the model",
                      Quote(step.inputs[i]), shape.ToString()));
    }
  }
  if (job.training.iter_size > 1)
    ThrowInvalid(
        "a forecast for ranks takes no job with iter_size: its exchange is not in every "
        "batch");
  for (const GradientBucket& bucket : report.buckets) {
    if (bucket.bytes >= 0) continue;
    ThrowInvalid(
        fmt::format("a forecast for ranks takes no sparse gradients, and {} is one: how "
                    "many rows it has, each step decides",
                    bucket.gradients[0]));
  }
}

}  // namespace

StepTimeline MeasureTimeline(const JobConfig& job, const TimeOptions& options) {
  TimedStep step = StepOfJob(job, options.ops);
  const AllReduceReport report =
      InsertAllReduce(step.main, step.startup, {.nranks = 2, .bucket_mb = 0, .ops = options.ops});
  Check(job, step, report);
  const OpRegistry& ops = options.ops ? *options.ops : DefaultOps();
  CompileOptions compile = options.compile;
  Scope scope;
  Executor(compile, ops).Run(step.startup, scope);
  compile.profile = true;
  PreparedProgram program = Executor(compile, ops).Prepare(step.main, step.inputs, step.fetches);
  const std::vector<Tensor> feeds = DrawFeeds(step);
  for (int64_t i = 0; i < options.warm_up; ++i) program.Run(scope, feeds);
  const std::vector<OpTime> before = program.Profile();
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < options.iterations; ++i) program.Run(scope, feeds);
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
  const std::vector<OpTime> after = program.Profile();

  std::map<std::string, int64_t> bytes;
  for (const GradientBucket& bucket : report.buckets) bytes[bucket.gradients[0]] = bucket.bytes;
  StepTimeline timeline;
  std::map<std::string, size_t> places;
  const auto runs = static_cast<double>(options.iterations);
  double now = 0, exchanges = 0;
  for (size_t i = 0; i < after.size(); ++i) {
    const OpTime& time = after[i];
    const double seconds = (time.seconds - before[i].seconds) / runs;
    const auto gradient = bytes.find(time.output);
    if (gradient == bytes.end() || !time.op_type.starts_with("c_")) {
      now += seconds;
      continue;
    }
    exchanges += seconds;
    const auto [place, begins] = places.try_emplace(time.output, timeline.gradients.size());
    if (begins)
      timeline.gradients.push_back({time.output, gradient->second, now, 1e300});
    else
      timeline.gradients[place->second].needed = now;
  }
  timeline.seconds = std::max(now, passed.count() / runs - exchanges);
  for (StepTimeline::Gradient& gradient : timeline.gradients)
    gradient.needed = std::min(gradient.needed, timeline.seconds);
  if (places.size() != bytes.size()) {
    throw Error(ErrorCode::kInternal,
                fmt::format("{} of {} exchanges are in the profile", places.size(), bytes.size()));
  }
  return timeline;
}

std::string ForecastTable(const StepTimeline& step, const std::vector<int>& ranks, double bucket_mb,
                          const Network& network, int64_t batch_size) {
  int64_t bytes = 0;
  for (const StepTimeline::Gradient& gradient : step.gradients) bytes += gradient.bytes;
  std::string text = fmt::format(
      "a rank's step of {} rows, measured: {:.3f} ms; {} gradients, {:.2f} MB; latency {:g} us, "
      "{:g} "
      "Gbit/s\n{:>6} {:>10} {:>8} {:>10} {:>10} {:>12} {:>10} {:>10}\n",
      batch_size, step.seconds * 1e3, step.gradients.size(), static_cast<double>(bytes) / 1e6,
      network.latency * 1e6, network.bandwidth * 8e-9, "ranks", "step ms", "of one", "exchange ms",
      "exposed ms", "samples/s", "best MB", "step ms");
  for (const int n : ranks) {
    const StepForecast forecast = ForecastStep(step, n, bucket_mb, network);
    double best_mb = bucket_mb, best = forecast.seconds;
    for (const double mb : kBucketsMb) {
      const double seconds = ForecastStep(step, n, mb, network).seconds;
      if (seconds < best * (1 - 1e-9)) {
        best = seconds;
        best_mb = mb;
      }
    }
    text +=
        fmt::format("{:>6} {:>10.3f} {:>7.1f}% {:>10.3f} {:>10.3f} {:>12.0f} {:>10g} {:>10.3f}\n",
                    n, forecast.seconds * 1e3, 100 * step.seconds / forecast.seconds,
                    forecast.exchanges * 1e3, forecast.exposed * 1e3,
                    n * static_cast<double>(batch_size) / forecast.seconds, best_mb, best * 1e3);
  }
  return text;
}

}  // namespace coracle
