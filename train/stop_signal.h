#pragma once
// Ctrl-C (SIGINT) and SIGTERM as a wish to stop at the next good moment.

namespace coracle {

// While one lives, the first such signal only sets the flag; the second ends the process as usual.
// One at a time.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;
};

}  // namespace coracle
