#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/inspect/json.h>
#include <coracle/inspect/op_text.h>
#include <coracle/layers/layer.h>
#include <coracle/layers/text_help.h>
#include <coracle/tools/commands.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::tools {
namespace {

struct LayersFlags {
  bool names = false;
  bool json = false;
};

Fields<LayersFlags> LayersFields() {
  return Fields<LayersFlags>("")
      .Add("names", &LayersFlags::names, "print only the names, one per line")
      .Add("json", &LayersFlags::json, "print JSON");
}

Json JsonOf(const TextField& field) {
  Json json = {{"name", field.name}, {"type", field.type == "{ ... }" ? "message" : field.type}};
  json["repeated"] = field.repeated;
  json["required"] = field.required;
  if (!field.default_value.empty()) json["default"] = field.default_value;
  if (!field.range.empty()) json["range"] = field.range;
  for (const auto& value : field.one_of) json["one_of"].push_back(value.first);
  json["doc"] = field.doc;
  return json;
}

Json JsonOf(const TextEntry& entry) {
  Json json = {{"name", entry.name}, {"kind", entry.kind}, {"doc", entry.doc}};
  if (entry.fields.empty()) return json;
  for (const TextField& field : entry.fields) json["fields"].push_back(JsonOf(field));
  json["example"] = entry.example;
  return json;
}

void PrintJson(const std::vector<TextEntry>& entries) {
  Json json = JsonDocument("layers");
  json["layers"] = Json::array();
  for (const TextEntry& entry : entries) json["layers"].push_back(JsonOf(entry));
  PrintData(JsonText(json));
}

std::string List(const std::vector<TextEntry>& entries) {
  size_t width = 0;
  for (const TextEntry& entry : entries) width = std::max(width, entry.name.size());
  std::string text;
  for (const TextEntry& entry : entries) {
    text += fmt::format("{:<{}}  {:<11}  {}\n", entry.name, width,
                        entry.kind == "layer" ? "" : entry.kind, Brief(entry.doc, BriefWidth()));
  }
  return text + fmt::format("{} names; `coracle layers NAME` describes one\n", entries.size());
}

// The layers with that name. Throws kNotFound if there are none.
std::vector<TextEntry> Find(const std::string& name) {
  std::vector<TextEntry> entries = LayerEntries(name, DefaultOps());
  if (!entries.empty()) return entries;
  if (DefaultOps().Find(name)) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("{} is an op, not a layer: `coracle ops {}` describes it; in model "
                            "text it is layer {{ op {{ {} {{ ... }} }} }}",
                            name, name, name));
  }
  throw Error(ErrorCode::kNotFound,
              fmt::format("there is no layer {}{}", Quote(name), LayerHint(name, DefaultOps())));
}

int RunLayers(const Args& args, const LayersFlags& flags) {
  RequireArgs(args, 0, 1, "at most one layer");
  if (flags.names && flags.json) throw UsageError("give one of --names and --json");
  const std::vector<TextEntry> entries = args.empty() ? LayerEntries(DefaultOps()) : Find(args[0]);
  if (flags.json) {
    PrintJson(entries);
  } else if (flags.names) {
    for (const TextEntry& entry : entries) Print(entry.name + "\n");
  } else if (args.empty()) {
    Print(List(entries));
  } else {
    Print(DescribeLayer(args[0], DefaultOps()));
  }
  return 0;
}

}  // namespace

Command LayersCommand() {
  return MakeCommand(
      {"layers", "lists the layers of model text, or describes the fields of one, with an example",
       "layers [NAME] [--names] [--json]",
       "  coracle layers\n  coracle layers conv2d\n"
       "  coracle layers --names --op_library=./my_ops.so\n"},
      LayersFields(), RunLayers);
}

}  // namespace coracle::tools
