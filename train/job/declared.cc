#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/proto/job.pb.h>
#include <coracle/train/job/declared.h>
#include <fmt/format.h>

#include <cmath>
#include <string_view>

namespace coracle {

// proto/CMakeLists.txt makes these: a FileDescriptorSet of job.proto, comments included.
namespace proto {
extern const unsigned char kJobFile[];
extern const unsigned long kJobFileBytes;  // NOLINT: as cmake/embed.cmake writes it
}  // namespace proto

namespace {

namespace pb = google::protobuf;

// A bound as a text spells it: 1099511627776, not 1.1e+12.
std::string Number(double value) {
  const bool whole = value == std::floor(value) && std::abs(value) < 1e15;
  return whole ? fmt::format("{}", static_cast<int64_t>(value)) : fmt::format("{:g}", value);
}

std::optional<FieldRange> RangeOf(const pb::FieldOptions& options, bool whole) {
  const auto at_least = options.GetExtension(proto::at_least);
  const auto above = options.GetExtension(proto::above);
  const auto at_most = options.GetExtension(proto::at_most);
  const auto below = options.GetExtension(proto::below);
  if (options.HasExtension(proto::at_most)) {
    return FieldRange{at_least, at_most, false, false,
                      fmt::format("must be in [{}, {}]", Number(at_least), Number(at_most))};
  }
  if (options.HasExtension(proto::below)) {
    return FieldRange{above, below, true, true,
                      fmt::format("must lie in ({}, {})", Number(above), Number(below))};
  }
  if (options.HasExtension(proto::above)) return PositiveRange();
  if (!options.HasExtension(proto::at_least)) return std::nullopt;
  FieldRange range = whole ? RangeFrom(at_least) : NotNegativeRange();
  if (whole) range.text = range.whole_text;
  return range;
}

bool IsWhole(pb::FieldDescriptorProto::Type type) {
  return type != pb::FieldDescriptorProto::TYPE_DOUBLE &&
         type != pb::FieldDescriptorProto::TYPE_FLOAT;
}

// A comment as one line without a full stop at its end.
std::string LineOf(const std::string& comment) {
  std::string text;
  for (const std::string& line : Split(comment, '\n')) {
    const std::string_view words = Trim(line);
    if (!words.empty()) text += (text.empty() ? "" : " ") + std::string(words);
  }
  if (text.ends_with('.')) text.pop_back();
  return text;
}

// The place of that field in the file; with its comment.
pb::SourceCodeInfo::Location* PlaceOf(pb::FileDescriptorProto* file, int message, int field) {
  for (auto& place : *file->mutable_source_code_info()->mutable_location()) {
    if (place.path_size() == 4 && place.path(0) == 4 && place.path(1) == message &&
        place.path(2) == 2 && place.path(3) == field)
      return &place;
  }
  throw InternalError("job.proto was read without its comments");
}

// Takes the options away, which no reader of the schema knows, and writes them as comments.
FieldNote TakeNote(pb::FileDescriptorProto* file, int message, int k) {
  pb::FieldDescriptorProto& field = *file->mutable_message_type(message)->mutable_field(k);
  pb::SourceCodeInfo::Location& place = *PlaceOf(file, message, k);
  const pb::FieldOptions& options = field.options();
  FieldNote note;
  note.doc = LineOf(place.leading_comments());
  note.required = options.GetExtension(proto::needed);
  note.range = RangeOf(options, IsWhole(field.type()));
  note.example = options.GetExtension(proto::example);
  field.clear_options();
  field.clear_json_name();
  const std::string comment = note.Comment();
  place.set_leading_comments(comment.empty() ? "" : " " + comment + "\n");
  return note;
}

void CheckMessage(const pb::Descriptor& type, const JobNode& at, const std::string& name) {
  for (int i = 0; i < type.field_count(); ++i) {
    const pb::FieldDescriptor& field = *type.field(i);
    const std::string& key = field.name();
    if (!at.Has(key)) {
      if (field.options().GetExtension(proto::needed)) at.Need(name, {key.c_str()});
      continue;
    }
    const bool whole = field.cpp_type() != pb::FieldDescriptor::CPPTYPE_DOUBLE &&
                       field.cpp_type() != pb::FieldDescriptor::CPPTYPE_FLOAT;
    const std::optional<FieldRange> range = RangeOf(field.options(), whole);
    const std::string wrong = range ? FieldTable::OutOfRange(*range, at.Value(key)) : "";
    if (!wrong.empty()) at.Fail(key, wrong);
    if (!field.message_type()) continue;
    const int count = field.is_repeated() ? at.Count(key) : 1;
    for (int k = 0; k < count; ++k)
      CheckMessage(*field.message_type(), at.Child(key, field.is_repeated() ? k : -1), key);
  }
}

}  // namespace

SchemaWriter DeclaredJob() {
  pb::FileDescriptorSet set;
  if (!set.ParseFromArray(proto::kJobFile, static_cast<int>(proto::kJobFileBytes)) ||
      set.file_size() != 1)
    throw InternalError("job.proto was not embedded");
  pb::FileDescriptorProto& file = *set.mutable_file(0);
  file.clear_dependency();
  file.clear_extension();
  // A comment behind something goes before it: printed, it would seem to be of the next.
  for (auto& place : *file.mutable_source_code_info()->mutable_location()) {
    if (!place.has_trailing_comments()) continue;
    place.set_leading_comments(place.leading_comments() + place.trailing_comments());
    place.clear_trailing_comments();
  }
  std::vector<std::pair<std::string, FieldNote>> notes;
  for (int i = 0; i < file.message_type_size(); ++i) {
    for (int k = 0; k < file.message_type(i).field_size(); ++k)
      notes.emplace_back(file.message_type(i).field(k).name(), TakeNote(&file, i, k));
  }
  SchemaWriter schema(file, "AttrConfig");
  size_t next = 0;
  for (int i = 0; i < file.message_type_size(); ++i) {
    for (int k = 0; k < file.message_type(i).field_size(); ++k, ++next)
      schema.SetNote(file.message_type(i).name(), notes[next].first, notes[next].second);
  }
  return schema;
}

void CheckDeclared(const JobNode& job) {
  CheckMessage(*proto::JobConfig::descriptor(), job, "job");
}

}  // namespace coracle
