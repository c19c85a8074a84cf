#pragma once
// Feed and fetch ops: how a saved program says what it is fed with and what it yields. Internal to
// Coracle.

#include <coracle/framework/ir/program.h>

#include <string>
#include <vector>

namespace coracle {

// The variables that the feed ops of the root block fill (that its fetch ops yield), by the ops'
// attr col. Throw kInvalidArgument for an op that names several variables, or none.
std::vector<std::string> FeedNames(const ProgramDesc& program);
std::vector<std::string> FetchNames(const ProgramDesc& program);

// Removes these ops, and the variables that hold what is fed and fetched.
void RemoveFeedsAndFetches(ProgramDesc& program);

// Replaces them by ops for these variables: the feed ops stand first, the last column before the
// others, as Paddle puts them; the fetch ops stand last.
void SetFeedsAndFetches(ProgramDesc& program, const std::vector<std::string>& feeds,
                        const std::vector<std::string>& fetches);

}  // namespace coracle
