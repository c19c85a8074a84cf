#include <coracle/framework/base/text.h>
#include <coracle/layers/internal/text_hints.h>
#include <coracle/train/job/text_errors.h>
#include <fmt/format.h>

#include <cctype>
#include <optional>

namespace coracle::inline internal {
namespace {

namespace pb = google::protobuf;

// Suffixes of the messages made by job_schema.cc.
constexpr std::string_view kMadeSuffixes[] = {"_optimizer", "_schedule", "_clip", "_regularizer",
                                              "_average"};

// The user's word for a message type: "JobConfig" is the job itself, or a field has this type.
std::string MessageWord(const pb::Descriptor& type) {
  std::string word = type.name();
  if (word == "JobConfig") return "a job";
  for (const std::string_view suffix : kMadeSuffixes)
    if (word.ends_with(suffix)) return word.substr(0, word.size() - suffix.size());
  if (word.ends_with("Config")) word.resize(word.size() - 6);
  std::string snake;
  for (char c : word) {
    if (std::isupper(static_cast<unsigned char>(c)) && !snake.empty()) snake += '_';
    snake += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return snake;
}

void AddEnumerators(const pb::Descriptor& type, const std::string& field,
                    std::vector<std::string>* names) {
  const pb::FieldDescriptor* found = type.FindFieldByName(field);
  for (int i = 0; found && found->enum_type() && i < found->enum_type()->value_count(); ++i)
    names->push_back(found->enum_type()->value(i)->name());
  for (int i = 0; i < type.nested_type_count(); ++i)
    AddEnumerators(*type.nested_type(i), field, names);
}

std::string NoSuchValue(const SchemaPool& schema, const std::string& value,
                        const std::string& field) {
  std::vector<std::string> names;
  const pb::FileDescriptor& file = *schema.root()->file();
  for (int i = 0; i < file.message_type_count(); ++i)
    AddEnumerators(*file.message_type(i), field, &names);
  return fmt::format("{}: no such value of {}{}; known: {}", value, field, DidYouMean(value, names),
                     Join(names, ", "));
}

bool Says(const std::string& message, const char* words) {
  return message.find(words) != std::string::npos;
}

std::string NoSuchField(const SchemaPool& schema, const std::string& message) {
  const pb::Descriptor* type = schema.Find(QuotedIn(message, 0));
  const std::string field = QuotedIn(message, 1);
  if (!type) return TidyMessage(message);
  const bool model_text = type == schema.root() && (field == "data" || field == "layer");
  return fmt::format(
      "{}: no such field in {}{}", field, MessageWord(*type),
      model_text ? "; this is a model text: name it in a job's model" : FieldHint(*type, field));
}

// Rewords a message of protobuf, with the nearest name.
std::string Reword(const SchemaPool& schema, const std::string& message) {
  const std::string first = QuotedIn(message, 0), second = QuotedIn(message, 1);
  if (Says(message, "has no field named")) return NoSuchField(schema, message);
  if (Says(message, "is specified along with field"))
    return fmt::format("give either {} or {}, not both", first, second);
  if (Says(message, "Unknown enumeration value")) return NoSuchValue(schema, first, second);
  if (Says(message, "Non-repeated field")) return first + " is given twice";
  return TidyMessage(message);
}

// The name at the place of the error; "" if it is not known.
std::string NameIn(const std::string& message) {
  if (Says(message, "has no field named")) return QuotedIn(message, 1);
  const bool named = Says(message, "Non-repeated field") || message.starts_with("Field ") ||
                     Says(message, "Unknown enumeration value");
  return named ? QuotedIn(message, 0) : "";
}

// Whether a field of the job is in another message, perhaps since a brace is not closed.
bool IsMisplaced(const SchemaPool& schema, const std::string& message) {
  if (!Says(message, "has no field named")) return false;
  const pb::Descriptor* type = schema.Find(QuotedIn(message, 0));
  return type && IsOfRootAlone(*schema.root(), *type, QuotedIn(message, 1));
}

// The offset of the place, or of `name` before it in the same line: protobuf reports a bad field at
// a place after its name.
size_t OffsetAt(const TextFile& file, int line, int column, const std::string& name) {
  const size_t byte = file.OffsetOf(line, column);
  const size_t named = name.empty() ? std::string::npos : file.text.rfind(name, byte);
  const size_t begin = file.columns.LineBegin(static_cast<size_t>(line));
  return named != std::string::npos && named >= begin ? named : byte;
}

}  // namespace

void TextErrors::AddError(int line, pb::io::ColumnNumber column, const std::string& message) {
  if (++count_ > 20) return;
  const std::string field = NameIn(message);
  const bool known = line >= 0 && static_cast<size_t>(line) < file_.columns.lines();
  const size_t offset = known ? OffsetAt(file_, line, column, field) : 0;
  const bool misplaced = IsMisplaced(schema_, message), ends = message.ends_with("got: ");
  std::optional<OpenBrace> open;
  if (known && (misplaced || ends)) open = OpenBraceBefore(file_.text, offset);
  const std::string brace =
      open ? fmt::format("{} at {}", open->of, file_.WhereOf(open->offset)) : std::string();
  std::string text =
      known ? file_.WhereOf(offset) : fmt::format("{}:{}:{}", file_.source, line + 1, column + 1);
  text += ": ";
  if (misplaced && open)
    text += fmt::format("{}: no such field in {}, but in a job: is the brace of {} closed?", field,
                        open->of, brace);
  else
    text += Reword(schema_, message) + (open ? " The brace of " + brace + " is open" : "");
  if (first_.empty())
    first_ = text;
  else
    rest_ += (rest_.empty() ? "" : "\n") + text;
}

void TextErrors::Throw() const {
  ThrowInvalid(first_.empty() ? file_.source + ": not a job text" : first_, rest_);
}

}  // namespace coracle::inline internal
