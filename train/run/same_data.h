#pragma once
// Whether the ranks of a job read the same data and snapshots.

#include <coracle/distribute/ranks.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/run/snapshot.h>

#include <string>

namespace coracle {

// Compares what the source says of itself, its rows, and a sample of them. All ranks call it; it
// throws what Ranks::RequireSame throws, `what` names the data. Does nothing on a rank alone.
void RequireSameData(const Ranks& ranks, const DataSourcePtr& data, const std::string& what);

// The snapshot at a path that is the same on all ranks, which call it together. Throws what
// ReadSnapshot throws, and what Ranks::RequireSame throws where a rank finds another one or none.
SavedSnapshot ReadSameSnapshot(const Ranks& ranks, const std::string& path);

}  // namespace coracle
