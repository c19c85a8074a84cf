#pragma once
// A request and its answer, without the connection.

#include <map>
#include <string>

namespace coracle::serve {

struct Request {
  std::string method;                          // "GET", "POST"
  std::string path;                            // as the client wrote it, without the query
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // without its compression
};

struct Response {
  int status = 200;
  std::string type = "application/json";
  std::string body = {};
  std::map<std::string, std::string> headers = {};
};

// The body is {"error": message}.
Response ErrorResponse(int status, const std::string& message);

// Handlers of a request throw it; the answer is ErrorResponse(status, what()).
class HttpError : public std::exception {
 public:
  HttpError(int status, std::string message) : status_(status), message_(std::move(message)) {}
  int status() const { return status_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  int status_;
  std::string message_;
};

}  // namespace coracle::serve
