#pragma once
// What clips did, for whoever looks on.

#include <cstdint>
#include <string>
#include <vector>

namespace coracle {

// Of one gradient clip, or of the error clip of one variable, since the last display.
struct ClipReport {
  enum class Kind { kGradient, kError };
  Kind kind = Kind::kGradient;
  std::string name;   // of a gradient clip its group, parameter or kind; else the variable
  int64_t times = 0;  // it was asked so often: of a gradient clip at each update
  int64_t acted = 0;  // and changed a gradient so often
  double factor = 1;  // by which it multiplied a norm, where it took away the most
  double norm = 0;    // of a clip by norm the largest norm, where it acted, and the limit; else 0
  double limit = 0;
};

// " clip 3/100 x0.4 error_clip(h) 12/100 x0.25", of those that acted; "" when none did. Many error
// clips are one: " error_clips(5) 12/500 x0.25(h)".
std::string FormatClips(const std::vector<ClipReport>& clips);

}  // namespace coracle
