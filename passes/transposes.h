#pragma once
// Transposes of the root block: their axes, and the rewrites that involve only transposes and
// products. Internal to passes/.

#include <coracle/passes/pass.h>

#include <cstdint>
#include <vector>

namespace coracle::inline internal {

using Ints = std::vector<int32_t>;

// Dimension i of Out is dimension axes[i] of X.
bool IsTranspose(const OpDesc& op);
Ints AxesOf(const OpDesc& op);
bool KeepsLod(const OpDesc& op);

bool IsPermutation(const Ints& axes);
bool IsIdentity(const Ints& axes);
Ints Composed(const Ints& first, const Ints& second);  // first `first`, then `second`
Ints Inverse(const Ints& axes);
// The shape with axis axes[i] as axis i; all unknown if the shape has another rank.
Shape Permuted(const Shape& shape, const Ints& axes);

// Merges or removes consecutive transposes. Returns whether it found any. For three in a row, it
// leaves the last two for the next call.
bool JoinTransposes(ProgramDesc& program, const PassContext& context);

// Exchanges a transpose with the squeeze after it or the unsqueeze before it, so that it meets
// other transposes. Returns whether it found any.
bool ExchangeSqueezes(ProgramDesc& program, const PassContext& context);

// Makes products read an untransposed Y if only they read the transposed one. (X is not changed:
// the consecutive rows of several matrices X form one product with one Y.)
void AbsorbTransposes(ProgramDesc& program, const PassContext& context);

}  // namespace coracle::inline internal
