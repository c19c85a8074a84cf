#pragma once
// StopSignal turns signals into requests to stop or to take a snapshot after the current step.
// QuietControlKeys keeps the terminal from showing the keys that send signals.

#include <coracle/train/job/job.h>

namespace coracle::inline internal {

// While a StopSignal lives, SIGINT, SIGTERM and SIGHUP act as the config says. The first signal
// that asks to stop only sets a flag. The second one goes to the handler that the program had
// before, and ends the process if there was none. Only one StopSignal may live at a time.
class StopSignal {
 public:
  explicit StopSignal(const SignalConfig& config = {});
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;
  int signal() const;             // the signal that requested the stop; 0: none
  bool ConsumeSnapshotRequest();  // whether a snapshot was requested since the last call
};

// While a QuietControlKeys lives, the terminal of standard input does not show "^C" for Ctrl-C,
// which would appear in the middle of a bar. The first signal that asks to stop restores the
// terminal, since a second one may end the process. Does nothing without a terminal or in the
// background. Only one QuietControlKeys may live at a time.
class QuietControlKeys {
 public:
  explicit QuietControlKeys(bool wanted);
  ~QuietControlKeys();
  QuietControlKeys(const QuietControlKeys&) = delete;
  QuietControlKeys& operator=(const QuietControlKeys&) = delete;
};

}  // namespace coracle::inline internal
