#include <coracle/communication/communicator.h>
#include <coracle/framework/base/error.h>
#include <coracle/tools/commands.h>
#include <coracle/tools/process_ranks.h>
#include <fmt/format.h>

namespace coracle::tools {

Fields<ExchangeFlags> ExchangeFields() {
  return Fields<ExchangeFlags>("").Add(
      "exchange_timeout", &ExchangeFlags::exchange_timeout,
      "with several ranks: seconds to wait for a missing rank; 0: no limit", NotNegativeRange());
}

std::shared_ptr<Communicator> CommunicatorOfProcess(const ExchangeFlags& flags) {
  return FindLaunched().size > 1 ? LoadMpiCommunicator(flags.exchange_timeout) : nullptr;
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
