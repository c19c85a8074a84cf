#pragma once
// ExchangeRecorder: simulates rank 0 of several ranks to record which exchanges a step makes and
// when. MeasureExchangeWork measures the cost of an exchange for a rank on this machine.

#include <coracle/communication/communicator.h>
#include <coracle/distribute/step_forecast.h>

#include <chrono>
#include <memory>
#include <vector>

namespace coracle {

// The rank receives its own values at once, as if the other ranks added nothing to a reduction and
// gave the same values to a gathering.
class ExchangeRecorder final : public Communicator {
 public:
  explicit ExchangeRecorder(int size) : size_(size) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  std::unique_ptr<PendingExchange> Start(const Exchange& exchange) override;

  void BeginStep();
  void EndStep(bool keep);
  // Medians over the kept steps that made the same exchanges as the last one, and the duration of
  // each of these steps. REQUIRES: at least one step was kept.
  StepTimeline Timeline() const;

 private:
  class Pending;
  double Now() const;

  const int size_;
  std::chrono::steady_clock::time_point begin_;
  StepTimeline step_;
  std::vector<StepTimeline> steps_;
};

// Measures on 64 MiB of memory and with a second thread, in about 100 ms. `beside_ops`: whether the
// communicating thread, which a rank's thread starts, may use more cores than NumThreads().
ExchangeWork MeasureExchangeWork();

}  // namespace coracle
