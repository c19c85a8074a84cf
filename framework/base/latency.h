#pragma once
// Measures the duration of a repeated action, run by one or several threads at a time.

#include <cstdint>
#include <functional>
#include <vector>

namespace coracle::inline internal {

struct LatencyOptions {
  double seconds = 3;      // minimum duration of the measurement
  int64_t runs = 10;       // minimum number of runs, over all clients
  double max_seconds = 0;  // limit on the duration, but one run is always done; 0: 10 * seconds
  double warm_up = 0.5;    // seconds of runs that are not timed
  int64_t warm_up_runs = 2;
};

struct Latencies {
  std::vector<double> seconds;  // of each timed run of all clients, sorted
  double elapsed = 0;  // wall-clock seconds from the start of the first run to the end of the last
  double processor_seconds = 0;  // used meanwhile by all threads of the process
};

// Each client is a function that does one run. A thread of its own calls it, with the
// ResourceLimits of the caller (a single client runs on the caller's thread). The measurement
// starts when all clients have warmed up. Rethrows an exception of a client; the other clients stop
// after their current run.
Latencies MeasureLatency(const std::vector<std::function<void()>>& clients,
                         const LatencyOptions& options = {});

// Nearest-rank percentile: the smallest of `values` that `percent` percent of them do not exceed; 0
// for an empty list.
double Percentile(std::vector<double> values, double percent);

}  // namespace coracle::inline internal
