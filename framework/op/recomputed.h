#pragma once
// The attr of ops that compute a value a second time (backward/backward.h).

namespace coracle::inline internal {

// STRINGS: the outputs of the original op, slot by slot. Random ops use these names for
// their draws.
inline constexpr const char* kRecomputedFromAttr = "recomputed_from";

}  // namespace coracle::inline internal
