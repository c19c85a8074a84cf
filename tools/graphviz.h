#pragma once
// Graphviz's program `dot`, where it is installed.

#include <string>

namespace coracle::tools {

// The drawing of a graph in DOT as SVG. Runs `dot` of the PATH, without a shell, for at most
// `seconds` (0: without limit). Throws kUnimplemented where it is not installed,
// kDeadlineExceeded, and kIo with what it said when it fails.
std::string SvgOfDot(const std::string& dot, double seconds);

}  // namespace coracle::tools
