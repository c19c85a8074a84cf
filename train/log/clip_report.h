#pragma once
// Reports of gradient clips and error clips as text.

#include <coracle/train/report/report.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

// Returns " clip 3/100 x0.4 error_clip(h) 12/100 x0.25" for the clips that acted, and "" if none
// did. Many error clips are summed up: " error_clips(5) 12/500 x0.25(h)".
std::string FormatClips(const std::vector<ClipReport>& clips);

}  // namespace coracle::inline internal
