#pragma once
// Signals of the command.

namespace coracle::tools {

// Lets signals that end the process remove temporary files first. Ignores SIGPIPE and SIGXFSZ:
// a write to a closed pipe, or past the largest size of a file, is an error instead. Leaves an
// ignored signal ignored, as nohup's SIGHUP.
void HandleSignals();

}  // namespace coracle::tools
