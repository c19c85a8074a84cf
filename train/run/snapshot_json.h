#pragma once
// A snapshot as JSON: what `coracle snapshot --json` prints. docs/json.md describes each field.

#include <coracle/train/run/snapshot.h>

#include <string>

namespace coracle {

// The state of the run as its manifest has it, and the variables with their norms.
std::string SnapshotJson(const SavedSnapshot& snapshot);

}  // namespace coracle
