#pragma once
// Inputs without a slot: an op may read the old value of its output (Paddle's quantisers do).
// OpDef::KeepsOutputs names such outputs, and OpDef::Inplace names the input slot that Coracle uses
// for the old value.

#include <coracle/framework/op/op_def.h>

#include <functional>
#include <string>

namespace coracle::inline internal {

// Whether the op has such an output but leaves the input slot empty.
bool LacksKeptInput(const OpSpec& spec, const OpDesc& op);

// Puts the variable of each such output into the input slot if the variable has a value before
// the op.
void AddKeptInputs(const OpSpec& spec, OpDesc& op,
                   const std::function<bool(const std::string&)>& has_value);

}  // namespace coracle::inline internal
