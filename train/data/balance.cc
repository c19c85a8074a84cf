// Classes of different numbers of rows: weights of rows, and rows drawn equally often.

#include <coracle/framework/base/text.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/train/data/batch_check.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/data/wrapped_source.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace coracle {
namespace {

// The rows of each label; throws for a label that cannot be a class.
std::vector<std::vector<int64_t>> RowsOfClasses(const DataSource& source) {
  constexpr int64_t kMostClasses = 1 << 24;
  std::vector<std::vector<int64_t>> classes;
  const std::vector<int64_t> labels = source.Labels();
  for (size_t row = 0; row < labels.size(); ++row) {
    const int64_t label = labels[row];
    if (label < 0 || label >= kMostClasses) {
      ThrowInvalid(fmt::format("{}: the label {} is not the number of a class",
                               source.Place(static_cast<int64_t>(row)), label));
    }
    if (label >= static_cast<int64_t>(classes.size()))
      classes.resize(static_cast<size_t>(label) + 1);
    classes[static_cast<size_t>(label)].push_back(static_cast<int64_t>(row));
  }
  return classes;
}

class Weighted : public WrappedSource {
 public:
  Weighted(DataSourcePtr source, std::vector<float> weights)
      : WrappedSource(std::move(source)), columns_(source_->columns()) {
    if (FindColumn("weight") >= 0)
      ThrowInvalid(source_->Describe() + " has a column \"weight\" of its own");
    const std::vector<int64_t> labels = source_->Labels();
    for (size_t row = 0; row < labels.size(); ++row) {
      if (labels[row] >= 0 && labels[row] < static_cast<int64_t>(weights.size())) continue;
      ThrowInvalid(fmt::format("{}: the label {} has no weight; class_weight has {} values",
                               source_->Place(static_cast<int64_t>(row)), labels[row],
                               weights.size()));
    }
    label_ = static_cast<size_t>(source_->FindColumn("label"));
    columns_.push_back({"weight", DType::kFloat32, {1}});
    FittedOptions fitted = source_->fitted() ? *source_->fitted() : FittedOptions();
    fitted.class_weight = std::move(weights);
    fitted_ = std::make_shared<const FittedOptions>(std::move(fitted));
  }

  const std::vector<DataColumn>& columns() const override { return columns_; }
  std::shared_ptr<const FittedOptions> fitted() const override { return fitted_; }
  std::string Describe() const override {
    return fmt::format("{}, weighted {:g}", source_->Describe(),
                       fmt::join(fitted_->class_weight, " "));
  }
  void Get(std::span<const int64_t> rows, std::span<Tensor> out) const override {
    CheckBatch(*this, rows, out);
    source_->Get(rows, out.first(out.size() - 1));
    AddWeights(rows, out);
  }
  void GetInEpoch(int64_t epoch, std::span<const int64_t> rows,
                  std::span<Tensor> out) const override {
    CheckBatch(*this, rows, out);
    source_->GetInEpoch(epoch, rows, out.first(out.size() - 1));
    AddWeights(rows, out);
  }

 private:
  void AddWeights(std::span<const int64_t> rows, std::span<Tensor> out) const {
    const Tensor labels = out[label_].Cast(DType::kInt64);
    for (size_t i = 0; i < rows.size(); ++i)
      out.back().data<float>()[i] =
          fitted_->class_weight[static_cast<size_t>(labels.data<int64_t>()[i])];
  }

  std::vector<DataColumn> columns_;
  size_t label_ = 0;
  std::shared_ptr<const FittedOptions> fitted_;
};

class Balanced : public WrappedSource {
 public:
  Balanced(DataSourcePtr source, uint64_t seed) : WrappedSource(std::move(source)), seed_(seed) {
    classes_ = RowsOfClasses(*source_);
    std::erase_if(classes_, [](const std::vector<int64_t>& rows) { return rows.empty(); });
    if (classes_.empty()) ThrowInvalid(source_->Describe() + ": no rows to sample from");
  }

  std::string Describe() const override { return source_->Describe() + ", classes equally often"; }
  std::string Place(int64_t row) const override { return PlaceInEpoch(0, row); }
  std::string PlaceInEpoch(int64_t epoch, int64_t row) const override {
    return source_->Place(Draw(epoch, row));
  }
  std::vector<int64_t> Labels() const override {
    const std::vector<int64_t> of_rows = source_->Labels();
    std::vector<int64_t> labels;
    for (int64_t p = 0; p < size(); ++p) labels.push_back(of_rows[static_cast<size_t>(Draw(0, p))]);
    return labels;
  }
  void Get(std::span<const int64_t> rows, std::span<Tensor> out) const override {
    GetInEpoch(0, rows, out);
  }
  void GetInEpoch(int64_t epoch, std::span<const int64_t> rows,
                  std::span<Tensor> out) const override {
    CheckBatch(*this, rows, out);
    std::vector<int64_t> drawn;
    drawn.reserve(rows.size());
    for (const int64_t row : rows) drawn.push_back(Draw(epoch, row));
    source_->Get(drawn, out);
  }

 private:
  int64_t Draw(int64_t epoch, int64_t place) const {
    const auto& rows = classes_[static_cast<size_t>(place) % classes_.size()];
    const Philox random(seed_, HashName("sampling"), static_cast<uint64_t>(epoch));
    const auto words = random.Block(static_cast<uint64_t>(place));
    const uint64_t word = uint64_t{words[0]} << 32 | words[1];
    return rows[static_cast<size_t>(static_cast<unsigned __int128>(word) * rows.size() >> 64)];
  }

  uint64_t seed_;
  std::vector<std::vector<int64_t>> classes_;  // the rows of each class that has rows
};

}  // namespace

DataSourcePtr MakeWeighted(DataSourcePtr source, std::vector<float> class_weight) {
  RequireSource(source, "MakeWeighted");
  return std::make_shared<Weighted>(std::move(source), std::move(class_weight));
}

std::vector<float> BalancedWeights(const DataSource& source) {
  const auto classes = RowsOfClasses(source);
  const auto filled = std::count_if(classes.begin(), classes.end(),
                                    [](const std::vector<int64_t>& rows) { return !rows.empty(); });
  std::vector<float> weights;
  for (const std::vector<int64_t>& rows : classes) {
    const double share = static_cast<double>(filled) * static_cast<double>(rows.size());
    weights.push_back(
        rows.empty() ? 0 : static_cast<float>(static_cast<double>(source.size()) / share));
  }
  return weights;
}

DataSourcePtr MakeBalanced(DataSourcePtr source, uint64_t seed) {
  RequireSource(source, "MakeBalanced");
  return std::make_shared<Balanced>(std::move(source), seed);
}

}  // namespace coracle
