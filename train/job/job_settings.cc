#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/layers/internal/text_hints.h>
#include <coracle/train/job/job_schema.h>
#include <coracle/train/job/job_settings.h>
#include <coracle/train/job/job_text_fields.h>
#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/stubs/strutil.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <span>

namespace coracle::inline internal {
namespace {

namespace pb = google::protobuf;

// A step of a path: "metric[1]".
struct PathStep {
  std::string name;
  std::optional<size_t> index;
};

[[noreturn]] void FailSetting(const std::string& field, const std::string& what) {
  ThrowInvalid(fmt::format("--set={}: {}", PrintableLine(field), what));
}

PathStep StepFrom(const std::string& field, const std::string& text) {
  const size_t bracket = text.find('[');
  PathStep step{text.substr(0, bracket), std::nullopt};
  if (bracket == std::string::npos) return step;
  int64_t index = -1;
  const std::string inner = text.substr(bracket + 1);
  if (!inner.ends_with(']') || !ParseInt64(inner.substr(0, inner.size() - 1), &index) || index < 0)
    FailSetting(field,
                fmt::format("{} is not a field with an index, as in metric[0]", Quote(text)));
  step.index = static_cast<size_t>(index);
  return step;
}

std::vector<PathStep> StepsOf(const std::string& field) {
  std::vector<PathStep> steps;
  for (const std::string& part : Split(field, '.')) steps.push_back(StepFrom(field, part));
  return steps;
}

// The descriptors of the fields of the path. Throws for one that does not exist.
std::vector<const pb::FieldDescriptor*> FieldsOfPath(const SchemaPool& schema,
                                                     const std::string& field) {
  std::vector<const pb::FieldDescriptor*> fields;
  const pb::Descriptor* type = schema.root();
  for (const PathStep& step : StepsOf(field)) {
    if (!type) FailSetting(field, fields.back()->name() + " has a value, not fields");
    const pb::FieldDescriptor* found = type->FindFieldByName(step.name);
    if (!found) {
      const std::string where = fields.empty() ? "a job" : fields.back()->name();
      FailSetting(field, fmt::format("{}: no such field in {}{}", step.name, where,
                                     FieldHint(*type, step.name)));
    }
    if (step.index && !found->is_repeated())
      FailSetting(field, step.name + " is a single field, which takes no index");
    fields.push_back(found);
    type = found->message_type();
  }
  return fields;
}

std::string TypeWord(const pb::FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case pb::FieldDescriptor::CPPTYPE_DOUBLE:
    case pb::FieldDescriptor::CPPTYPE_FLOAT:
      return "a number";
    case pb::FieldDescriptor::CPPTYPE_ENUM: {
      std::vector<std::string> words;
      for (int i = 0; i < field.enum_type()->value_count(); ++i)
        words.push_back(field.enum_type()->value(i)->name());
      return "one of " + Join(words, ", ");
    }
    case pb::FieldDescriptor::CPPTYPE_MESSAGE:
      return "fields in braces, as in \"{ NAME: VALUE }\"";
    case pb::FieldDescriptor::CPPTYPE_STRING:
      return "text";
    default:
      return "a whole number";
  }
}

// The value as a text writes it: quotes a string that has none.
std::string Quoted(const pb::FieldDescriptor& field, const std::string& value) {
  const bool is_text = field.cpp_type() == pb::FieldDescriptor::CPPTYPE_STRING;
  const bool ready = value.find_first_of("\"'") == 0 || (field.is_repeated() && value[0] == '[');
  return is_text && !ready ? '"' + pb::CEscape(value) + '"' : value;
}

// "name: value", or "name value" for a message.
std::string Statement(const PathStep& step, const std::string& value) {
  return step.name + (value.starts_with('{') ? " " : ": ") + value;
}

// Returns the statement of the last step of a path, inside the statements of earlier steps.
std::string NestedStatement(std::span<const PathStep> steps, const std::string& value) {
  std::string text = Statement(steps.back(), value);
  for (size_t i = steps.size() - 1; i-- > 0;) text = steps[i].name + " { " + text + " }";
  return text;
}

class NoErrors : public pb::io::ErrorCollector {
 public:
  void AddError(int, pb::io::ColumnNumber, const std::string&) override {}
};

bool Parses(const SchemaPool& schema, const std::string& text) {
  NoErrors errors;
  pb::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  const pb::LogSilencer silencer;
  const std::unique_ptr<pb::Message> message = schema.New();
  return parser.ParseFromString(text, message.get());
}

// Returns the entries of that name, or only the entry with the index of the step.
std::vector<const JobTextField*> Find(const std::vector<JobTextField>& entries,
                                      const PathStep& step, const std::string& field) {
  std::vector<const JobTextField*> found;
  for (const JobTextField& entry : entries)
    if (entry.name == step.name) found.push_back(&entry);
  if (!step.index) return found;
  if (*step.index >= found.size())
    FailSetting(field, fmt::format("the job gives {} {} times; the index begins at 0", step.name,
                                   found.size()));
  return {found[*step.index]};
}

// Removes the entries, the last first, and the blanks before each.
void Remove(const std::vector<const JobTextField*>& entries, std::string* text) {
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry)
    text->erase((*entry)->begin, (*entry)->end - (*entry)->begin);
}

}  // namespace

JobSetting ParseJobSetting(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    FailSetting(text, "write FIELD=VALUE, as in optimizer.adam.learning_rate=0.01");
  JobSetting setting{text.substr(0, equals), std::string(Trim(text.substr(equals + 1)))};
  const std::shared_ptr<const SchemaPool> schema = CurrentJobSchema();
  const pb::FieldDescriptor& field = *FieldsOfPath(*schema, setting.field).back();
  if (setting.value.empty()) return setting;
  setting.value = Quoted(field, setting.value);
  const std::vector<PathStep> steps = StepsOf(setting.field);
  // A value such as "1 } x: 2" must not give other fields, and "1 # x" not hide those behind it.
  const std::string statement = Statement(steps.back(), setting.value);
  const std::vector<JobTextField> alone = EntriesOf(statement);
  if (alone.size() != 1 || alone[0].end != statement.size() ||
      !Parses(*schema, NestedStatement(steps, setting.value)))
    FailSetting(text, fmt::format("{} takes {}", field.name(), TypeWord(field)));
  return setting;
}

std::string WithJobSetting(std::string_view text, const JobSetting& setting) {
  const std::vector<PathStep> steps = StepsOf(setting.field);
  const std::vector<JobTextField> root = EntriesOf(text);
  const std::vector<JobTextField>* entries = &root;
  std::string changed(text);
  size_t inside = std::string::npos;  // the place for new fields; npos: the end of the text
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::vector<const JobTextField*> found = Find(*entries, steps[i], setting.field);
    if (found.empty()) {
      if (setting.value.empty()) return changed;
      const std::string added = NestedStatement(std::span(steps).subspan(i), setting.value);
      if (inside != std::string::npos) return changed.insert(inside, " " + added + " ");
      return changed + (text.empty() || text.ends_with('\n') ? "" : "\n") + added + "\n";
    }
    if (i + 1 == steps.size()) {
      Remove(found, &changed);
      if (setting.value.empty()) return changed;
      return changed.insert(found[0]->begin, Statement(steps[i], setting.value));
    }
    if (found.size() > 1)
      FailSetting(setting.field, fmt::format("the job gives {0} {1} times; name one: {0}[0]",
                                             steps[i].name, found.size()));
    if (!found[0]->message)
      FailSetting(setting.field, steps[i].name + " is written as a list; change it in the text");
    entries = &found[0]->entries;
    inside = found[0]->Inside();
  }
  return changed;
}

JobConfig ReadJobWith(const std::string& path, const std::vector<std::string>& settings) {
  JobConfig job = ReadJob(path);
  if (settings.empty()) return job;
  std::string text = job.text;
  for (const std::string& setting : settings) text = WithJobSetting(text, ParseJobSetting(setting));
  JobConfig changed = ParseJobText(text, job.source + " with --set", job.directory);
  changed.settings = settings;
  return changed;
}

}  // namespace coracle::inline internal
