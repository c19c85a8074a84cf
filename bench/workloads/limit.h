#pragma once
// How long a workload must take at least: its multiply-adds at the rate of a large matrix product,
// or the bytes that it must move at the rate of a triad, whichever takes longer.

#include <map>
#include <string>
#include <utility>

#include "workload.h"

namespace coracle {

struct Cost {
  int64_t parameters = 0;    // elements that are trained
  double multiply_adds = 0;  // of products of matrices, convolutions and recurrent nets
  // Feeds and fetches once, persistable variables once for reading and once for writing; of tables,
  // the rows that are looked up where gradients are sparse.
  double bytes = 0;
};

// Of the program as it was written, with the shapes of its first batch. Gradient ops are counted
// as their forward op for each gradient.
Cost CostOf(const Workload& workload);

// What one op of a program does; bytes are those of all its inputs and outputs.
struct OpCost {
  double multiply_adds = 0, bytes = 0;
};
// By the op's type and first output, in a program that was compiled from the workload's. An op that
// runs a group of ops does what these do; they are listed too, since a plan may run them one by
// one.
std::map<std::pair<std::string, std::string>, OpCost> CostsOfOps(const ProgramDesc& compiled,
                                                                 const Workload& workload);

// Measured with the present number of threads.
struct Rates {
  double gflops = 0;    // of a float32 product of 2048 x 2048 matrices
  double gbytes_s = 0;  // of a = b + 3 c on 3 * 64 MiB, 12 bytes for each element
};
Rates MeasureRates(double seconds);

// The bytes of `cost` that come from memory in every step: all, or 0 where they fit in the
// processor's second-level cache.
double MemoryBytes(const Cost& cost);

double LimitSeconds(const Cost& cost, const Rates& rates);

}  // namespace coracle
