#pragma once
// Saved models: their evaluation in jobs, their answers to raw data, and initial values of
// parameters from them.

#include <coracle/executor/executor.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/train/job/job.h>
#include <coracle/train/report/report.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
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

// --- answers to raw data ---

inline namespace internal {
class PredictorCore;
}

// A row as it comes from a file or a user: texts of cells, and pictures, by the names of columns. A
// column of a file without a header has its number as a name: "0".
struct RawRow {
  std::map<std::string, std::string> cells = {};
  std::map<std::string, Tensor> pictures = {};  // uint8 [C, H, W], or [H, W] if grey
};

// A class, or its number if the classes have no names, and its score: what the model computed.
struct ScoredClass {
  std::string name = {};
  int64_t index = 0;
  double score = 0;
};

// What an output of a model says about a row.
struct RowAnswer {
  std::string output = {};  // the output's name
  // The answer in words: a class, a number, the classes of a sequence, or for other outputs their
  // values. "nan" if a score is not a number.
  std::string text = {};
  bool in_words = false;  // `text` names classes
  // Of scores: the largest ones first; of equal scores the first class. For scores of each step of
  // a sequence, those of the last step.
  std::vector<ScoredClass> classes = {};
  // For an output of one number: the number in the units of the training data's label.
  std::optional<double> number = {};
  Tensor values = {};  // the row of the output itself
};

struct PredictOptions {
  CompileOptions compile = {};
  int64_t top = 1;                  // number of classes in an answer; 0: all
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
};

// A saved model together with the preprocessing of the job that trained it. Any number of threads
// may use one object; copies share the model.
class Predictor {
 public:
  // `path` is a path for LoadInferenceModel, or the output directory of a run, for its
  // model.pdmodel. Throws kNotFound if no description of the preprocessing is next to the model (a
  // file NAME.preprocess.pbtxt, or in an ONNX model).
  explicit Predictor(const std::string& path, const PredictOptions& options = {});

  // Returns the answers for each row, in the order of the model's outputs. The rows are one batch,
  // so the values are exactly those of Executor::Run for these rows. (Texts of different lengths
  // are batches of their own.) Throws kInvalidArgument with the number of the row, counted from 0,
  // and its column: for a column that is missing (columns that the model does not read are
  // ignored), and for a value that training would have refused.
  std::vector<std::vector<RowAnswer>> Predict(std::span<const RawRow> rows) const;
  std::vector<RowAnswer> Predict(const RawRow& row) const;

  std::vector<std::string> columns() const;  // that rows must have
  std::vector<std::string> outputs() const;

  // For Coracle's own code.
  const PredictorCore& core() const { return *core_; }

 private:
  std::shared_ptr<const PredictorCore> core_;
  int64_t top_ = 1;
};

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
