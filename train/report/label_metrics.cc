#include <coracle/framework/base/text.h>
#include <coracle/train/job/job_fields.h>
#include <coracle/train/report/label_metrics.h>
#include <coracle/train/report/quality.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace coracle::inline internal {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::span<const double> SavedNumbers(const Tensor& saved, int64_t columns) {
  if (saved.dtype() != DType::kFloat64 || saved.numel() % columns != 0)
    ThrowInvalid("the saved state of a metric is not one: " + saved.ToString());
  return saved.span<double>();
}

class ClassMetric : public MetricSum {
 public:
  explicit ClassMetric(MetricConfig config) : config_(std::move(config)) {}

  void Add(const Tensor& value, const Tensor& label, int64_t) override {
    const LabelledScores all(value, label, config_);
    const int64_t numbered = all.classes == 1 ? 2 : all.classes;
    Resize(static_cast<size_t>(numbered));
    for (int64_t r = 0; r < all.rows; ++r) {
      const int64_t wanted = all.labels.data<int64_t>()[r];
      if (wanted < 0) continue;
      if (wanted >= numbered) LabelledScores::ThrowLabel(r, wanted, numbered, config_);
      const int64_t answer = BestClass(all.scores.span<double>().subspan(
          static_cast<size_t>(r * all.classes), static_cast<size_t>(all.classes)));
      ClassCounts& own = counts_[static_cast<size_t>(wanted)];
      own.labelled += 1;
      own.right += answer == wanted;
      if (answer >= 0) counts_[static_cast<size_t>(answer)].answered += 1;
    }
  }
  double Value() const override {
    const ClassQuality q = AverageQuality(counts_, config_.average);
    if (config_.kind == MetricKind::kPrecision) return q.precision;
    return config_.kind == MetricKind::kRecall ? q.recall : q.f1;
  }
  void Clear() override { counts_.clear(); }
  Tensor Save() const override {
    std::vector<double> numbers;
    for (const ClassCounts& own : counts_) {
      numbers.insert(numbers.end(),
                     {static_cast<double>(own.right), static_cast<double>(own.labelled),
                      static_cast<double>(own.answered)});
    }
    return Tensor::Of<double>({static_cast<int64_t>(counts_.size()), 3}, numbers);
  }
  void Load(const Tensor& saved) override {
    Clear();
    Merge(saved);
  }
  void Merge(const Tensor& saved) override {
    const auto numbers = SavedNumbers(saved, 3);
    for (const double v : numbers)
      if (!(v >= 0 && v < 0x1p53)) ThrowInvalid("the saved counts of a metric are not counts");
    Resize(numbers.size() / 3);
    for (size_t i = 0; i < numbers.size(); i += 3) {
      ClassCounts& own = counts_[i / 3];
      own.right += static_cast<int64_t>(numbers[i]);
      own.labelled += static_cast<int64_t>(numbers[i + 1]);
      own.answered += static_cast<int64_t>(numbers[i + 2]);
    }
  }

 private:
  void Resize(size_t classes) {
    if (classes > counts_.size()) counts_.resize(classes);
  }

  MetricConfig config_;
  std::vector<ClassCounts> counts_;
};

// Counts of labels and answers. A row whose answer is nan has no place and is left out.
class ConfusionMetric : public MetricSum {
 public:
  explicit ConfusionMetric(MetricConfig config) : config_(std::move(config)) {}

  void Add(const Tensor& value, const Tensor& label, int64_t) override {
    const LabelledScores all(value, label, config_);
    if (all.rows == 0) return;  // the scores of no rows do not show how many classes there are
    const int64_t numbered = all.classes == 1 ? 2 : all.classes;
    Resize(numbered);
    for (int64_t r = 0; r < all.rows; ++r) {
      const int64_t wanted = all.labels.data<int64_t>()[r];
      if (wanted < 0) continue;
      if (wanted >= numbered) LabelledScores::ThrowLabel(r, wanted, numbered, config_);
      const int64_t answer = BestClass(all.scores.span<double>().subspan(
          static_cast<size_t>(r * all.classes), static_cast<size_t>(all.classes)));
      if (answer >= 0) ++counts_[static_cast<size_t>(wanted * classes_ + answer)];
    }
  }
  double Value() const override { return kNan; }
  std::optional<ConfusionMatrix> Confusion() const override {
    return ConfusionMatrix{config_.name, classes_, counts_};
  }
  void Clear() override { std::fill(counts_.begin(), counts_.end(), 0); }
  Tensor Save() const override {
    const std::vector<double> numbers(counts_.begin(), counts_.end());
    return Tensor::Of<double>({classes_, classes_}, numbers);
  }
  void Load(const Tensor& saved) override {
    Clear();
    Merge(saved);
  }
  // The state of a rank comes as a list of numbers.
  void Merge(const Tensor& saved) override {
    const auto numbers = SavedNumbers(saved, 1);
    const auto side = static_cast<int64_t>(std::lround(std::sqrt(numbers.size())));
    if (static_cast<size_t>(side * side) != numbers.size())
      ThrowInvalid("the saved state of a confusion matrix is " + saved.ToString());
    if (side == 0) return;
    Resize(side);
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (!(numbers[i] >= 0 && numbers[i] < 0x1p53))
        ThrowInvalid("the saved counts of a metric are not counts");
      counts_[i] += static_cast<int64_t>(numbers[i]);
    }
  }

 private:
  void Resize(int64_t classes) {
    if (classes_ == classes) return;
    if (classes_ != 0 || classes > kMostClasses) {
      ThrowInvalid(fmt::format("metric {}: a confusion matrix of {} classes{}", Quote(config_.name),
                               classes,
                               classes_ == 0 ? fmt::format("; at most {} are counted", kMostClasses)
                                             : fmt::format(", after one of {}", classes_)));
    }
    classes_ = classes;
    counts_.assign(static_cast<size_t>(classes * classes), 0);
  }

  static constexpr int64_t kMostClasses = 2048;
  MetricConfig config_;
  int64_t classes_ = 0;
  std::vector<int64_t> counts_;
};

class NumberMetric : public MetricSum {
 public:
  explicit NumberMetric(MetricConfig config) : config_(std::move(config)) {}

  void Add(const Tensor& value, const Tensor& label, int64_t) override {
    const bool numbers = IsFloating(value.dtype()) && !IsComplex(label.dtype()) &&
                         label.dtype() != DType::kString && value.numel() == label.numel();
    if (!numbers) {
      ThrowInvalid(fmt::format(
          "metric {}: the numbers {} are {} and the labels {} {}: there must be one label for each "
          "number",
          Quote(config_.name), Quote(config_.var), value.ToString(), Quote(config_.label),
          label.ToString()));
    }
    const Tensor answers = value.Cast(DType::kFloat64), wanted = label.Cast(DType::kFloat64);
    for (const double v : wanted.span<double>()) {
      if (!std::isfinite(v))
        ThrowInvalid(fmt::format("metric {}: a label {} is {}", Quote(config_.name),
                                 Quote(config_.label), v));
    }
    answers_.insert(answers_.end(), answers.span<double>().begin(), answers.span<double>().end());
    labels_.insert(labels_.end(), wanted.span<double>().begin(), wanted.span<double>().end());
  }
  double Value() const override {
    if (answers_.empty()) return kNan;
    const NumberQuality q = MeasureNumbers(answers_, labels_);
    if (config_.kind == MetricKind::kR2) return q.r2;
    return config_.unit * (config_.kind == MetricKind::kMae ? q.mean_absolute : q.root_mean_square);
  }
  void Clear() override {
    answers_.clear();
    labels_.clear();
  }
  Tensor Save() const override {
    std::vector<double> numbers;
    for (size_t i = 0; i < answers_.size(); ++i)
      numbers.insert(numbers.end(), {answers_[i], labels_[i]});
    return Tensor::Of<double>({static_cast<int64_t>(answers_.size()), 2}, numbers);
  }
  void Load(const Tensor& saved) override {
    Clear();
    Merge(saved);
  }
  void Merge(const Tensor& saved) override {
    const auto numbers = SavedNumbers(saved, 2);
    for (size_t i = 0; i < numbers.size(); i += 2) {
      answers_.push_back(numbers[i]);
      labels_.push_back(numbers[i + 1]);
    }
  }

 private:
  MetricConfig config_;
  std::vector<double> answers_, labels_;
};

}  // namespace

LabelledScores::LabelledScores(const Tensor& value, const Tensor& label, const MetricConfig& config)
    : scores(value.Cast(DType::kFloat64)), labels(label.Cast(DType::kInt64)) {
  rows = labels.numel();
  classes = rows > 0 ? scores.numel() / rows : 1;
  if (IsFloating(value.dtype()) && !IsFloating(label.dtype()) && !IsComplex(label.dtype()) &&
      classes > 0 && rows * classes == scores.numel()) {
    return;
  }
  ThrowInvalid(fmt::format(
      "metric {}: the scores {} are {} and the labels {} {}: there must be one integer per row",
      Quote(config.name), Quote(config.var), value.ToString(), Quote(config.label),
      label.ToString()));
}

void LabelledScores::ThrowLabel(int64_t row, int64_t wanted, int64_t limit,
                                const MetricConfig& config) {
  throw Error(ErrorCode::kOutOfRange,
              fmt::format("metric {}: {}[{}] is {}, which must lie in [0, {})", Quote(config.name),
                          config.label, row, wanted, limit));
}

std::unique_ptr<MetricSum> MakeLabelMetric(const MetricConfig& config) {
  if (ComparesNumbers(config.kind)) return std::make_unique<NumberMetric>(config);
  if (config.kind == MetricKind::kConfusion) return std::make_unique<ConfusionMetric>(config);
  return std::make_unique<ClassMetric>(config);
}

}  // namespace coracle::inline internal
