#pragma once
// Chooses the variables of a program that become constants when its parameters are frozen. Internal
// to passes/ and executor/.

#include <coracle/framework/tensor/tensor.h>
#include <coracle/passes/pass.h>

#include <unordered_set>

namespace coracle::inline internal {

// Returns, by handle, the values of the root block's persistable variables that no op of any block
// writes and that are not fed. Skips variables for which `scope` does not hold a dense tensor
// without LoD in its own memory (Tensor::version must count every write). A batch_norm with fixed
// statistics writes these back unchanged; its outputs for them become temporaries.
FrozenValues Freeze(ProgramDesc& program, const Scope& scope,
                    const std::unordered_set<std::string>& feeds);

// The memory of a frozen tensor, for overwriting its elements; nullptr if anything else shares the
// tensor. The tensor's version does not change, because no other owner could notice.
void* PlaceOfFrozen(const Tensor& frozen);

// Whether a batch_norm normalises with Mean and Variance, not with the statistics of the batch.
bool HasFixedStatistics(const OpDesc& batch_norm);

}  // namespace coracle::inline internal
