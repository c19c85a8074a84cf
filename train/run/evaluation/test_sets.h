#pragma once
// TestSets: the test data of a job, with the programs that evaluate it.

#include <coracle/executor/executor.h>
#include <coracle/train/run/evaluation/evaluator.h>
#include <coracle/train/run/programs.h>
#include <coracle/train/run/snapshot/snapshot.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace coracle::inline internal {

// An evaluation of a set.
struct SetResult {
  std::string set;
  int64_t rows = 0;
  std::vector<NamedValue> values = {};
  std::vector<ConfusionMatrix> confusions = {};
};
using ReportSet = std::function<void(SetResult result)>;

class TestSets {
 public:
  // Opens the data of the job's test sets; `train` is its training data, and `nets` are the sets'
  // programs. Throws Error with the place in the job.
  TestSets(const JobConfig& config, const DataSource& train, const std::vector<Net>& nets,
           const Executor& executor, const Ranks& ranks);

  bool empty() const { return sets_.empty(); }
  std::vector<std::string> names() const;
  // For each set, the printed names of its values: the loss, then the metrics.
  std::vector<std::vector<std::string>> value_names() const;

  // For a job that quantises: lets evaluations compute in floating point, or with rounding.
  void UseFloat(bool use);

  // Runs the first batch of each set, to find errors before the first step. Throws Error with the
  // place in the job.
  void Try(Scope& scope);

  // Evaluates the sets one after the other and reports each. Returns false if `stop` ended it.
  bool Run(Scope& scope, const std::function<bool()>& stop, const ReportSet& report);

 private:
  struct Set {
    std::string name, place;
    std::vector<std::string> value_names;
    std::unique_ptr<Evaluator> evaluator;
  };
  std::vector<Set> sets_;
};

// The record of a set, or nullptr.
const EvaluationRecord* FindEvaluation(const std::vector<EvaluationRecord>& records,
                                       const std::string& set);
// Adds a record, or replaces the older record of the same set.
void AddRecord(EvaluationRecord record, std::vector<EvaluationRecord>* records);

}  // namespace coracle::inline internal
