#pragma once
// Runs the command on bytes, and checks its output.

#include <coracle/test/fuzz/sandbox.h>

#include <string_view>

namespace coracle {

// As FuzzCommandLine, FuzzFiles and FuzzJob of targets.h. Throw std::logic_error for a defect.
CommandResult RunFuzzedCommandLine(std::string_view bytes);
CommandResult RunOnFuzzedFile(std::string_view bytes);
CommandResult RunFuzzedJob(std::string_view bytes);

}  // namespace coracle
