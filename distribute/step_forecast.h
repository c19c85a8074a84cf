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
    double begins = 0;  // where the step has what is exchanged
    double needed = 0;  // before the first op that reads the result
    // A dense gradient, which InsertAllReduce sums or scatters in buckets.
    bool bucketed = false;
  };
  std::vector<Part> exchanges;        // in the order in which they begin
  double seconds = 0;                 // of the whole step
  std::vector<double> measured = {};  // whole steps of a rank, in any order; {}: all took `seconds`
};

// What an exchange takes of a rank's own time, beside messages.
struct ExchangeWork {
  double handover = 0;  // seconds: to the thread that communicates, and back
  double packing = 0;   // seconds for a byte of a bucket: into one message and out of it again
  double adding = 0;    // seconds for a byte: to that of another rank
  // The thread that communicates has a core of its own, so that ops go on meanwhile. Otherwise they
  // wait, since its work, and MPI's copies of messages, take the time of their cores.
  bool beside_ops = true;
};

// A message of n bytes from one rank to another takes latency + n / bandwidth, whatever the others
// do.
struct Network {
  double latency = 0;    // seconds
  double bandwidth = 0;  // bytes a second
  ExchangeWork work = {};
};

// With N ranks, after Thakur, Rabenseifner and Gropp, Optimization of collective communication
// operations in MPICH, 2005:
//   kAllReduce      the better of a ring, 2 (N - 1) messages of n / N bytes one after the other,
//                   which adds (N - 1) n / N bytes, and a tree, 2 ceil(log2 N) messages of n bytes,
//                   which adds ceil(log2 N) n
//   kAllGather      ceil(log2 N) messages, of (N - 1) n bytes together
//   kReduceScatter  ceil(log2 N) messages, of (N - 1) n / N bytes together, which are added
//   kBroadcast      ceil(log2 N) messages of n bytes
//   kBarrier        ceil(log2 N) messages
// The handover and packing are not in it. REQUIRES: ranks > 0.
double ExchangeSeconds(Exchange::Kind kind, int64_t bytes, int ranks, const Network& network);

// The expected largest of `draws` independent draws from the values x_1 <= ... <= x_n, with
// replacement: the sum of x_i ((i / n)^draws - ((i - 1) / n)^draws), since (i / n)^draws is the
// probability that none is above x_i (David and Nagaraja, Order Statistics, 2003, of the empirical
// distribution). Of one draw it is the mean; it is never more than x_n, so that of many draws few
// values tell too little. REQUIRES: values is not empty, draws > 0.
double ExpectedMaximum(std::vector<double> values, int draws);

struct StepForecast {
  double seconds = 0;    // of the step
  double later = 0;      // of these, what the slowest rank takes longer than a rank does on average
  double exchanges = 0;  // seconds in which the network is busy
  double exposed = 0;    // of these, the ones that ops wait for
};
// The buckets are those of InsertAllReduce, each of gradients that are summed or of ones that are
// scattered. Of several that are summed together, those of fewer than Exchange::kPackedBytes are
// packed into one message, and each larger one is its own; of kReduceScatter all bytes are packed
// into one. One exchange at a time, which is handed over, and before which the ranks meet (16
// bytes, as they describe what they are about to exchange). It does not slow down ops where
// ExchangeWork::beside_ops is set; otherwise all of it delays them. All ranks have to wait for the
// slowest of a step, which takes ExpectedMaximum(measured, ranks), evenly longer from its beginning
// to its end; what a rank takes is independent of the others. REQUIRES: ranks > 0.
StepForecast ForecastStep(const StepTimeline& step, int ranks, double bucket_mb,
                          const Network& network);

}  // namespace coracle
