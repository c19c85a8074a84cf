#pragma once
// Learning-rate schedules in job text, and what optimizers and they have in common.
// Internal to train/.

#include <coracle/framework/base/error.h>
#include <coracle/framework/ir/fields.h>
#include <coracle/train/job/job.h>
#include <coracle/train/job/job_node.h>

namespace coracle {

// A straight rise before another schedule.
struct WarmupOptions {
  int64_t steps = 0;
  double start = 0;
  double end = kNotGiven;
};
Fields<WarmupOptions> WarmupFields();

// Sets the schedule and the plateau of `config`. `rate` is the optimizer's, `index` its place among
// those of the job.
void ReadSchedule(const JobNode& schedule, double rate, int index, OptimizerConfig* config);

// The kind that is given in `parent`, as the field that names it: its fields, or of `custom` the
// type and attributes that it names. Throws where a required field is absent.
Setting KindSetting(const JobNode& kind, const std::string& name, const KindsWithFields& kinds);

// Throws `error` again with the place of the field of `at` that it names, or of `at`.
[[noreturn]] void ThrowLocated(const Error& error, const JobNode& at);

// f(), with the place in front of its errors.
template <class F>
auto Located(const JobNode& at, F f) {
  try {
    return f();
  } catch (const Error& error) {
    ThrowLocated(error, at);
  }
}

}  // namespace coracle
