#pragma once
// A lower bound for the time of a workload: its multiply-adds at the rate of a large matrix
// product, or the bytes that it must move at the rate of a triad, whichever takes longer.

#include <coracle/bench/workloads/workload.h>

#include <map>
#include <string>
#include <utility>

namespace coracle {

struct Cost {
  int64_t parameters = 0;    // trained elements
  double multiply_adds = 0;  // in matrix products, convolutions and recurrent nets
  // Feeds and fetches count once, persistable variables once for reading and once for writing. For
  // tables with sparse gradients, only the rows that are looked up count.
  double bytes = 0;
};

// The cost of the program without passes, with the shapes of its first batch. A gradient op counts
// its forward op once for each gradient.
Cost CostOf(const Workload& workload);

// The cost of one op of a program; `bytes` includes all its inputs and outputs.
struct OpCost {
  double multiply_adds = 0, bytes = 0;
};
// The costs by an op's type and first output, in a program compiled from the workload's. An op that
// runs a group of ops costs as much as these; they are also listed, because a plan may run them one
// by one.
std::map<std::pair<std::string, std::string>, OpCost> CostsOfOps(const ProgramDesc& compiled,
                                                                 const Workload& workload);

// Measured with the current number of threads.
struct Rates {
  double gflops = 0;    // for a float32 product of 2048 x 2048 matrices
  double gbytes_s = 0;  // for a = b + 3 c on 3 * 64 MiB, 12 bytes for each element
};
Rates MeasureRates(double seconds);

// The bytes of `cost` that come from memory in every step: all of them, or 0 if they fit in the
// second-level cache.
double MemoryBytes(const Cost& cost);

double LimitSeconds(const Cost& cost, const Rates& rates);

}  // namespace coracle
