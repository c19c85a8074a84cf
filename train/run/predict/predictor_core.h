#pragma once
// PredictorCore: runs a saved model on decoded rows, and reads its outputs. See Predictor.

#include <coracle/executor/executor.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/train/run/predict/row_decoder.h>
#include <coracle/train/run/saved_model.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace coracle::inline internal {

// Runs a model: takes the feeds in the order of InferenceModel::feed_names, and returns the
// fetches. Must be safe to call from any thread.
using RunFeeds = std::function<std::vector<Tensor>(std::vector<Tensor> feeds)>;

// Compiles the model, with the values of its parameters in `scope`.
RunFeeds MakeRunner(const InferenceModel& model, Scope scope, const PredictOptions& options);

// Thread-safe.
class PredictorCore {
 public:
  // Throws kNotFound for an input or output that the model does not have, and kInvalidArgument for
  // an input that nothing feeds.
  PredictorCore(InferenceModel model, PreprocessConfig config, RunFeeds run);

  const RowDecoder& decoder() const { return decoder_; }
  const PreprocessConfig& config() const { return decoder_.config(); }
  const std::vector<OutputMeaning>& outputs() const { return config().outputs; }
  std::vector<std::string> columns() const;
  // The name of the training data's label among the cells, or its number; "" if there is none.
  std::string LabelColumn() const;

  // Throws kInvalidArgument that names the column, if the row lacks one.
  DecodedRow Decode(const RawRow& row) const;
  // The rows are one batch, except for texts of different lengths. The answers have `top` classes;
  // 0: all. `run` runs the model in place of the constructor's function, if it is set.
  std::vector<std::vector<RowAnswer>> Run(std::span<const DecodedRow> rows, int64_t top,
                                          const RunFeeds& run = {}) const;

 private:
  std::vector<Tensor> RunBatch(std::span<const DecodedRow> rows, const RunFeeds& run) const;
  std::vector<Tensor> Feeds(std::span<const DecodedRow> rows) const;
  size_t TogetherWith(std::span<const DecodedRow> rows, size_t first) const;

  InferenceModel model_;
  RowDecoder decoder_;
  RunFeeds run_;
  std::vector<std::string> fed_;  // inputs that rows feed
  bool one_row_ = false;          // an input has room for one row
  std::vector<size_t> fetched_;   // the index of each output among the fetches
};

// The text next to the model, or in the ONNX model; "" if there is none. `source` names it
// in errors.
std::string FindPreprocess(const std::string& model_file, std::string* source);

// The model file of a path that Predictor accepts.
std::string ModelFileOf(const std::string& path);

// The value of a key in the metadata of an ONNX file; "" if it has none. Does not read the graph.
std::string OnnxMetadata(const std::string& path, const std::string& key);
inline constexpr const char* kPreprocessKey = "coracle.preprocess";

// Reads row `row` of an output, whose batch has `rows` rows. Throws kInvalidArgument if the output
// has other rows.
RowAnswer AnswerOf(const OutputMeaning& meaning, const Tensor& output, int64_t row, int64_t rows,
                   int64_t top);

}  // namespace coracle::inline internal
