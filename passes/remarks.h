#pragma once
// Attrs that every op may carry and that do not affect what it computes. Internal to passes/.

#include <coracle/framework/ir/op.h>

#include <span>
#include <string>

namespace coracle {

// Role, name scope, stack, device, origins, and the links to parameters and to the forward op.
bool IsRemark(const std::string& attr);

// `to`, an op that takes the place of `from`, gets its remarks (origins in addition to its own),
// but not the list of parameters (op_role_var), whose names belong to the slots of `from`.
void CopyRemarks(const OpDesc& from, OpDesc& to);

// `to` has the origins of all of these, too (AddOrigins), of however many.
void AddOriginsOfAll(std::span<const OpDesc* const> from, OpDesc& to);

}  // namespace coracle
