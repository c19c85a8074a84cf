#pragma once
// CommContext: the means by which the kernels of one prepared program exchange data.

#include <coracle/communication/communicator.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace coracle::inline internal {

// A communicator with the pending exchanges, which kernels have begun and later ops wait for. To be
// used by one thread at a time.
class CommContext {
 public:
  explicit CommContext(std::shared_ptr<Communicator> communicator);

  int rank() const { return communicator_->rank(); }
  int size() const { return communicator_->size(); }

  // Exchanges, and returns when the result is available.
  void Run(const Exchange& exchange);
  // Begins an exchange that yields the variables `names` of a ring (the attr ring_id). The buffers
  // must not change or be freed until WaitFor returns.
  void Start(int ring, std::vector<std::string> names, const Exchange& exchange);
  // Waits for the exchanges of the ring that yield one of these variables; for all of the ring if
  // `names` is empty.
  void WaitFor(int ring, const std::vector<std::string>& names);
  void WaitForAll();
  // Aborts the pending exchanges; if there were any, the communicator is unusable afterwards.
  void Abandon() { pending_.clear(); }

  // Totals since the beginning: the seconds that ops have waited for exchanges and for other ranks,
  // the number of exchanges, and the bytes that this rank contributed.
  double seconds_waited() const { return seconds_waited_; }
  int64_t exchanges() const { return exchanges_; }
  int64_t bytes() const { return bytes_; }

 private:
  struct Pending {
    int ring;
    std::vector<std::string> names;
    std::unique_ptr<PendingExchange> exchange;
    bool Has(const std::vector<std::string>& wanted) const;
  };
  std::unique_ptr<PendingExchange> Begin(const Exchange& exchange);
  void Await(PendingExchange& exchange);

  std::shared_ptr<Communicator> communicator_;
  std::vector<Pending> pending_;  // in the order of their beginning
  double seconds_waited_ = 0;
  int64_t exchanges_ = 0, bytes_ = 0;
};

}  // namespace coracle::inline internal
