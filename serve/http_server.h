#pragma once
// Connections: HTTP/1.1 by cpp-httplib, whose reading and limits are replaced where strangers could
// misuse them.

#include <coracle/serve/http_message.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace coracle::serve {

struct HttpOptions {
  std::string address = "127.0.0.1";
  int port = 8000;                         // 0: any that is free
  int connections = 256;                   // that are served at the same time
  uint64_t max_body = uint64_t{64} << 20;  // bytes, also after decompression
  uint64_t max_head = uint64_t{64} << 10;  // bytes of the request line and headers
  double head_seconds = 10;                // from the first byte of a request to its last header
  double body_seconds = 60;                // from there to the last byte
  double idle_seconds = 15;                // until the next request of a connection begins
};

class HttpServer {
 public:
  using Handler = std::function<Response(const Request&)>;

  // Called for each answered request, from any thread.
  struct Access {
    std::string method, path, remote;
    int status = 0;
    uint64_t request_bytes = 0, response_bytes = 0;
    double seconds = 0;
  };
  using AccessLog = std::function<void(const Access&)>;

  HttpServer(const HttpOptions& options, Handler handler, AccessLog log = {});
  ~HttpServer();

  // Begins to listen. Throws kIo if the port is taken or the address is not of this machine.
  void Bind();
  int port() const;
  // Serves until Stop is called by another thread, and the requests that have begun are answered.
  void Run();
  void Stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace coracle::serve
