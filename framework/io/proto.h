#pragma once
// Programs as protobuf messages, for those who want the messages themselves. Included as
// <coracle/proto.h>; the one public header that needs protobuf.

#include <coracle/framework/ir/program.h>
#include <coracle/proto/framework.pb.h>
#include <coracle/proto/training.pb.h>

namespace coracle {

// May lack required fields where the program came from a newer format.
proto::ProgramDesc ToProto(const ProgramDesc& program);
// Throws Error as ParseProgram does.
ProgramDesc FromProto(const proto::ProgramDesc& message);

}  // namespace coracle
