#pragma once
// What a text says of gradient clips.

#include <coracle/clip/clip.h>

namespace coracle {

// As CheckGradientClip. Throws kInvalidArgument for an attr that the kind does not have, too: in a
// saved program a later version may have written it, in a text it is a mistake.
void CheckTextGradientClip(const Setting& clip);

}  // namespace coracle
