#pragma once
// ShareCoalesced: makes the shared memory of coalesce_tensor explicit by ops of the program.

#include <coracle/framework/ir/program.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

// In Paddle, the Outputs of coalesce_tensor are parts of the memory of its FusedOutput: an op that
// reads the whole sees what other ops wrote to the parts, and the other way round. Here, each
// variable has its own memory, so this pass inserts copies. If the parts were written last, it
// joins them before an op that reads the whole; if the whole was written last, it divides it before
// an op that reads a part. At the end of the block it updates both. `fetches` are read there.
// Throws kInvalidArgument if the order of the writes is unknown.
void ShareCoalesced(ProgramDesc& program, const std::vector<std::string>& fetches = {});

}  // namespace coracle::inline internal
