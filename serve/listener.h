#pragma once
// A socket that accepts connections.

#include <string>

namespace coracle::serve {

class Listener {
 public:
  ~Listener() { Close(); }

  // Port 0: any that is free. Throws kIo.
  void Bind(const std::string& address, int port);
  int port() const { return port_; }
  int socket() const { return socket_; }  // -1: closed
  // A connection that waits, as a non-blocking socket; -1 with errno.
  int Accept() const;
  bool HasClient() const;  // whether one waits
  void Close();

 private:
  int socket_ = -1, port_ = -1;
};

}  // namespace coracle::serve
