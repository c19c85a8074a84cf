#pragma once
// Runs Graphviz's program `dot`, if it is installed.

#include <string>

namespace coracle::tools {

// Draws a DOT graph as SVG. Runs the `dot` found in PATH, without a shell, for at most `seconds`
// (0: no limit). Throws kUnimplemented if it is not installed, kDeadlineExceeded after the time
// limit, and kIo with its message if it fails.
std::string SvgOfDot(const std::string& dot, double seconds);

}  // namespace coracle::tools
