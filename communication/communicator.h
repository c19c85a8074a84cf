#pragma once
// Communicator: how the ranks of a distributed run exchange tensors. Ranks are processes or threads
// that run the same program, each on its part of the data; they are numbered from 0 to size - 1.

#include <coracle/framework/tensor/dtype.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace coracle {

// float16 and bfloat16 are reduced in float32 and rounded once. A nan in any rank makes the maximum
// and the minimum nan. Complex numbers have a sum and a product only, bools a maximum and a
// minimum.
enum class Reduction : uint8_t { kSum, kProd, kMax, kMin };
const char* ToString(Reduction reduction);  // "sum", ...

// An exchange in which all ranks take part, as MPI's collective operations are. Each rank describes
// it alike, but for the addresses.
struct Exchange {
  enum class Kind : uint8_t {
    kAllReduce,      // out = the reduction of all ranks' in
    kBroadcast,      // out = in of the rank `root`; the other ranks' in is not read
    kAllGather,      // out = the ranks' in, one after the other; rank r's has counts[r] elements
    kReduceScatter,  // out = rank r's counts[r] elements of the reduction of all ranks' in
    kBarrier,        // no elements: all ranks have come here
  };
  Kind kind = Kind::kBarrier;
  DType dtype = DType::kFloat32;
  // Elements: one number for each buffer of kAllReduce and kBroadcast (there is one, and those of
  // `more`), one for each rank for kAllGather and kReduceScatter (they may differ; of several
  // buffers of kReduceScatter those of the first one come first), none for kBarrier.
  std::vector<int64_t> counts = {};
  // `in` and `out` may be the same for kAllReduce and kBroadcast. Of kAllGather `in` may be, and of
  // kReduceScatter `out` may be, the rank's own part of the other. Otherwise they must not overlap.
  const void* in = nullptr;
  void* out = nullptr;
  Reduction reduction = Reduction::kSum;
  int root = 0;
  std::string name = {};  // for messages: what is exchanged
  // Further buffers of kAllReduce, kBroadcast and kReduceScatter, exchanged together.
  struct Buffer {
    const void* in;
    void* out;
  };
  std::vector<Buffer> more = {};
  // Of several buffers of kAllReduce, MPI's communicator packs those of fewer bytes into one
  // message. Copies of a larger one would take longer than a message of its own.
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
  // Returns when `out` holds the result and both buffers may be used again. Throws Error with the
  // reason when the exchange cannot come about: kDeadlineExceeded when ranks do not come within the
  // communicator's time limit, kCancelled when a rank has left, kInvalidArgument when ranks
  // describe different exchanges. After such an error every further exchange throws it too.
  // To be called once. A PendingExchange that is destroyed without it gives the exchange up: the
  // other ranks get kCancelled, unless the exchange was complete.
  virtual void Wait() = 0;
};

// What a rank has spent on exchanges since its communicator was made, in seconds.
struct ExchangeTimes {
  double waited = 0;     // for results
  double transfers = 0;  // exchanges, each from when the last rank had come to its result
  double exposed = 0;    // of the transfers, while the rank waited; the others went on beside ops
};

// One rank's end. All ranks must begin the same exchanges in the same order; several may be under
// way. One thread uses a communicator at a time.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Begins an exchange. The buffers must stay as they are until Wait has returned.
  virtual std::unique_ptr<PendingExchange> Start(const Exchange& exchange) = 0;
  virtual ExchangeTimes times() const { return {}; }

  void Run(const Exchange& exchange) { Start(exchange)->Wait(); }
  // `count` elements in place.
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

// Seconds; the clock's nanoseconds do not hold ten times as many. Longer time limits are this one.
constexpr double kLongestWait = 1e9;

// The communicators of `size` threads of this process, by rank: thread r uses number r. Sums are
// added in the order of the ranks, so they are the same on all ranks and in every run. A
// communicator that is destroyed leaves: exchanges that wait for it end with kCancelled. The last
// rank to come computes the result. `time_limit`: seconds that Wait waits for other ranks; 0: no
// limit. With size 1 every exchange copies.
std::vector<std::unique_ptr<Communicator>> ThreadCommunicators(int size, double time_limit = 0);

}  // namespace coracle
