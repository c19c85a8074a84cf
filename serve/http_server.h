#pragma once
// Serves HTTP/1.1. One thread reads all connections, so that a client that is idle or slow holds no
// thread; requests that have arrived are answered by workers.

#include <coracle/serve/http_message.h>
#include <coracle/serve/memory_budget.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace coracle::serve {

struct HttpOptions {
  std::string address = "127.0.0.1";
  int port = 8000;                         // 0: any that is free
  int connections = 256;                   // at the same time; an idle one makes room for another
  uint64_t max_body = uint64_t{64} << 20;  // bytes, also after decompression
  uint64_t max_head = uint64_t{64} << 10;  // bytes of the request line and headers
  double head_seconds = 10;                // from the first byte of a request to its last header
  double body_seconds = 60;                // from there to the last byte
  double idle_seconds = 15;                // until the next request of a connection begins
  double time_limit = 0;                   // of a request, from its last byte; 0: no limit
  // A client must take an answer in write_seconds and its size divided by write_rate.
  double write_seconds = 30;
  double write_rate = 65'536;                      // bytes in a second
  std::shared_ptr<MemoryBudget> memory = nullptr;  // of the bodies; nullptr: no limit
};

class HttpServer {
 public:
  using Handler = std::function<Response(Request)>;

  // Called for each answered request, from any thread.
  struct Access {
    std::string method, path, remote;
    std::string id;      // X-Request-Id
    bool trace = false;  // whether the request has "X-Trace: 1"
    int status = 0;
    uint64_t request_bytes = 0, response_bytes = 0;
    bool sent = false;   // whether the client took the whole answer
    double seconds = 0;  // from the last byte of the request to the last one of the answer
    // The stages: the arrival of the request, its wait for other runs, the run of the model, and
    // sending the answer.
    double receive_seconds = 0, queue_seconds = 0, run_seconds = 0, send_seconds = 0;
  };
  using AccessLog = std::function<void(const Access&)>;

  // The handler may throw HttpError. Every other exception is answered with status 500.
  HttpServer(const HttpOptions& options, Handler handler, AccessLog log = {});
  ~HttpServer();

  // Begins to listen. Throws kIo if the port is taken or the address is not of this machine.
  void Bind();
  int port() const;
  // Serves until Stop is called, by any thread, before or during Run. Then it answers the requests
  // that have begun and those that the system has received, also on connections that were not
  // accepted yet, as far as `connections` has room.
  void Run();
  void Stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace coracle::serve
