#pragma once
// Which variables of a program are constants when its parameters are frozen. Internal to
// passes/ and executor/.

#include <coracle/framework/tensor/tensor.h>
#include <coracle/passes/pass.h>

#include <unordered_set>

namespace coracle {

// The values, by handle, of the root block's persistable variables that no op of any block writes
// and nobody feeds. Left out are variables that `scope` holds as something else than a dense tensor
// without LoD in memory of its own (Tensor::version must tell who writes it). What a batch_norm
// with fixed statistics writes back to them, unchanged, it then writes to temporaries.
FrozenValues Freeze(ProgramDesc& program, const Scope& scope,
                    const std::unordered_set<std::string>& feeds);

// Where other elements may take the place of a frozen tensor's: null if somebody else holds the
// tensor too. Its version stays, since nobody is left who could be surprised.
void* PlaceOfFrozen(const Tensor& frozen);

// Whether a batch_norm normalises with Mean and Variance rather than with those of the batch.
bool HasFixedStatistics(const OpDesc& batch_norm);

}  // namespace coracle
