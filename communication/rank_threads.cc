#include <coracle/communication/rank_threads.h>
#include <coracle/framework/base/error.h>
#include <fmt/format.h>

#include <cstddef>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace coracle::inline internal {
namespace {

// Whether the error only reports that another rank has left.
bool ReportsAnother(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return e.code() == ErrorCode::kCancelled;
  } catch (...) {
    return false;
  }
}

void ThrowCause(const std::vector<std::exception_ptr>& errors) {
  std::exception_ptr first, cause;
  size_t failed = 0, rank = 0;
  for (size_t r = 0; r < errors.size(); ++r) {
    if (!errors[r]) continue;
    if (!first) first = errors[r];
    if (ReportsAnother(errors[r])) continue;
    if (failed++ > 0) continue;
    cause = errors[r];
    rank = r;
  }
  if (!first) return;
  try {
    std::rethrow_exception(cause ? cause : first);
  } catch (const Error& e) {
    if (failed != 1) throw;
    throw e.WithPrefix(fmt::format("rank {}", rank));
  }
}

}  // namespace

void RunOnThreads(int ranks, double exchange_timeout,
                  const std::function<void(std::shared_ptr<Communicator>)>& run) {
  auto communicators = ThreadCommunicators(ranks, exchange_timeout);
  std::vector<std::exception_ptr> errors(communicators.size());
  std::vector<std::thread> threads;
  threads.reserve(errors.size());
  const auto run_rank = [&](size_t rank, std::shared_ptr<Communicator> communicator) {
    try {
      run(std::move(communicator));
    } catch (...) {
      errors[rank] = std::current_exception();
    }
  };
  std::string failed;
  try {
    for (size_t rank = 1; rank < errors.size(); ++rank)
      threads.emplace_back(run_rank, rank, std::move(communicators[rank]));
    run_rank(0, std::move(communicators[0]));
  } catch (const std::exception& e) {
    failed = e.what();
    communicators.clear();  // so that the other ranks do not wait for this one
  }
  for (std::thread& thread : threads) thread.join();
  if (!failed.empty()) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("{} ranks as threads: {}; start fewer, or processes on several "
                            "machines (mpirun)",
                            ranks, failed));
  }
  ThrowCause(errors);
}

}  // namespace coracle::inline internal
