#include <coracle/distribute/exchange_states.h>
#include <coracle/distribute/sequence_lengths.h>
#include <coracle/distribute/whole_values.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/job/names.h>
#include <coracle/train/run/rank_programs.h>
#include <fmt/format.h>

#include <map>

namespace coracle {
namespace {

void WarnOnce(const std::string& line, std::vector<std::string>* warnings) {
  if (!Contains(*warnings, line)) warnings->push_back(line);
}

// Warns of an op with its own seed. Otherwise each rank draws by a seed of its own.
void WarnOfOwnSeeds(const ProgramDesc& program, std::vector<std::string>* warnings) {
  const OpDesc* seeded = nullptr;
  int more = -1;
  program.ForEachOp([&](const OpDesc& op) {
    if ((op.role() & (kBackward | kOptimize)) != 0) return;
    const bool fixed = op.HasAttr("fix_seed") ? op.GetAttr<bool>("fix_seed", false)
                                              : op.GetAttr<int32_t>("seed", 0) != 0 ||
                                                    op.GetAttr<int32_t>("startup_seed", 0) != 0;
    if (!fixed && !(op.type() == "dropout" && op.HasInput("Seed"))) return;
    if (!seeded) seeded = &op;
    ++more;
  });
  if (!seeded) return;
  warnings->push_back(
      fmt::format("warning: {} ({} more) has a seed of its own and draws the same on every rank; "
                  "leave the seed out",
                  seeded->type(), more));
}

// Warns of persistable variables that forward ops change by rows.
template <class Report>
void WarnOfStates(const Report& report, const char* when, std::vector<std::string>* warnings) {
  const auto warn = [&](const std::vector<std::string>& names, const std::string& what) {
    if (names.empty()) return;
    warnings->push_back(fmt::format(
        "warning: {}{} {}", Quote(names[0]),
        names.size() > 1 ? fmt::format(" and {} more", names.size() - 1) : std::string(), what));
  };
  warn(report.local,
       "of each rank's own rows: evaluations and snapshots have their mean over the ranks");
  warn(
      report.averaged,
      fmt::format("of each rank's own rows: ranks exchange the mean {}, which is what one rank has "
                  "only where the update is a mean over rows",
                  when));
  warn(report.own, "of each rank's own rows: each rank keeps its own, and snapshots have rank 0's");
}

std::vector<std::string> WantedWhole(const JobConfig& config, const Net& net) {
  std::vector<std::string> wanted;
  if (net.has_loss) wanted.push_back(config.loss);
  for (const MetricConfig& metric : net.metrics) {
    if (metric.label.empty()) wanted.push_back(metric.var);
  }
  return wanted;
}

// Makes the net fetch the loss and the metrics of the whole batch.
void FetchWhole(const JobConfig& config, const std::map<std::string, std::string>& whole,
                Net* net) {
  if (net->has_loss && whole.count(config.loss)) net->whole_loss = whole.at(config.loss);
  for (MetricConfig& metric : net->metrics) {
    const auto at = whole.find(metric.var);
    if (metric.label.empty() && at != whole.end()) metric.var = at->second;
  }
}

void DistributeGradients(const JobConfig& config, const Programs& programs, int nranks,
                         const OpRegistry& ops, RankPrograms* own,
                         std::vector<std::string>* warnings) {
  const DistributeConfig& how = config.distribute;
  AllReduceReport report = InsertAllReduce(own->train.program, own->startup,
                                           {.nranks = nranks,
                                            .bucket_mb = how.bucket_mb,
                                            .share = kRankShare,
                                            .wanted = WantedWhole(config, own->train),
                                            .sync_batch_norm = how.sync_batch_norm,
                                            .shard_state = how.shard_state,
                                            .ops = &ops});
  if (how.shard_state && report.states.empty()) {
    warnings->push_back(
        "warning: " + config.Place("distribute.shard_state") +
        ": the state of the optimizer cannot be divided; each rank keeps all of it");
  }
  for (const std::string& line : report.unknown) WarnOnce("warning: " + line, warnings);
  own->states = std::move(report.states);
  WarnOfStates(report, "in each step", warnings);
  own->broadcast = std::move(report.broadcast);
  own->local = std::move(report.local);
  own->own = std::move(report.own);
  std::vector<std::string> exchanged;
  for (const GradientBucket& bucket : report.buckets)
    exchanged.insert(exchanged.end(), bucket.gradients.begin(), bucket.gradients.end());
  for (const std::string& param : programs.train.program.Parameters()) {
    if (!Contains(exchanged, GradName(param))) own->train.gradient_parts.push_back(GradName(param));
  }
  own->buckets = std::move(report.buckets);
  FetchWhole(config, report.whole, &own->train);
}

void DistributeParameters(const JobConfig& config, int nranks, const OpRegistry& ops,
                          RankPrograms* own, std::vector<std::string>* warnings) {
  const DistributeConfig& how = config.distribute;
  const std::string place = config.Place("distribute.local_sgd_steps");
  if (how.shard_state || how.sync_batch_norm) {
    ThrowInvalid(place +
                 ": ranks that learn on their own share neither the optimizer's state nor "
                 "statistics; leave out shard_state and sync_batch_norm");
  }
  try {
    own->local_sgd = InsertLocalSgd(own->train.program, own->startup,
                                    {.nranks = nranks,
                                     .steps = how.local_sgd_steps,
                                     .bucket_mb = how.bucket_mb,
                                     .share = kRankShare,
                                     .ops = &ops});
  } catch (const Error& e) {
    throw e.WithPrefix(place);
  }
  WarnOfStates(*own->local_sgd, "with the parameters", warnings);
  own->broadcast = own->local_sgd->broadcast;
  own->local = own->local_sgd->local;
  own->own = own->local_sgd->own;
  // Each rank computes its own loss with its own parameters.
  const WholeValueOptions options{.nranks = nranks, .share = kRankShare, .ops = &ops};
  ProgramDesc copy = own->train.program;
  const WholeValues values = InsertWholeValues(copy, {config.loss}, options);
  if (copy.Root().NumOps() > own->train.program.Root().NumOps() || !values.unknown.empty()) {
    warnings->push_back(
        fmt::format("warning: {}: {} is not a mean over the batch: each rank uses its own rows, "
                    "and averages are weighted by rows",
                    place, Quote(config.loss)));
  }
  AgreeOnLengths(own->train.program, options);
}

}  // namespace

RankPrograms MakeRankPrograms(const JobConfig& config, const Programs& programs, int nranks,
                              const OpRegistry& ops, std::vector<std::string>* warnings) {
  RankPrograms own;
  own.train = programs.train;
  own.startup = programs.startup;
  own.tests = programs.tests;
  const WholeValueOptions whole{.nranks = nranks, .share = kRankShare, .ops = &ops};
  for (Net& net : own.tests) {
    AgreeOnLengths(net.program, whole);
    const WholeValues values = InsertWholeValues(net.program, WantedWhole(config, net), whole);
    for (const std::string& line : values.unknown) WarnOnce("warning: " + line, warnings);
    FetchWhole(config, values.of, &net);
    // A test that changes states must change them like one rank does. Warnings cover the states
    // of training.
    InsertStateExchanges(net.program, {.nranks = nranks, .share = kRankShare, .ops = &ops});
  }
  WarnOfOwnSeeds(own.train.program, warnings);
  config.distribute.local_sgd_steps > 0
      ? DistributeParameters(config, nranks, ops, &own, warnings)
      : DistributeGradients(config, programs, nranks, ops, &own, warnings);
  return own;
}

}  // namespace coracle
