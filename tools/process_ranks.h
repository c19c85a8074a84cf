#pragma once
// Handles a process that a launcher has started as one of several.

#include <coracle/communication/communicator.h>
#include <coracle/tools/flag_table.h>

#include <memory>
#include <string>

namespace coracle::tools {

// --exchange_timeout.
struct ExchangeFlags {
  double exchange_timeout = 120;  // seconds; 0: no limit
};
Fields<ExchangeFlags> ExchangeFields();

// Makes the communicator that the flags describe; nullptr if this is the only process. Call
// it once.
std::shared_ptr<Communicator> CommunicatorOfProcess(const ExchangeFlags& flags);
// Throws kInvalidArgument if this is one of several processes. The command does not share its work,
// so each process would do all of it. `instead` says how to work on several ranks.
void RequireOneProcess(const std::string& command, const std::string& instead);

}  // namespace coracle::tools
