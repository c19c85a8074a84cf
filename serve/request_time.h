#pragma once
// How long a request may take, while it is read and while its answer is written.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/serve/http_message.h>

#include <memory>

namespace coracle::serve {

// The time until which the client waits: at most `time_limit` seconds after the last byte of the
// request (0: no limit), and as long as its header Request-Timeout-Ms says. Throws HttpError with
// status 400 if the header is not a number.
Clock::time_point DeadlineOf(const Request& request, double time_limit);
// The same, but leaves out a header that is not a number. Only requests to models are refused for
// it, where it counts as a bad request.
Clock::time_point DeadlineUnchecked(const Request& request, double time_limit);

// Limits whose CheckTime throws kCancelled after the deadline.
std::shared_ptr<ResourceLimits> LimitsUntil(Clock::time_point deadline);

// Whether the error says that the time was over.
bool IsLate(const Error& error);

// Returns f(). Where f checks the time of the thread's limits, it ends at the deadline; then throws
// HttpError with status 503, "the time limit of the request passed while `doing`".
template <class F>
auto DoUntil(Clock::time_point deadline, const char* doing, F&& f) {
  const ScopedRun limited(LimitsUntil(deadline));
  try {
    CheckTimeLimit(doing);
    return f();
  } catch (const Error& error) {
    if (!IsLate(error)) throw;
    throw HttpError(503, std::string("the time limit of the request passed while ") + doing,
                    RequestEnd::kTimeout);
  }
}

}  // namespace coracle::serve
