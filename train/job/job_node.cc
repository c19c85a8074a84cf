#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/job/job_node.h>
#include <fmt/format.h>

namespace coracle::inline internal {

using google::protobuf::FieldDescriptor;

void JobNode::Fail(const std::string& field, const std::string& what, int index) const {
  ThrowInvalid(fmt::format("{}: {} {}", Place(field, index), field, what));
}

void JobNode::FailHere(const std::string& what) const {
  ThrowInvalid(fmt::format("{}: {}", where(), what));
}

std::string JobNode::Kind() const {
  const FieldDescriptor* field = node_.Kind();
  return field ? field->name() : "";
}

std::string JobNode::RequireKind(const char* what) const {
  std::string kind = Kind();
  if (!kind.empty()) return kind;
  const auto& kinds = *node_.type().FindOneofByName("kind");
  std::vector<std::string> known;
  for (int i = 0; i < kinds.field_count(); ++i) known.push_back(kinds.field(i)->name());
  FailHere(fmt::format("{} has no kind; give it one of {}", what, Join(known, ", ")));
}

std::string JobNode::Place(const std::string& field, int index) const {
  const FieldDescriptor* found = node_.type().FindFieldByName(field);
  return found ? node_.Where(*found, index < 0 ? 0 : index) : where();
}

Setting JobNode::Given(const std::string& kind) const {
  Setting setting{kind, {}};
  for (int i = 0; i < node_.type().field_count(); ++i) {
    const FieldDescriptor& field = *node_.type().field(i);
    if (!field.message_type() && node_.Count(field) > 0)
      setting.attrs.push_back({field.name(), node_.Value(field)});
  }
  return setting;
}

void JobNode::CheckRange(const FieldSpec& field, const std::string& who) const {
  const std::string wrong = FieldTable::OutOfRange(field, Value(field.name));
  if (wrong.empty()) return;
  ThrowInvalid(fmt::format("{}: {}{}{} {}", Place(field.name), who, who.empty() ? "" : ": ",
                           field.name, wrong));
}

void JobNode::Need(const std::string& parent, std::initializer_list<const char*> fields) const {
  for (const char* field : fields) {
    if (!Has(field)) FailHere(fmt::format("{} needs {}", parent, field));
  }
}

std::map<std::string, std::string> JobNode::AllPlaces() const {
  std::map<std::string, std::string> places;
  places[""] = node_.file().Where(0, 0);
  Collect("", &places);
  return places;
}

void JobNode::Collect(const std::string& path, std::map<std::string, std::string>* places) const {
  for (int i = 0; i < node_.type().field_count(); ++i) {
    const FieldDescriptor& field = *node_.type().field(i);
    for (int k = 0; k < node_.Count(field); ++k) {
      const std::string name =
          path + field.name() + (field.is_repeated() ? fmt::format("[{}]", k) : "");
      (*places)[name] = node_.Where(field, k);
      if (field.message_type()) JobNode(node_.Child(field, k)).Collect(name + ".", places);
    }
  }
}

}  // namespace coracle::inline internal
