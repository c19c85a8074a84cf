#pragma once
// How a gradient op says that it stands in a sub-block and passes on what arose there to variables
// that are computed around it (backward/outer_path.h).

namespace coracle {

// STRINGS: those variables. A loop that changed one of them would make the gradient wrong.
inline constexpr const char* kOuterPathAttr = "outer_path";
// Of the first gradient op, both STRINGS: the variables from around the block that the targets
// read, and those that the gradients go to. A loop that made the former from the latter would make
// the gradients wrong too: they know nothing of its rounds before.
inline constexpr const char* kOuterReadsAttr = "outer_reads";
inline constexpr const char* kOuterInputsAttr = "outer_inputs";

}  // namespace coracle
