#pragma once
// A request and its answer, without the connection.

#include <cctype>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace coracle::serve {

using Clock = std::chrono::steady_clock;

struct Request {
  std::string method;                          // "GET", "POST"
  std::string path;                            // as the client wrote it, without the query
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  bool has_length = true;  // false: the head does not say how long the body is, so it has none
  Clock::time_point received = Clock::now();              // its last byte
  Clock::time_point deadline = Clock::time_point::max();  // until when the client waits

  // The header's value; "" if it is not there.
  std::string Header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

struct Response {
  int status = 200;
  std::string type = "application/json";
  std::string body = {};
  std::map<std::string, std::string> headers = {};
  // What a model needed: the time in its queue, and the time of the run.
  double queue_seconds = 0, run_seconds = 0;
};

// Names of headers, and some of their values, are the same in both cases.
inline std::string LowerCase(std::string_view from) {
  std::string text(from);
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// The body is {"error": message}. With status 503, the header Retry-After asks to try again.
Response ErrorResponse(int status, const std::string& message);

// How a request to a model ended, for its metrics.
enum class RequestEnd { kSuccess, kBadRequest, kQueueFull, kTimeout, kFailure };
constexpr size_t kRequestEnds = 5;

// Handlers of a request throw it; the answer is ErrorResponse(status, what()).
class HttpError : public std::exception {
 public:
  // The end follows from the status: 4xx is a bad request, 503 a full queue, others a failure.
  HttpError(int status, std::string message)
      : HttpError(status, std::move(message), EndOf(status)) {}
  HttpError(int status, std::string message, RequestEnd end)
      : status_(status), message_(std::move(message)), end_(end) {}
  int status() const { return status_; }
  const char* what() const noexcept override { return message_.c_str(); }
  RequestEnd end() const { return end_; }

 private:
  static RequestEnd EndOf(int status) {
    if (status >= 400 && status < 500) return RequestEnd::kBadRequest;
    return status == 503 ? RequestEnd::kQueueFull : RequestEnd::kFailure;
  }

  int status_;
  std::string message_;
  RequestEnd end_;
};

}  // namespace coracle::serve
