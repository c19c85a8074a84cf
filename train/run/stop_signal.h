#pragma once
// StopSignal turns signals into requests to stop at the next good moment or to take a snapshot.
// QuietControlKeys silences the terminal that they come from.

#include <coracle/train/job/job.h>

namespace coracle {

// While one lives, SIGINT, SIGTERM and SIGHUP do what the config says. The first one that asks to
// stop only sets the flag. A second of that kind goes to the handler that the program had before,
// and ends the process where it had none. One StopSignal at a time.
class StopSignal {
 public:
  explicit StopSignal(const SignalConfig& config = {});
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;
  int signal() const;             // the number of the signal that asked to stop, 0 before it
  bool ConsumeSnapshotRequest();  // whether a snapshot was asked for since the last call
};

// While one lives, the terminal of standard input does not show "^C" for Ctrl-C, which would appear
// in the middle of a bar. The first signal that asks to stop restores the terminal, since a second
// one may end the process. Does nothing without a terminal, or in the background. One
// QuietControlKeys at a time.
class QuietControlKeys {
 public:
  explicit QuietControlKeys(bool wanted);
  ~QuietControlKeys();
  QuietControlKeys(const QuietControlKeys&) = delete;
  QuietControlKeys& operator=(const QuietControlKeys&) = delete;
};

}  // namespace coracle
