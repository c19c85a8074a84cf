#pragma once
// Programs for Paddle, and for tools that read its format (Netron): without what only Coracle has.

#include <coracle/framework/ir/program.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

// Something that a program had and Paddle's format has no place for.
struct LeftOut {
  std::string what;             // "error clip", "random seed of the program", ...
  std::vector<std::string> of;  // the variables, or types of ops, that had it; each once
  // Whether a gradient, a training step or a draw made from the program is another without it. What
  // ops that the program has already compute is the same in any case.
  bool matters = true;
};

// Removes from the program everything that Paddle's framework.proto does not declare: the settings
// of variables (clips, regularizers, initializers, rates of learning, places in the text), the
// program's random seed, fields of other extensions, and the attrs by which backward finds its way
// (forward_op and the like). The version goes where Paddle has had it since 2.0. Variables, ops,
// their other attrs and fields of Paddle that Coracle does not know stay as they are. Returns what
// was removed, each kind once. Linear in the size of the program.
std::vector<LeftOut> KeepPaddleFields(ProgramDesc& program);

// The op types of the program that Coracle has and Paddle has not, and how many ops are of each, in
// the order of their first op. "clip_by_norm with an axis" and "clip_by_norm with MaxNorm" count as
// types: Paddle's has neither. Whether Paddle, or which version of it, has any other type and its
// gradient is not known here.
std::vector<std::pair<std::string, int64_t>> OpsUnknownToPaddle(const ProgramDesc& program);

}  // namespace coracle
