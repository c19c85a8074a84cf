#pragma once
// Evaluation of a program over a whole data source.

#include <coracle/executor/executor.h>
#include <coracle/train/batch_reader.h>
#include <coracle/train/carry.h>
#include <coracle/train/feeder.h>

#include <string>
#include <utility>
#include <vector>

namespace coracle {

struct NamedValue {
  std::string name;
  double value = 0;
};

// The only element of a float32 or float64 tensor, or one of an integer type; `name` is for the
// error.
double ScalarOf(const Tensor& tensor, const std::string& name);

// Runs a compiled program over all rows of a source, in order.
class Evaluator {
 public:
  // The program's feeds are those of `feeder`, then those of `carry`; its fetches are numbers,
  // means over a batch, then the states to carry.
  Evaluator(PreparedProgram program, Feeder feeder, Carry carry, DataSourcePtr data,
            const BatchOptions& batch);

  // Exact means over all rows: every batch weighs as many rows as it has. States begin with zeros.
  const std::vector<double>& Run(Scope& scope);
  int64_t rows() const { return rows_; }

 private:
  PreparedProgram program_;
  Feeder feeder_;
  Carry carry_;
  BatchReader reader_;
  int64_t rows_;
  std::vector<double> means_;
};

struct EvaluateOptions {
  CompileOptions compile;
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
};

// Evaluates a saved inference model (see LoadInferenceModel) on the test data of a job, or on its
// training data when it has no other. A fetch of one number is averaged over the rows; for one of
// shape [rows, classes] the result is "accuracy": how often the largest is the label's. A fetch
// that is a metric of the job has its name. With compile.profile `profile` gets the table of times.
std::vector<NamedValue> EvaluateSavedModel(const std::string& path, const JobConfig& job,
                                           const EvaluateOptions& options = {},
                                           std::string* profile = nullptr);

}  // namespace coracle
