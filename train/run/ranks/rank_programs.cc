#include <coracle/distribute/exchange_states.h>
#include <coracle/distribute/largest_values.h>
#include <coracle/distribute/whole_values.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/role.h>
#include <coracle/train/job/names.h>
#include <coracle/train/run/ranks/rank_programs.h>
#include <fmt/format.h>

#include <map>
#include <set>

namespace coracle::inline internal {
namespace {

// Warns of an op with its own seed. Otherwise each rank draws by a seed of its own.
void WarnOfOwnSeeds(const ProgramDesc& program, std::vector<std::string>* warnings) {
  const OpDesc* seeded = nullptr;
  int more = -1;
  program.ForEachOp([&](const OpDesc& op) {
    if (HasRole(op, kBackward | kOptimize)) return;
    const bool fixed = op.HasAttr("fix_seed") ? op.GetAttr<bool>("fix_seed", false)
                                              : op.GetAttr<int32_t>("seed", 0) != 0 ||
                                                    op.GetAttr<int32_t>("startup_seed", 0) != 0;
    if (!fixed && !op.HasInput("Seed")) return;
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
void WarnOfStates(const AllReduceReport& report, std::vector<std::string>* warnings) {
  const auto warn = [&](const std::vector<std::string>& names, const std::string& what) {
    if (names.empty()) return;
    warnings->push_back(fmt::format(
        "warning: {}{} {}", Quote(names[0]),
        names.size() > 1 ? fmt::format(" and {} more", names.size() - 1) : std::string(), what));
  };
  warn(report.local,
       "of each rank's own rows: evaluations and snapshots have their mean over the ranks");
  warn(report.averaged,
       "of each rank's own rows or draws: ranks exchange the mean in each step, which is what one "
       "rank has only where the update is a mean over rows");
  warn(report.own,
       "of each rank's own rows or draws: each rank keeps its own, and snapshots have rank 0's");
}

// Warns of metrics that have no rule, in any of the programs.
void WarnOfMetrics(const std::vector<std::string>& unknown, std::vector<std::string>* warnings) {
  for (const std::string& name : std::set<std::string>(unknown.begin(), unknown.end())) {
    warnings->push_back(
        fmt::format("warning: metric {}: how the ranks' values combine is unknown; their mean by "
                    "rows is shown, which may not be what one rank has",
                    Quote(name)));
  }
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
                         std::vector<std::string>* unknown, std::vector<std::string>* warnings) {
  const DistributeConfig& how = config.distribute;
  AllReduceReport report = InsertAllReduce(own->train.program, own->startup,
                                           {.nranks = nranks,
                                            .bucket_mb = how.bucket_mb,
                                            .share = kRankShare,
                                            .wanted = WantedWhole(config, own->train),
                                            .sync_batch_norm = how.sync_batch_norm,
                                            .shard_state = how.shard_state,
                                            .loss_weight = how.loss_weight,
                                            .ops = &ops});
  if (how.shard_state && report.states.empty()) {
    warnings->push_back(
        "warning: " + config.Place("distribute.shard_state") +
        ": the state of the optimizer cannot be divided; each rank keeps all of it");
  }
  own->states = std::move(report.states);
  WarnOfStates(report, warnings);
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
  unknown->insert(unknown->end(), report.unknown.begin(), report.unknown.end());
}

}  // namespace

RankPrograms MakeRankPrograms(const JobConfig& config, const Programs& programs, int nranks,
                              const OpRegistry& ops, std::vector<std::string>* warnings) {
  RankPrograms own;
  own.train = programs.train;
  own.startup = programs.startup;
  own.tests = programs.tests;
  AllReduceOptions options{.nranks = nranks,
                           .share = kRankShare,
                           .loss_weight = config.distribute.loss_weight,
                           .ops = &ops};
  std::vector<std::string> unknown;
  for (Net& net : own.tests) {
    options.wanted = WantedWhole(config, net);
    AgreeOnLargest(net.program, options);
    FetchWhole(config, InsertWholeValues(net.program, {config.loss}, options, &unknown), &net);
    // A test that changes states must change them like one rank does. Warnings cover the states
    // of training.
    InsertStateExchanges(net.program, options);
  }
  WarnOfOwnSeeds(own.train.program, warnings);
  DistributeGradients(config, programs, nranks, ops, &own, &unknown, warnings);
  WarnOfMetrics(unknown, warnings);
  return own;
}

}  // namespace coracle::inline internal
