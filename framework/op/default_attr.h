#pragma once
// Which attrs of an op a listing may leave out.

#include <coracle/framework/ir/op.h>
#include <coracle/framework/op/op_registry.h>

namespace coracle {

// True for an attr that has the default value its op declares, and for one that no op declares and
// only chooses an implementation (use_cudnn and the like).
bool IsDefaultAttr(const OpRegistry& ops, const OpDesc& op, const NamedAttr& attr);

}  // namespace coracle
