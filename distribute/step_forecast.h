#pragma once
// What a step takes on many ranks, computed from its timeline on one and a model of the network.

#include <coracle/communication/communicator.h>

#include <cstdint>
#include <string>
#include <vector>

namespace coracle {

// A step of one rank in which exchanges take no time. Times are seconds since its beginning.
struct StepTimeline {
  struct Part {
    Exchange::Kind kind = Exchange::Kind::kAllReduce;
    std::string name;
    // What the rank gives: of kAllGather its own part, of kReduceScatter what all parts are of.
    int64_t bytes = 0;
    double begins = 0;      // where the step has what is exchanged
    double needed = 0;      // before the first op that reads the result
    bool bucketed = false;  // a dense gradient, which InsertAllReduce exchanges in buckets
  };
  std::vector<Part> exchanges;  // in the order in which they begin
  double seconds = 0;           // of the whole step
};

// A message of n bytes from one rank to another takes latency + n / bandwidth, whatever the others
// do.
struct Network {
  double latency = 0;    // seconds
  double bandwidth = 0;  // bytes a second
};

// With N ranks, after Thakur, Rabenseifner and Gropp, Optimization of collective communication
// operations in MPICH, 2005:
//   kAllReduce      the better of a ring, 2 (N - 1) messages of n / N bytes one after the other,
//                   and a tree, 2 ceil(log2 N) messages of n bytes
//   kAllGather      ceil(log2 N) messages, of (N - 1) n bytes together
//   kReduceScatter  ceil(log2 N) messages, of (N - 1) n / N bytes together
//   kBroadcast      ceil(log2 N) messages of n bytes
//   kBarrier        ceil(log2 N) messages
// The time of adding is left out. REQUIRES: ranks > 0.
double ExchangeSeconds(Exchange::Kind kind, int64_t bytes, int ranks, const Network& network);

struct StepForecast {
  double seconds = 0;    // of the step
  double exchanges = 0;  // seconds in which the network is busy
  double exposed = 0;    // of these, the ones that ops wait for
};
// The buckets are those of InsertAllReduce. One exchange at a time, before which the ranks meet (16
// bytes, as they describe what they are about to exchange); it does not slow down ops.
// REQUIRES: ranks > 0.
StepForecast ForecastStep(const StepTimeline& step, int ranks, double bucket_mb,
                          const Network& network);

}  // namespace coracle
