#include <coracle/distribute/all_reduce.h>
#include <coracle/framework/base/error.h>
#include <coracle/operators/operators.h>
#include <coracle/train/run/exchange_recorder.h>
#include <coracle/train/run/forecast.h>
#include <coracle/train/run/programs.h>
#include <coracle/train/run/rank_programs.h>
#include <coracle/train/run/train_step.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>

namespace coracle {
namespace {

constexpr std::array kBucketsMb = {0.0, 0.1, 0.25, 0.5,  1.0,  2.0,
                                   4.0, 8.0, 16.0, 25.0, 50.0, 100.0};

// Repeats the rows of a source endlessly.
class RepeatedSource final : public DataSource {
 public:
  RepeatedSource(DataSourcePtr source, int64_t times) : source_(std::move(source)), times_(times) {}
  const std::vector<DataColumn>& columns() const override { return source_->columns(); }
  int64_t size() const override { return times_ * source_->size(); }
  void Get(std::span<const int64_t> rows, std::span<Tensor> out) const override {
    source_->Get(Own(rows), out);
  }
  void GetInEpoch(int64_t epoch, std::span<const int64_t> rows,
                  std::span<Tensor> out) const override {
    source_->GetInEpoch(epoch, Own(rows), out);
  }
  std::string Describe() const override { return source_->Describe(); }
  std::string Place(int64_t row) const override { return source_->Place(row % source_->size()); }

 private:
  std::vector<int64_t> Own(std::span<const int64_t> rows) const {
    std::vector<int64_t> own(rows.begin(), rows.end());
    for (int64_t& row : own) row %= source_->size();
    return own;
  }

  DataSourcePtr source_;
  int64_t times_;
};

// A job of several ranks whose rank 0 has the rows of `job`, with its data.
struct JobOfRanks {
  JobConfig config;
  DataSourcePtr data;

  JobOfRanks(const JobConfig& job, int ranks) : config(job), data(OpenTrainData(job)) {
    CheckStreams(job, *data, job.batch_size);
    config.batch_size *= ranks;
    config.drop_last = true;  // all steps have the same number of rows
    config.distribute.bucket_mb = 0;
    const int64_t times = (config.batch_size - 1) / std::max<int64_t>(data->size(), 1) + 1;
    if (times == 1 || data->size() == 0) return;
    data = std::make_shared<RepeatedSource>(data, times);
    config.shuffle = false;  // a step would be an epoch, shuffled because rows repeat
  }
};

struct Measured {
  StepTimeline timeline;
  bool by_ranks = false;             // the program depends on the number of ranks
  int64_t gradients = 0, bytes = 0;  // in buckets
  int64_t others = 0;                // other exchanges of the program
};

// Runs steps of rank 0 of `ranks` like Trainer does, and returns their timeline.
StepTimeline TimelineOf(const JobOfRanks& job, const Programs& programs, const TimeOptions& options,
                        const std::shared_ptr<ExchangeRecorder>& recorder) {
  const Ranks ranks(recorder);
  CompileOptions compile = options.compile;
  compile.seed = job.config.random_seed;
  const Executor executor(compile, options.ops ? *options.ops : DefaultOps());
  TrainStep step(job.config, programs.RunTrain(), job.data, executor, ranks);
  Scope scope;
  PreparedProgram startup = executor.Prepare(programs.RunStartup());
  startup.SetCommunicator(ranks.communicator());
  startup.Run(scope);
  step.probe().Begin(scope);
  for (int64_t i = -options.warm_up; i < options.iterations; ++i) {
    recorder->BeginStep();
    step.Run(scope);
    ranks.Any(false);  // whether to stop
    ranks.Any(false);  // whether to save
    recorder->EndStep(i >= 0);
  }
  return recorder->Timeline();
}

// Measures the step of rank 0 of `ranks` (1: the step of a job that is not distributed).
Measured Measure(const JobConfig& job, const TimeOptions& options, int ranks) {
  const JobOfRanks of_ranks(job, ranks);
  TrainOptions train;
  train.ops = options.ops;
  Programs programs = BuildPrograms(job, train);
  std::vector<std::string> warnings;  // training reports them
  if (ranks > 1) {
    programs.of_rank = MakeRankPrograms(of_ranks.config, programs, ranks,
                                        options.ops ? *options.ops : DefaultOps(), &warnings);
  }
  Measured measured;
  measured.timeline =
      TimelineOf(of_ranks, programs, options, std::make_shared<ExchangeRecorder>(ranks));
  if (ranks == 1) return measured;
  measured.by_ranks = !programs.of_rank->states.empty();
  std::set<std::string> dense;
  for (const GradientBucket& bucket : programs.of_rank->buckets) {
    measured.by_ranks |= bucket.bytes < 0;
    if (bucket.bytes >= 0) dense.insert(bucket.gradients[0]);
  }
  for (StepTimeline::Part& part : measured.timeline.exchanges) {
    // Only gradients are scattered; the results have other names.
    part.bucketed = part.kind == Exchange::Kind::kReduceScatter || dense.contains(part.name);
    measured.gradients += part.bucketed ? 1 : 0;
    measured.bytes += part.bucketed ? part.bytes : 0;
    measured.others += part.bucketed || part.name.empty() ? 0 : 1;
  }
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
  const ExchangeWork& work = network.work;
  text += fmt::format(
      "its own work for an exchange, measured: {:.1f} us, and of a MB {:.3f} ms to pack, {:.3f} ms "
      "to add; {}\n",
      work.handover * 1e6, work.packing * 1e9, work.adding * 1e9,
      work.beside_ops ? "beside ops" : "not in parallel with ops, since no core is left for it");
  return text + fmt::format("{:>6} {:>10} {:>8} {:>9} {:>11} {:>10} {:>12} {:>8} {:>10}\n", "ranks",
                            "step ms", "of one", "later ms", "exchange ms", "exposed ms",
                            "samples/s", "best MB", "step ms");
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
  return fmt::format(
      "{:>6} {:>10.3f} {:>7.1f}% {:>9.3f} {:>11.3f} {:>10.3f} {:>12.0f} {:>8g} {:>10.3f}\n", ranks,
      forecast.seconds * 1e3, 100 * alone / forecast.seconds, forecast.later * 1e3,
      forecast.exchanges * 1e3, forecast.exposed * 1e3,
      ranks * static_cast<double>(rows) / forecast.seconds, best_mb, best * 1e3);
}

// Checks the job as training does, but the job may have no end.
void CheckJobToForecast(const JobConfig& job, const ForecastOptions& options) {
  JobConfig checked = job;
  if (job.epochs == 0 && job.max_iter == 0) checked.max_iter = 1;
  CheckJob(checked);
  for (const double mb : {job.distribute.bucket_mb, options.bucket_mb}) {
    if (!(mb >= 0) || std::isinf(mb)) {
      ThrowInvalid(fmt::format("{}: buckets of {} MB; 0 or more are needed",
                               job.Place("distribute.bucket_mb"), mb));
    }
  }
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  int most_ranks = 2;  // 2 ranks are always measured
  for (const int ranks : options.ranks) most_ranks = std::max(most_ranks, ranks);
  if (job.batch_size > kMost / most_ranks) {
    ThrowInvalid(fmt::format(
        "{}: {} ranks of batch_size {} each have a batch of {} rows; a job's batch has at "
        "most {}",
        job.Place("batch_size"), most_ranks, job.batch_size, job.batch_size * most_ranks, kMost));
  }
  if (job.distribute.local_sgd_steps > 0) {
    ThrowInvalid(job.Place("distribute.local_sgd_steps") +
                 ": the forecast is of steps that exchange gradients; leave out local_sgd_steps");
  }
}

}  // namespace

std::string ForecastJob(const JobConfig& job, const ForecastOptions& given) {
  CheckJobToForecast(job, given);
  ForecastOptions options = given;
  options.network.work = MeasureExchangeWork();
  const Measured two = Measure(job, options.time, 2);
  const StepTimeline one = two.by_ranks ? Measure(job, options.time, 1).timeline : two.timeline;
  const double alone = ExpectedMaximum(one.measured, 1);
  std::string text = Head(job, two, alone, options.network);
  for (const int ranks : options.ranks) {
    const bool anew = two.by_ranks && ranks > 2;
    const StepTimeline step = ranks == 1 ? one
                              : anew     ? Measure(job, options.time, ranks).timeline
                                         : two.timeline;
    text += Line(step, ranks, alone, job.batch_size * job.training.iter_size, options);
  }
  return text;
}

}  // namespace coracle
