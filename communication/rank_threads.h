#pragma once
// Runs the ranks of a job as threads of this process.

#include <coracle/communication/communicator.h>

#include <functional>
#include <memory>

namespace coracle::inline internal {

// Calls `run` once for each rank with the rank's communicator: rank 0 on this thread, the others on
// new threads. Returns when all have returned. Ranks wait for each other for at most
// `exchange_timeout` seconds; 0: without a limit. If ranks throw, rethrows the first error that
// is a cause, not the report that another rank has left. If only one rank has failed, the message
// names that rank. Throws kResourceExhausted if the threads cannot be started.
void RunOnThreads(int ranks, double exchange_timeout,
                  const std::function<void(std::shared_ptr<Communicator>)>& run);

}  // namespace coracle::inline internal
