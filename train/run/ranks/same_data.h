#pragma once
// Checks that the ranks of a job read the same data and snapshots.

#include <coracle/communication/communicator.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/run/snapshot/snapshot.h>

#include <string>

namespace coracle::inline internal {

// Compares the description of the source, its number of rows and a sample of them. All ranks must
// call it. Throws what Ranks::RequireSame throws; `what` names the data. Does nothing if there is
// only one rank.
void RequireSameData(const Ranks& ranks, const DataSourcePtr& data, const std::string& what);

// A fingerprint of the rows: of all rows if they have at most 256 MiB, else of 1024 rows spread
// over the data. 0 if a row cannot be read.
uint64_t FingerprintOf(const DataSource& data);

// Reads the snapshot at a path that is the same on all ranks, which must call it together. Throws
// what ReadSnapshot throws, and what Ranks::RequireSame throws if a rank finds another snapshot
// or none.
SavedSnapshot ReadSameSnapshot(const Ranks& ranks, const std::string& path);

}  // namespace coracle::inline internal
