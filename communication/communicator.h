#pragma once
// Communicator: exchanges tensors between the ranks of a distributed run. Ranks are processes or
// threads that run the same program, each on its part of the data; they are numbered from 0 on.

#include <coracle/framework/tensor/tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

// float16 and bfloat16 are reduced in float32 and rounded once. If any rank has a nan, the maximum
// and the minimum are nan. Complex numbers have only a sum and a product, bools only a maximum and
// a minimum.
enum class Reduction : uint8_t { kSum, kProd, kMax, kMin };
const char* ToString(Reduction reduction);  // "sum", ...

// An exchange in which all ranks take part, like a collective operation of MPI. All ranks must pass
// the same description, except for the addresses.
struct Exchange {
  enum class Kind : uint8_t {
    kAllReduce,      // out = the reduction of all ranks' in
    kBroadcast,      // out = in of the rank `root`; the other ranks' in is not read
    kAllGather,      // out = the ranks' in, one after the other; rank r's has counts[r] elements
    kReduceScatter,  // out = rank r's counts[r] elements of the reduction of all ranks' in
    kBarrier,        // no elements: all ranks have arrived
  };
  Kind kind = Kind::kBarrier;
  DType dtype = DType::kFloat32;
  // Numbers of elements. kAllReduce and kBroadcast: one for each buffer (the first one and those of
  // `more`). kAllGather and kReduceScatter: one for each rank (they may differ; if kReduceScatter
  // has several buffers, all numbers of the first buffer come first). kBarrier: none.
  std::vector<int64_t> counts = {};
  // `in` and `out` may be the same for kAllReduce and kBroadcast. For kAllGather `in` may be the
  // rank's own part of `out`, and for kReduceScatter `out` may be the rank's own part of `in`.
  // Otherwise they must not overlap.
  const void* in = nullptr;
  void* out = nullptr;
  Reduction reduction = Reduction::kSum;
  int root = 0;
  std::string name = {};  // what is exchanged, for messages
  // Further buffers of kAllReduce, kBroadcast and kReduceScatter, exchanged together.
  struct Buffer {
    const void* in;
    void* out;
  };
  std::vector<Buffer> more = {};
  // If kAllReduce has several buffers, MPI's communicator packs those smaller than this into one
  // message. Copying a larger buffer would take longer than a separate message.
  static constexpr int64_t kPackedBytes = 128 * 1024;

  // Throws InvalidArgument unless counts, root and dtype fit the kind.
  void Check(int size) const;
  // "allreduce (sum) of 10 float32 'fc_0.w@GRAD'"
  std::string Describe() const;
  // Whether two ranks describe the same exchange; names and addresses do not count.
  bool Matches(const Exchange& other) const;
};
const char* ToString(Exchange::Kind kind);  // "allreduce", ...

// An exchange that has begun.
class PendingExchange {
 public:
  virtual ~PendingExchange() = default;
  // Returns when `out` holds the result and both buffers may be reused. Throws Error with the
  // reason if the exchange fails: kDeadlineExceeded if ranks do not arrive within the
  // communicator's time limit, kCancelled if a rank has left, kInvalidArgument if ranks describe
  // different exchanges. After such an error every further exchange throws it too. To be called
  // once. Destroying a PendingExchange without calling it aborts the exchange: the other ranks get
  // kCancelled, unless the exchange was complete.
  virtual void Wait() = 0;
};

// Seconds that a rank has spent on exchanges since its communicator was made.
struct ExchangeTimes {
  double waited = 0;  // for results
  // Transfers: each from the arrival of the last rank until its result.
  double transfers = 0;
  // The part of the transfers during which the rank waited; the rest overlapped with ops.
  double exposed = 0;
};

// One rank's end of the communication. All ranks must begin the same exchanges in the same order;
// several may be pending. Only one thread at a time may use a communicator.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Begins an exchange. The buffers must not change or be freed until Wait has returned.
  virtual std::unique_ptr<PendingExchange> Start(const Exchange& exchange) = 0;
  virtual ExchangeTimes times() const { return {}; }

  void Run(const Exchange& exchange) { Start(exchange)->Wait(); }
  // Reduces `count` elements in place.
  template <class T>
  void AllReduce(T* data, int64_t count, Reduction reduction = Reduction::kSum) {
    Run({Exchange::Kind::kAllReduce, DTypeOf<T>(), {count}, data, data, reduction});
  }
  template <class T>
  void Broadcast(T* data, int64_t count, int root = 0) {
    Run({Exchange::Kind::kBroadcast, DTypeOf<T>(), {count}, data, data, Reduction::kSum, root});
  }
  void Barrier() { Run({}); }
};

// Longest time limit in seconds, also used for longer ones; the clock's nanoseconds would overflow
// at about ten times as many.
constexpr double kLongestWait = 1e9;

// The communicators of `size` threads of this process, by rank: thread r uses number r. Sums are
// added in the order of the ranks, so they are the same on all ranks and in every run. Destroying a
// communicator makes its rank leave: exchanges that wait for it end with kCancelled. The last rank
// to arrive computes the result. `time_limit`: seconds that Wait waits for other ranks; 0: no
// limit. With size 1 every exchange copies.
std::vector<std::unique_ptr<Communicator>> ThreadCommunicators(int size, double time_limit = 0);

// --- exchanges between the ranks of a job, outside of programs; and the rows of each rank ---

// A rank's part of a batch. Parts differ by at most one row; the first ranks have the larger ones.
// If there are fewer rows than ranks, the last ranks take row 0 without counting it, since every
// rank must run every step.
struct RankRows {
  int64_t begin = 0, count = 0;
  bool counted = true;

  int64_t rows() const { return counted ? count : 0; }
};
// REQUIRES: 0 <= rank < size, rows > 0.
RankRows RowsOfRank(int64_t rows, int rank, int size);

// All ranks must call the functions that exchange, in the same order; they throw what exchanges
// throw. A rank alone (nullptr, or a communicator of one rank) exchanges nothing.
class Ranks {
 public:
  explicit Ranks(std::shared_ptr<Communicator> communicator = nullptr)
      : communicator_(std::move(communicator)) {}

  int rank() const { return communicator_ ? communicator_->rank() : 0; }
  int size() const { return communicator_ ? communicator_->size() : 1; }
  bool several() const { return size() > 1; }
  bool first() const { return rank() == 0; }  // reports, and writes files
  // nullptr for a rank alone.
  std::shared_ptr<Communicator> communicator() const { return several() ? communicator_ : nullptr; }
  RankRows RowsOf(int64_t rows) const { return RowsOfRank(rows, rank(), size()); }

  void Sum(std::span<double> values) const;  // in place
  // Replaces a tensor, which has the same dtype and shape on all ranks, by its sum over the ranks.
  void Sum(Tensor* tensor) const;
  bool Any(bool value) const;
  // Returns the bytes of each rank, by rank.
  std::vector<std::string> Gather(const std::string& bytes) const;
  std::string FromFirst(const std::string& bytes) const;  // returns the bytes of rank 0
  std::vector<std::string> Names() const;                 // "rank 1 (its host)" for each rank
  // Throws kInvalidArgument "rank 1 (host b) and rank 0 (host a) differ in the WHAT: 'x' and 'y';
  // ADVICE" unless all ranks have the same value.
  void RequireSame(const std::string& what, const std::string& value,
                   const std::string& advice) const;

 private:
  std::shared_ptr<Communicator> communicator_;
};

// --- processes as ranks ---

// How mpirun, srun or another MPI launcher started this process, according to its environment.
struct Launched {
  int rank = 0, size = 1;
  std::string by = {};  // "mpirun", "srun", "PMI"; "" if this is the only process
};
// Values that are not numbers are ignored.
Launched FindLaunched();

// The communicator of all processes that were launched together, by Open MPI. It initialises MPI,
// and may be made only once. It comes from the plugin libcoracle_mpi.so, so only its users need
// MPI. The plugin is searched in the directory of the program, in ../lib/coracle relative to it,
// and in the directories of the dynamic loader. `time_limit`: the seconds that Wait waits for
// other ranks; 0 waits without limit. Throws kNotFound if there is no plugin, and kInvalidArgument
// if its version differs or if MPI reports another number of processes than FindLaunched. The
// plugin takes Coracle's symbols from the program, so a program linked to a static libcoracle must
// export them (CMake's ENABLE_EXPORTS, -rdynamic).
//
// MPI runs in its own thread. After an exchange has failed, the process can only end. It must end
// with an exit code other than 0, on which the launcher ends the other ranks.
std::shared_ptr<Communicator> LoadMpiCommunicator(double time_limit = 0);

// The function that the plugin exports under this name.
inline constexpr const char* kMpiEntry = "CoracleMpiCommunicator";
using MpiEntry = Communicator* (*)(const char* version, double time_limit);

}  // namespace coracle
