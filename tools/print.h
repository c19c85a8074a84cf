#pragma once
// Standard output, for main.cc; command.h has what commands print with.

#include <coracle/framework/base/error.h>

namespace coracle::tools {

// Whether the error is a failed write to standard output because its reader closed the pipe.
bool IsOfGoneReader(const Error& error);
// Throws if what was printed cannot be written, unless the reader closed the pipe.
void Flush();

}  // namespace coracle::tools
