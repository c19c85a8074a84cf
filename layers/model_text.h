#pragma once
// Model text: a network as protobuf text whose schema is made from the layer definitions and the op
// registry.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/default_ops.h>

#include <string>
#include <string_view>
#include <vector>

namespace coracle {

struct Model {
  std::string name;
  ProgramDesc main;
  ProgramDesc startup;
  std::vector<std::string> inputs;  // the data entries, in order
};

// Builds the programs of a model text. Errors say source:line:column and the nearest known name; a
// shape error points at the layer's entry. A ProgramDesc, as text or binary, is taken too (startup
// is then empty). `directory` is where `include` looks.
Model ParseModelText(std::string_view text, const std::string& source = "model",
                     const std::string& directory = ".", const OpRegistry& ops = DefaultOps());
Model ReadModelText(const std::string& path,
                    const OpRegistry& ops = DefaultOps());  // "-": standard input

// The schema of model text as a .proto file, for editors and protoc.
std::string ModelSchema(const OpRegistry& ops = DefaultOps());

}  // namespace coracle
