#include <coracle/framework/base/text.h>
#include <coracle/train/report/label_metrics.h>
#include <coracle/train/report/metric.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace coracle::inline internal {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool AnyNan(const std::vector<double>& values) {
  return std::any_of(values.begin(), values.end(), [](double value) { return std::isnan(value); });
}

std::span<const double> Numbers(const Tensor& saved, int64_t columns) {
  if (saved.dtype() != DType::kFloat64 || columns == 0 || saved.numel() % columns != 0)
    ThrowInvalid("the saved state of a metric is not one: " + saved.ToString());
  return saved.span<double>();
}

// A mean of numbers weighted by the rows of their batches, or the share of correct rows.
class Mean : public MetricSum {
 public:
  explicit Mean(MetricConfig config) : config_(std::move(config)) {}
  void Add(const Tensor& value, const Tensor&, int64_t rows) override {
    Weigh(ScalarOf(value, config_.var) * static_cast<double>(rows), rows);
  }
  double Value() const override {
    const double mean = weight_ > 0 ? sum_ / weight_ : kNan;
    return config_.kind == MetricKind::kPerplexity ? std::exp(mean) : mean;
  }
  void Clear() override { sum_ = weight_ = 0; }
  Tensor Save() const override { return Tensor::Of<double>({2}, {sum_, weight_}); }
  void Load(const Tensor& saved) override {
    const auto numbers = Numbers(saved, 2);
    if (numbers.size() != 2) ThrowInvalid("the saved state of a mean is " + saved.ToString());
    sum_ = numbers[0];
    weight_ = numbers[1];
  }
  void Merge(const Tensor& saved) override {
    const double sum = sum_, weight = weight_;
    Load(saved);
    sum_ += sum;
    weight_ += weight;
  }

 protected:
  void Weigh(double sum, int64_t rows) {
    sum_ += sum;
    weight_ += static_cast<double>(rows);
  }
  const MetricConfig& config() const { return config_; }

 private:
  MetricConfig config_;
  double sum_ = 0, weight_ = 0;
};

class Accuracy : public Mean {
 public:
  using Mean::Mean;
  void Add(const Tensor& value, const Tensor& label, int64_t) override {
    const LabelledScores all(value, label, config());
    int64_t right = 0;
    const double* row = all.scores.data<double>();
    for (int64_t r = 0; r < all.rows; ++r, row += all.classes) {
      const int64_t wanted = all.labels.data<int64_t>()[r];
      if (wanted >= all.classes) LabelledScores::ThrowLabel(r, wanted, all.classes, config());
      right += wanted >= 0 && IsAmongBest(row, all.classes, wanted);
    }
    Weigh(static_cast<double>(right), all.rows);
  }

 private:
  // A nan is sorted before every number, as in top_k, but is never correct itself.
  bool IsAmongBest(const double* row, int64_t classes, int64_t wanted) const {
    if (std::isnan(row[wanted])) return false;
    int64_t before = 0;
    for (int64_t c = 0; c < classes; ++c) {
      before += std::isnan(row[c]) || row[c] > row[wanted] || (row[c] == row[wanted] && c < wanted);
    }
    return before < config().k;
  }
};

class Auc : public MetricSum {
 public:
  explicit Auc(MetricConfig config) : config_(std::move(config)) {}

  // Takes one score per row, or two: for class 0 and for class 1.
  void Add(const Tensor& value, const Tensor& label, int64_t) override {
    const LabelledScores all(value, label, config_);
    if (all.classes > 2) {
      ThrowInvalid(fmt::format("metric {}: auc is of two classes; the scores {} are {}",
                               Quote(config_.name), Quote(config_.var), value.ToString()));
    }
    for (int64_t r = 0; r < all.rows; ++r) {
      const double score = all.scores.data<double>()[(r + 1) * all.classes - 1];
      const int64_t wanted = all.labels.data<int64_t>()[r];
      if (wanted != 0 && wanted != 1) {
        throw Error(ErrorCode::kOutOfRange,
                    fmt::format("metric {}: {}[{}] is {}, but auc takes labels 0 and 1",
                                Quote(config_.name), config_.label, r, wanted));
      }
      (wanted == 1 ? ones_ : zeros_).push_back(score);
    }
  }

  // Computes the Mann-Whitney statistic: each score with label 1 counts the smaller scores with
  // label 0, and half of the equal ones. The result is nan if a score is nan, since a nan has no
  // place in this order.
  double Value() const override {
    if (ones_.empty() || zeros_.empty() || AnyNan(ones_) || AnyNan(zeros_)) return kNan;
    std::vector<double> zeros = zeros_;
    std::sort(zeros.begin(), zeros.end());
    double pairs = 0;
    for (double one : ones_) {
      const auto [first, last] = std::equal_range(zeros.begin(), zeros.end(), one);
      pairs += 0.5 * static_cast<double>((first - zeros.begin()) + (last - zeros.begin()));
    }
    return pairs / static_cast<double>(ones_.size()) / static_cast<double>(zeros.size());
  }
  void Clear() override {
    ones_.clear();
    zeros_.clear();
  }
  Tensor Save() const override {
    std::vector<double> rows;
    rows.reserve(2 * (ones_.size() + zeros_.size()));
    for (double score : zeros_) rows.insert(rows.end(), {0, score});
    for (double score : ones_) rows.insert(rows.end(), {1, score});
    return Tensor::Of<double>({static_cast<int64_t>(rows.size() / 2), 2}, rows);
  }
  void Load(const Tensor& saved) override {
    Clear();
    Merge(saved);
  }
  void Merge(const Tensor& saved) override {
    const auto numbers = Numbers(saved, 2);
    for (size_t i = 0; i < numbers.size(); i += 2)
      (numbers[i] != 0 ? ones_ : zeros_).push_back(numbers[i + 1]);
  }

 private:
  MetricConfig config_;
  std::vector<double> ones_, zeros_;  // scores by label
};

}  // namespace

double ScalarOf(const Tensor& tensor, const std::string& name) {
  if (tensor.numel() != 1) {
    ThrowInvalid(fmt::format("{} must hold one number, a mean over the batch; it is {}",
                             Quote(name), tensor.ToString()));
  }
  if (IsComplex(tensor.dtype()))
    ThrowInvalid(
        fmt::format("{} must hold a real number; it is {}", Quote(name), tensor.ToString()));
  if (tensor.dtype() == DType::kFloat32) return static_cast<double>(tensor.data<float>()[0]);
  if (tensor.dtype() == DType::kFloat64) return tensor.data<double>()[0];
  if (tensor.dtype() == DType::kInt64) return static_cast<double>(tensor.data<int64_t>()[0]);
  return tensor.Cast(DType::kFloat64).Item<double>();
}

std::unique_ptr<MetricSum> MakeMetricSum(const MetricConfig& config) {
  switch (config.kind) {
    case MetricKind::kMean:
    case MetricKind::kPerplexity:
      return std::make_unique<Mean>(config);
    case MetricKind::kAccuracy:
      return std::make_unique<Accuracy>(config);
    case MetricKind::kAuc:
      return std::make_unique<Auc>(config);
    default:
      return MakeLabelMetric(config);
  }
}

std::vector<MetricConfig> NumberMetrics(std::vector<MetricConfig> metrics) {
  std::erase_if(metrics, [](const MetricConfig& m) { return m.kind == MetricKind::kConfusion; });
  return metrics;
}

MetricSums::MetricSums(const std::string& loss, const std::vector<MetricConfig>& metrics) {
  std::vector<MetricConfig> all;
  if (!loss.empty()) all.push_back({loss, loss});
  all.insert(all.end(), metrics.begin(), metrics.end());
  for (const MetricConfig& metric : all) {
    if (metric.kind != MetricKind::kConfusion) numbers_.push_back(sums_.size());
    sums_.push_back(MakeMetricSum(metric));
    value_.push_back(Fetch(metric.var));
    label_.push_back(metric.label.empty() ? value_.back() : Fetch(metric.label));
  }
}

size_t MetricSums::Fetch(const std::string& name) {
  const auto found = std::find(fetches_.begin(), fetches_.end(), name);
  const auto at = static_cast<size_t>(found - fetches_.begin());
  if (found == fetches_.end()) fetches_.push_back(name);
  return at;
}

void MetricSums::Add(std::span<const Tensor> fetched, int64_t rows) {
  for (size_t i = 0; i < sums_.size(); ++i)
    sums_[i]->Add(fetched[value_[i]], fetched[label_[i]], rows);
}

std::vector<ConfusionMatrix> MetricSums::Confusions() const {
  std::vector<ConfusionMatrix> confusions;
  for (const auto& sum : sums_)
    if (auto confusion = sum->Confusion()) confusions.push_back(*std::move(confusion));
  return confusions;
}

void MetricSums::Clear() {
  for (auto& sum : sums_) sum->Clear();
}

NamedTensors MetricSums::Save() const {
  NamedTensors saved;
  for (size_t i = 0; i < sums_.size(); ++i)
    saved.emplace_back(fmt::format("metric_{}", i), sums_[i]->Save());
  return saved;
}

void MetricSums::Merge(const Ranks& ranks, bool keep_on_first) {
  if (!ranks.several()) return;
  for (auto& sum : sums_) {
    const Tensor own = sum->Save();
    const std::vector<std::string> all = ranks.Gather(
        std::string(static_cast<const char*>(own.raw()), static_cast<size_t>(own.nbytes())));
    sum->Clear();
    if (keep_on_first && !ranks.first()) continue;
    for (const std::string& part : all) {
      std::vector<double> numbers(part.size() / sizeof(double));
      if (!numbers.empty()) std::memcpy(numbers.data(), part.data(), part.size());
      sum->Merge(Tensor::Of<double>({static_cast<int64_t>(numbers.size())}, numbers));
    }
  }
}

void MetricSums::Load(const NamedTensors& saved) {
  for (size_t i = 0; i < sums_.size(); ++i) {
    const std::string name = fmt::format("metric_{}", i);
    const auto found = std::find_if(saved.begin(), saved.end(),
                                    [&name](const auto& entry) { return entry.first == name; });
    if (found == saved.end()) ThrowInvalid("the saved state of " + name + " is missing");
    sums_[i]->Load(found->second);
  }
}

}  // namespace coracle::inline internal
