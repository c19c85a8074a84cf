#pragma once
// CompiledProgram: a verified, rewritten, immutable program with its plans. Internal to executor/.

#include <coracle/executor/executor.h>
#include <coracle/executor/internal/plan.h>
#include <coracle/executor/internal/unit.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/block_use.h>

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

namespace coracle {

class CompiledProgram {
 public:
  // See Executor::Prepare.
  CompiledProgram(const ProgramDesc& program, std::vector<std::string> feeds,
                  std::vector<std::string> fetches, const CompileOptions& options,
                  const OpRegistry& ops);

  const ProgramDesc& program() const { return program_; }
  const std::vector<std::string>& feeds() const { return feeds_; }
  const std::vector<std::string>& fetches() const { return fetches_; }
  const CompileOptions& options() const { return options_; }
  uint64_t seed() const { return seed_; }
  ResourceOptions limits() const { return {memory_limit_, options_.time_limit, options_.stop}; }

  // Throws kInvalidArgument when the feeds' number, dtypes or (where the program checks them)
  // shapes do not fit the program's variables.
  void CheckFeeds(std::span<const Tensor> feeds) const;
  // The plan of a unit's block from op `first_op` on for feeds of these types, cells like these and
  // a scope with these persistables: kept ones first, else made. `before` is the plan of the stage
  // before, whose carried values are the feeds; nullptr for the first stage. Thread-safe.
  std::shared_ptr<const Plan> GetPlan(int32_t unit, size_t first_op, const Plan* before,
                                      std::span<const Tensor> feeds,
                                      std::span<VarCell* const> slots, const Scope& scope) const;

 private:
  // These are called under the lock.
  std::shared_ptr<const Plan> FindPlan(int32_t unit, size_t first_op, const Plan* before,
                                       std::span<const Tensor> feeds,
                                       std::span<VarCell* const> slots, const Scope& scope) const;
  std::shared_ptr<const Plan> AddPlan(int32_t unit, size_t first_op, const Plan* before,
                                      std::span<const Tensor> feeds,
                                      std::span<VarCell* const> slots, const Scope& scope) const;
  // Of feeds and persistables, once for each.
  std::vector<std::string> NewWarningsOfShapes(std::span<const Tensor> feeds,
                                               const Scope& scope) const;

  ProgramDesc program_;
  std::vector<std::string> feeds_, fetches_;
  CompileOptions options_;
  const OpRegistry* ops_;
  uint64_t seed_, memory_limit_;
  std::vector<BlockUse> uses_;
  mutable std::mutex mutex_;
  mutable UnitTable units_;
  mutable std::unordered_set<std::string> warned_;
};

}  // namespace coracle
