#include <coracle/framework/base/required.h>
#include <coracle/optimizer/internal/optimizer_kinds.h>
#include <coracle/optimizer/internal/schedule_kinds.h>
#include <coracle/optimizer/optimizer.h>

namespace coracle {
namespace {

Registry<OptimizerKind>& Optimizers() {
  static Registry<OptimizerKind> all("optimizer", BuiltInOptimizers());
  return all;
}

Registry<ScheduleKind>& LrSchedules() {
  static Registry<ScheduleKind> all("registered learning-rate schedule", BuiltInSchedules());
  return all;
}

template <class Kind>
KindsWithFields FieldsOfAll(const Registry<Kind>& registry) {
  KindsWithFields all;
  for (const auto& [name, kind] : registry.All()) all.emplace_back(name, kind.fields);
  return all;
}

}  // namespace

void RegisterOptimizer(const std::string& kind, FieldTable fields, OptimizerMaker make) {
  RequireFunction(make, fmt::format("optimizer {}: its maker", Quote(kind)));
  Optimizers().Add(kind, {std::move(fields), std::move(make)});
}

void RegisterOptimizer(const std::string& kind, OptimizerMaker make) {
  RegisterOptimizer(kind, FieldTable::Any("Of this program."), std::move(make));
}

KindsWithFields OptimizerFields() { return FieldsOfAll(Optimizers()); }

std::unique_ptr<Optimizer> MakeOptimizer(const Setting& setting) {
  const OptimizerKind kind = Optimizers().Get(setting.kind);
  kind.fields.CheckSetting(setting.kind, setting);
  return kind.make(setting);
}

void RegisterLrSchedule(const std::string& kind, FieldTable fields, LrScheduleMaker make,
                        std::vector<ScheduleEvent> events) {
  RequireFunction(make, fmt::format("learning-rate schedule {}: its maker", Quote(kind)));
  LrSchedules().Add(kind, {std::move(fields), std::move(make), std::move(events)});
}

void RegisterLrSchedule(const std::string& kind, LrScheduleMaker make) {
  RegisterLrSchedule(kind, FieldTable::Any("Of this program."), std::move(make));
}

KindsWithFields LrScheduleFields() { return FieldsOfAll(LrSchedules()); }

std::vector<ScheduleEvent> LrScheduleEvents(const std::string& kind) {
  return LrSchedules().Get(kind).events;
}

LrSchedulePtr MakeLrSchedule(const Setting& setting) {
  const ScheduleKind kind = LrSchedules().Get(setting.kind);
  kind.fields.CheckSetting("learning-rate schedule " + setting.kind, setting);
  return kind.make(setting);
}

}  // namespace coracle
