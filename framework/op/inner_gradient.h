#pragma once
// Gradients that were taken inside sub-blocks: whether they count on values that other runs of the
// block, or the op that runs it, make from their inputs.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>

#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

namespace coracle {

// Of the first op of such a gradient, both STRINGS: InnerGradient's reads and inputs.
inline constexpr const char* kOuterReadsAttr = "outer_reads";
inline constexpr const char* kOuterInputsAttr = "outer_inputs";

struct InnerGradient {
  const BlockDesc* block = nullptr;  // where it was taken
  // The variables from around the block (and from around those around it), and those that the op
  // running the block gives it, whose values the gradient counts on.
  std::vector<std::string> reads;
  // What it is taken by.
  std::vector<std::string> inputs;
};

// A path from an input that such a gradient leaves out.
struct MissedPath {
  const OpDesc* runner = nullptr;  // the op whose runs of a block make it
  std::string name;                // the variable that it leads through
};

// The first that there is. A branch runs its block once, and leaves out none.
std::optional<MissedPath> FindMissedPath(const InnerGradient& gradient, const OpRegistry& ops);

// One for each gradient noted in the program that has one. Where none is noted, linear in the size
// of the program, else in that for each. Throws what
// ResourceLimits throw when their time is over.
std::vector<MissedPath> FindMissedPaths(const ProgramDesc& program, const OpRegistry& ops);

// The variables that any run of any op of the program may make from `inputs`, these included, as
// far as gradients go: by name, in whatever order the ops stand, for what one round of a loop makes
// the next one reads.
std::unordered_set<std::string> MadeFrom(const ProgramDesc& program, const OpRegistry& ops,
                                         const std::vector<std::string>& inputs);

}  // namespace coracle
