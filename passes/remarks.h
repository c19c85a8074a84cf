#pragma once
// Copies remarks (the attrs of IsBookkeepingAttr) to ops that passes make. Internal to passes/.

#include <coracle/framework/ir/op.h>

#include <span>
#include <string>

namespace coracle::inline internal {

// Copies the remarks of `from` to its replacement `to`, except those that speak of the slots of
// `from`: op_role_var, and the part of a training step. Adds the origins of `from` to `to`.
void CopyRemarks(const OpDesc& from, OpDesc& to);

// Adds the origins of all `from` to `to` (AddOrigins); fast for any number of ops.
void AddOriginsOfAll(std::span<const OpDesc* const> from, OpDesc& to);

}  // namespace coracle::inline internal
