#pragma once
// Optimizers and learning-rate schedules by name, from attributes as a text gives them; and what
// users add. The optimizers that are there are the ops' names and "adamw": "sgd", "momentum",
// "lars_momentum", ...; the schedules are the functions of lr_schedule.h: "step", "noam", ....
// Their attrs are the fields of the options structs. `coracle help NAME` tells them.

#include <coracle/framework/ir/fields.h>
#include <coracle/optimizer/optimizer.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace coracle {

using OptimizerMaker = std::function<std::unique_ptr<Optimizer>(const Setting& setting)>;

// Makes `kind` known to MakeOptimizer, to job text and its schema. Process-wide and thread-safe;
// throws kAlreadyExists for one that is taken.
void RegisterOptimizer(const std::string& kind, FieldTable fields, OptimizerMaker make);
// One whose attrs the maker alone knows.
void RegisterOptimizer(const std::string& kind, OptimizerMaker make);
// One whose options struct is declared as those of optimizers.h are: Options::Makes is its class.
template <class Options>
void RegisterOptimizer(const std::string& kind, const Fields<Options>& fields) {
  RegisterOptimizer(kind, fields, [fields](const Setting& setting) {
    return std::make_unique<typename Options::Makes>(fields.Read(setting.kind, setting));
  });
}

std::vector<std::string> OptimizerKinds();  // sorted
KindsWithFields OptimizerFields();          // in the order of registration
// Throws kInvalidArgument for an unknown kind or attr (naming the nearest known one), an attr of
// another type, and whatever the optimizer's constructor refuses.
std::unique_ptr<Optimizer> MakeOptimizer(const Setting& setting);

// The same for schedules. A field that a text leaves out and whose stand_in is "learning_rate" is
// the optimizer's.
using LrScheduleMaker = std::function<LrSchedulePtr(const Setting& setting)>;

// What a schedule does at the steps that one of its fields gives.
struct ScheduleEvent {
  std::string field;        // a number of steps, or several
  std::string what;         // "the warm-up ends"
  std::string then = "";    // of a schedule's end what follows: "the rate stays"
  std::string unless = "";  // a bool field with which nothing happens there
};

void RegisterLrSchedule(const std::string& kind, FieldTable fields, LrScheduleMaker make,
                        std::vector<ScheduleEvent> events = {});
void RegisterLrSchedule(const std::string& kind, LrScheduleMaker make);
template <class Options>
void RegisterLrSchedule(const std::string& kind, const Fields<Options>& fields,
                        LrSchedulePtr (*make)(const Options& options)) {
  RegisterLrSchedule(kind, fields, [fields, make](const Setting& setting) {
    return make(fields.Read("learning-rate schedule " + setting.kind, setting));
  });
}
KindsWithFields LrScheduleFields();
std::vector<ScheduleEvent> LrScheduleEvents(const std::string& kind);
LrSchedulePtr MakeLrSchedule(const Setting& setting);

}  // namespace coracle
