#pragma once
// Turns parsed model text into programs.

#include <coracle/layers/internal/text_parse.h>
#include <coracle/layers/internal/text_schema.h>
#include <coracle/layers/layer.h>

#include <cstdint>
#include <string>
#include <unordered_set>

namespace coracle::inline internal {

inline constexpr uint64_t kMaxModelTextBytes = uint64_t{64} << 20;

std::string TextDirectory(const std::string& path);  // "." if it has none
std::string CanonicalPath(const std::string& path);  // `path` itself if that fails

// Appends the contents of the text for that state to the model. `path` is canonical, or "" if the
// text is not in a file.
void ReadModel(const TextSchema& schema, const OpRegistry& ops, const ModelState& state,
               const TextFile& file, const std::string& path, BuiltModel& model);

// A state with fast look-up of its stages, which may be thousands.
struct StateToMatch {
  explicit StateToMatch(const ModelState& state)
      : train(state.train), level(state.level), stages(state.stages.begin(), state.stages.end()) {}
  bool train;
  int64_t level;
  std::unordered_set<std::string> stages;
};

// Whether the include_if and exclude_if of an entry include it in the programs of that state; sets
// *has_rules if it has any.
bool Includes(const Node& entry, const StateToMatch& state, bool* has_rules);

}  // namespace coracle::inline internal
