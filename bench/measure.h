#pragma once
// Code shared by Coracle's own benchmarks of one repeated step.

#include <coracle/bench/timing.h>
#include <coracle/coracle.h>
#include <coracle/framework/base/text.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

// Prints the total time of the ops of each type, the longest first, and then the time of each op.
inline void PrintProfileOf(const PreparedProgram& step) {
  std::map<std::string, OpTime> types;
  double total = 0;
  for (const OpTime& time : step.Profile()) {
    OpTime& type = types[time.op_type];
    ++type.runs;
    type.seconds += time.seconds;
    total += time.seconds;
  }
  std::vector<std::pair<std::string, OpTime>> sorted(types.begin(), types.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  std::fprintf(stderr, "%10s %6s %6s  %s\n", "ms", "%", "ops", "type");
  for (const auto& [type, time] : sorted) {
    std::fprintf(stderr, "%10.3f %6.2f %6llu  %s\n", time.seconds * 1e3, 100 * time.seconds / total,
                 static_cast<unsigned long long>(time.runs), type.c_str());
  }
  std::fprintf(stderr, "\n%s", step.ProfileTable().c_str());
}

// The arguments of all benchmarks of one repeated step: --workload, --threads, --warm and
// --seconds (duration of the runs), --profile, --tune, --kernels=reference, --passes=off (runs no
// passes) or --passes=off,NAME,... (runs all but these). Sets the number of threads; 0 is the
// library's default.
class StepBench {
 public:
  StepBench(const Arguments& arguments, const std::string& workload, double warm, double seconds)
      : name_{"coracle", arguments.Text("workload", workload), arguments.Whole("threads", 1),
              ProcessMiB("VmRSS")},
        warm_(arguments.Real("warm", warm)),
        seconds_(arguments.Real("seconds", seconds)) {
    if (name_.threads > 0) SetNumThreads(name_.threads);
    name_.threads = NumThreads();
    options_.profile = arguments.Text("profile", "") == "true" || arguments.Whole("hottest", 0) > 0;
    options_.tune = arguments.Text("tune", "") == "true";
    if (arguments.Text("precision", "") == "bfloat16") options_.precision = DType::kBFloat16;
    if (arguments.Text("kernels", "") == "reference") options_.kernels = KernelMode::kReference;
    DisablePasses(arguments.Text("passes", ""));
  }

  const std::string& workload() const { return name_.workload; }
  const CompileOptions& options() const { return options_; }

  template <class Step>
  std::vector<double> Time(Step&& step) const {
    return TimeSteps(warm_, seconds_, step);
  }

  // Prints one JSON line; `extra` starts with a comma or is empty. `peak` is the process's peak
  // memory in MiB; by default, the current one.
  void Print(const std::vector<double>& times, const std::string& extra, double peak = 0) const {
    PrintTimes(name_, times, extra, peak);
  }
  void SetKind(const std::string& kind) { name_.kind = kind; }
  void SetWorkload(const std::string& name) { name_.workload = name; }
  void PrintProfile(const PreparedProgram& step) const {
    if (options_.profile) PrintProfileOf(step);
  }

 private:
  void DisablePasses(const std::string& text) {
    if (text.empty()) return;
    std::vector<std::string> names = Split(text, ',');
    if (names[0] != "off") ThrowInvalid("--passes=off or --passes=off,NAME,...");
    names.erase(names.begin());
    options_.optimize = !names.empty();
    options_.disabled_passes = std::move(names);
  }

  RunName name_;
  double warm_, seconds_;
  CompileOptions options_;
};

}  // namespace coracle
