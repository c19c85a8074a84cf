#include <coracle/framework/base/error.h>
#include <coracle/train/window.h>

#include <algorithm>

namespace coracle {
namespace {

constexpr const char* kLosses = "losses";

}  // namespace

StepWindow::StepWindow(const std::string& loss, const std::vector<MetricConfig>& metrics,
                       int64_t average_loss)
    : sums_(loss, metrics), ring_(static_cast<size_t>(average_loss)), metrics_(metrics.size()) {}

void StepWindow::Add(std::span<const Tensor> fetched, int64_t rows) {
  sums_.Add(fetched, rows);
  if (ring_.empty()) return;
  const auto weight = static_cast<double>(rows);
  ring_[next_] = {ScalarOf(fetched[0], fetches()[0]) * weight, weight};
  next_ = (next_ + 1) % ring_.size();
  filled_ = std::min(filled_ + 1, ring_.size());
}

void StepWindow::Clear() { sums_.Clear(); }

double StepWindow::MeanLoss() const {
  if (ring_.empty()) return sums_.Value(0);
  double sum = 0, weight = 0;
  for (size_t i = 0; i < filled_; ++i) {
    sum += ring_[i].first;
    weight += ring_[i].second;
  }
  return sum / weight;
}

const std::vector<double>& StepWindow::MeanMetrics() {
  for (size_t i = 0; i < metrics_.size(); ++i) metrics_[i] = sums_.Value(i + 1);
  return metrics_;
}

NamedTensors StepWindow::Save() const {
  NamedTensors saved = sums_.Save();
  if (ring_.empty()) return saved;
  std::vector<double> losses;  // the oldest first
  losses.reserve(2 * filled_);
  for (size_t i = 0; i < filled_; ++i) {
    const auto& [loss, rows] = ring_[(next_ + ring_.size() - filled_ + i) % ring_.size()];
    losses.insert(losses.end(), {loss, rows});
  }
  saved.emplace_back(kLosses, Tensor::Of<double>({static_cast<int64_t>(filled_), 2}, losses));
  return saved;
}

// Of another length the newest losses are taken.
void StepWindow::Load(const NamedTensors& saved) {
  sums_.Load(saved);
  for (const auto& [name, losses] : saved) {
    if (name != kLosses || ring_.empty()) continue;
    if (losses.dtype() != DType::kFloat64 || losses.shape().rank() != 2 || losses.shape()[1] != 2)
      ThrowInvalid("the saved losses are " + losses.ToString());
    const auto count = static_cast<size_t>(losses.shape()[0]);
    filled_ = std::min(count, ring_.size());
    for (size_t i = 0; i < filled_; ++i) {
      const double* pair = losses.data<double>() + 2 * (count - filled_ + i);
      ring_[i] = {pair[0], pair[1]};
    }
    next_ = filled_ % ring_.size();
  }
}

}  // namespace coracle
