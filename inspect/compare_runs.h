#pragma once
// Where two runs of a program part: with other kernels, other passes, other threads, in another
// precision, or with another build, whose values were saved.

#include <coracle/inspect/compare_tensors.h>
#include <coracle/inspect/root_ops.h>
#include <coracle/inspect/written_values.h>

#include <cstdint>
#include <string>
#include <vector>

namespace coracle {

struct ComparedVariable {
  TensorDifference difference;
  OpPlace writer;  // of the value that is compared
};

struct RunsDifference {
  // What both runs wrote, in the order of the program's ops. A variable with as many values in one
  // run as in the other is compared value by value, and the first that differs counts; with other
  // numbers, by the last one.
  std::vector<ComparedVariable> compared;
  // Results (ResultsOf) that one run lacks, though the other has them (kOnlyInA, kOnlyInB), or that
  // no op of A's root block writes (a parameter).
  std::vector<TensorDifference> other_results;
  // Variables that ops of a root block write and that were not compared: passes or plans have
  // removed them from a run, one of the programs lacks them, or they hold no dense tensor.
  int64_t not_compared = 0;
  // Variables that differ, yet not in runs that fetch them: passes use the name for another value
  // (a product that is scaled later), so they are not among `compared`.
  std::vector<std::string> renamed;
  // Variables that differ and that no run fetched, since 128 before them were tried: whether they
  // are renamed or the runs part there is not known.
  std::vector<std::string> untried;

  // The first op whose output leaves the tolerance though what was compared before, of all that it
  // depends on, is within: its place in `compared`; -1: none was found.
  int first = -1;
  // What that output depends on: variables within tolerance, fed variables and parameters; and the
  // ops between these and it, whose values were not compared. The runs part in the op that writes
  // it, or in one of these.
  std::vector<std::string> inputs;
  std::vector<OpPlace> between;
  // The difference vanishes where what that output depends on is fetched, so that passes cannot
  // join the ops: what passes make of them is the cause.
  bool hidden = false;

  bool Differs() const;
};

// Runs both ways as they are and compares what both wrote, and what either fetches. If something
// differs, variables between the last that agree and the first that differs are fetched in further
// runs, eight at a time, until the op is found. The values of two runs are in memory at a time.
// Places are those in a's program. Throws what KeepWritten throws.
RunsDifference CompareRuns(const RunWay& a, const RunWay& b, const Tolerance& tolerance);

}  // namespace coracle
