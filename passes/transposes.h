#pragma once
// Transposes of the root block: what their axes do, and the rewrites in which nothing but
// transposes and products takes part. Internal to passes/.

#include <coracle/passes/pass.h>

#include <cstdint>
#include <vector>

namespace coracle {

using Ints = std::vector<int32_t>;

// Dimension i of Out is dimension axes[i] of X.
bool IsTranspose(const OpDesc& op);
Ints AxesOf(const OpDesc& op);
bool KeepsLod(const OpDesc& op);

bool IsPermutation(const Ints& axes);
bool IsIdentity(const Ints& axes);
Ints Composed(const Ints& first, const Ints& second);  // first `first`, then `second`
Ints Inverse(const Ints& axes);

// Transposes in a row become one, or none. Returns whether there were any; of three the last two
// are left for the next time.
bool JoinTransposes(ProgramDesc& program, const PassContext& context);

// A transposed Y of products that nobody else reads is read as it was before. (X stays: rows of
// several matrices that follow each other are one product with one Y.)
void AbsorbTransposes(ProgramDesc& program, const PassContext& context);

}  // namespace coracle
