#pragma once
// Runs saved models on the test sets of a job.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/run/saved_model.h>

#include <functional>
#include <string>
#include <vector>

namespace coracle::inline internal {

// Reads a saved model with fetches. Throws for a model text, and for a program that lacks its
// parameters' values.
InferenceModel OpenMeasuredModel(const std::string& path, Scope& scope);

// The carried states of the job that the model also has.
std::vector<CarryConfig> CarryOfModel(const JobConfig& job, const InferenceModel& model);

// The column of the labels; -1 if the data has none.
int LabelColumnOf(const DataSource& data, const JobConfig& job);

// Chooses a test set by its name; without test sets, chooses the training data. Throws kNotFound.
TestSetConfig ChooseTestSet(const JobConfig& job, const std::string& name);
DataSourcePtr OpenTestSet(const JobConfig& job, const TestSetConfig& set);

// What EvaluateSavedModel measures, with the matrices of the job's metrics of the kind CONFUSION.
struct Measured {
  std::vector<NamedValue> values = {};
  std::vector<ConfusionMatrix> confusions = {};
};
Measured MeasureSavedModel(const std::string& path, const JobConfig& job,
                           const EvaluateOptions& options = {}, std::string* profile = nullptr);

// Gets the output of each batch, the batch with its label's column, and its first row.
using TestSetRows = std::function<void(const Tensor& output, const std::vector<Tensor>& batch,
                                       int label, int64_t first_row, const DataSource& data)>;

// Runs the model on the rows of options.test_set, in order, and calls `take` after each batch.
// Throws kInvalidArgument for data without labels, else like EvaluateSavedModel.
void RunOnTestSet(const InferenceModel& model, Scope& scope, const JobConfig& job,
                  const EvaluateOptions& options, const std::string& output,
                  const TestSetRows& take);

}  // namespace coracle::inline internal
