#pragma once
// Which dimensions are 1 in every run. Internal to passes/.

#include <coracle/passes/pass.h>
#include <coracle/passes/value_flow.h>

#include <string>

namespace coracle::inline internal {

// Whether the ops of the root block show that this dimension of a variable is 1, whatever is fed.
// The declared shape does not count, because a feed may have another one. `axis` is not negative.
bool IsCertainlyOne(const BlockDesc& block, const PassContext& context, const ValueFlow& flow,
                    const std::string& var, int axis);

}  // namespace coracle::inline internal
