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

namespace coracle {

// An exchange that has begun, between the thread that waits for it and MpiThread.
struct MpiJob {
  Exchange exchange;
  int64_t number = 0;  // of all exchanges of this rank, from 1
  std::chrono::steady_clock::time_point met = {}, ended = {};  // MpiThread's, until `done`
  // Guarded by MpiThread's mutex.
  bool done = false;
  bool running = false;  // its buffers are in use
};

class MpiThread {
 public:
  // Begins to initialise MPI. `time_limit`: see LoadMpiCommunicator.
  explicit MpiThread(double time_limit);
  // REQUIRES: Finish() returned true. Otherwise the thread may stand in MPI for ever.
  ~MpiThread();
  // Waits for the initialisation, that of all ranks.
  void AwaitStart();
  // Finalises MPI, as all ranks must. Others that wait for this one meanwhile are told that it has
  // left. Returns false when an exchange has failed, or when the others do not come in time.
  bool Finish();

  int rank() const { return rank_; }
  int size() const { return size_; }
  std::shared_ptr<MpiJob> Begin(const Exchange& exchange);
  // Throws the error that has ended the exchanges, if one did before this one was done.
  void Wait(const MpiJob& job);
  void GiveUp(MpiJob& job);
  ExchangeTimes times();

 private:
  using Lock = std::unique_lock<std::mutex>;

  // Waits until the buffers are not in use. Ends the process where that does not come: they cannot
  // be freed beneath MPI.
  void AwaitBuffers(Lock& lock, const MpiJob& job, double seconds);
  void Main();
  void Leave();
  double WaitLimit() const;
  void Start();
  void Serve(Lock& lock);
  // The fault of an exchange, thrown in this thread.
  void Perform(MpiJob& job);

  // All ranks have come to this exchange, and describe it alike.
  void Meet(const MpiJob& job);
  [[noreturn]] void ThrowUnlike(const MpiJob& job);
  [[noreturn]] void ThrowAbsent(const MpiJob& job);

  // Where a rank is, for others that wait for it.
  void AnswerQuestions();
  // kSilent for a rank that does not answer, kLeft for one that will begin no exchange any more.
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
  MPI_Op high_ = MPI_OP_NULL, low_ = MPI_OP_NULL;  // of floats: a nan of any rank shows

  std::vector<char> packed_;  // small buffers as one message, and what is scattered
  std::vector<char> part_;    // of it, this rank's sums
  std::vector<float> wide_;   // of 16-bit floats

  std::mutex mutex_;
  std::condition_variable begun_, changed_;
  bool started_ = false, stop_ = false, finished_ = false;
  int64_t last_number_ = 0;
  std::deque<std::shared_ptr<MpiJob>> jobs_;
  ExchangeTimes times_;
  std::optional<Error> error_;
  std::thread thread_;
};

}  // namespace coracle
