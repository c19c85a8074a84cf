#pragma once
// Handles a process that a launcher has started as one of several.

#include <coracle/communication/communicator.h>

#include <memory>
#include <string>

namespace coracle::tools {

// Reads --exchange_timeout. Throws UsageError for an invalid value.
double ExchangeTimeout();
// Makes the communicator that the flags describe; nullptr if this is the only process. Call
// it once.
std::shared_ptr<Communicator> CommunicatorOfProcess();
// Throws kInvalidArgument if this is one of several processes. The command does not share its work,
// so each process would do all of it. `instead` tells the user how to work on several ranks.
void RequireOneProcess(const std::string& command, const std::string& instead);

}  // namespace coracle::tools
