// The plugin libcoracle_mpi.so: processes as ranks, by Open MPI.

#include <coracle/communication/communicator.h>
#include <coracle/communication/mpi/mpi_thread.h>
#include <coracle/framework/base/version.h>
#include <fmt/format.h>

#include <exception>

namespace coracle::inline internal {
namespace {

class MpiExchange final : public PendingExchange {
 public:
  MpiExchange(MpiThread& thread, std::shared_ptr<MpiJob> job)
      : thread_(thread), job_(std::move(job)) {}
  ~MpiExchange() override {
    if (!waited_) thread_.GiveUp(*job_);
  }
  void Wait() override {
    waited_ = true;
    thread_.Wait(*job_);
  }

 private:
  MpiThread& thread_;
  std::shared_ptr<MpiJob> job_;
  bool waited_ = false;
};

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(double time_limit) : thread_(*new MpiThread(time_limit)) {
    thread_.AwaitStart();
  }
  // MPI ends when all ranks end it. A rank that fails does not wait for the others: its thread
  // outlives the communicator until the process ends.
  ~MpiCommunicator() override {
    if (std::uncaught_exceptions() == 0 && thread_.Finish()) delete &thread_;
  }
  int rank() const override { return thread_.rank(); }
  int size() const override { return thread_.size(); }
  std::unique_ptr<PendingExchange> Start(const Exchange& exchange) override {
    return std::make_unique<MpiExchange>(thread_, thread_.Begin(exchange));
  }
  ExchangeTimes times() const override { return thread_.times(); }

 private:
  MpiThread& thread_;
};

}  // namespace
}  // namespace coracle::inline internal

// Returns nullptr if the program has another version.
extern "C" __attribute__((visibility("default"))) coracle::Communicator* CoracleMpiCommunicator(
    const char* version, double time_limit) {
  const std::string own =
      fmt::format("{}.{}.{}", CORACLE_VERSION_MAJOR, CORACLE_VERSION_MINOR, CORACLE_VERSION_PATCH);
  return own == version ? new coracle::MpiCommunicator(time_limit) : nullptr;
}
