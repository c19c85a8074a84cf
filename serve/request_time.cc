#include <coracle/framework/base/text.h>
#include <coracle/serve/request_queue.h>
#include <coracle/serve/request_time.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace coracle::serve {

namespace {

constexpr char kTimeout[] = "request-timeout-ms";

// The milliseconds of the header; 0 if its text is not a number that is allowed.
int64_t Milliseconds(const std::string& text) {
  int64_t ms = 0;
  const bool digits =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  return digits && text.size() <= 9 && ParseInt64(text, &ms) ? ms : 0;
}

}  // namespace

Clock::time_point DeadlineUnchecked(const Request& request, double time_limit) {
  Clock::time_point deadline = Clock::time_point::max();
  if (time_limit > 0) deadline = After(request.received, time_limit);
  const int64_t ms = Milliseconds(request.Header(kTimeout));
  return ms == 0 ? deadline : std::min(deadline, request.received + std::chrono::milliseconds(ms));
}

Clock::time_point DeadlineOf(const Request& request, double time_limit) {
  const auto header = request.headers.find(kTimeout);
  if (header != request.headers.end() && Milliseconds(header->second) == 0)
    throw HttpError(400,
                    fmt::format("Request-Timeout-Ms must be a whole number from 1 to 999999999, "
                                "got {}",
                                Quote(header->second, 40)));
  return DeadlineUnchecked(request, time_limit);
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
