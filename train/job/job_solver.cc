#include <coracle/framework/base/error.h>
#include <coracle/train/job/job_parts.h>

namespace coracle {
namespace {

TestSetConfig ToTestSet(const proto::TestSetConfig& set, const JobNode& at) {
  if (set.name().empty() || set.name().find_first_of("/ \t\n") != std::string::npos)
    at.Fail("name", "must be a word without slashes");
  TestSetConfig config;
  config.name = set.name();
  config.data = ToData(set.data(), at.Child("data"), "data");
  config.batch_size = set.batch_size();
  config.iterations = set.test_iter();
  config.stages.assign(set.stage().begin(), set.stage().end());
  return config;
}

// Chooses by the kind of the job's metric with this name ("SET/NAME"), or by the name itself.
WatchGoal GoalOf(proto::Goal goal, const std::string& metric, const JobConfig& config) {
  if (goal != proto::AUTO)
    return goal == proto::MAXIMIZE ? WatchGoal::kMaximize : WatchGoal::kMinimize;
  const std::string name = metric.substr(metric.find('/') + 1);
  bool rises = name == "accuracy" || name == "acc" || name == "auc";
  for (const MetricConfig& m : config.metrics) {
    const bool scores = m.kind == MetricKind::kAccuracy || m.kind == MetricKind::kAuc;
    if (m.name == name && scores) rises = true;
  }
  return rises ? WatchGoal::kMaximize : WatchGoal::kMinimize;
}

template <class Config>
WatchConfig ToWatch(const Config& watch, const JobConfig& config) {
  return {watch.metric(), GoalOf(watch.goal(), watch.metric(), config), watch.min_delta()};
}

void ReadWatches(const proto::JobConfig& job, const JobNode& at, JobConfig* config) {
  if (job.has_best()) {
    const auto& best = job.best();
    config->best = {ToWatch(best, *config), best.restore()};
  }
  if (!job.has_early_stop()) return;
  const auto& stop = job.early_stop();
  const JobNode node = at.Child("early_stop");
  config->early_stop = {ToWatch(stop, *config), stop.patience()};
  if (!job.has_best()) return;
  const WatchConfig &best = config->best->watch, &own = config->early_stop->watch;
  const auto refuse = [&](const char* field, bool differs) {
    if (!node.Has(field) || !differs) return;
    node.Fail(field, "is not that of best, which early_stop watches too; leave it out here");
  };
  refuse("metric", own.metric != best.metric);
  refuse("goal", own.goal != best.goal);
  refuse("min_delta", own.min_delta != best.min_delta);
}

SignalEffect ToEffect(proto::SignalConfig::Effect effect) {
  return static_cast<SignalEffect>(effect);
}

}  // namespace

void ReadSolver(const proto::JobConfig& job, const JobNode& at, JobConfig* config) {
  for (int i = 0; i < job.test_set_size(); ++i) {
    config->test_sets.push_back(ToTestSet(job.test_set(i), at.Child("test_set", i)));
  }
  if (job.has_test_iter() && !job.has_test())
    at.Fail("test_iter", "is of test, which is not given");
  config->test_iterations = job.test_iter();
  config->stages.assign(job.stage().begin(), job.stage().end());
  config->initial_test = job.initial_test();
  config->average_loss = job.average_loss();
  ReadWatches(job, at, config);
  config->signals = {ToEffect(job.signal().sigint()), ToEffect(job.signal().sigterm()),
                     ToEffect(job.signal().sighup())};
  config->max_seconds = job.max_seconds();
  for (int i = 0; i < job.weights_size(); ++i) {
    config->weights.push_back({job.weights(i).file(), job.weights(i).skip_mismatched()});
  }
  config->freeze.assign(job.freeze().begin(), job.freeze().end());
  config->debug_info = job.debug_info();
  const auto& log = job.log();
  if (log.histogram_interval() > 0 && !log.tensorboard())
    at.Child("log").Fail("histogram_interval", "needs tensorboard: true");
  config->log = {log.json(), log.tensorboard(), log.histogram_interval()};
  config->snapshot_after_train = job.snapshot_after_train();
}

}  // namespace coracle
