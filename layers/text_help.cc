#include <coracle/framework/base/text.h>
#include <coracle/layers/internal/schema_help.h>
#include <coracle/layers/internal/text_hints.h>
#include <coracle/layers/internal/text_schema.h>
#include <coracle/layers/layer.h>
#include <coracle/layers/text_help.h>

#include <algorithm>
#include <utility>

namespace coracle {
namespace {

using google::protobuf::Descriptor;

struct Named {
  const char* kind;
  std::string name;
  const Descriptor* type;
};

// Everything that the help of model text covers: layers, initializers, and entries that are not
// layers ("while"). Raw ops are shown by `coracle ops`.
std::vector<Named> AllNamed(const SchemaPool& pool) {
  std::vector<Named> all;
  const auto& file = *pool.root()->file();
  for (const auto& [suffix, kind] :
       {std::pair<std::string, const char*>{"_layer", "layer"}, {"_initializer", "initializer"}}) {
    for (int i = 0; i < file.message_type_count(); ++i) {
      const std::string& name = file.message_type(i)->name();
      if (name.ends_with(suffix))
        all.push_back({kind, name.substr(0, name.size() - suffix.size()), file.message_type(i)});
    }
  }
  const Descriptor& layer = *file.FindMessageTypeByName("Layer");
  for (int i = 0; i < layer.field_count(); ++i) {
    const Descriptor* type = layer.field(i)->message_type();
    if (layer.field(i)->containing_oneof() && type && type->name() != "Op" &&
        !type->name().ends_with("_layer"))
      all.push_back({"entry", layer.field(i)->name(), type});
  }
  return all;
}

// The inputs of an example and the layer itself, without the layers that make its other inputs.
std::string Shortened(const std::string& example, const std::string& name) {
  std::string text;
  bool begun = false;
  for (const std::string& line : Split(example, '\n')) {
    begun |= line.find(" " + name + " {") != line.npos;
    if (begun || line.starts_with("data {")) text += line + "\n";
  }
  return text;
}

}  // namespace

std::vector<TextEntry> internal::LayerEntries(const OpRegistry& ops) {
  const std::shared_ptr<const TextSchema> schema = CurrentTextSchema(ops);
  std::vector<TextEntry> entries;
  for (const Named& named : AllNamed(schema->pool())) {
    entries.push_back(EntryOf(schema->pool(), *named.type, named.kind, named.name));
    entries.back().fields.clear();
  }
  return entries;
}

std::vector<TextEntry> internal::LayerEntries(const std::string& name, const OpRegistry& ops) {
  const std::shared_ptr<const TextSchema> schema = CurrentTextSchema(ops);
  std::vector<TextEntry> entries;
  for (const Named& named : AllNamed(schema->pool())) {
    if (named.name != name) continue;
    entries.push_back(EntryOf(schema->pool(), *named.type, named.kind, name));
    entries.back().example = LayerExample(name, ops);
  }
  return entries;
}

std::string DescribeLayer(const std::string& name, const OpRegistry& ops) {
  std::string text;
  for (TextEntry& entry : LayerEntries(name, ops)) {
    entry.example = Shortened(entry.example, name);
    text += ToText(entry);
  }
  return text;
}

std::vector<std::string> LayerNames(const OpRegistry& ops) {
  std::vector<std::string> names;
  const std::shared_ptr<const TextSchema> schema = CurrentTextSchema(ops);
  for (const Named& named : AllNamed(schema->pool())) names.push_back(named.name);
  return names;
}

std::string internal::LayerHint(const std::string& name, const OpRegistry& ops) {
  return NameHint(name, LayerNames(ops), "layers");
}

TextEntry internal::ModelField(std::string_view path, const OpRegistry& ops) {
  return EntryAt(CurrentTextSchema(ops)->pool(), path);
}

std::vector<std::string> internal::ModelFieldsBelow(std::string_view path, const OpRegistry& ops) {
  return FieldsBelow(CurrentTextSchema(ops)->pool(), path);
}

}  // namespace coracle
