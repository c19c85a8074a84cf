#pragma once
// Remarks: the attrs of IsBookkeepingAttr on ops that passes make. Internal to passes/.

#include <coracle/framework/ir/op.h>

#include <span>
#include <string>

namespace coracle {

// `to`, an op that takes the place of `from`, gets its remarks (origins in addition to its own),
// but not the list of parameters (op_role_var), whose names belong to the slots of `from`.
void CopyRemarks(const OpDesc& from, OpDesc& to);

// `to` has the origins of all of these, too (AddOrigins), of however many.
void AddOriginsOfAll(std::span<const OpDesc* const> from, OpDesc& to);

}  // namespace coracle
