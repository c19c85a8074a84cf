#pragma once
// Prepares programs for Paddle and for tools that read its format (Netron): removes everything that
// only Coracle has.

#include <coracle/framework/ir/program.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace coracle::inline internal {

// A removed part of a program that Paddle's format cannot express.
struct LeftOut {
  std::string what;             // "error clip", "random seed of the program", ...
  std::vector<std::string> of;  // the variables, or types of ops, that had it; each once
  // Whether its loss matters later: if gradients, a training step or random numbers are made from
  // the program after the removal, they differ. The results of the program's existing ops do not
  // change in any case.
  bool matters = true;
};

// Removes everything that Paddle's framework.proto does not declare: the settings of variables
// (clips, regularizers, initializers, learning rates, places in the text), the program's random
// seed, fields of other extensions, and the attrs that only Coracle reads (forward_op,
// training_stage and the like). Moves the version to its place in Paddle since 2.0. Keeps
// variables, ops, their other attrs, and fields of Paddle that Coracle does not know. Returns what
// it removed, each kind once. Linear in the size of the program.
std::vector<LeftOut> KeepPaddleFields(ProgramDesc& program);

// The op types of the program that Coracle has and Paddle lacks, with the number of their ops, in
// the order of the first op. "clip_by_norm with an axis" and "clip_by_norm with MaxNorm" count as
// types, because Paddle's op has neither. Does not check whether a version of Paddle has any other
// type and its gradient.
std::vector<std::pair<std::string, int64_t>> OpsUnknownToPaddle(const ProgramDesc& program);

}  // namespace coracle::inline internal
