#pragma once
// How long something takes that is done again and again, by one or several threads at a time.

#include <cstdint>
#include <functional>
#include <vector>

namespace coracle {

struct LatencyOptions {
  double seconds = 3;      // so long at least
  int64_t runs = 10;       // so many at least, of all clients
  double max_seconds = 0;  // but no longer than this (one run is always done); 0: 10 * seconds
  double warm_up = 0.5;    // seconds of runs that are not timed
  int64_t warm_up_runs = 2;
};

struct Latencies {
  std::vector<double> seconds;   // of each timed run of all clients, sorted
  double elapsed = 0;            // wall-clock seconds from the first to the end of the last
  double processor_seconds = 0;  // of all threads of the process meanwhile
};

// Each client is a function that does one run; it is called by a thread of its own, with the
// ResourceLimits of the caller (a single client by the caller itself). All clients begin when each
// has warmed up. Throws what a client throws; the others end after their run.
Latencies MeasureLatency(const std::vector<std::function<void()>>& clients,
                         const LatencyOptions& options = {});

// The value that `percent` of the values do not exceed (nearest rank); 0 if there are no values.
double Percentile(std::vector<double> values, double percent);

}  // namespace coracle
