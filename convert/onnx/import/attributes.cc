#include <coracle/convert/onnx/import/attributes.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

namespace coracle::onnx {

using proto::onnx::AttributeProto;

namespace {

// Models of the first IR versions have no type: the field that is set determines it.
AttributeProto::AttributeType TypeOf(const AttributeProto& attr) {
  if (attr.type() != AttributeProto::UNDEFINED) return attr.type();
  if (attr.has_f()) return AttributeProto::FLOAT;
  if (attr.has_i()) return AttributeProto::INT;
  if (attr.has_s()) return AttributeProto::STRING;
  if (attr.has_t()) return AttributeProto::TENSOR;
  if (attr.has_g()) return AttributeProto::GRAPH;
  if (attr.floats_size() > 0) return AttributeProto::FLOATS;
  if (attr.strings_size() > 0) return AttributeProto::STRINGS;
  if (attr.ints_size() > 0) return AttributeProto::INTS;
  return AttributeProto::UNDEFINED;  // an empty list of any type
}

}  // namespace

Attributes::Attributes(const proto::onnx::NodeProto& node) : node_(node) {
  std::set<std::string> names;
  for (const AttributeProto& attr : node.attribute()) {
    if (!names.insert(attr.name()).second)
      ThrowInvalid(fmt::format("the attribute {} is given twice", Quote(attr.name())));
    if (!attr.ref_attr_name().empty()) {
      ThrowInvalid(
          fmt::format("the attribute {} is that of a function's caller ({}), and the node is in no "
                      "function",
                      Quote(attr.name()), Quote(attr.ref_attr_name())));
    }
  }
}

bool Attributes::Has(const std::string& name) const {
  for (const AttributeProto& attr : node_.attribute()) {
    if (attr.name() == name) return true;
  }
  return false;
}

const AttributeProto* Attributes::Find(const std::string& name,
                                       AttributeProto::AttributeType type) {
  for (const AttributeProto& attr : node_.attribute()) {
    if (attr.name() != name) continue;
    read_.insert(name);
    const AttributeProto::AttributeType given = TypeOf(attr);
    if (given == type || given == AttributeProto::UNDEFINED) return &attr;
    const bool valid = AttributeProto::AttributeType_IsValid(given);
    ThrowInvalid(fmt::format("attribute {} must be {}, got {}", name,
                             AttributeProto::AttributeType_Name(type),
                             valid ? AttributeProto::AttributeType_Name(given) : "?"));
  }
  return nullptr;
}

std::optional<int64_t> Attributes::Int(const std::string& name) {
  const AttributeProto* attr = Find(name, AttributeProto::INT);
  return attr ? std::optional(attr->i()) : std::nullopt;
}

std::optional<float> Attributes::Float(const std::string& name) {
  const AttributeProto* attr = Find(name, AttributeProto::FLOAT);
  return attr ? std::optional(attr->f()) : std::nullopt;
}

std::optional<std::string> Attributes::String(const std::string& name) {
  const AttributeProto* attr = Find(name, AttributeProto::STRING);
  return attr ? std::optional(attr->s()) : std::nullopt;
}

std::optional<std::vector<int64_t>> Attributes::Ints(const std::string& name) {
  const AttributeProto* attr = Find(name, AttributeProto::INTS);
  if (!attr) return std::nullopt;
  return std::vector<int64_t>(attr->ints().begin(), attr->ints().end());
}

std::optional<std::vector<float>> Attributes::Floats(const std::string& name) {
  const AttributeProto* attr = Find(name, AttributeProto::FLOATS);
  if (!attr) return std::nullopt;
  return std::vector<float>(attr->floats().begin(), attr->floats().end());
}

std::optional<std::vector<std::string>> Attributes::Strings(const std::string& name) {
  const AttributeProto* attr = Find(name, AttributeProto::STRINGS);
  if (!attr) return std::nullopt;
  return std::vector<std::string>(attr->strings().begin(), attr->strings().end());
}

const proto::onnx::TensorProto* Attributes::Tensor(const std::string& name) {
  const AttributeProto* attr = Find(name, AttributeProto::TENSOR);
  return attr ? &attr->t() : nullptr;
}

const proto::onnx::GraphProto* Attributes::Graph(const std::string& name) {
  const AttributeProto* attr = Find(name, AttributeProto::GRAPH);
  return attr ? &attr->g() : nullptr;
}

std::vector<std::string> Attributes::Unread() const {
  std::vector<std::string> names;
  for (const AttributeProto& attr : node_.attribute())
    if (!read_.count(attr.name())) names.push_back(attr.name());
  return names;
}

}  // namespace coracle::onnx
