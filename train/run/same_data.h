#pragma once
// Whether the ranks of a job read the same data.

#include <coracle/distribute/ranks.h>
#include <coracle/train/data/data_source.h>

#include <string>

namespace coracle {

// Compares what the source says of itself, its rows, and a sample of them. All ranks call it; it
// throws what Ranks::RequireSame throws, `what` names the data. Does nothing on a rank alone.
void RequireSameData(const Ranks& ranks, const DataSourcePtr& data, const std::string& what);

}  // namespace coracle
