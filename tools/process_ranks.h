#pragma once
// The process as one of several that a launcher has started.

#include <coracle/communication/communicator.h>

#include <memory>
#include <string>

namespace coracle::tools {

// Throws UsageError for a wrong --exchange_timeout.
double ExchangeTimeout();
// As the flags say; nullptr where this is the only process. To be called once.
std::shared_ptr<Communicator> CommunicatorOfProcess();
// Throws kInvalidArgument where this is one of several processes: the command computes by itself,
// so each of them would do all of it. `instead`: what ranks can do together.
void RequireOneProcess(const std::string& command, const std::string& instead);

}  // namespace coracle::tools
