// Mixtures of two rows, drawn by (seed, epoch, row).

#include <coracle/framework/base/text.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/train/data/batch_check.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/data/wrapped_source.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace coracle {
namespace {

constexpr int64_t kMostClasses = 1 << 20;
// Blocks of random words of a row: 2 for the other row, and 2 for each attempt of a draw. Less than
// 5% of the attempts fail.
constexpr uint64_t kBlocksOfRow = 512;

// Uniform numbers of a row, one after the other.
class RowDraws {
 public:
  RowDraws(const Philox& random, int64_t row)
      : random_(random), first_(static_cast<uint64_t>(row) * kBlocksOfRow) {}

  uint64_t Word() {
    const auto words = random_.Block(first_ + next_++ % kBlocksOfRow);
    return uint64_t{words[0]} << 32 | words[1];
  }
  double Uniform() {  // in (0, 1)
    return (static_cast<double>(Word() >> 12) + 0.5) * 0x1p-52;
  }
  double Normal() {
    const double radius = std::sqrt(-2 * std::log(Uniform()));
    return radius * std::cos(2 * 3.14159265358979323846 * Uniform());
  }
  // The logarithm of a number with the distribution Gamma(shape, 1): Marsaglia and Tsang, "A simple
  // method for generating gamma variables", 2000. For a shape below 1, Gamma(shape) is
  // Gamma(shape + 1) * U^(1 / shape), whose logarithm does not underflow.
  double LogGamma(double shape) {
    if (shape < 1) return LogGamma(shape + 1) + std::log(Uniform()) / shape;
    const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    for (int attempt = 0; attempt < 64; ++attempt) {
      const double x = Normal(), root = 1 + c * x;
      if (root <= 0) continue;
      const double v = root * root * root;
      if (std::log(Uniform()) < 0.5 * x * x + d - d * v + d * std::log(v))
        return std::log(d) + std::log(v);
    }
    return std::log(d);
  }

 private:
  const Philox& random_;
  uint64_t first_, next_ = 0;
};

class Mixed : public WrappedSource {
 public:
  Mixed(DataSourcePtr source, const MixupOptions& options)
      : WrappedSource(std::move(source)), options_(options), columns_(source_->columns()) {
    if (!(options.alpha > 0 && std::isfinite(options.alpha)))
      ThrowInvalid(fmt::format("mixup: alpha must be positive, got {:g}", options.alpha));
    if (FindColumn("soft_label") >= 0)
      ThrowInvalid("mixup: " + source_->Describe() + " has a column \"soft_label\" of its own");
    CountClasses();
    FindColumns();
    columns_.push_back({"soft_label", DType::kFloat32, {options_.classes}});
    FittedOptions fitted = source_->fitted() ? *source_->fitted() : FittedOptions();
    fitted.soft_classes = options_.classes;
    fitted_ = std::make_shared<const FittedOptions>(std::move(fitted));
  }

  const std::vector<DataColumn>& columns() const override { return columns_; }
  std::shared_ptr<const FittedOptions> fitted() const override { return fitted_; }
  std::string Describe() const override {
    return options_.mixes ? fmt::format("{}, mixup {:g}", source_->Describe(), options_.alpha)
                          : source_->Describe();
  }
  void Get(std::span<const int64_t> rows, std::span<Tensor> out) const override {
    CheckBatch(*this, rows, out);
    source_->Get(rows, out.first(out.size() - 1));
    SetSoftLabels(rows.size(), out);
  }
  void GetInEpoch(int64_t epoch, std::span<const int64_t> rows,
                  std::span<Tensor> out) const override {
    CheckBatch(*this, rows, out);
    source_->GetInEpoch(epoch, rows, out.first(out.size() - 1));
    SetSoftLabels(rows.size(), out);
    if (options_.mixes) MixRows(epoch, rows, out);
  }

 private:
  void CountClasses() {
    std::vector<int64_t> labels;
    try {
      labels = source_->Labels();
    } catch (const Error& e) {
      throw e.WithPrefix("mixup");
    }
    const int64_t most = options_.classes > 0 ? options_.classes : kMostClasses;
    int64_t largest = 0;
    for (size_t row = 0; row < labels.size(); ++row) {
      largest = std::max(largest, labels[row]);
      if (labels[row] >= 0 && labels[row] < most) continue;
      ThrowInvalid(fmt::format("{}: mixup: the label {} must lie in [0, {})",
                               source_->Place(static_cast<int64_t>(row)), labels[row], most));
    }
    if (options_.classes == 0) options_.classes = largest + 1;
  }

  void FindColumns() {
    label_ = static_cast<size_t>(source_->FindColumn("label"));
    for (size_t c = 0; c < columns_.size(); ++c) {
      const DataColumn& column = columns_[c];
      if (column.dtype == DType::kFloat32 && !column.sequences && column.name != "weight" &&
          column.name != "soft_label")
        values_.push_back(c);
    }
    if (!values_.empty()) return;
    ThrowInvalid("mixup: " + source_->Describe() +
                 " has no column of float32 numbers, of which a mixture has a meaning");
  }

  // A 1 for the label of each row.
  void SetSoftLabels(size_t rows, std::span<Tensor> out) const {
    const Tensor labels = out[label_].Cast(DType::kInt64);
    float* soft = out.back().data<float>();
    std::fill_n(soft, static_cast<int64_t>(rows) * options_.classes, 0.0F);
    for (size_t i = 0; i < rows; ++i)
      soft[static_cast<int64_t>(i) * options_.classes + labels.data<int64_t>()[i]] = 1;
  }

  void MixRows(int64_t epoch, std::span<const int64_t> rows, std::span<Tensor> out) const {
    const Philox random(options_.seed, HashName("mixup"), static_cast<uint64_t>(epoch));
    std::vector<int64_t> others;
    std::vector<float> shares;
    for (const int64_t row : rows) {
      RowDraws draws(random, row);
      const auto size = static_cast<unsigned __int128>(size_t(source_->size()));
      others.push_back(static_cast<int64_t>(draws.Word() * size >> 64));
      const double a = draws.LogGamma(options_.alpha), b = draws.LogGamma(options_.alpha);
      shares.push_back(static_cast<float>(1 / (1 + std::exp(b - a))));
    }
    std::vector<Tensor> other;
    for (size_t c = 0; c < out.size(); ++c) {
      Shape shape{columns_[c].sequences ? 0 : static_cast<int64_t>(rows.size())};
      for (const int64_t dim : columns_[c].shape) shape.Append(dim);
      other.emplace_back(columns_[c].dtype, shape);
    }
    const std::span<Tensor> all(other);
    source_->GetInEpoch(epoch, others, all.first(other.size() - 1));
    SetSoftLabels(rows.size(), all);
    std::vector<size_t> mixed = values_;
    mixed.push_back(columns_.size() - 1);
    for (size_t i = 0; i < rows.size(); ++i) {
      for (const size_t c : mixed) {
        const auto n = static_cast<size_t>(columns_[c].shape.numel());
        float* to = out[c].data<float>() + i * n;
        const float* from = other[c].data<float>() + i * n;
        for (size_t k = 0; k < n; ++k) to[k] = shares[i] * to[k] + (1 - shares[i]) * from[k];
      }
      if (shares[i] < 0.5F) CopyLabel(other[label_], i, &out[label_]);
    }
  }

  static void CopyLabel(const Tensor& from, size_t row, Tensor* to) {
    const size_t bytes = SizeOf(to->dtype());  // one integer a row
    std::copy_n(static_cast<const char*>(from.raw()) + row * bytes, bytes,
                static_cast<char*>(to->raw()) + row * bytes);
  }

  MixupOptions options_;
  std::vector<DataColumn> columns_;
  size_t label_ = 0;
  std::vector<size_t> values_;  // the columns of real numbers
  std::shared_ptr<const FittedOptions> fitted_;
};

}  // namespace

DataSourcePtr MakeMixed(DataSourcePtr source, const MixupOptions& options) {
  RequireSource(source, "MakeMixed");
  return std::make_shared<Mixed>(std::move(source), options);
}

}  // namespace coracle
