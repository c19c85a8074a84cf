#pragma once
// Learning-rate schedules in job text, and what optimizers and they have in common. Internal to
// train/.

#include <coracle/framework/base/error.h>
#include <coracle/proto/job.pb.h>
#include <coracle/train/job/job_node.h>
#include <coracle/train/job/training.h>

namespace coracle {

// Sets the schedule and the plateau of `config`. `rate` is the optimizer's, `index` its place among
// those of the job.
void TakeSchedule(const proto::ScheduleConfig& schedule, double rate, int index, const JobNode& at,
                  OptimizerConfig* config);

// A registered thing with its attributes.
Setting CustomSetting(const proto::CustomConfig& custom, const JobNode& at);

// Throws `error` again with the place of the field of `message` that it names, or of `at`.
[[noreturn]] void ThrowLocated(const Error& error, const google::protobuf::Message& message,
                               const JobNode& at);

// f(), with the place in front of its errors.
template <class F>
auto Located(const google::protobuf::Message& message, const JobNode& at, F f) {
  try {
    return f();
  } catch (const Error& error) {
    ThrowLocated(error, message, at);
  }
}

}  // namespace coracle
