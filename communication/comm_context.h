#pragma once
// CommContext: what the kernels of one prepared program exchange through.

#include <coracle/communication/communicator.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

// A communicator with the exchanges that kernels have begun and that later ops wait for. For one
// thread at a time.
class CommContext {
 public:
  explicit CommContext(std::shared_ptr<Communicator> communicator);

  int rank() const { return communicator_->rank(); }
  int size() const { return communicator_->size(); }

  // Exchanges and returns when the result is there.
  void Run(const Exchange& exchange);
  // Begins an exchange whose results are those of the variables `names` of a ring (the attr
  // ring_id). The buffers must stay as they are until they have been waited for.
  void Start(int ring, std::vector<std::string> names, const Exchange& exchange);
  // Waits for the exchanges of the ring that have one of these variables; of all if there are none.
  void WaitFor(int ring, const std::vector<std::string>& names);
  void WaitForAll();
  // Gives up the exchanges under way; if there was one, the communicator is of no use afterwards.
  void Abandon() { pending_.clear(); }

  // Since the beginning: the seconds that ops have waited, for exchanges and for other ranks; the
  // number of exchanges, and the bytes that this rank gave to them.
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
  std::vector<Pending> pending_;  // in the order in which they began
  double seconds_waited_ = 0;
  int64_t exchanges_ = 0, bytes_ = 0;
};

}  // namespace coracle
