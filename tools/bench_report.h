#pragma once
// Formats the results of `coracle bench` as text and as JSON.

#include <coracle/framework/base/latency.h>

#include <cstdint>
#include <string>
#include <vector>

namespace coracle::tools {

// The measurements for one number of threads.
struct BenchRow {
  int threads = 1;
  Latencies latencies;
  double load = 0, compile = 0, plan = 0, first_run = 0;  // seconds
  uint64_t workspace = 0;                                 // planned bytes of one client
  uint64_t peak = 0;  // peak memory of the process so far, in bytes
};

struct BenchReport {
  std::string program, kind, weights;
  int64_t ops = 0, ops_after_passes = 0;
  std::vector<std::string> input_names, input_types;  // "float32[1, 3, 640, 640]"
  std::vector<int64_t> input_sequences;               // 0: without LoD
  int concurrency = 1;
  int64_t samples = 1;  // samples in one run
  int64_t batches = 1;  // program runs that count as one run (several for a job's step)
  std::vector<std::string> notes;
  std::vector<BenchRow> rows;
};

std::string TextOf(const BenchReport& report);
// {"format": "coracle.bench", "version": 1, ...}; docs/json.md describes it.
std::string JsonOf(const BenchReport& report);

}  // namespace coracle::tools
