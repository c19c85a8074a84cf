#pragma once
// Finds where two runs of a program diverge: runs with other kernels, passes or threads, in another
// precision, or with saved values of another build.

#include <coracle/inspect/inspect.h>
#include <coracle/inspect/root_ops.h>
#include <coracle/inspect/written_values.h>

#include <cstdint>
#include <string>
#include <vector>

namespace coracle::inline internal {

struct ComparedVariable {
  TensorDifference difference;
  OpPlace writer;  // the op that wrote the compared value
};

struct RunsDifference {
  // The variables that both runs wrote, in the order of the program's ops. If a variable has the
  // same number of values in both runs, they are compared one by one, and the first that differs is
  // stored; otherwise only the last values are compared.
  std::vector<ComparedVariable> compared;
  // Results (ResultsOf) that only one run has (kOnlyInA, kOnlyInB), or that no op of A's root block
  // writes (a parameter).
  std::vector<TensorDifference> other_results;
  // Number of variables that ops of a root block write and that were not compared: passes or plans
  // removed them from a run, one of the programs lacks them, or they do not hold a dense tensor.
  int64_t not_compared = 0;
  // Variables that differ, but not in runs that fetch them: passes use the name for another value
  // (such as a product that is scaled later). They are not in `compared`.
  std::vector<std::string> renamed;
  // Variables that differ and that no run fetched, because 128 others before them were tried: it is
  // unknown whether they are renamed or the runs diverge there.
  std::vector<std::string> untried;

  // The first op whose output is out of tolerance although all compared variables that it depends
  // on are within: its index in `compared`, or -1 if none was found.
  int first = -1;
  // The variables that this output depends on (within tolerance, fed, or parameters), and the ops
  // between these and it, whose values were not compared. The runs diverge in the op that writes
  // the output, or in one of these ops.
  std::vector<std::string> inputs;
  std::vector<OpPlace> between;
  // Whether the difference vanishes if the variables that the output depends on are fetched.
  // Fetching keeps passes from fusing these ops, so the fused ops cause the difference.
  bool hidden = false;

  bool Differs() const;
};

// Runs the program in both ways and compares everything that both wrote, and all fetched variables.
// If something differs, fetches variables between the last one that agrees and the first one that
// differs in further runs, eight at a time, until it finds the op. Keeps the values of two runs in
// memory. Positions refer to a's program. Throws the errors of KeepWritten.
RunsDifference CompareRuns(const RunWay& a, const RunWay& b, const Tolerance& tolerance);

}  // namespace coracle::inline internal
