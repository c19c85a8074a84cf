#pragma once
// The parts of a solver's text, each as its part of a job's text.

#include <coracle/convert/caffe/import.h>
#include <coracle/convert/caffe/text.h>

#include <deque>
#include <string>
#include <vector>

namespace coracle::caffe {

using Notes = std::vector<std::string>;  // for the user

// The nets of a solver in the states that it uses.
struct SolverNets {
  std::deque<Net> nets;  // `train` and `states` point to them
  const Net* train = nullptr;
  std::vector<NetInState> states;  // training, then the tests
  size_t tests = 0;                // number of tests with data
};

// Reads the nets that the solver at `path` names or holds. Throws for a missing file, and for
// other numbers of nets than the tests need.
SolverNets ReadSolverNets(const SolverText& solver, const std::string& path,
                          const ImportOptions& options, Notes* notes);

// `momentum { ... }`: see docs/optimizers.md for the solver types.
std::string OptimizerText(const SolverText& solver);
// `inv { ... }`; "" for a fixed rate.
std::string ScheduleText(const SolverText& solver);
// `l2_decay { ... }`; "" for no decay.
std::string RegularizerText(const SolverText& solver);

}  // namespace coracle::caffe
