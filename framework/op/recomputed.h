#pragma once
// How an op says that it computes something a second time (backward/backward.h).

namespace coracle {

// STRINGS: the outputs of the op that computed it first, slot after slot. Random ops draw
// by their names.
inline constexpr const char* kRecomputedFromAttr = "recomputed_from";

}  // namespace coracle
