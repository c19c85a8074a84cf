#pragma once
// The built-in learning-rate schedules, with which the registry begins.

#include <coracle/framework/base/registry.h>
#include <coracle/optimizer/optimizer.h>

#include <string>
#include <utility>
#include <vector>

namespace coracle::inline internal {

struct ScheduleKind {
  FieldTable fields;
  LrScheduleMaker make;
  std::vector<ScheduleEvent> events;
};
using ScheduleEntries = Registry<ScheduleKind>::Entries;

// All kinds of schedules.cc and cyclic_schedules.cc.
ScheduleEntries BuiltInSchedules();
ScheduleEntries CyclicSchedules();

inline constexpr char kLearningRate[] = "learning_rate";  // the optimizer's option
inline constexpr char kRateDoc[] = "default: the optimizer's learning_rate";
inline constexpr char kEndDoc[] = "the rate at the end";
inline constexpr char kScheduleEnds[] = "the schedule ends";
inline constexpr char kRateStays[] = "the rate stays";

// Begins the table of a schedule whose options begin with a rate.
template <class Options>
Fields<Options> WithRate(const char* doc) {
  return Fields<Options>(doc).Add("rate", &Options::rate, kRateDoc, StandIn{kLearningRate},
                                  NotNegativeRange());
}

// `make` must check the options itself.
template <class Options>
std::pair<std::string, ScheduleKind> MakeKind(const char* name, const Fields<Options>& fields,
                                              LrSchedulePtr (*make)(const Options& options),
                                              std::vector<ScheduleEvent> events = {}) {
  const std::string who = std::string("learning-rate schedule ") + name;
  LrScheduleMaker maker = [fields, make, who](const Setting& setting) {
    return make(fields.Read(who, setting));
  };
  return {name, {fields, std::move(maker), std::move(events)}};
}

template <class Options>
void CheckSchedule(const char* schedule, const Fields<Options>& fields, const Options& options) {
  fields.Check(std::string("learning-rate schedule ") + schedule, options);
}

}  // namespace coracle::inline internal
