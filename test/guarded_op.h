#pragma once
// Runs ops in memory with guarded borders: if a kernel writes beyond a tensor, into another one
// that the executor packs next to it, a test fails.

#include <coracle/framework/op/kernel/interpreter.h>

namespace coracle {

// Runs the block's ops with fast kernels, as Interpret does, and each once more in tensors, scratch
// tensors included, that lie between patterns. The test fails where a kernel changed a pattern or
// an input, or made other bits than Interpret, since it read what was not written. Ops with
// sub-blocks or without a tensor for each variable run only once.
void InterpretGuarded(const BlockDesc& block, const OpRegistry& ops, VarValues& env,
                      const InterpretOptions& options);

}  // namespace coracle
