#pragma once
// The contents that model texts and job texts accept, from the declarations alone: for help,
// editors and pages.

#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/operators.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coracle::inline internal {

struct TextField {
  std::string name;
  // "int64", "string", "DType"; "{ ... }" for a field that holds fields.
  std::string type;
  bool repeated = false;
  bool required = false;
  std::string default_value;  // "" if there is none
  std::string range;          // "must be positive"; "": any value of the type
  std::string doc;            // one line
  // If only certain values are accepted, these values with their meanings.
  std::vector<std::pair<std::string, std::string>> one_of;
};

// A thing with fields: a layer, an optimizer, one field of a job.
struct TextEntry {
  std::string kind;  // "layer", "initializer", "entry", "optimizer"; "" for a field
  std::string name;  // "conv2d"; for a field its path: "job.train.csv.file"
  std::string doc;
  TextField field;                // if it was found by a path: the field itself
  std::vector<TextField> fields;  // the fields that it contains
  std::string example;            // lines of a text; "" if none is known
};

// "layer fc: Fully connected ...", a line for each field, the example. Help shortens the example of
// a layer to its inputs and the layer itself.
std::string ToText(const TextEntry& entry);

// The layers of model text, in the order of the schema, then initializers and entries that contain
// entries ("while"), all without fields and examples.
std::vector<TextEntry> LayerEntries(const OpRegistry& ops = DefaultOps());
// The complete entries of that name. The examples are texts that ParseModelText can build.
std::vector<TextEntry> LayerEntries(const std::string& name, const OpRegistry& ops = DefaultOps());
// A text that contains that layer or entry; "" if no valid one is found.
std::string LayerExample(const std::string& name, const OpRegistry& ops = DefaultOps());

// A hint to follow "there is no layer X": the name of X here, the nearest name, or where to look.
std::string LayerHint(const std::string& name, const OpRegistry& ops = DefaultOps());

// The field at a path: "model", "model.data.shape", "model.layer.conv2d.groups". Throws kNotFound,
// suggesting the nearest name.
TextEntry ModelField(std::string_view path, const OpRegistry& ops = DefaultOps());
// All paths one level below `path`: "model.data.name", "model.data.shape". Empty for an
// unknown path.
std::vector<std::string> ModelFieldsBelow(std::string_view path,
                                          const OpRegistry& ops = DefaultOps());

}  // namespace coracle::inline internal
