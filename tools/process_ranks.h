#pragma once
// The process as one of several that a launcher has started.

#include <coracle/communication/communicator.h>

#include <memory>

namespace coracle::tools {

// Throws UsageError for a wrong --exchange_timeout.
double ExchangeTimeout();
// As the flags say; nullptr where this is the only process. To be called once.
std::shared_ptr<Communicator> CommunicatorOfProcess();

}  // namespace coracle::tools
