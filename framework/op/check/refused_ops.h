#pragma once
// Known op types of Paddle that Coracle refuses: they need other processes, other devices, or the
// process that saved the program, so no kernel could do their work here.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace coracle::inline internal {

struct RefusedOp {
  std::string_view type;
  std::string_view reason;  // "needs other processes (parameter server)"
};

// Sorted by type. A registry may still hold an op of such a type (from an op library, say); it is
// then treated like any other op.
std::span<const RefusedOp> RefusedOps();
const RefusedOp* FindRefusedOp(std::string_view type);  // nullptr for all other types

// For messages about a type that a registry lacks: "op type 'send' is refused: needs other
// processes (parameter server)", or "unknown op type 'clipp'; did you mean clip?". Suggests only
// names from `known`.
std::string DescribeMissingOp(std::string_view type, const std::vector<std::string>& known = {});

}  // namespace coracle::inline internal
