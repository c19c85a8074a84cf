#include "process_ranks.h"

#include <coracle/communication/launched.h>
#include <coracle/framework/base/error.h>
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <cmath>

#include "commands.h"
#include "flags.h"

DEFINE_double(exchange_timeout, 120,
              "with several ranks: seconds to wait for a missing rank; 0: no limit");

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

void RequireOneProcess(const std::string& command, const std::string& instead) {
  const Launched launched = FindLaunched();
  if (launched.size == 1) return;
  ThrowInvalid(
      fmt::format("{} does not work on several ranks, and {} has started {} processes: {}; or "
                  "start one process",
                  command, launched.by, launched.size, instead));
}

}  // namespace coracle::tools
