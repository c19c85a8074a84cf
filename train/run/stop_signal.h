#pragma once
// Signals as wishes: to stop at the next good moment, or to take a snapshot; and the terminal that
// they come from.

#include <coracle/train/job/job.h>

namespace coracle {

// While one lives, SIGINT, SIGTERM and SIGHUP do what the config says. The first one that stops
// only sets the flag; a second of that kind ends the process as usual. One at a time.
class StopSignal {
 public:
  explicit StopSignal(const SignalConfig& config = {});
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;
  int signal() const;             // the number of the one that asked to stop, 0 before
  bool ConsumeSnapshotRequest();  // whether a snapshot was asked for since the last call
};

// While one lives, the terminal that standard input is does not show "^C" for Ctrl-C, which would
// stand in the middle of a bar. The first signal of a StopSignal that stops gives the terminal
// back too, since a second one ends the process. One at a time; does nothing without a terminal,
// or in the background.
class QuietControlKeys {
 public:
  explicit QuietControlKeys(bool wanted);
  ~QuietControlKeys();
  QuietControlKeys(const QuietControlKeys&) = delete;
  QuietControlKeys& operator=(const QuietControlKeys&) = delete;
};

}  // namespace coracle
