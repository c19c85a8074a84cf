#pragma once
// Checks gradients taken inside sub-blocks: whether they depend on values that other runs of the
// block, or the op that runs it, compute from the gradient's inputs.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

namespace coracle::inline internal {

// Attrs of the first op of such a gradient, both STRINGS: reads and inputs of InnerGradient.
inline constexpr const char* kOuterReadsAttr = "outer_reads";
inline constexpr const char* kOuterInputsAttr = "outer_inputs";

struct InnerGradient {
  const BlockDesc* block = nullptr;  // where the gradient was taken
  // The variables whose values the gradient depends on and that come from enclosing blocks or from
  // the op that runs the block.
  std::vector<std::string> reads;
  // The variables with respect to which the gradient was taken.
  std::vector<std::string> inputs;
};

// A path from an input that such a gradient misses.
struct MissedPath {
  const OpDesc* runner = nullptr;  // the op whose runs of a block create the path
  std::string name;                // a variable on the path
};

// The first missed path, if any. A branch runs its block once, so it cannot cause one.
std::optional<MissedPath> FindMissedPath(const InnerGradient& gradient, const OpRegistry& ops);

// One path for each gradient recorded in the program that misses one. Takes time linear in the
// size of the program, for each recorded gradient. Throws the errors of ResourceLimits if the time
// is over.
std::vector<MissedPath> FindMissedPaths(const ProgramDesc& program, const OpRegistry& ops);

// All variables that any run of any op of the program may compute from `inputs`, including these,
// through differentiable values. Goes by name and ignores the order of ops, since a round of a loop
// reads values of the previous round.
std::unordered_set<std::string> MadeFrom(const ProgramDesc& program, const OpRegistry& ops,
                                         const std::vector<std::string>& inputs);

}  // namespace coracle::inline internal
