#pragma once
// ShareCoalesced: the memory that variables of a coalesce_tensor share, as ops of the program.

#include <coracle/framework/ir/program.h>

#include <string>
#include <vector>

namespace coracle {

// In Paddle the Outputs of coalesce_tensor are parts of the memory of its FusedOutput: what an op
// writes to one of them is there when another op reads the whole, and the other way round. Here
// every variable has its own memory, so the copies that this takes become ops: parts are joined
// before an op that reads the whole, and the whole is divided before an op that reads a part, where
// the other side was written last, and at the end. `fetches` are read there. Throws
// kInvalidArgument where the order of the writes is not known.
void ShareCoalesced(ProgramDesc& program, const std::vector<std::string>& fetches = {});

}  // namespace coracle
