#include <coracle/framework/base/text.h>
#include <coracle/serve/request_queue.h>
#include <coracle/serve/request_time.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace coracle::serve {

Clock::time_point DeadlineOf(const Request& request, double time_limit) {
  Clock::time_point deadline = Clock::time_point::max();
  if (time_limit > 0) deadline = After(request.received, time_limit);
  const auto header = request.headers.find("request-timeout-ms");
  if (header == request.headers.end()) return deadline;
  const std::string& text = header->second;
  int64_t ms = 0;
  const bool digits =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!digits || text.size() > 9 || !ParseInt64(text, &ms) || ms == 0)
    throw HttpError(400,
                    fmt::format("Request-Timeout-Ms must be a whole number from 1 to 999999999, "
                                "got {}",
                                Quote(text, 40)));
  return std::min(deadline, request.received + std::chrono::milliseconds(ms));
}

std::shared_ptr<ResourceLimits> LimitsUntil(Clock::time_point deadline) {
  ResourceOptions options;
  if (deadline != Clock::time_point::max())
    options.stop = [deadline] { return Clock::now() > deadline; };
  return std::make_shared<ResourceLimits>(options, nullptr);
}

bool IsLate(const Error& error) {
  return error.code() == ErrorCode::kCancelled || error.code() == ErrorCode::kDeadlineExceeded;
}

}  // namespace coracle::serve
