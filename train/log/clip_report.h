#pragma once
// What clips did, as text.

#include <coracle/train/run/trainer.h>

#include <string>
#include <vector>

namespace coracle {

// " clip 3/100 x0.4 error_clip(h) 12/100 x0.25", of those that acted; "" when none did. Many error
// clips are one: " error_clips(5) 12/500 x0.25(h)".
std::string FormatClips(const std::vector<ClipReport>& clips);

}  // namespace coracle
