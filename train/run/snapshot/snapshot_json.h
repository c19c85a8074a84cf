#pragma once
// Writes a snapshot as JSON, the output of `coracle snapshot --json`. docs/json.md describes
// each field.

#include <coracle/train/run/snapshot/snapshot.h>

#include <string>

namespace coracle::inline internal {

// The state of the run as in its manifest, and the variables with their norms.
std::string SnapshotJson(const SavedSnapshot& snapshot);

}  // namespace coracle::inline internal
