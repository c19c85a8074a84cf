#pragma once
// Model text that is parsed, as programs.

#include <coracle/layers/internal/text_parse.h>
#include <coracle/layers/internal/text_schema.h>
#include <coracle/layers/layer.h>

#include <cstdint>
#include <string>
#include <unordered_set>

namespace coracle {

inline constexpr uint64_t kMaxModelTextBytes = uint64_t{64} << 20;

std::string DirectoryOf(const std::string& path);    // "." without one
std::string CanonicalPath(const std::string& path);  // itself where it cannot be worked out

// Appends to the model what the text says for that state. `path`, a canonical one, is "" for a text
// that is no file.
void ReadModel(const TextSchema& schema, const OpRegistry& ops, const ModelState& state,
               const TextFile& file, const std::string& path, BuiltModel& model);

// A state whose stages rules look up; it may have thousands.
struct StateToMatch {
  explicit StateToMatch(const ModelState& state)
      : train(state.train), level(state.level), stages(state.stages.begin(), state.stages.end()) {}
  bool train;
  int64_t level;
  std::unordered_set<std::string> stages;
};

// Whether the include_if and exclude_if of an entry include it in the programs of that state; sets
// *has_rules where it has any.
bool Includes(const Node& entry, const StateToMatch& state, bool* has_rules);

}  // namespace coracle
