#pragma once
// What Coracle's own benchmarks of one repeated step share.

#include <coracle/coracle.h>

#include <string>
#include <vector>

#include "timing.h"

namespace coracle {

// What all benchmarks of one repeated step take: --workload, --threads, --warm and --seconds (to
// run), --profile, --kernels=reference. Sets the number of threads; 0: as many as the library
// uses by default.
class StepBench {
 public:
  StepBench(const Arguments& arguments, const std::string& workload, double warm, double seconds)
      : name_{"coracle", arguments.Text("workload", workload), arguments.Whole("threads", 1),
              ProcessMiB("VmRSS")},
        warm_(arguments.Real("warm", warm)),
        seconds_(arguments.Real("seconds", seconds)) {
    if (name_.threads > 0) SetNumThreads(name_.threads);
    name_.threads = NumThreads();
    options_.profile = arguments.Text("profile", "") == "true";
    if (arguments.Text("kernels", "") == "reference") options_.kernels = KernelMode::kReference;
  }

  const std::string& workload() const { return name_.workload; }
  const CompileOptions& options() const { return options_; }

  template <class Step>
  std::vector<double> Time(Step&& step) const {
    return TimeSteps(warm_, seconds_, step);
  }

  // One JSON line; `extra` starts with a comma or is empty.
  void Print(const std::vector<double>& times, const std::string& extra) const {
    PrintTimes(name_, times, extra);
  }
  void PrintProfile(const PreparedProgram& step) const {
    if (options_.profile) std::fputs(step.ProfileTable().c_str(), stderr);
  }

 private:
  RunName name_;
  double warm_, seconds_;
  CompileOptions options_;
};

}  // namespace coracle
