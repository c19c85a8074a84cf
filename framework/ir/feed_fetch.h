#pragma once
// Feed and fetch ops record the inputs and outputs of a saved program. Internal to Coracle.

#include <coracle/framework/ir/program.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

bool IsFeed(const OpDesc& op);
bool IsFetch(const OpDesc& op);

// The variables that the feed ops of the root block fill (that its fetch ops return), ordered by
// the ops' attr col. Throw kInvalidArgument for an op that does not name exactly one variable.
std::vector<std::string> FeedNames(const ProgramDesc& program);
std::vector<std::string> FetchNames(const ProgramDesc& program);

// Removes the feed and fetch ops, and the variables that hold the lists of feeds and fetches.
void RemoveFeedsAndFetches(ProgramDesc& program);

// Replaces the feed and fetch ops by ops for these variables: feed ops at the beginning, in
// descending order of columns as in Paddle, and fetch ops at the end.
void SetFeedsAndFetches(ProgramDesc& program, const std::vector<std::string>& feeds,
                        const std::vector<std::string>& fetches);

}  // namespace coracle::inline internal
