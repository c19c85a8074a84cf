#pragma once
// Reads learning-rate schedules in job text, with helpers that optimizers share. Internal
// to train/.

#include <coracle/framework/base/error.h>
#include <coracle/framework/ir/fields.h>
#include <coracle/train/job/job.h>
#include <coracle/train/job/job_node.h>

namespace coracle::inline internal {

// Raises the rate linearly before another schedule begins.
struct WarmupOptions {
  int64_t steps = 0;
  double start = 0;
  double end = kNotGiven;
};
Fields<WarmupOptions> WarmupFields();
// The fields of `plateau`.
Fields<PlateauConfig> PlateauFields();

// Sets the schedule and the plateau of `config`. `rate` is the optimizer's rate and `index` its
// number among the job's optimizers.
void ReadSchedule(const JobNode& schedule, double rate, int index, OptimizerConfig* config);

// Reads the kind that is given in `parent`: its fields or, for `custom`, the given type and
// attributes. Throws if a required field is missing.
Setting KindSetting(const JobNode& kind, const std::string& name, const KindsWithFields& kinds);

// Rethrows `error` with the place of the field of `at` that it names, or the place of `at`.
[[noreturn]] void ThrowLocated(const Error& error, const JobNode& at);

// Calls f and adds the place to its errors.
template <class F>
auto Located(const JobNode& at, F f) {
  try {
    return f();
  } catch (const Error& error) {
    ThrowLocated(error, at);
  }
}

}  // namespace coracle::inline internal
