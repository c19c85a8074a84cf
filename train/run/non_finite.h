#pragma once
// What a run does about a loss or a parameter that is a nan or infinite.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/train/job/job.h>
#include <coracle/train/run/snapshot.h>

#include <cstdint>
#include <string>

namespace coracle {

class NonFiniteLosses {
 public:
  // `config` lives as long.
  explicit NonFiniteLosses(const JobConfig& config) : config_(config) {}

  // Takes the loss of a step. Returns the line to tell where a row of such steps begins, else "".
  // Throws kInvalidArgument under kStop, and when kSkip has skipped kMostSkipped steps in a row.
  std::string Step(int64_t step, double loss);
  // Looks at the parameters before they are saved. Returns the line to tell, "" where all are
  // finite and at a step that was looked at before. Throws kInvalidArgument under kStop.
  std::string Parameters(const ProgramDesc& program, const Scope& scope, int64_t step);

  const NonFiniteCounts& counts() const { return counts_; }
  void Load(const NonFiniteCounts& counts) { counts_ = counts; }

  static constexpr int64_t kMostSkipped = 20;

 private:
  const JobConfig& config_;
  NonFiniteCounts counts_;
  int64_t looked_at_ = -1;  // the step of the last look at the parameters
};

}  // namespace coracle
