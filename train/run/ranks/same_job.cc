#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/base/version.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/tensor/fingerprint.h>
#include <coracle/train/job/names.h>
#include <coracle/train/run/ranks/same_job.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

namespace coracle::inline internal {
namespace {

// The flags that change the job or the rounding of its results.
std::string Settings(const JobConfig& config, const TrainOptions& options) {
  const CompileOptions& compile = options.compile;
  return fmt::format(
      "threads {}, kernels {}, optimize {}, without passes [{}], tune {}, profile {}, batch_size "
      "{}, seed {}, max_iter {}, epochs {}, max_seconds {}, snapshot_interval {}, resume {} {}, "
      "check_parameters {}, bucket_mb {}, sync_batch_norm {}, shard_state {}, loss_weight {}",
      NumThreads(), static_cast<int>(compile.kernels), compile.optimize,
      Join(compile.disabled_passes, ", "), compile.tune, compile.profile, config.batch_size,
      config.random_seed, config.max_iter, config.epochs, config.max_seconds,
      config.snapshot_interval, options.resume, options.override_mismatch, options.check_parameters,
      config.distribute.bucket_mb, config.distribute.sync_batch_norm, config.distribute.shard_state,
      config.distribute.loss_weight);
}

// The names of the parameters, trained or not, and of the other variables that the startup program
// draws. Variables that each rank changes by its own rows are excluded (they may be parameters:
// Paddle's programs declare running statistics as such).
std::vector<std::string> ComparedNames(const RankPrograms& own, const Scope& scope) {
  std::vector<std::string> names;
  for (const std::string& name : PersistableNames(own.train.program)) {
    const bool drawn =
        own.train.program.Root().FindVar(name)->is_parameter() || Contains(own.broadcast, name);
    if (!drawn || Contains(own.local, name) || Contains(own.own, name)) continue;
    const VarValue* held = scope.Find(name);
    if (held && std::holds_alternative<Tensor>(*held)) names.push_back(name);
  }
  return names;
}

}  // namespace

void RequireRowForEachRank(const JobConfig& config, int ranks) {
  if (config.batch_size >= ranks) return;
  ThrowInvalid(fmt::format("{}: a batch of {} rows for {} ranks: each needs a row",
                           config.Place("batch_size"), config.batch_size, ranks));
}

void RequireSameJob(const Ranks& ranks, const JobConfig& config, const TrainOptions& options) {
  RequireRowForEachRank(config, ranks.size());
  const std::string version =
      fmt::format("{}.{}.{}", CORACLE_VERSION_MAJOR, CORACLE_VERSION_MINOR, CORACLE_VERSION_PATCH);
  ranks.RequireSame("version of Coracle", version, "install one version on all hosts");
  ranks.RequireSame("job", config.text, "give all ranks the same job");
  ranks.RequireSame("settings", Settings(config, options), "give all ranks the same flags");
}

void RequireSameParameters(const Ranks& ranks, const Programs& programs, const Scope& scope,
                           int64_t step) {
  if (!ranks.several()) return;
  std::vector<uint64_t> prints;
  const std::vector<std::string> names = ComparedNames(*programs.of_rank, scope);
  for (const std::string& name : names) {
    const Tensor& value = scope.Get(name);
    prints.push_back(Fingerprint(value.raw(), static_cast<size_t>(value.nbytes())));
  }
  const std::string own(reinterpret_cast<const char*>(prints.data()),
                        prints.size() * sizeof(uint64_t));
  const std::vector<std::string> all = ranks.Gather(own);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const auto differ = std::mismatch(all[0].begin(), all[0].end(), all[rank].begin());
    const auto at = static_cast<size_t>(differ.first - all[0].begin()) / sizeof(uint64_t);
    const std::vector<std::string> of_ranks = ranks.Names();
    const bool parameter = programs.train.program.Root().FindVar(names[at])->is_parameter();
    ThrowInvalid(fmt::format(
        "after step {} the {} {} differs between {} and {}: use machines with the same processor "
        "and instruction set; resume from the last snapshot",
        step, parameter ? "parameter" : "variable", Quote(names[at]), of_ranks[rank], of_ranks[0]));
  }
}

}  // namespace coracle::inline internal
