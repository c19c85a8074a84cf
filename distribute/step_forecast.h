#pragma once
// What a step takes on many ranks, computed from the times of its ops on one and a model of the
// network.

#include <cstdint>
#include <string>
#include <vector>

namespace coracle {

// A step of one rank, without exchanges. Times are seconds of computation since its beginning.
struct StepTimeline {
  struct Gradient {
    std::string name;
    int64_t bytes = 0;
    double complete = 0;  // behind the last op of backward that uses it
    double needed = 0;    // before the first op behind that reads it
  };
  std::vector<Gradient> gradients;  // in the order in which they are complete
  double seconds = 0;               // of the whole step
};

// A message of n bytes from one rank to another takes latency + n / bandwidth, whatever the others
// do.
struct Network {
  double latency = 0;    // seconds
  double bandwidth = 0;  // bytes a second
};

// The better of a ring, 2 (N - 1) messages of n / N bytes one after the other, and a tree,
// 2 ceil(log2 N) messages of n bytes (Thakur, Rabenseifner and Gropp, Optimization of collective
// communication operations in MPICH, 2005). The time of adding is left out.
double AllReduceSeconds(int64_t bytes, int ranks, const Network& network);

struct StepForecast {
  double seconds = 0;    // of the step
  double exchanges = 0;  // seconds in which the network is busy
  double exposed = 0;    // of these, the ones that ops wait for
};
// The buckets are those of InsertAllReduce. One exchange at a time; it does not slow down ops.
// REQUIRES: ranks > 0.
StepForecast ForecastStep(const StepTimeline& step, int ranks, double bucket_mb,
                          const Network& network);

}  // namespace coracle
