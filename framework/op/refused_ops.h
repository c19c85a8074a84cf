#pragma once
// Op types of Paddle that are known and refused: they need other processes, other devices, or the
// process that saved the program, so no kernel could do here what they did there.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace coracle {

struct RefusedOp {
  std::string_view type;
  std::string_view reason;  // "needs other processes (parameter server)"
};

// Sorted by type. A registry may still hold an op of one of these types (an op library's, say); it
// is then an op as any other.
std::span<const RefusedOp> RefusedOps();
const RefusedOp* FindRefusedOp(std::string_view type);  // nullptr for all other types

// For messages about a type that a registry lacks: "op type 'send' is refused: needs other
// processes (parameter server)", or "unknown op type 'clipp'; did you mean clip?". Without `known`
// nothing is proposed.
std::string DescribeMissingOp(std::string_view type, const std::vector<std::string>& known = {});

}  // namespace coracle
