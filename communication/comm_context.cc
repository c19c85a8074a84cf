#include <coracle/communication/comm_context.h>

#include <algorithm>
#include <chrono>
#include <numeric>

namespace coracle::inline internal {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

CommContext::CommContext(std::shared_ptr<Communicator> communicator)
    : communicator_(std::move(communicator)) {
  if (!communicator_) ThrowInvalid("a CommContext was given no communicator: the pointer is null");
}

bool CommContext::Pending::Has(const std::vector<std::string>& wanted) const {
  return std::any_of(wanted.begin(), wanted.end(), [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  });
}

std::unique_ptr<PendingExchange> CommContext::Begin(const Exchange& exchange) {
  ++exchanges_;
  bytes_ += std::accumulate(exchange.counts.begin(), exchange.counts.end(), int64_t{0}) *
            static_cast<int64_t>(SizeOf(exchange.dtype));
  return communicator_->Start(exchange);
}

void CommContext::Await(PendingExchange& exchange) {
  const Clock::time_point start = Clock::now();
  exchange.Wait();
  seconds_waited_ += SecondsSince(start);
}

void CommContext::Run(const Exchange& exchange) { Await(*Begin(exchange)); }

void CommContext::Start(int ring, std::vector<std::string> names, const Exchange& exchange) {
  pending_.push_back({ring, std::move(names), Begin(exchange)});
}

void CommContext::WaitFor(int ring, const std::vector<std::string>& names) {
  for (auto it = pending_.begin(); it != pending_.end();) {
    if (it->ring != ring || !(names.empty() || it->Has(names))) {
      ++it;
      continue;
    }
    const std::unique_ptr<PendingExchange> exchange = std::move(it->exchange);
    it = pending_.erase(it);
    Await(*exchange);
  }
}

void CommContext::WaitForAll() {
  while (!pending_.empty()) WaitFor(pending_.front().ring, {});
}

}  // namespace coracle::inline internal
