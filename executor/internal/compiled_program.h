#pragma once
// CompiledProgram: a verified, rewritten, immutable program with its plans. Internal to executor/.

#include <coracle/executor/executor.h>
#include <coracle/executor/internal/plan.h>

#include <list>
#include <memory>
#include <mutex>
#include <string>
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
  uint64_t memory_limit() const { return memory_limit_; }

  // Throws kInvalidArgument when the feeds' number, dtypes or shapes do not fit the program's
  // variables.
  void CheckFeeds(std::span<const Tensor> feeds) const;
  // The plan for feeds of these types and a scope with these persistables: kept ones first, else
  // made. Thread-safe.
  std::shared_ptr<const Plan> GetPlan(std::span<const Tensor> feeds, const Scope& scope) const;
  // The plan of the stage after `before`, whose carried values are `feeds`.
  std::shared_ptr<const Plan> GetNextPlan(const Plan& before, std::span<const Tensor> feeds,
                                          const Scope& scope) const;

 private:
  struct Entry {
    size_t first_op;
    std::vector<VarMeta> feeds;
    Tensor needed;  // the value that the stage relies on; empty for the first
    std::shared_ptr<const Plan> plan;
  };
  std::shared_ptr<const Plan> FindOrMake(size_t first_op, const std::vector<std::string>& names,
                                         std::span<const Tensor> feeds, const std::string& needs,
                                         const Scope& scope) const;

  ProgramDesc program_;
  std::vector<std::string> feeds_, fetches_;
  CompileOptions options_;
  const OpRegistry* ops_;
  uint64_t seed_, memory_limit_;
  mutable std::mutex mutex_;
  mutable std::list<Entry> plans_;  // most recently used first
};

}  // namespace coracle
