#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/run/rank_programs.h>
#include <fmt/format.h>

namespace coracle {
namespace {

// Both return the variables of which each rank has its own.

std::vector<std::string> DistributeGradients(const JobConfig& config, int nranks,
                                             const OpRegistry& ops, RankPrograms* own,
                                             std::vector<std::string>* warnings) {
  const DistributeConfig& how = config.distribute;
  AllReduceReport report = InsertAllReduce(own->train.program, own->startup,
                                           {.nranks = nranks,
                                            .bucket_mb = how.bucket_mb,
                                            .share = kRankShare,
                                            .sync_batch_norm = how.sync_batch_norm,
                                            .shard_state = how.shard_state,
                                            .ops = &ops});
  if (how.shard_state && report.states.empty()) {
    warnings->push_back("warning: " + config.Place("distribute.shard_state") +
                        ": no state of the optimizer can be divided; each rank keeps all of it");
  }
  own->states = std::move(report.states);
  return report.local;
}

std::vector<std::string> DistributeParameters(const JobConfig& config, int nranks,
                                              const OpRegistry& ops, RankPrograms* own) {
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
  return own->local_sgd->local;
}

}  // namespace

RankPrograms MakeRankPrograms(const JobConfig& config, const Programs& programs, int nranks,
                              const OpRegistry& ops, std::vector<std::string>* warnings) {
  RankPrograms own{programs.train, programs.startup, {}, {}};
  const std::vector<std::string> local =
      config.distribute.local_sgd_steps > 0
          ? DistributeParameters(config, nranks, ops, &own)
          : DistributeGradients(config, nranks, ops, &own, warnings);
  if (local.empty()) return own;
  warnings->push_back(
      fmt::format("warning: {} and {} more are of each rank's own rows; those of rank 0 are saved",
                  Quote(local[0]), local.size() - 1));
  return own;
}

}  // namespace coracle
