#pragma once
// CompiledProgram: a verified, rewritten, immutable program with its plans. Internal to executor/.

#include <coracle/executor/executor.h>
#include <coracle/executor/plan_cache.h>
#include <coracle/framework/base/resource_limits.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace coracle {

class CompiledProgram {
 public:
  // See Executor::Prepare.
  CompiledProgram(const ProgramDesc& program, std::vector<std::string> feeds,
                  std::vector<std::string> fetches, const CompileOptions& options,
                  const OpRegistry& ops);
  CompiledProgram(const CompiledProgram&) = delete;
  CompiledProgram& operator=(const CompiledProgram&) = delete;

  const ProgramDesc& program() const { return program_; }
  const std::vector<std::string>& feeds() const { return feeds_; }
  const std::vector<std::string>& fetches() const { return fetches_; }
  const CompileOptions& options() const { return options_; }
  uint64_t seed() const { return seed_; }
  PlanCache& plans() const { return *plans_; }  // thread-safe
  ResourceOptions limits() const { return {memory_limit_, options_.time_limit, options_.stop}; }

  // Throws kInvalidArgument when the feeds' number, dtypes or (where the program checks them)
  // shapes do not fit the program's variables.
  void CheckFeeds(std::span<const Tensor> feeds) const;

 private:
  void Compile(const OpRegistry& ops);

  ProgramDesc program_;
  std::vector<std::string> feeds_, fetches_;
  CompileOptions options_;
  uint64_t seed_, memory_limit_;
  std::vector<BlockUse> uses_;
  std::unique_ptr<PlanCache> plans_;
};

}  // namespace coracle
