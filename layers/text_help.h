#pragma once
// What model texts and job texts may say, from the declarations alone: for help, editors and pages.

#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/operators.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coracle {

struct TextField {
  std::string name;
  std::string type;  // "int64", "string", "DType"; "{ ... }" of a field that holds fields
  bool repeated = false;
  bool required = false;
  std::string default_value;  // "" where there is none
  std::string range;          // "must be positive"; "": any value of the type
  std::string doc;            // one line
  // The values with what they mean, where only these are taken.
  std::vector<std::pair<std::string, std::string>> one_of;
};

// Something with fields: a layer, an optimizer, one field of a job.
struct TextEntry {
  std::string kind;  // "layer", "initializer", "entry", "optimizer"; "" of a field
  std::string name;  // "conv2d"; of a field its path: "job.train.csv.file"
  std::string doc;
  TextField field;                // of a path: what stands there
  std::vector<TextField> fields;  // what it holds
  std::string example;            // lines of a text; "" where none is known
};

// As help shows it: "layer fc: Fully connected ...", a line for each field, the example.
std::string ToText(const TextEntry& entry);

// The layers of model text, in the order of the schema, then initializers and entries that hold
// entries ("while"): without fields and examples.
std::vector<TextEntry> LayerEntries(const OpRegistry& ops = DefaultOps());
// Those of that name, whole. The examples are texts that ParseModelText builds.
std::vector<TextEntry> LayerEntries(const std::string& name, const OpRegistry& ops = DefaultOps());
// A text with that layer or entry in it; "" where none is found that builds.
std::string LayerExample(const std::string& name, const OpRegistry& ops = DefaultOps());

// What to say after "there is no layer X": what X is called here, the nearest name, or where to
// look.
std::string LayerHint(const std::string& name, const OpRegistry& ops = DefaultOps());

// The field at a path: "model", "model.data.shape", "model.layer.conv2d.groups". Throws kNotFound
// with the nearest name.
TextEntry ModelField(std::string_view path, const OpRegistry& ops = DefaultOps());
// All paths below `path` by one name: "model.data.name", "model.data.shape". Empty for an unknown.
std::vector<std::string> ModelFieldsBelow(std::string_view path,
                                          const OpRegistry& ops = DefaultOps());

}  // namespace coracle
