#pragma once
// ExchangeRecorder: rank 0 of ranks that are not there, to learn when a step exchanges what; and
// what an exchange costs a rank of this machine.

#include <coracle/communication/communicator.h>
#include <coracle/distribute/step_forecast.h>

#include <chrono>
#include <memory>
#include <vector>

namespace coracle {

// What the rank gives comes back at once, as if the others had given nothing to a reduction and the
// same to a gathering.
class ExchangeRecorder final : public Communicator {
 public:
  explicit ExchangeRecorder(int size) : size_(size) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  std::unique_ptr<PendingExchange> Start(const Exchange& exchange) override;

  void BeginStep();
  void EndStep(bool keep);
  // Medians of the steps that were kept and exchanged what the last one did, and how long each of
  // these steps was. REQUIRES: one was kept.
  StepTimeline Timeline() const;

 private:
  class Pending;
  double Now() const;

  const int size_;
  std::chrono::steady_clock::time_point begin_;
  StepTimeline step_;
  std::vector<StepTimeline> steps_;
};

// Measured on 64 MiB of memory and a second thread, in some 100 ms; `beside_ops` where the thread
// that communicates, which a rank's thread starts, may use more cores than NumThreads().
ExchangeWork MeasureExchangeWork();

}  // namespace coracle
