#include <coracle/clip/clip.h>
#include <coracle/layers/internal/schema_help.h>
#include <coracle/optimizer/optimizers.h>
#include <coracle/optimizer/option_fields.h>
#include <coracle/proto/job.pb.h>
#include <coracle/regularizer/regularizer.h>
#include <coracle/train/job/declared.h>
#include <coracle/train/job/job.h>
#include <coracle/train/job/job_help.h>
#include <coracle/train/job/job_schema.h>
#include <coracle/train/job/schedule_text.h>

#include <map>
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
  const auto& plateau = FieldsOf(PlateauRate::Options());
  Message watched = schema.Add("plateau_schedule", plateau.doc());
  watched.Scalar("metric", Proto::TYPE_STRING, "", "printed name; default: the loss");
  watched.Add(plateau);
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
  Message optimizer = schema.Add("OptimizerConfig",
                                 "How the parameters are updated. Of several, each updates the "
                                 "parameters that its `params` match.");
  optimizer.Nested("gradient_clip", "GradientClipConfig",
                   "of the gradients of parameters that have no clip of their own");
  optimizer.List("params", Proto::TYPE_STRING,
                 "patterns of names: * stands for any characters, ? for one; default: all");
  optimizer.Nested("schedule", "ScheduleConfig", "");
  optimizer.Nested("regularizer", "RegularizerConfig",
                   "for parameters that have none of their own");
  optimizer.List("no_decay", Proto::TYPE_STRING,
                 "patterns of names: no weight decay, neither by `regularizer` nor of adamw, lamb, "
                 "lion and lars_momentum");
  schema.AddKinds(optimizer, "optimizer", OptimizerFields(), {"custom"});
  AddCustomChoice(optimizer);
}

void AddAverages(SchemaWriter& schema) {
  Message average = schema.Add(
      "AverageConfig", "Averages of the parameters, evaluated and deployed in their place.");
  schema.AddKinds(average, "average",
                  {{"ema", FieldsOf(ExponentialMovingAverageOptions())},
                   {"model_average", FieldsOf(ModelAverageOptions())}});
  const auto& lookahead = FieldsOf(LookaheadOptions());
  schema.Add("LookaheadConfig", lookahead.doc()).Add(lookahead);
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
  schema.SetExample("plateau_schedule", "metric", "metric: \"loss\"");
  schema.SetExample("OptimizerConfig", "params", "params: \"*.b_0\"");
  schema.SetExample("OptimizerConfig", "no_decay", "no_decay: \"*.b_0\"");
}

SchemaWriter MakeSchema() {
  SchemaWriter schema = DeclaredJob();
  AddCustom(schema);
  AddClips(schema);
  AddRegularizers(schema);
  AddSchedules(schema);
  AddOptimizers(schema);
  AddAverages(schema);
  const auto& scaling = FieldsOf(GradScalerOptions());
  schema.Add("LossScalingConfig", scaling.doc()).Add(scaling);
  schema.At("MixedPrecisionConfig")
      .Nested("loss_scaling", "LossScalingConfig",
              "default: dynamic scaling with its defaults for FLOAT16 at O1 and O2, else none");
  Message job = schema.At("JobConfig");
  job.NestedList("optimizer", "OptimizerConfig", "default: sgd with its defaults");
  job.Nested("average", "AverageConfig", "");
  job.Nested("lookahead", "LookaheadConfig", "");
  AddExamples(schema);
  return schema;
}

// The fields whose message types are made here, by name: "warmup" has the type WarmupConfig.
std::map<std::string, std::string> MadeFields(const SchemaPool& schema) {
  std::map<std::string, std::string> fields;
  const google::protobuf::FileDescriptor& file = *schema.root()->file();
  const int given = proto::JobConfig::descriptor()->file()->message_type_count();
  for (int i = 0; i < file.message_type_count(); ++i) {
    for (int k = 0; k < file.message_type(i)->field_count(); ++k) {
      const auto* type = file.message_type(i)->field(k)->message_type();
      if (type && type->index() >= given && type->name().ends_with("Config"))
        fields[file.message_type(i)->field(k)->name()] = type->name();
    }
  }
  return fields;
}

TextEntry EntryOfMessage(const SchemaPool& schema, const std::string& message,
                         const std::string& kind, const std::string& name) {
  const auto& type = *schema.root()->file()->FindMessageTypeByName(message);
  TextEntry entry = EntryOf(schema, type, kind, name);
  entry.example = ExampleOf(schema, type);
  return entry;
}

}  // namespace

std::string JobSchema() { return CurrentJobSchema()->Print(); }

std::vector<TextEntry> JobKindEntries(const std::string& name) {
  const std::shared_ptr<const SchemaPool> schema = CurrentJobSchema();
  std::vector<TextEntry> entries;
  for (const auto& [suffix, what] : {std::pair{"_optimizer", "optimizer"},
                                     {"_schedule", "learning-rate schedule"},
                                     {"_clip", "gradient clip"},
                                     {"_regularizer", "regularizer"},
                                     {"_average", "average of parameters"}}) {
    if (schema->root()->file()->FindMessageTypeByName(name + suffix))
      entries.push_back(EntryOfMessage(*schema, name + suffix, what, name));
  }
  const std::map<std::string, std::string> fields = MadeFields(*schema);
  const auto found = fields.find(name);
  if (entries.empty() && found != fields.end())
    entries.push_back(EntryOfMessage(*schema, found->second, "", name));
  return entries;
}

std::string DescribeJobKind(const std::string& name) {
  std::string text;
  for (const TextEntry& entry : JobKindEntries(name)) text += ToText(entry);
  return text;
}

TextEntry JobField(std::string_view path) { return EntryAt(*CurrentJobSchema(), path); }

std::vector<std::string> JobFieldsBelow(std::string_view path) {
  return FieldsBelow(*CurrentJobSchema(), path);
}

std::vector<std::string> JobKindNames() {
  const std::shared_ptr<const SchemaPool> schema = CurrentJobSchema();
  std::vector<std::string> names =
      schema->NamesBefore({"_optimizer", "_schedule", "_clip", "_regularizer", "_average"});
  for (const auto& [name, type] : MadeFields(*schema)) names.push_back(name);
  return names;
}

std::shared_ptr<const SchemaPool> CurrentJobSchema() {
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
