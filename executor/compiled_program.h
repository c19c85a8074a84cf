#pragma once
// CompiledProgram: a verified, rewritten, immutable program with its plans. Internal to executor/.

#include <coracle/executor/executor.h>
#include <coracle/executor/frozen_guard.h>
#include <coracle/executor/planner/plan_cache.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/ir/origin.h>
#include <coracle/passes/pass.h>

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace coracle::inline internal {

class CompiledProgram {
 public:
  // The source of the parameters to freeze.
  struct FrozenFrom {
    const Scope* scope = nullptr;  // nullptr: freeze none
    Scope* erase_from = nullptr;   // the same scope, for Executor::PrepareOwning
  };
  // See Executor::Prepare, PrepareFrozen, PrepareOwning. `observer` sees each pass. `warning_log`:
  // nullptr creates a new one.
  CompiledProgram(const ProgramDesc& program, std::vector<std::string> feeds,
                  std::vector<std::string> fetches, const CompileOptions& options,
                  const OpRegistry& ops, const FrozenFrom& parameters,
                  const PassObserver& observer = {},
                  std::shared_ptr<ShapeWarningLog> warning_log = nullptr);
  CompiledProgram(const CompiledProgram&) = delete;
  CompiledProgram& operator=(const CompiledProgram&) = delete;

  // The ops carry their origins as an attr.
  const ProgramDesc& program() const { return program_; }
  // The same without that attr, for callers of the executor; made on the first call. Thread-safe.
  const ProgramDesc& ProgramWithoutOrigins() const;
  // Maps the variables of that program to those of the given program.
  const ProgramOrigins& origins() const { return origins_; }
  const std::vector<std::string>& feeds() const { return feeds_; }
  const std::vector<std::string>& fetches() const { return fetches_; }
  const CompileOptions& options() const { return options_; }
  // Unique among the programs that this process has compiled.
  int64_t number() const { return number_; }
  uint64_t seed() const { return seed_; }
  const FrozenGuard& frozen() const { return guard_; }
  // The values of the frozen parameters that ops read or that are fetched, by name. REQUIRES: no
  // plan has been made yet, since kernels may replace elements by packed ones.
  FrozenValues FrozenElements() const { return frozen_.PlainElements(); }
  PlanCache& plans() const { return *plans_; }  // thread-safe
  ResourceOptions limits() const { return {memory_limit_, options_.time_limit, options_.stop}; }

  // Throws kInvalidArgument if the number, dtypes or (if the program checks them) shapes of the
  // feeds do not match the program's variables.
  void CheckFeeds(std::span<const Tensor> feeds) const;

 private:
  void Compile(const OpRegistry& ops, const FrozenFrom& parameters, const PassObserver& observer);
  void DeclareHeldShapes(const FrozenValues& frozen, const OpRegistry& ops);
  FrozenValues FreezeParameters(const FrozenFrom& parameters, const OpRegistry& ops);
  void RunAllPasses(const OpRegistry& ops, FrozenValues* frozen,
                    const std::vector<OpOrigin>& float32_ops, const PassObserver& observer);
  void AddFrozen(FrozenValues values);

  const int64_t number_;
  ProgramDesc program_;
  ProgramOrigins origins_;
  std::vector<std::string> feeds_, fetches_;
  CompileOptions options_;
  std::shared_ptr<ShapeWarningLog> warning_log_;
  uint64_t seed_, memory_limit_;
  std::vector<BlockUse> uses_;
  FrozenGuard guard_;
  FrozenParameters frozen_;  // changed only by plans_, under its lock
  std::unique_ptr<PlanCache> plans_;
  mutable std::once_flag made_without_origins_;
  mutable ProgramDesc without_origins_;
};

}  // namespace coracle::inline internal
