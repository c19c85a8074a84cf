#pragma once
// Programs as protobuf messages, for users who need the messages themselves. Included as
// <coracle/proto.h>; the only public header that needs protobuf.

#include <coracle/framework/ir/program.h>
#include <coracle/proto/framework.pb.h>
#include <coracle/proto/training.pb.h>

namespace coracle::inline internal {

// The message may lack required fields if the program came from a newer format.
proto::ProgramDesc ToProto(const ProgramDesc& program);
// Throws Error like ParseProgram.
ProgramDesc FromProto(const proto::ProgramDesc& message);

}  // namespace coracle::inline internal
