#pragma once
// How a gradient op says that it stands in a sub-block and passes on what arose there to variables
// that are computed around it (backward/outer_path.h).

namespace coracle {

// STRINGS: those variables. A loop that changed one of them would make the gradient wrong.
inline constexpr const char* kOuterPathAttr = "outer_path";

}  // namespace coracle
