#pragma once
// Known op types of Paddle that Coracle refuses: they need other processes, other devices, or the
// process that saved the program, so no kernel could do their work here. Attrs that it refuses.

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

// An attr that changes what an op of Paddle computes, and that the op does not have here. An op may
// hold it with the value that changes nothing.
struct RefusedAttr {
  std::string_view type, attr;
  double neutral;  // 0 and 1 for booleans
};
const RefusedAttr* FindRefusedAttr(std::string_view type, std::string_view attr);  // or nullptr

// The types that this build leaves out (CORACLE_OPS_FROM); the text must stay. Called
// before ops are registered.
void SetLeftOutOps(std::span<const std::string_view> types);
bool IsLeftOutOp(std::string_view type);

// For messages about a type that a registry lacks: "op type 'send' is refused: needs other
// processes (parameter server)", "unknown op type 'clipp'; did you mean clip?", or that the build
// leaves it out. Suggests only names from `known`.
std::string DescribeMissingOp(std::string_view type, const std::vector<std::string>& known = {});

}  // namespace coracle::inline internal
