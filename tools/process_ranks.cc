#include "process_ranks.h"

#include <coracle/communication/launched.h>
#include <gflags/gflags.h>

#include <cmath>

#include "commands.h"
#include "flags.h"

DEFINE_double(exchange_timeout, 120,
              "of several ranks: seconds to wait for a rank that does not come; 0: for ever");

namespace coracle::tools {

double ExchangeTimeout() {
  if (!(FLAGS_exchange_timeout >= 0) || std::isinf(FLAGS_exchange_timeout))
    throw UsageError("--exchange_timeout takes seconds, or 0 for no limit");
  return FLAGS_exchange_timeout;
}

std::shared_ptr<Communicator> CommunicatorOfProcess() {
  const double timeout = ExchangeTimeout();
  return FindLaunched().size > 1 ? LoadMpiCommunicator(timeout) : nullptr;
}

}  // namespace coracle::tools
