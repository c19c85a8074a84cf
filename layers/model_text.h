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

// What a model text is read for. A layer, repeat or data entry may say that it belongs to some
// states only:
//   layer { dropout { ... } include_if { phase: TRAIN } }
//   layer { accuracy { ... } exclude_if { stage: "deploy" } }
// An entry with include_if is in a program when any of these rules holds, one with exclude_if when
// none does (not both). A rule holds when all that it says is so: the phase, min_level <= level <=
// max_level, every `stage` is among the state's, no `not_stage` is.
struct ModelState {
  bool train = true;  // phase TRAIN, else TEST
  std::vector<std::string> stages = {};
  int64_t level = 0;
};

struct BuiltModel {
  std::string name;
  ProgramDesc main;
  ProgramDesc startup;
  std::vector<std::string> inputs;  // the data entries, in order
  bool has_rules = false;           // other states may give other programs
};

// Builds the programs of a model text. Errors say source:line:column and the nearest known name; a
// shape error points at the layer's entry. A ProgramDesc, as text or binary, is taken too (startup
// is then empty). `directory` is where `include` looks.
BuiltModel ParseModelText(std::string_view text, const std::string& source = "model",
                          const std::string& directory = ".", const OpRegistry& ops = DefaultOps(),
                          const ModelState& state = {});
BuiltModel ReadModelText(const std::string& path, const OpRegistry& ops = DefaultOps(),
                         const ModelState& state = {});  // "-": standard input

// The schema of model text as a .proto file, for editors and protoc.
std::string ModelSchema(const OpRegistry& ops = DefaultOps());
// What model text may say of a layer or initializer; "" when there is none of that name.
std::string DescribeLayer(const std::string& name, const OpRegistry& ops = DefaultOps());

}  // namespace coracle
