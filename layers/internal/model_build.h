#pragma once
// A model under construction from its text: what all entries share, and the surroundings of one
// entry. Functions that read the kinds of entries.

#include <coracle/layers/builder.h>
#include <coracle/layers/internal/model_reader.h>
#include <coracle/layers/internal/text_index.h>
#include <coracle/layers/internal/text_parse.h>
#include <coracle/layers/internal/text_schema.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace coracle::inline internal {

// Bounds the size of a model: a short text can repeat and include a lot.
class ModelLimits {
 public:
  static constexpr int64_t kMaxEntries = 100'000;  // counted after repeats and includes
  static constexpr size_t kMaxVars = 500'000;      // in all blocks of the main program

  // Each throws LocatedError at the entry if there are too many. `block` is the current block.
  void CountEntry(const Node& entry);
  void CountVars(const Node& entry, const ProgramDesc& main, int block);

 private:
  int64_t entries_ = 0;
  std::vector<size_t> vars_of_block_;  // at the last count
  size_t vars_ = 0;                    // their sum
};

// Included files, each parsed once.
class IncludedFiles {
 public:
  std::string Canonical(const std::string& path);  // the canonical path
  const TextFile& Parsed(const TextSchema& schema, const std::string& path);

 private:
  std::map<std::string, std::string> canonical_;            // path as written -> canonical
  std::map<std::string, std::unique_ptr<TextFile>> files_;  // by canonical path
};

struct ModelBuild {
  const TextSchema& schema;
  const StateToMatch state;
  BuiltModel& model;
  Builder net;
  ModelLimits limits = {};
  IncludedFiles files = {};
};

// The repeats, includes and bodies that an entry is in.
struct Surroundings {
  std::vector<Index> indices = {};  // counters of the repeats
  // Rounds of repeats and places of includes, for the sites of ops: "i = 2".
  std::vector<std::string> rounds = {};
  std::vector<std::string> open_paths = {};  // canonical, of the files
  int depth = 0;
  bool skipping = false;  // an outer entry is not in the model's state

  // One level deeper. Throws LocatedError at `where` if that is too deep.
  Surroundings Inside(const std::string& where) const;
  // A string of the text with the counters of the repeats.
  std::string Expand(const std::string& text, const std::string& where) const {
    return ExpandIndices(text, indices, where);
  }
  std::string String(const Node& node, const char* field) const {
    return Expand(node.String(field), node.Where(field));
  }
};

// The place of the ops that are appended next.
void SetSite(ModelBuild& build, const Surroundings& around, const std::string& where);

// Variables by name. Each throws LocatedError for a name that is not defined so far.
Variable FindVariable(ModelBuild& build, const std::string& name, const std::string& where);
std::vector<Variable> FindVariables(ModelBuild& build, const Surroundings& around, const Node& node,
                                    const google::protobuf::FieldDescriptor& field);
// The variable that a required field names.
Variable RequireVariable(ModelBuild& build, const Surroundings& around, const Node& node,
                         const char* field);
std::vector<std::string> OutputNames(const Surroundings& around, const Node& node);

// Each reads one entry of that kind.
void ReadData(ModelBuild& build, const Surroundings& around, const Node& node);
void ReadLayer(ModelBuild& build, const Surroundings& around, const Node& node,
               const LayerDef& layer);
void ReadOp(ModelBuild& build, const Surroundings& around, const Node& node);
// "while", "if", "cond", "switch" and "static_rnn".
void ReadControlFlow(ModelBuild& build, const Surroundings& around, const Node& node,
                     const std::string& kind);
// The entries `layer` of a message.
void ReadEntries(ModelBuild& build, const Surroundings& around, const Node& parent);

}  // namespace coracle::inline internal
