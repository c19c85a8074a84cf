#include <coracle/optimizer/optimizer.h>
#include <coracle/optimizer/option_fields.h>
#include <coracle/train/job/appended_training.h>
#include <coracle/train/job/field_reader.h>
#include <coracle/train/job/schedule_text.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

namespace coracle::inline internal {
namespace {

constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();

// The part of a schedule that is being read.
struct Part {
  double rate;  // the optimizer's rate
  std::string held;
  std::optional<PlateauConfig>* plateau;
  std::vector<ScheduleMark>* marks;
  int64_t origin = 0;                 // the update that counts as the part's step 0
  int64_t first = 0, end = kEndless;  // the updates that use its rate

  Part After(int64_t steps) const {
    Part part = *this;
    part.first = std::min(end, steps > end - first ? end : first + steps);
    return part;
  }

  // Adds a mark; `steps` is counted from the origin. Ignores a mark that another part cuts off.
  void Mark(const std::string& place, const std::string& what, int64_t steps,
            const std::string& then = "") const {
    const int64_t step = steps > kEndless - origin ? kEndless : origin + steps;
    if (end != kEndless && (!then.empty() || step >= end)) return;
    marks->push_back({place, what, step, then});
  }
};

LrSchedulePtr ToSchedule(const JobNode& schedule, const Part& part);

LrSchedulePtr ToSequence(const JobNode& sequence, const Part& whole) {
  std::vector<std::pair<int64_t, LrSchedulePtr>> parts;
  const int count = sequence.Count("part");
  for (int i = 0; i < count; ++i) {
    const JobNode node = sequence.Child("part", i);
    const auto first = node.Get<int64_t>("first");
    Part part = whole.After(first);
    part.origin = part.first;
    if (i + 1 < count)
      part.end = whole.After(sequence.Child("part", i + 1).Get<int64_t>("first")).first;
    node.Need("part", {"schedule"});
    parts.emplace_back(first, ToSchedule(node.Child("schedule"), part));
  }
  return Located(sequence, [&] { return SequenceRate(parts); });
}

PlateauConfig ToPlateau(const JobNode& plateau, double rate) {
  const PlateauConfig config =
      ReadOptions(plateau, PlateauFields(), "learning-rate schedule plateau");
  Located(plateau, [&] { return PlateauRate(rate, config.options).rate(); });
  return config;
}

LrSchedulePtr ToHeldRate(const JobNode& plateau, const Part& part) {
  if (*part.plateau) {
    plateau.FailHere("plateau: the schedule already has one, and can have only one");
  }
  *part.plateau = ToPlateau(plateau, part.rate);
  (*part.plateau)->held = part.held;
  (*part.plateau)->first = part.first;
  (*part.plateau)->end = part.end;
  return HeldRate(part.held, part.rate);
}

// The value of a field in the setting, or its default.
template <class T>
T ValueOf(const Setting& setting, const FieldTable& fields, const std::string& name) {
  const Attribute* given = setting.Find(name);
  const FieldSpec* field = fields.Find(name);
  if (!field) return given ? AttributeAs<T>(*given) : T();
  Attribute value;
  if (given && ConvertAttribute(*given, field->member.type, &value)) return AttributeAs<T>(value);
  return field->default_value ? AttributeAs<T>(*field->default_value) : T();
}

// Adds the steps at which the schedule changes. The arguments of the kind have been checked.
void AddMarks(const JobNode& at, const Setting& setting, const FieldTable& fields,
              const Part& part) {
  for (const ScheduleEvent& event : LrScheduleEvents(setting.kind)) {
    if (!event.unless.empty() && ValueOf<bool>(setting, fields, event.unless)) continue;
    const auto steps = ValueOf<std::vector<int64_t>>(setting, fields, event.field);
    for (size_t i = 0; i < steps.size(); ++i) {
      part.Mark(at.Place(event.field, static_cast<int>(i)), event.what, steps[i], event.then);
    }
  }
}

// Makes the schedule of the given kind, without warm-up.
LrSchedulePtr ToKind(const JobNode& schedule, const Part& part) {
  if (schedule.Kind().empty() && schedule.Has("warmup")) return FixedRate(part.rate);
  const std::string kind = schedule.RequireKind("schedule");
  const JobNode node = schedule.Child(kind);
  if (kind == "sequence") return ToSequence(node, part);
  if (kind == "plateau") return ToHeldRate(node, part);
  const KindsWithFields kinds = LrScheduleFields();
  Setting setting = KindSetting(node, kind, kinds);
  const FieldTable* fields = FieldsOfKind(kinds, setting.kind);
  for (const FieldSpec& field : fields ? fields->fields() : std::vector<FieldSpec>()) {
    if (field.stand_in == "learning_rate" && !setting.Find(field.name))
      setting.attrs.push_back({field.name, part.rate});
  }
  LrSchedulePtr made = Located(node, [&] { return MakeLrSchedule(setting); });
  AddMarks(node, setting, *fields, part);
  return made;
}

LrSchedulePtr ToSchedule(const JobNode& schedule, const Part& part) {
  if (!schedule.Has("warmup")) return ToKind(schedule, part);
  const JobNode node = schedule.Child("warmup");
  node.Need("warmup", {"steps"});
  WarmupOptions warmup = ReadOptions(node, WarmupFields());
  if (!node.Has("end")) warmup.end = part.rate;
  const LrSchedulePtr kind = ToKind(schedule, part.After(warmup.steps));
  part.Mark(node.Place("steps"), "the warm-up ends", warmup.steps);
  return Located(node, [&] { return WarmupRate(kind, warmup.steps, warmup.start, warmup.end); });
}

// The values of the `attr` messages.
AttrList AttrsOf(const JobNode& at) {
  AttrList attrs;
  for (int i = 0; i < at.Count("attr"); ++i) {
    const JobNode attr = at.Child("attr", i);
    attr.Need("attr", {"name"});
    const std::string value = attr.Kind();
    if (value.empty()) attr.FailHere("attr has no value; give it one of f, i, b, s");
    const auto name = attr.Get<std::string>("name");
    for (const NamedAttr& other : attrs)
      if (other.name == name) attr.FailHere(name + " is given twice");
    attrs.push_back({name, attr.Value(value)});
  }
  return attrs;
}

}  // namespace

Fields<WarmupOptions> WarmupFields() {
  using O = WarmupOptions;
  return Fields<O>(
             "A linear rise in the first steps, then the schedule of the other fields (with the "
             "same t).")
      .Add("steps", &O::steps, "number of updates of the rise", kRequired)
      .Add("start", &O::start, "the rate at step 0")
      .Add("end", &O::end, "default: the optimizer's learning_rate", StandIn{"learning_rate"});
}

Fields<PlateauConfig> PlateauFields() {
  const auto options = FieldsOf(PlateauRate::Options());
  return Fields<PlateauConfig>(options.doc())
      .Add("metric", &PlateauConfig::metric, "printed name; default: the loss",
           FieldExample{"metric: \"loss\""})
      .Inline(&PlateauConfig::options, options);
}

void ReadSchedule(const JobNode& schedule, double rate, int index, OptimizerConfig* config) {
  if (schedule.Kind() == "plateau" && !schedule.Has("warmup")) {
    config->plateau = ToPlateau(schedule.Child("plateau"), rate);
    return;
  }
  config->schedule = ToSchedule(schedule, {rate, fmt::format("plateau_rate_{}", index),
                                           &config->plateau, &config->schedule_marks});
}

Setting KindSetting(const JobNode& kind, const std::string& name, const KindsWithFields& kinds) {
  if (name == "custom") {
    kind.Need("custom", {"type"});
    return {kind.Get<std::string>("type"), AttrsOf(kind)};
  }
  const FieldTable* fields = FieldsOfKind(kinds, name);
  if (fields && fields->any()) return {name, AttrsOf(kind)};
  for (const FieldSpec& field : fields ? fields->fields() : std::vector<FieldSpec>())
    if (field.required) kind.Need(name, {field.name.c_str()});
  return kind.Given(name);
}

void ThrowLocated(const Error& error, const JobNode& at) {
  for (const std::string& field : at.FieldNames()) {
    const std::string word = " " + field + " ";
    if (error.message().find(word) == std::string::npos || !at.Has(field)) continue;
    throw error.WithPrefix(at.Place(field));
  }
  throw error.WithPrefix(at.where());
}

}  // namespace coracle::inline internal
