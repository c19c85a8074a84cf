#pragma once
// MpiThread: the only thread that calls MPI. It runs exchanges one after the other, in the order in
// which they were begun. Internal to communication/mpi/.

#include <coracle/communication/communicator.h>
#include <coracle/framework/base/error.h>
#include <mpi.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace coracle::inline internal {

// An exchange that has begun, shared by the thread that waits for it and MpiThread.
struct MpiJob {
  Exchange exchange;
  int64_t number = 0;  // counts all exchanges of this rank, from 1
  // Written by MpiThread until `done`.
  std::chrono::steady_clock::time_point met = {}, ended = {};
  // Guarded by MpiThread's mutex.
  bool done = false;
  bool running = false;  // its buffers are in use
};

class MpiThread {
 public:
  // Begins to initialise MPI. `time_limit`: see LoadMpiCommunicator.
  explicit MpiThread(double time_limit);
  // REQUIRES: Finish() returned true. Otherwise the thread may be blocked in MPI for ever.
  ~MpiThread();
  // Waits until all ranks have initialised MPI.
  void AwaitStart();
  // Finalises MPI, which all ranks must do together. Other ranks that wait for this one learn that
  // it has left. Returns false if an exchange has failed, or if the others do not finish in time.
  bool Finish();

  int rank() const { return rank_; }
  int size() const { return size_; }
  std::shared_ptr<MpiJob> Begin(const Exchange& exchange);
  // Throws the error that ended the exchanges if one occurred before this exchange was done.
  void Wait(const MpiJob& job);
  void GiveUp(MpiJob& job);
  ExchangeTimes times();

 private:
  using Lock = std::unique_lock<std::mutex>;

  // Waits until the buffers are no longer in use. Ends the process if that takes too long, since
  // MPI still uses them and they cannot be freed.
  void AwaitBuffers(Lock& lock, const MpiJob& job, double seconds);
  void Main();
  void Leave();
  double WaitLimit() const;
  void Start();
  void Serve(Lock& lock);
  // Runs the exchange; its errors are thrown in this thread.
  void Perform(MpiJob& job);

  // Waits until all ranks have arrived at this exchange, and checks that their descriptions match.
  void Meet(const MpiJob& job);
  [[noreturn]] void ThrowUnlike(const MpiJob& job);
  [[noreturn]] void ThrowAbsent(const MpiJob& job);

  // Reports to the ranks that wait for this one how far it is.
  void AnswerQuestions();
  // The number of the last exchange that each rank has begun: kSilent for a rank that does not
  // answer, kLeft for a rank that will begin no more exchanges.
  std::vector<int64_t> AskAll();
  std::string Name(int rank) const;  // "rank 1 (host)"

  void Run(const Exchange& exchange);
  void Reduce(const Exchange& exchange, const void* in, void* out, int64_t count);
  void ReduceScatter(const Exchange& exchange);
  const char* SumPiece(const Exchange& exchange, const std::vector<int>& counts, int64_t total,
                       int64_t own);
  void Gather(const Exchange& exchange);
  void ReduceBuffers(const Exchange& exchange);
  void BroadcastBuffers(const Exchange& exchange);

  const double time_limit_;
  int rank_ = 0, size_ = 1;
  std::vector<std::string> hosts_;  // by rank
  MPI_Comm questions_ = MPI_COMM_NULL;
  // For floats: a nan of any rank makes the result nan.
  MPI_Op high_ = MPI_OP_NULL, low_ = MPI_OP_NULL;

  std::vector<char> packed_;  // small buffers in one message, or a piece to be scattered
  std::vector<char> part_;    // this rank's sums of the piece
  std::vector<float> wide_;   // 16-bit floats in float32

  std::mutex mutex_;
  std::condition_variable begun_, changed_;
  bool started_ = false, stop_ = false, finished_ = false;
  int64_t last_number_ = 0;
  std::deque<std::shared_ptr<MpiJob>> jobs_;
  ExchangeTimes times_;
  std::optional<Error> error_;
  std::thread thread_;
};

}  // namespace coracle::inline internal
