#include <coracle/communication/communicator.h>
#include <coracle/distribute/all_reduce.h>
#include <coracle/framework/base/error.h>
#include <coracle/train/data/feeder.h>
#include <coracle/train/data/row_error.h>
#include <coracle/train/run/exchange_recorder.h>
#include <coracle/train/run/forecast.h>
#include <coracle/train/run/timed_step.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

namespace coracle {
namespace {

constexpr std::array kBucketsMb = {0.0, 0.1, 0.25, 0.5,  1.0,  2.0,
                                   4.0, 8.0, 16.0, 25.0, 50.0, 100.0};

bool HasOpenDims(const TimedStep& step) {
  for (size_t i = 0; step.length == 0 && i < step.columns; ++i) {
    const Shape& shape = step.main.Root().FindVar(step.inputs[i])->shape();
    if (shape.rank() > 1 && shape.Product(1, shape.rank()) < 0) return true;
  }
  return false;
}

// Drawn, or of the data where only that has their shapes.
std::vector<Tensor> FeedsOf(const JobConfig& job, const TimedStep& step) {
  if (!HasOpenDims(step)) return DrawFeeds(step);
  const DataSourcePtr data = OpenTrainData(job);
  const std::vector<std::string> columns(step.inputs.begin(),
                                         step.inputs.begin() + static_cast<int>(step.columns));
  Feeder feeder(step.main, columns, *data, job.bind, job.Place("train"));
  BatchReader reader(data, {.batch_size = job.batch_size, .prefetch = false});
  std::vector<Tensor> feeds;
  const std::vector<Tensor>& batch = reader.Next();
  NamingRows(reader, batch, [&] {
    for (const Tensor& tensor : feeder.Bind(batch)) feeds.push_back(tensor.Clone());
  });
  TimedStep carried = step;  // zeros or drawn, they are the model's own
  carried.inputs.erase(carried.inputs.begin(),
                       carried.inputs.begin() + static_cast<int>(step.columns));
  carried.columns = 0;
  for (Tensor& tensor : DrawFeeds(carried)) feeds.push_back(std::move(tensor));
  return feeds;
}

struct Measured {
  StepTimeline timeline;
  bool by_ranks = false;             // another number of ranks computes something else
  int64_t gradients = 0, bytes = 0;  // in buckets
  int64_t others = 0;                // exchanges
};

// Of a job's training loop, besides those of the program: the loss of each batch, and whether to
// stop and whether to save after each step.
void AddLoop(int64_t batches, StepTimeline* timeline) {
  for (int64_t i = 0; i < batches + 2; ++i) {
    timeline->exchanges.push_back({Exchange::Kind::kAllReduce, "", sizeof(double),
                                   timeline->seconds, timeline->seconds, false});
  }
}

// The step of rank 0 of `ranks` (1: the step of a job that is not distributed).
Measured Measure(const JobConfig& job, const TimeOptions& options, int ranks) {
  TimedStep step = StepOfJob(job, options.ops);
  const std::vector<Tensor> feeds = FeedsOf(job, step);
  AllReduceReport report;
  if (ranks > 1) {
    report = InsertAllReduce(step.main, step.startup,
                             {.nranks = ranks,
                              .bucket_mb = 0,
                              .sync_batch_norm = job.distribute.sync_batch_norm,
                              .shard_state = job.distribute.shard_state,
                              .ops = options.ops});
  }
  const Executor executor(options.compile, options.ops ? *options.ops : DefaultOps());
  const auto recorder = std::make_shared<ExchangeRecorder>(ranks);
  const auto prepare = [&](const ProgramDesc& program, const std::vector<std::string>& inputs,
                           const std::vector<std::string>& fetches) {
    PreparedProgram prepared = executor.Prepare(program, inputs, fetches);
    if (ranks > 1) prepared.SetCommunicator(recorder);
    return prepared;
  };
  Scope scope;
  prepare(step.startup, {}, {}).Run(scope);
  PreparedProgram program = prepare(step.main, step.inputs, step.fetches);
  for (int64_t i = -options.warm_up; i < options.iterations; ++i) {
    recorder->BeginStep();
    for (int64_t batch = 0; batch < step.batches; ++batch) program.Run(scope, feeds);
    recorder->EndStep(i >= 0);
  }

  Measured measured{recorder->Timeline(), !report.states.empty(), 0, 0, 0};
  std::set<std::string> dense;
  for (const GradientBucket& bucket : report.buckets) {
    measured.by_ranks |= bucket.bytes < 0;
    if (bucket.bytes >= 0) dense.insert(bucket.gradients[0]);
  }
  for (StepTimeline::Part& part : measured.timeline.exchanges) {
    part.bucketed = dense.contains(part.name);
    measured.gradients += part.bucketed ? 1 : 0;
    measured.bytes += part.bucketed ? part.bytes : 0;
    measured.others += part.bucketed ? 0 : 1;
  }
  AddLoop(step.batches, &measured.timeline);
  return measured;
}

std::string Head(const JobConfig& job, const Measured& step, double seconds,
                 const Network& network) {
  const int64_t batches = job.training.iter_size;
  std::string text = fmt::format(
      "a rank's step of {}{} rows, measured: {:.3f} ms; {} gradients, {:.2f} MB{}; latency {:g} "
      "us, {:g} Gbit/s\n",
      batches > 1 ? fmt::format("{} x ", batches) : "", job.batch_size, seconds * 1e3,
      step.gradients, static_cast<double>(step.bytes) / 1e6,
      step.others > 0
          ? fmt::format(" and {} other exchange{}", step.others, step.others == 1 ? "" : "s")
          : "",
      network.latency * 1e6, network.bandwidth * 8e-9);
  return text + fmt::format("{:>6} {:>10} {:>8} {:>11} {:>10} {:>12} {:>10} {:>10}\n", "ranks",
                            "step ms", "of one", "exchange ms", "exposed ms", "samples/s",
                            "best MB", "step ms");
}

std::string Line(const StepTimeline& step, int ranks, double alone, int64_t rows,
                 const ForecastOptions& options) {
  const StepForecast forecast = ForecastStep(step, ranks, options.bucket_mb, options.network);
  double best_mb = options.bucket_mb, best = forecast.seconds;
  for (const double mb : kBucketsMb) {
    const double seconds = ForecastStep(step, ranks, mb, options.network).seconds;
    if (seconds >= best * (1 - 1e-9)) continue;
    best = seconds;
    best_mb = mb;
  }
  return fmt::format("{:>6} {:>10.3f} {:>7.1f}% {:>11.3f} {:>10.3f} {:>12.0f} {:>10g} {:>10.3f}\n",
                     ranks, forecast.seconds * 1e3, 100 * alone / forecast.seconds,
                     forecast.exchanges * 1e3, forecast.exposed * 1e3,
                     ranks * static_cast<double>(rows) / forecast.seconds, best_mb, best * 1e3);
}

}  // namespace

std::string ForecastJob(const JobConfig& job, const ForecastOptions& options) {
  if (job.distribute.local_sgd_steps > 0) {
    ThrowInvalid(job.Place("distribute.local_sgd_steps") +
                 ": the forecast is of steps that exchange gradients; leave out local_sgd_steps");
  }
  const Measured two = Measure(job, options.time, 2);
  const StepTimeline one = two.by_ranks ? Measure(job, options.time, 1).timeline : two.timeline;
  std::string text = Head(job, two, one.seconds, options.network);
  for (const int ranks : options.ranks) {
    const bool anew = two.by_ranks && ranks > 2;
    const StepTimeline step = ranks == 1 ? one
                              : anew     ? Measure(job, options.time, ranks).timeline
                                         : two.timeline;
    text += Line(step, ranks, one.seconds, job.batch_size * job.training.iter_size, options);
  }
  return text;
}

}  // namespace coracle
