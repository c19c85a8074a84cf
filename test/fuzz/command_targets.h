#pragma once
// What the targets that run the command make of bytes, with what the command says.

#include <coracle/test/fuzz/sandbox.h>

#include <string_view>

namespace coracle {

// As FuzzCommandLine, FuzzFiles and FuzzJob of targets.h. Throw std::logic_error for a defect.
CommandResult RunFuzzedCommandLine(std::string_view bytes);
CommandResult RunOnFuzzedFile(std::string_view bytes);
CommandResult RunFuzzedJob(std::string_view bytes);

}  // namespace coracle
