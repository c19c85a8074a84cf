#include <coracle/framework/base/text.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/train/evaluate.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle {
namespace {

// Rows whose largest score stands at their label.
int64_t CountRight(const Tensor& scores, const Tensor& labels) {
  int64_t rows = scores.shape()[0], classes = scores.shape()[1], right = 0;
  const float* row = scores.data<float>();
  const int64_t* label = labels.data<int64_t>();
  for (int64_t r = 0; r < rows; ++r, row += classes)
    right += std::max_element(row, row + classes) - row == label[r];
  return right;
}

// What one fetch of a saved model adds up to.
class FetchSum {
 public:
  FetchSum(std::string name, int label_column) : name_(std::move(name)), label_(label_column) {}

  void Add(const Tensor& value, const std::vector<Tensor>& batch) {
    int64_t rows = batch[0].shape()[0];
    bool scores = value.shape().rank() == 2 && value.shape()[0] == rows && value.shape()[1] > 1 &&
                  value.dtype() == DType::kFloat32 && label_ >= 0;
    if (scores) {
      const Tensor& labels = batch[static_cast<size_t>(label_)];
      if (labels.dtype() != DType::kInt64 || labels.numel() != rows)
        ThrowInvalid("the label column must hold one int64 per row, not " + labels.ToString());
      sum_ += static_cast<double>(CountRight(value, labels));
      accuracy_ = true;
    } else {
      sum_ += ScalarOf(value, name_) * static_cast<double>(rows);
    }
  }
  NamedValue Mean(int64_t rows) const {
    return {accuracy_ ? "accuracy" : name_, sum_ / static_cast<double>(rows)};
  }

 private:
  std::string name_;
  int label_;
  double sum_ = 0;
  bool accuracy_ = false;
};

// As the job calls it.
std::string ShownName(const std::string& fetch, const JobConfig& job) {
  for (const MetricConfig& metric : job.metrics)
    if (metric.var == fetch) return metric.name;
  return fetch == job.loss ? job.loss_name : fetch;
}

// A saved model; a text is no such thing, however good.
InferenceModel OpenModel(const std::string& path, Scope& scope) {
  try {
    return LoadInferenceModel(path, scope);
  } catch (const Error& e) {
    if (!path.ends_with(".pbtxt")) throw;
    throw Error(e.code(),
                fmt::format("{} is no saved model; give one that training wrote, such as "
                            "eval.pdmodel",
                            Quote(path, 300)),
                e.what());
  }
}

// The job's carried states, as far as the model has them.
std::vector<CarryConfig> CarryOf(const JobConfig& job, const InferenceModel& model) {
  std::vector<CarryConfig> carry;
  auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const CarryConfig& c : job.carry)
    if (has(model.feed_names, c.to) && has(model.fetch_names, c.from)) carry.push_back(c);
  return carry;
}

int LabelColumn(const DataSource& data, const JobConfig& job) {
  for (const BindConfig& b : job.bind)
    if (b.var == "label") return data.FindColumn(b.column);
  return data.FindColumn("label");
}

}  // namespace

double ScalarOf(const Tensor& tensor, const std::string& name) {
  if (tensor.numel() != 1) {
    ThrowInvalid(fmt::format("{} must hold one number, a mean over the batch; it is {}",
                             Quote(name), tensor.ToString()));
  }
  if (tensor.dtype() == DType::kFloat32) return static_cast<double>(tensor.data<float>()[0]);
  if (tensor.dtype() == DType::kFloat64) return tensor.data<double>()[0];
  return tensor.Cast(DType::kFloat64).Item<double>();
}

Evaluator::Evaluator(PreparedProgram program, Feeder feeder, Carry carry, DataSourcePtr data,
                     const BatchOptions& batch)
    : program_(std::move(program)),
      feeder_(std::move(feeder)),
      carry_(std::move(carry)),
      reader_(data, batch),
      rows_(data->size()),
      means_(program_.fetch_names().size() - carry_.from().size()) {}

const std::vector<double>& Evaluator::Run(Scope& scope) {
  reader_.Seek(0);
  program_.SetStep(0);
  carry_.Reset();
  std::fill(means_.begin(), means_.end(), 0.0);
  for (int64_t b = 0; b < reader_.batches_per_epoch(); ++b) {
    const std::vector<Tensor>& batch = reader_.Next();
    auto rows = static_cast<double>(batch[0].shape()[0]);
    const std::vector<Tensor>& out = program_.Run(scope, carry_.Append(feeder_.Bind(batch)));
    for (size_t i = 0; i < means_.size(); ++i)
      means_[i] += rows * ScalarOf(out[i], program_.fetch_names()[i]);
    carry_.Take(std::span(out).subspan(means_.size()));
  }
  for (double& mean : means_) mean /= static_cast<double>(rows_);
  return means_;
}

std::vector<NamedValue> EvaluateSavedModel(const std::string& path, const JobConfig& job,
                                           const EvaluateOptions& options, std::string* profile) {
  Scope scope;
  InferenceModel model = OpenModel(path, scope);
  DataSourcePtr data = OpenTestData(job);
  const bool test = data != nullptr;
  if (!data) data = OpenTrainData(job);
  if (!data) ThrowInvalid(job.source + ": the job has no data; give test or train");
  Executor executor(options.compile, options.ops ? *options.ops : DefaultOps());
  const int64_t batch_size = job.test_batch_size && test ? job.test_batch_size : job.batch_size;
  Carry carry(model.program, CarryOf(job, model), batch_size, job.source);
  std::vector<std::string> feeds = model.feed_names, fetches = model.fetch_names;
  for (const std::string& to : carry.to()) std::erase(feeds, to);
  for (const std::string& from : carry.from()) std::erase(fetches, from);
  Feeder feeder(model.program, feeds, *data, job.bind, job.source);
  BatchReader reader(data, {.batch_size = batch_size});
  std::vector<FetchSum> sums;
  for (const std::string& name : fetches)
    sums.emplace_back(ShownName(name, job), LabelColumn(*data, job));
  feeds.insert(feeds.end(), carry.to().begin(), carry.to().end());
  fetches.insert(fetches.end(), carry.from().begin(), carry.from().end());
  PreparedProgram program = executor.Prepare(model.program, feeds, fetches);
  for (int64_t b = 0; b < reader.batches_per_epoch(); ++b) {
    const std::vector<Tensor>& batch = reader.Next();
    const std::vector<Tensor>& out = program.Run(scope, carry.Append(feeder.Bind(batch)));
    for (size_t i = 0; i < sums.size(); ++i) sums[i].Add(out[i], batch);
    carry.Take(std::span(out).subspan(sums.size()));
    // The table is of the plan run last: that of the whole batches.
    if (profile && options.compile.profile && (b == 0 || batch[0].shape()[0] == batch_size))
      *profile = program.ProfileTable();
  }
  std::vector<NamedValue> results;
  for (const FetchSum& sum : sums) results.push_back(sum.Mean(data->size()));
  return results;
}

}  // namespace coracle
