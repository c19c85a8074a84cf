#pragma once
// The state of a run as its manifest and `coracle snapshot --json` have it. No public header.

#include <coracle/inspect/json.h>
#include <coracle/train/run/snapshot.h>

namespace coracle {

// All of it but what has files of its own, with the manifest's own format and version.
Json StateJson(const TrainSnapshot& snapshot);

}  // namespace coracle
