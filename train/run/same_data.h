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

// A number that tells whether the rows are those that were there before: of all rows, where they
// have at most 256 MiB, else of 1024 rows spread over the data. 0 where a row cannot be read.
uint64_t FingerprintOf(const DataSource& data);

// The snapshot at a path that is the same on all ranks, which call it together. Throws what
// ReadSnapshot throws, and what Ranks::RequireSame throws where a rank finds another one or none.
SavedSnapshot ReadSameSnapshot(const Ranks& ranks, const std::string& path);

}  // namespace coracle
