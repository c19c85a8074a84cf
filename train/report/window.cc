#include <coracle/framework/base/error.h>
#include <coracle/train/report/report.h>
#include <coracle/train/report/window.h>

#include <algorithm>

namespace coracle {
namespace {

constexpr const char* kLosses = "losses";

}  // namespace

StepWindow::StepWindow(const std::string& loss, const std::vector<MetricConfig>& metrics,
                       int64_t average_loss)
    : sums_(loss, NumberMetrics(metrics)),
      most_(static_cast<size_t>(average_loss)),
      metrics_(sums_.size() - 1) {}

void StepWindow::Add(std::span<const Tensor> fetched, int64_t own_rows, double loss, int64_t rows) {
  if (own_rows > 0) sums_.Add(fetched, own_rows);
  if (most_ == 0) return;
  const auto weight = static_cast<double>(rows);
  losses_.emplace_back(loss * weight, weight);
  if (losses_.size() > most_) losses_.pop_front();
}

void StepWindow::Clear() { sums_.Clear(); }

double StepWindow::MeanLoss() const {
  if (most_ == 0) return sums_.Value(0);
  double sum = 0, weight = 0;
  for (const auto& [loss, rows] : losses_) {
    sum += loss;
    weight += rows;
  }
  return sum / weight;
}

const std::vector<double>& StepWindow::MeanMetrics() {
  for (size_t i = 0; i < metrics_.size(); ++i) metrics_[i] = sums_.Value(i + 1);
  return metrics_;
}

NamedTensors StepWindow::Save() const {
  NamedTensors saved = sums_.Save();
  if (most_ == 0) return saved;
  std::vector<double> losses;
  losses.reserve(2 * losses_.size());
  for (const auto& [loss, rows] : losses_) losses.insert(losses.end(), {loss, rows});
  saved.emplace_back(kLosses,
                     Tensor::Of<double>({static_cast<int64_t>(losses_.size()), 2}, losses));
  return saved;
}

// If the saved window has another length, keeps the newest losses.
void StepWindow::Load(const NamedTensors& saved) {
  sums_.Load(saved);
  for (const auto& [name, losses] : saved) {
    if (name != kLosses || most_ == 0) continue;
    if (losses.dtype() != DType::kFloat64 || losses.shape().rank() != 2 || losses.shape()[1] != 2)
      ThrowInvalid("the saved losses are " + losses.ToString());
    const auto count = static_cast<size_t>(losses.shape()[0]);
    losses_.clear();
    for (size_t i = count - std::min(count, most_); i < count; ++i) {
      const double* pair = losses.data<double>() + 2 * i;
      losses_.emplace_back(pair[0], pair[1]);
    }
  }
}

double StepReport::MeanLoss() const { return window.MeanLoss(); }
const std::vector<double>& StepReport::MeanMetrics() const { return window.MeanMetrics(); }

}  // namespace coracle
