#include <coracle/clip/clip.h>
#include <coracle/layers/internal/schema_help.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/regularizer/regularizer.h>
#include <coracle/train/job/job.h>
#include <coracle/train/job/job_fields.h>
#include <coracle/train/job/job_help.h>
#include <coracle/train/job/job_schema.h>
#include <coracle/train/job/optimizer_text.h>
#include <coracle/train/job/schedule_text.h>

#include <mutex>

namespace coracle {
namespace {

using Message = SchemaWriter::Message;
using Proto = SchemaWriter::Proto;

void AddCustom(SchemaWriter& schema) {
  Message attr = schema.Add("AttrConfig", "One of the values.");
  attr.Required("name", Proto::TYPE_STRING, "");
  attr.Choice(attr.Field("f", Proto::TYPE_DOUBLE, false, "", {}));
  attr.Choice(attr.Field("i", Proto::TYPE_INT64, false, "", {}));
  attr.Choice(attr.Field("b", Proto::TYPE_BOOL, false, "", {}));
  attr.Choice(attr.Field("s", Proto::TYPE_STRING, false, "", {}));
  Message custom =
      schema.Add("CustomConfig", "A kind that the program registered under this name.");
  custom.Required("type", Proto::TYPE_STRING, "its name");
  custom.NestedList("attr", "AttrConfig", "");
}

void AddCustomChoice(Message& kinds) { kinds.Choice(kinds.Nested("custom", "CustomConfig", "")); }

void AddClips(SchemaWriter& schema) {
  Message clip = schema.Add("GradientClipConfig", "See docs/gradient_clip.md.");
  // A parameter uses "none" to turn off its optimizer's clip.
  schema.AddKinds(clip, "clip", GradientClipFields(), {"custom", "none"});
  AddCustomChoice(clip);
}

void AddRegularizers(SchemaWriter& schema) {
  Message regularizer = schema.Add("RegularizerConfig", "Acts on parameters before the update.");
  schema.AddKinds(regularizer, "regularizer", RegularizerFields(), {"custom"});
  AddCustomChoice(regularizer);
}

void AddSchedules(SchemaWriter& schema) {
  schema.Add("WarmupConfig", WarmupFields().doc()).Add(WarmupFields());
  Message part = schema.Add("SequencePartConfig", "");
  part.Scalar("first", Proto::TYPE_INT64, "0", "its first step");
  part.Required("schedule", Proto::TYPE_MESSAGE, "", "ScheduleConfig");
  schema
      .Add("sequence_schedule", "Each part applies from its `first` step on and counts from there.")
      .NestedList("part", "SequencePartConfig", "");
  schema.Add("plateau_schedule", PlateauFields().doc()).Add(PlateauFields());
  Message schedule = schema.Add("ScheduleConfig",
                                "The learning rate as a function of t, the number of earlier "
                                "updates. `rate` is the optimizer's learning_rate by default.");
  schedule.Nested("warmup", "WarmupConfig", "");
  schema.AddKinds(schedule, "schedule", LrScheduleFields(), {"sequence", "plateau", "custom"});
  schedule.Choice(schedule.Nested("sequence", "sequence_schedule", ""));
  schedule.Choice(schedule.Nested("plateau", "plateau_schedule", ""));
  AddCustomChoice(schedule);
}

void AddOptimizers(SchemaWriter& schema) {
  Message optimizer = schema.Add("OptimizerConfig", OptimizerConfigFields().doc());
  optimizer.Add(OptimizerConfigFields());
  schema.AddKinds(optimizer, "optimizer", OptimizerFields(), {"custom"});
  AddCustomChoice(optimizer);
}

// Sets examples for fields whose default, or a number in range, would not pass CheckJob.
void AddExamples(SchemaWriter& schema) {
  schema.SetExample("CustomConfig", "type", "type: \"my_kind\"");
  schema.SetExample("CustomConfig", "attr", "type: \"my_kind\" attr { name: \"rate\" f: 0.5 }");
  schema.SetExample("ScheduleConfig", "sequence",
                    "sequence { part { schedule { exponential { gamma: 0.999 } } } "
                    "part { first: 100 schedule { cosine { steps_per_epoch: 50 epochs: 8 } } } }");
  schema.SetExample("SequencePartConfig", "first",
                    "schedule { exponential { gamma: 0.999 } } } part { first: 100 "
                    "schedule { cosine { steps_per_epoch: 50 epochs: 8 } }");
  const std::string steps = "boundary: [1000, 2000] value: [0.1, 0.01, 0.001]";
  schema.SetExample("ScheduleConfig", "piecewise", "piecewise { " + steps + " }");
  schema.SetExample("piecewise_schedule", "boundary", steps);
  schema.SetExample("piecewise_schedule", "value", steps);
  schema.SetExample("warmup_stable_decay_schedule", "steps", "steps: 1000");
}

SchemaWriter MakeSchema() {
  SchemaWriter schema("coracle/job.proto", "coracle.proto", "AttrConfig");
  schema.Add("JobConfig", JobFields().doc()).Add(JobFields());
  AddCustom(schema);
  AddClips(schema);
  AddRegularizers(schema);
  AddSchedules(schema);
  AddOptimizers(schema);
  AddExamples(schema);
  return schema;
}

// A family of kinds: the suffix of their messages, the field that holds one, and the user's word.
struct Family {
  const char *suffix, *holder, *what;
};
constexpr Family kFamilies[] = {{"_optimizer", "job.optimizer", "optimizer"},
                                {"_schedule", "job.optimizer.schedule", "learning-rate schedule"},
                                {"_clip", "job.optimizer.gradient_clip", "gradient clip"},
                                {"_regularizer", "job.optimizer.regularizer", "regularizer"},
                                {"_average", "job.average", "average of parameters"}};

// Fields that help finds by their names alone.
constexpr const char* kNamedFields[] = {"job.optimizer",
                                        "job.optimizer.gradient_clip",
                                        "job.optimizer.regularizer",
                                        "job.optimizer.schedule",
                                        "job.optimizer.schedule.warmup",
                                        "job.optimizer.schedule.sequence.part",
                                        "job.optimizer.custom",
                                        "job.optimizer.custom.attr",
                                        "job.average",
                                        "job.lookahead",
                                        "job.mixed_precision.loss_scaling"};

std::string NameIn(const std::string& path) { return path.substr(path.rfind('.') + 1); }

TextEntry EntryOfKind(const SchemaPool& schema, const std::string& path, const char* what) {
  TextEntry entry = EntryAt(schema, path);
  entry.kind = what;
  entry.name = NameIn(path);
  entry.field = {};
  return entry;
}

}  // namespace

std::string JobSchema() { return CurrentJobSchema()->Print(); }

std::vector<TextEntry> internal::JobKindEntries(const std::string& name) {
  const std::shared_ptr<const SchemaPool> schema = CurrentJobSchema();
  std::vector<TextEntry> entries;
  for (const Family& family : kFamilies) {
    if (schema->root()->file()->FindMessageTypeByName(name + family.suffix))
      entries.push_back(EntryOfKind(*schema, family.holder + ("." + name), family.what));
  }
  for (const char* path : kNamedFields)
    if (entries.empty() && NameIn(path) == name) entries.push_back(EntryOfKind(*schema, path, ""));
  return entries;
}

std::string DescribeJobKind(const std::string& name) {
  std::string text;
  for (const TextEntry& entry : JobKindEntries(name)) text += ToText(entry);
  return text;
}

TextEntry internal::JobField(std::string_view path) { return EntryAt(*CurrentJobSchema(), path); }

std::vector<std::string> internal::JobFieldsBelow(std::string_view path) {
  return FieldsBelow(*CurrentJobSchema(), path);
}

std::vector<std::string> JobKindNames() {
  const std::shared_ptr<const SchemaPool> schema = CurrentJobSchema();
  std::vector<std::string> suffixes;
  for (const Family& family : kFamilies) suffixes.push_back(family.suffix);
  std::vector<std::string> names = schema->NamesBefore(suffixes);
  for (const char* path : kNamedFields) names.push_back(NameIn(path));
  return names;
}

std::shared_ptr<const SchemaPool> internal::CurrentJobSchema() {
  static std::mutex mutex;
  static std::shared_ptr<const SchemaPool> kept;
  static size_t kept_kinds = 0;
  const size_t kinds = GradientClipFields().size() + RegularizerFields().size() +
                       LrScheduleFields().size() + OptimizerFields().size();
  const std::lock_guard lock(mutex);
  if (!kept || kept_kinds != kinds) {
    kept = std::make_shared<const SchemaPool>(MakeSchema(), "JobConfig");
    kept_kinds = kinds;
  }
  return kept;
}

}  // namespace coracle
