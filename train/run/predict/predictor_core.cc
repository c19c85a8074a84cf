#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/data/row_error.h>
#include <coracle/train/run/feeder.h>
#include <coracle/train/run/predict/predictor_core.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

namespace coracle::inline internal {
namespace {

namespace fs = std::filesystem;

// The columns of a batch, for a Feeder, which does not read rows.
class BatchColumns : public DataSource {
 public:
  explicit BatchColumns(std::vector<DataColumn> columns) : columns_(std::move(columns)) {}
  const std::vector<DataColumn>& columns() const override { return columns_; }
  int64_t size() const override { return 0; }
  void Get(std::span<const int64_t>, std::span<Tensor>) const override {
    throw InternalError("the columns of a batch have no rows");
  }
  std::string Describe() const override { return "the raw data"; }

 private:
  std::vector<DataColumn> columns_;
};

bool Has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const VarDesc& VarOf(const ProgramDesc& program, const std::string& name) {
  const VarDesc* var = program.Root().FindVar(name);
  if (var) return *var;
  throw Error(ErrorCode::kNotFound, fmt::format("the model has no variable {}", Quote(name)));
}

}  // namespace

PredictorCore::PredictorCore(InferenceModel model, PreprocessConfig config, RunFeeds run)
    : model_(std::move(model)), decoder_(std::move(config)), run_(std::move(run)) {
  for (const BindConfig& input : this->config().inputs) {
    if (!Has(model_.feed_names, input.var)) {
      throw Error(ErrorCode::kNotFound,
                  fmt::format("{}: the model has no input {}{}", input.where, Quote(input.var),
                              DidYouMean(input.var, model_.feed_names)));
    }
    fed_.push_back(input.var);
  }
  for (const std::string& name : model_.feed_names) {
    const Shape& shape = VarOf(model_.program, name).shape();
    one_row_ |= Has(fed_, name) && shape.rank() > 0 && shape[0] == 1;
    if (!Has(fed_, name) && !Has(this->config().zeros, name))
      ThrowInvalid(fmt::format("nothing feeds the model's input {}", Quote(name)));
  }
  for (const OutputMeaning& output : outputs()) {
    const auto found = std::find(model_.fetch_names.begin(), model_.fetch_names.end(), output.var);
    if (found == model_.fetch_names.end()) {
      throw Error(ErrorCode::kNotFound,
                  fmt::format("the model has no output {}{}", Quote(output.var),
                              DidYouMean(output.var, model_.fetch_names)));
    }
    fetched_.push_back(static_cast<size_t>(found - model_.fetch_names.begin()));
  }
}

std::vector<std::string> PredictorCore::columns() const {
  if (config().picture) return {config().picture->column};
  if (config().text) return {config().text->column};
  if (!config().arrays.empty()) {
    std::vector<std::string> names;
    for (const RawArray& array : config().arrays) names.push_back(array.column);
    return names;
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < config().csv->columns.size(); ++i) names.push_back(decoder_.NameOf(i));
  return names;
}

std::string PredictorCore::LabelColumn() const {
  const std::optional<RawCsv>& csv = config().csv;
  if (!csv || !csv->label_number) return "";
  return csv->header ? csv->label : std::to_string(*csv->label_number);
}

DecodedRow PredictorCore::Decode(const RawRow& row) const {
  const auto missing = [](const std::string& name) {
    ThrowInvalid(fmt::format("the column {} is missing", Quote(name)));
  };
  if (config().picture) {
    const RawPicture& picture = *config().picture;
    const auto found = row.pictures.find(picture.column);
    if (found == row.pictures.end()) missing(picture.column);
    return decoder_.DecodePicture(found->second);
  }
  if (!config().arrays.empty())
    ThrowInvalid("the model reads arrays: give rows as an .npz file, or run it with tensors");
  const std::vector<std::string> names = columns();
  std::vector<std::string_view> cells;
  for (const std::string& name : names) {
    const auto found = row.cells.find(name);
    if (found == row.cells.end()) missing(name);
    cells.push_back(found->second);
  }
  if (config().text) return decoder_.DecodeText(cells[0]);
  try {
    return decoder_.DecodeCells(cells);
  } catch (const CellError& e) {
    throw e.WithPrefix(fmt::format("column {}", Quote(names[e.column])));
  }
}

// The end of the rows from `first` on that are one batch.
size_t PredictorCore::TogetherWith(std::span<const DecodedRow> rows, size_t first) const {
  size_t end = first + 1;
  while (!one_row_ && end < rows.size() && decoder_.Together(rows[first], rows[end])) ++end;
  return end;
}

std::vector<std::vector<RowAnswer>> PredictorCore::Run(std::span<const DecodedRow> rows,
                                                       int64_t top, const RunFeeds& run) const {
  std::vector<std::vector<RowAnswer>> answers;
  for (size_t first = 0; first < rows.size();) {
    const size_t end = TogetherWith(rows, first);
    const std::vector<Tensor> results =
        RunBatch(rows.subspan(first, end - first), run ? run : run_);
    for (size_t row = first; row < end; ++row) {
      std::vector<RowAnswer>& own = answers.emplace_back();
      for (size_t i = 0; i < outputs().size(); ++i) {
        own.push_back(AnswerOf(outputs()[i], results[i], static_cast<int64_t>(row - first),
                               static_cast<int64_t>(end - first), top));
      }
    }
    first = end;
  }
  return answers;
}

std::vector<Tensor> PredictorCore::Feeds(std::span<const DecodedRow> rows) const {
  const BatchColumns columns(decoder_.ColumnsOf(rows[0]));
  Feeder feeder(model_.program, fed_, columns, config().inputs, "preprocess");
  const std::vector<Tensor> batch = decoder_.Batch(rows);
  const std::vector<Tensor>& bound = feeder.Bind(batch);
  std::vector<Tensor> feeds;
  for (const std::string& name : model_.feed_names) {
    const auto found = std::find(fed_.begin(), fed_.end(), name);
    if (found != fed_.end()) {
      feeds.push_back(bound[static_cast<size_t>(found - fed_.begin())]);
      continue;
    }
    const VarDesc& var = VarOf(model_.program, name);
    Shape shape = var.shape();
    for (int i = 0; i < shape.rank(); ++i)
      if (shape[i] < 0) shape[i] = static_cast<int64_t>(rows.size());
    feeds.push_back(Tensor::Zeros(var.dtype(), shape));
  }
  return feeds;
}

// Returns the outputs in the order of outputs().
std::vector<Tensor> PredictorCore::RunBatch(std::span<const DecodedRow> rows,
                                            const RunFeeds& run) const {
  const std::vector<Tensor> out = run(Feeds(rows));
  std::vector<Tensor> results;
  for (const size_t i : fetched_) results.push_back(out.at(i));
  return results;
}

std::string ModelFileOf(const std::string& path) {
  const std::string of_run = (fs::path(path) / "model.pdmodel").string();
  return IsDirectory(path) && FileExists(of_run) ? of_run : path;
}

std::string FindPreprocess(const std::string& model_file, std::string* source) {
  std::vector<std::string> names = {PreprocessFileOf(model_file)};
  if (IsDirectory(model_file)) {
    const fs::path directory(model_file);
    names = {(directory / "preprocess.pbtxt").string(),
             (directory / "inference.preprocess.pbtxt").string()};
    std::error_code error;
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(directory, error))
      if (entry.path().string().ends_with(".preprocess.pbtxt"))
        found.push_back(entry.path().string());
    if (found.size() == 1) names.push_back(found[0]);
  }
  for (const std::string& name : names) {
    *source = name;
    if (FileExists(name)) return ReadFile(name);
  }
  *source = model_file;
  return model_file.ends_with(".onnx") ? OnnxMetadata(model_file, kPreprocessKey) : "";
}

}  // namespace coracle::inline internal

namespace coracle {

Predictor::Predictor(const std::string& path, const PredictOptions& options) {
  if (options.top < 0) ThrowInvalid(fmt::format("top must not be negative, got {}", options.top));
  const std::string file = ModelFileOf(path);
  Scope scope;
  InferenceModel model = LoadInferenceModel(file, scope);
  std::string source;
  const std::string text = FindPreprocess(file, &source);
  if (text.empty()) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("{} has no description of its preprocessing: `coracle train` writes {}",
                            Quote(path, 300), Quote(PreprocessFileOf(file), 300)));
  }
  PreprocessConfig config = ParsePreprocess(text, source);
  try {
    RunFeeds run = MakeRunner(model, std::move(scope), options);
    core_ =
        std::make_shared<const PredictorCore>(std::move(model), std::move(config), std::move(run));
  } catch (const Error& e) {
    throw e.WithPrefix(source);
  }
  top_ = options.top;
}

namespace {

const PredictorCore& Held(const std::shared_ptr<const PredictorCore>& core) {
  if (!core) ThrowInvalid("a Predictor was used that has been moved from; make another");
  return *core;
}

}  // namespace

std::vector<std::vector<RowAnswer>> Predictor::Predict(std::span<const RawRow> rows) const {
  const PredictorCore& core = Held(core_);
  std::vector<DecodedRow> decoded;
  for (size_t i = 0; i < rows.size(); ++i) {
    try {
      decoded.push_back(core.Decode(rows[i]));
    } catch (const Error& e) {
      throw e.WithPrefix(fmt::format("row {}", i));
    }
  }
  return core.Run(decoded, top_);
}

std::vector<RowAnswer> Predictor::Predict(const RawRow& row) const {
  return Predict(std::span(&row, 1))[0];
}

std::vector<std::string> Predictor::columns() const { return Held(core_).columns(); }

std::vector<std::string> Predictor::outputs() const {
  std::vector<std::string> names;
  for (const OutputMeaning& output : Held(core_).outputs()) names.push_back(output.var);
  return names;
}

}  // namespace coracle
