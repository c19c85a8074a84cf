#pragma once
// Reads the op_role of an op. Safe on programs that were not verified, unlike OpDesc::role(),
// which throws for an op_role that is not an integer.

#include <coracle/framework/ir/op.h>

namespace coracle::inline internal {

// The value of op_role; kForward if it is absent or not an integer in the range of int.
int RoleOf(const OpDesc& op);

// Whether the op has one of these roles.
inline bool HasRole(const OpDesc& op, int roles) { return (RoleOf(op) & roles) != 0; }

inline bool IsBackward(const OpDesc& op) { return HasRole(op, kBackward); }
// Part of the update of a training step: an optimizer, or a learning-rate schedule.
inline bool IsUpdate(const OpDesc& op) { return HasRole(op, kOptimize | kLRSched); }
// Neither backward nor update. Includes ops without a role, and those that exchange values.
inline bool IsForward(const OpDesc& op) { return !HasRole(op, kBackward | kOptimize | kLRSched); }
// Whether the role is Forward, perhaps with Loss. Excludes ops that exchange values, and ops whose
// role is given as not specified.
inline bool HasForwardRole(const OpDesc& op) { return (RoleOf(op) & ~kLoss) == kForward; }

}  // namespace coracle::inline internal
