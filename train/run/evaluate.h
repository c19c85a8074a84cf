#pragma once
// Evaluates a saved model on the data of a job.

#include <coracle/executor/executor.h>
#include <coracle/train/job/job.h>
#include <coracle/train/report/report.h>

#include <string>
#include <vector>

namespace coracle {

struct EvaluateOptions {
  std::string test_set = {};  // name of a test set of the job; "": the first
  CompileOptions compile = {};
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
};

// Evaluates a saved inference model (see LoadInferenceModel) on a test set of a job, with the
// number of batches given by its `iterations`, or on the job's training data if it has no test set.
// Throws kNotFound for a test_set that the job does not have. For a model with the job's loss, the
// result is the loss and the job's metrics. For any other model, a fetch of one number is averaged
// over the rows, and a fetch of shape [rows, classes] gives "accuracy": the share of rows whose
// label has the largest score. With compile.profile, `profile` gets the table of times.
std::vector<NamedValue> EvaluateSavedModel(const std::string& path, const JobConfig& job,
                                           const EvaluateOptions& options = {},
                                           std::string* profile = nullptr);

}  // namespace coracle
