#pragma once
// Reserved names and numbers that Paddle's programs agree on.

#include <string>
#include <string_view>

namespace coracle {

inline constexpr std::string_view kEmptyVarName =
    "@EMPTY@";  // "no variable here" in a slot of a gradient op
inline constexpr std::string_view kGradSuffix = "@GRAD";

inline std::string GradName(std::string_view name) {
  return std::string(name) + std::string(kGradSuffix);
}
inline bool IsEmptyName(std::string_view name) { return name.empty() || name == kEmptyVarName; }

// Attrs that every op may carry.
inline constexpr const char* kOpRoleAttr = "op_role";
inline constexpr const char* kOpRoleVarAttr = "op_role_var";
inline constexpr const char* kOpNamescopeAttr = "op_namescope";
inline constexpr const char* kOpCallstackAttr =
    "op_callstack";  // STRINGS; Coracle writes "file:line:column", and a line for the round
inline constexpr const char* kOpDeviceAttr = "op_device";
// STRING on a gradient op: the forward op that it belongs to, see FindForwardOp.
inline constexpr const char* kForwardOpAttr = "forward_op";

// Values of op_role; they combine by |.
enum OpRole : int {
  kForward = 0x0000,
  kBackward = 0x0001,
  kOptimize = 0x0002,
  kRpc = 0x0004,
  kDist = 0x0008,
  kLRSched = 0x0010,
  kLoss = 0x0100,
  kNotSpecified = 0x1000,
};

}  // namespace coracle
