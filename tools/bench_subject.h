#pragma once
// What `coracle bench` runs: a program with its parameters and drawn feeds.

#include <coracle/executor/executor.h>
#include <coracle/framework/ir/program.h>

#include <cstdint>
#include <string>
#include <vector>

namespace coracle::tools {

struct BenchSubject {
  std::string kind;  // "saved model", "program", "model text" or "job"
  ProgramDesc program{};
  std::vector<std::string> feeds = {}, fetches = {};  // as for Executor::Prepare
  Scope scope{};
  std::string weights{};  // where parameters are from: "file", "startup program", "drawn" or "none"
  bool trains = false;    // a job's step: its parameters change and are not frozen
  int64_t batch_size = 1;  // for unknown dims
  int64_t batches = 1;     // runs of the program in one step
};

// Reads what `path` names, with parameters from --params, from the file beside it or from its
// startup program; what is missing is drawn (with --draw, all). `seconds` gets the time of all but
// the drawing. `batch_size` 0: a job's own, else 1. Throws UsageError for flags that do not go with
// it.
BenchSubject LoadSubject(const std::string& path, int64_t batch_size, double* seconds);

struct BenchFeeds {
  std::vector<std::string> names;
  std::vector<Tensor> values;
  int64_t samples = 1;  // in one run of the program
};

// A drawn feed for each of `names`, of the shapes that --shape gives or the program declares.
// Throws kInvalidArgument for dims that neither does, kNotFound for a name that is not fed.
BenchFeeds DrawFeeds(const BenchSubject& subject, const std::vector<std::string>& names);

}  // namespace coracle::tools
