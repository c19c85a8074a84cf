#pragma once
// How a run handles a loss or a parameter that is nan or infinite.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/train/job/job.h>
#include <coracle/train/run/snapshot/snapshot.h>

#include <cstdint>
#include <string>

namespace coracle::inline internal {

class NonFiniteLosses {
 public:
  // `config` must outlive this object.
  explicit NonFiniteLosses(const JobConfig& config) : config_(config) {}

  // Takes the loss of a step. Returns a line for the user at the first step of a series of such
  // losses, else "". Throws kInvalidArgument for kStop, and if kSkip has skipped kMostSkipped steps
  // in a row.
  std::string Step(int64_t step, double loss);
  // Checks the parameters before they are saved. Returns a line for the user, or "" if all are
  // finite or this step was checked before. Throws kInvalidArgument for kStop.
  std::string Parameters(const ProgramDesc& program, const Scope& scope, int64_t step);

  const NonFiniteCounts& counts() const { return counts_; }
  void Load(const NonFiniteCounts& counts) { counts_ = counts; }

  static constexpr int64_t kMostSkipped = 20;

 private:
  const JobConfig& config_;
  NonFiniteCounts counts_;
  int64_t looked_at_ = -1;  // the step of the last check of the parameters
};

}  // namespace coracle::inline internal
