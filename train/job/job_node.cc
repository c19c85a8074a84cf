#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/layers/internal/text_hints.h>
#include <coracle/train/job/job_node.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

namespace coracle {
namespace {

namespace pb = google::protobuf;

// The word between the last two double quotes after `marker`.
std::string QuotedAfter(const std::string& message, const std::string& marker) {
  size_t begin = message.find(marker + "\"");
  if (begin == std::string::npos) return "";
  begin += marker.size() + 1;
  size_t end = message.find('"', begin);
  return end == std::string::npos ? "" : message.substr(begin, end - begin);
}

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

// Rewords a message of protobuf: lower case, no full stop, with the nearest name.
std::string Reword(const SchemaPool& schema, std::string message) {
  std::string type = QuotedAfter(message, "Message type ");
  std::string field = QuotedAfter(message, "has no field named ");
  if (!type.empty() && !field.empty()) {
    const auto* descriptor = schema.Find(type);
    if (descriptor != nullptr) {
      const bool model_text =
          descriptor->name() == "JobConfig" && (field == "data" || field == "layer");
      return fmt::format("{}: no such field in {}{}", field, MessageWord(*descriptor),
                         model_text ? "; this is a model text: name it in a job's model"
                                    : FieldHint(*descriptor, field));
    }
  }
  const std::string first = QuotedAfter(message, "is specified along with field ");
  if (!first.empty()) {
    return fmt::format("give either {} or {}, not both", QuotedAfter(message, "Field "), first);
  }
  const std::string value = QuotedAfter(message, "Unknown enumeration value of ");
  if (!value.empty()) return NoSuchValue(schema, value, QuotedAfter(message, "for field "));
  const std::string twice = QuotedAfter(message, "Non-repeated field ");
  if (!twice.empty()) return twice + " is given twice";
  if (message.ends_with("got: "))
    message.replace(message.size() - 5, 5, "got the end of the text; is a closing brace missing?");
  while (!message.empty() && message.back() == '.') message.pop_back();
  if (!message.empty())
    message[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(message[0])));
  return message;
}

// Whether a field of the job is in another message, perhaps since a brace is not closed.
bool IsMisplaced(const SchemaPool& schema, const std::string& message) {
  const auto* type = schema.Find(QuotedAfter(message, "Message type "));
  return type && IsOfRootAlone(*schema.root(), *type, QuotedAfter(message, "has no field named "));
}

std::string FieldOf(const std::string& message) {
  for (const char* marker :
       {"has no field named ", "Non-repeated field ", "Field ", "Unknown enumeration value of "}) {
    std::string field = QuotedAfter(message, marker);
    if (!field.empty()) return field;
  }
  return "";
}

}  // namespace

Places::Places(std::string_view text, const std::string& source)
    : text_(text), columns_(text), source_(source) {}

std::string Places::At(int line, int column, const std::string& name) const {
  if (line < 0 || static_cast<size_t>(line) >= columns_.lines())
    return fmt::format("{}:{}:{}", source_, line + 1, column + 1);
  const size_t begin = columns_.LineBegin(static_cast<size_t>(line));
  return fmt::format("{}:{}:{}", source_, line + 1, OffsetAt(line, column, name) - begin + 1);
}

size_t Places::OffsetAt(int line, int column, const std::string& name) const {
  const size_t begin = columns_.LineBegin(static_cast<size_t>(line));
  const size_t byte = columns_.OffsetOf(line, column);
  const size_t named = name.empty() ? std::string::npos : text_.rfind(name, byte);
  return named != std::string::npos && named >= begin ? named : byte;
}

std::string Places::OpenBrace(int line, int column, const std::string& name) const {
  if (line < 0 || static_cast<size_t>(line) >= columns_.lines()) return "";
  const std::string text = text_.substr(0, OffsetAt(line, column, name));
  const std::optional<coracle::OpenBrace> open = OpenBraceBefore(text, text.size());
  if (!open) return "";
  const auto begin = text.begin(), at = begin + static_cast<ptrdiff_t>(open->offset);
  const size_t break_before = text.rfind('\n', open->offset);
  const size_t in_line = break_before == text.npos ? open->offset : open->offset - break_before - 1;
  return fmt::format("{} at {}:{}:{}", open->of, source_, std::count(begin, at, '\n') + 1,
                     in_line + 1);
}

void ErrorList::AddError(int line, pb::io::ColumnNumber column, const std::string& message) {
  if (++count_ > 20) return;
  const std::string field = FieldOf(message);
  const bool misplaced = IsMisplaced(schema_, message), ends = message.ends_with("got: ");
  const std::string open =
      misplaced || ends ? places_.OpenBrace(line, column, field) : std::string();
  std::string text = places_.At(line, column, field) + ": ";
  if (misplaced && !open.empty())
    text += fmt::format("{}: no such field in {}, but in a job: is the brace of {} closed?", field,
                        open.substr(0, open.find(' ')), open);
  else
    text += Reword(schema_, message) + (open.empty() ? "" : " The brace of " + open + " is open");
  if (first_.empty()) {
    first_ = text;
  } else {
    rest_ += (rest_.empty() ? "" : "\n") + text;
  }
}

void ErrorList::Throw() const {
  ThrowInvalid(first_.empty() ? places_.source() + ": not a job text" : first_, rest_);
}

void JobNode::Fail(const std::string& field, const std::string& what, int index) const {
  ThrowInvalid(fmt::format("{}: {} {}", Place(field, index), field, what));
}

void JobNode::FailHere(const std::string& what) const {
  ThrowInvalid(fmt::format("{}: {}", where_, what));
}

JobNode JobNode::Child(const std::string& field, int index) const {
  const pb::FieldDescriptor* found = Find(field);
  const pb::Reflection& reflection = *message_.GetReflection();
  const Message& child = found->is_repeated()
                             ? reflection.GetRepeatedMessage(message_, found, std::max(index, 0))
                             : reflection.GetMessage(message_, found);
  Tree* tree = tree_ ? tree_->GetTreeForNested(found, Index(field, index)) : nullptr;
  return {child, tree, places_, Place(field, index)};
}

std::string JobNode::Kind() const {
  const pb::OneofDescriptor* kind = message_.GetDescriptor()->FindOneofByName("kind");
  const auto* field = message_.GetReflection()->GetOneofFieldDescriptor(message_, kind);
  return field ? field->name() : "";
}

std::string JobNode::RequireKind(const char* what) const {
  std::string kind = Kind();
  if (!kind.empty()) return kind;
  const pb::OneofDescriptor& kinds = *message_.GetDescriptor()->FindOneofByName("kind");
  std::vector<std::string> known;
  for (int i = 0; i < kinds.field_count(); ++i) known.push_back(kinds.field(i)->name());
  FailHere(fmt::format("{} has no kind; give it one of {}", what, Join(known, ", ")));
}

int JobNode::Count(const std::string& field) const {
  return message_.GetReflection()->FieldSize(message_, Find(field));
}

std::vector<std::string> JobNode::FieldNames() const {
  std::vector<std::string> names;
  const pb::Descriptor& type = *message_.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
  return names;
}

Attribute JobNode::Value(const std::string& field) const {
  return FieldValue(message_, *Find(field));
}

Setting JobNode::Given(const std::string& kind) const {
  Setting setting{kind, {}};
  std::vector<const pb::FieldDescriptor*> fields;
  message_.GetReflection()->ListFields(message_, &fields);
  for (const pb::FieldDescriptor* field : fields) {
    if (!field->message_type()) setting.attrs.push_back({field->name(), Value(field->name())});
  }
  return setting;
}

Setting JobNode::Known(const FieldTable& fields) const {
  Setting given = Given("");
  std::erase_if(given.attrs, [&](const NamedAttr& attr) { return !fields.Find(attr.name); });
  return given;
}

void JobNode::CheckGiven(const FieldTable& fields, const std::string& who) const {
  for (const NamedAttr& attr : Known(fields).attrs) {
    const std::string wrong = FieldTable::OutOfRange(*fields.Find(attr.name), attr.value);
    if (!wrong.empty())
      ThrowInvalid(fmt::format("{}: {}: {} {}", Place(attr.name), who, attr.name, wrong));
  }
}

void JobNode::CheckRanges(const FieldTable& fields, const std::string& who,
                          const void* options) const {
  for (const FieldSpec& field : fields.fields()) {
    const std::string wrong = FieldTable::OutOfRange(field, options);
    if (wrong.empty()) continue;
    ThrowInvalid(fmt::format("{}: {}{}{} {}", Place(field.name), who, who.empty() ? "" : ": ",
                             field.name, wrong));
  }
}

bool JobNode::Has(const std::string& field) const {
  const pb::FieldDescriptor& found = *Find(field);
  return found.is_repeated() ? Count(field) > 0
                             : message_.GetReflection()->HasField(message_, &found);
}

void JobNode::Need(const std::string& parent, std::initializer_list<const char*> fields) const {
  for (const char* field : fields) {
    if (!Has(field)) FailHere(fmt::format("{} needs {}", parent, field));
  }
}

std::map<std::string, std::string> JobNode::AllPlaces() const {
  std::map<std::string, std::string> places;
  places[""] = places_.At(0, 0);
  if (tree_) Collect("", &places);
  return places;
}

void JobNode::Collect(const std::string& path, std::map<std::string, std::string>* places) const {
  const pb::Reflection& reflection = *message_.GetReflection();
  std::vector<const pb::FieldDescriptor*> fields;
  reflection.ListFields(message_, &fields);
  for (const pb::FieldDescriptor* field : fields) {
    const int count = field->is_repeated() ? reflection.FieldSize(message_, field) : 1;
    for (int i = 0; i < count; ++i) {
      std::string name = path + field->name();
      if (field->is_repeated()) name += fmt::format("[{}]", i);
      (*places)[name] = Place(field->name(), i);
      if (field->cpp_type() != pb::FieldDescriptor::CPPTYPE_MESSAGE) continue;
      const JobNode node = Child(field->name(), i);
      if (node.tree_) node.Collect(name + ".", places);
    }
  }
}

int JobNode::Index(const std::string& field, int index) const {
  return Find(field)->is_repeated() ? std::max(index, 0) : -1;
}

std::string JobNode::Place(const std::string& field, int index) const {
  const pb::FieldDescriptor* found = Find(field);
  if (!tree_ || !found) return where_;
  const int count = found->is_repeated() ? Count(field) : 1;
  const auto place = LocationOf(*tree_, *found, Index(field, index), count);
  return place.line < 0 ? where_ : places_.At(place.line, place.column);
}

}  // namespace coracle
