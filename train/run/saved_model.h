#pragma once
// Saved models in jobs: their evaluation, and initial values of parameters from them.

#include <coracle/executor/executor.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/train/job/job.h>
#include <coracle/train/report/report.h>

#include <string>
#include <vector>

namespace coracle {

// Evaluates a saved model on the data of a job.

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

// --- variables of a model, by name, from a file of another run ---

// The variables that were loaded, and those that were not.
struct WeightsReport {
  std::string file;
  std::vector<std::string> loaded;
  std::vector<std::string> mismatched;    // with another shape or dtype in the file
  std::vector<std::string> not_in_file;   // variables that keep their values
  std::vector<std::string> not_in_model;  // variables of the file

  // "weights FILE: 6 of 8 variables loaded; not in the file: ...; not in the model: ...".
  std::string ToString() const;
};

// Copies the values of `names`, persistable variables of `program`, into `scope`. The file of
// `weights` is a snapshot or a directory of them (the optimizer's state is ignored), a saved model
// (.pdmodel or .pdiparams file, prefix or directory), or an archive. Throws kInvalidArgument if
// nothing matches, and for a variable of another shape or dtype unless `skip_mismatched`.
WeightsReport LoadWeights(const WeightsConfig& weights, const ProgramDesc& program,
                          const std::vector<std::string>& names, Scope& scope);

}  // namespace coracle
