#include <coracle/framework/base/text.h>
#include <coracle/train/data/row_error.h>
#include <coracle/train/run/evaluation/evaluator.h>
#include <coracle/train/run/evaluation/saved_evaluation.h>
#include <coracle/train/run/label_unit.h>
#include <coracle/train/run/predict/output_meaning.h>
#include <coracle/train/run/saved_model.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

namespace coracle {
namespace {

// Sums up one fetch of a saved model. A fetch [rows, classes] of real numbers is compared with the
// integer labels: a saved model no longer has the loss that would show that these are scores.
class FetchSum {
 public:
  FetchSum(std::string name, int label_column) : name_(std::move(name)), label_(label_column) {}

  void Add(const Tensor& value, const std::vector<Tensor>& batch) {
    const int64_t rows = RowsOfBatch(batch[0]);
    const bool scores = value.shape().rank() == 2 && value.shape()[0] == rows &&
                        value.shape()[1] > 1 && IsFloating(value.dtype()) && label_ >= 0;
    const Tensor& label = scores ? batch[static_cast<size_t>(label_)] : value;
    if (!sum_) {
      accuracy_ = scores;
      sum_ = MakeMetricSum({name_, accuracy_ ? "accuracy" : name_,
                            accuracy_ ? MetricKind::kAccuracy : MetricKind::kMean, "label"});
    }
    sum_->Add(value, label, rows);
  }
  NamedValue Mean() const { return {accuracy_ ? "accuracy" : name_, sum_->Value()}; }

 private:
  std::string name_;
  int label_;
  std::unique_ptr<MetricSum> sum_;
  bool accuracy_ = false;
};

// Sums up the fetches of a saved model: the loss and the metrics of the job or, for a model without
// the loss, each fetch by itself.
class Results {
 public:
  Results(const JobConfig& job, const ProgramDesc& program, std::vector<std::string> fetches,
          const DataSource& data, int label_column)
      : fetches_(std::move(fetches)) {
    if (std::find(fetches_.begin(), fetches_.end(), job.loss) == fetches_.end()) {
      for (const std::string& name : fetches_)
        sums_.emplace_back(ShownName(name, job), label_column);
      return;
    }
    std::vector<MetricConfig> metrics;
    names_.push_back(job.loss_name);
    for (const MetricConfig& metric : job.metrics) {
      const bool labelled = metric.label.empty() || program.Root().FindVar(metric.label);
      if (!program.Root().FindVar(metric.var) || !labelled) continue;
      metrics.push_back(metric);
      if (metric.kind != MetricKind::kConfusion) names_.push_back(metric.name);
    }
    SetUnits(job, data, program, &metrics);
    of_job_.emplace(job.loss, metrics);
    fetches_ = of_job_->fetches();
  }

  const std::vector<std::string>& fetches() const { return fetches_; }
  void Add(const std::vector<Tensor>& out, const std::vector<Tensor>& batch) {
    if (of_job_) return of_job_->Add(out, RowsOfBatch(batch[0]));
    for (size_t i = 0; i < sums_.size(); ++i) sums_[i].Add(out[i], batch);
  }
  std::vector<NamedValue> Values() const {
    std::vector<NamedValue> values;
    for (size_t i = 0; i < names_.size(); ++i) values.push_back({names_[i], of_job_->Value(i)});
    for (const FetchSum& sum : sums_) values.push_back(sum.Mean());
    return values;
  }
  std::vector<ConfusionMatrix> Confusions() const {
    return of_job_ ? of_job_->Confusions() : std::vector<ConfusionMatrix>();
  }

 private:
  // The name of the fetch in the job.
  static std::string ShownName(const std::string& fetch, const JobConfig& job) {
    for (const MetricConfig& metric : job.metrics)
      if (metric.var == fetch) return metric.name;
    return fetch;
  }

  std::vector<std::string> fetches_, names_;
  std::optional<MetricSums> of_job_;
  std::vector<FetchSum> sums_;
};

}  // namespace

std::vector<NamedValue> EvaluateSavedModel(const std::string& path, const JobConfig& job,
                                           const EvaluateOptions& options, std::string* profile) {
  return MeasureSavedModel(path, job, options, profile).values;
}

Measured internal::MeasureSavedModel(const std::string& path, const JobConfig& job,
                                     const EvaluateOptions& options, std::string* profile) {
  Scope scope;
  const InferenceModel model = OpenMeasuredModel(path, scope);
  const TestSetConfig set = ChooseTestSet(job, options.test_set);
  const DataSourcePtr data = OpenTestSet(job, set);
  Executor executor(options.compile, options.ops ? *options.ops : DefaultOps());
  StateCarry carry(model.program, CarryOfModel(job, model), set.batch_size, job.source);
  std::vector<std::string> feeds = model.feed_names, fetches = model.fetch_names;
  for (const std::string& to : carry.to()) std::erase(feeds, to);
  for (const std::string& from : carry.from()) std::erase(fetches, from);
  Feeder feeder(model.program, feeds, *data, job.bind, job.Place(set.where));
  Results results(job, model.program, fetches, *data, LabelColumnOf(*data, job));
  fetches = results.fetches();
  feeds.insert(feeds.end(), carry.to().begin(), carry.to().end());
  fetches.insert(fetches.end(), carry.from().begin(), carry.from().end());
  PreparedProgram program = executor.PrepareOwning(model.program, scope, feeds, fetches);
  BatchReader reader(data, {.batch_size = set.batch_size});
  int64_t batches = reader.batches_per_epoch();
  if (set.iterations > 0) batches = std::min(batches, set.iterations);
  for (int64_t b = 0; b < batches; ++b) {
    const std::vector<Tensor>& batch = reader.Next();
    NameRowsInErrors(reader, batch, [&] {
      const std::vector<Tensor>& out = program.Run(scope, carry.Append(feeder.Bind(batch)));
      results.Add(out, batch);
      carry.Receive(std::span(out).subspan(results.fetches().size()));
    });
    // The table covers the last plan: take it for batches of full size.
    if (profile && options.compile.profile && (b == 0 || RowsOfBatch(batch[0]) == set.batch_size))
      *profile = program.ProfileTable();
  }
  Measured measured = {results.Values(), results.Confusions()};
  NameClasses(job, *data, &measured.confusions);
  return measured;
}

}  // namespace coracle
