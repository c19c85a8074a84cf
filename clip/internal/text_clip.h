#pragma once
// Checks of gradient clips given in texts.

#include <coracle/clip/clip.h>

namespace coracle::inline internal {

// Like CheckGradientClip, but also throws kInvalidArgument for an attr that the kind does not have:
// in a saved program a later version may have written it, but in a text it is a mistake.
void CheckTextGradientClip(const Setting& clip);

}  // namespace coracle::inline internal
