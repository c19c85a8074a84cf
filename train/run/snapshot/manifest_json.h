#pragma once
// The state of a run as JSON, for its manifest and for `coracle snapshot --json`. Not a
// public header.

#include <coracle/inspect/json.h>
#include <coracle/train/run/snapshot/snapshot.h>

namespace coracle::inline internal {

// The whole state except the parts with their own files, with the manifest's format and version.
Json StateJson(const TrainSnapshot& snapshot);

}  // namespace coracle::inline internal
