#pragma once
// A client of HTTP servers for the programs that measure them.

#include <arpa/inet.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace coracle {

inline std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

struct ServerAnswer {
  int status = 0;
  int64_t json_bytes = -1;  // Inference-Header-Content-Length; -1: the body is JSON as a whole
  std::string body;
};

// A connection that is kept, and opened again after the server closed it.
class ServerConnection {
 public:
  explicit ServerConnection(const std::string& address) {
    const size_t colon = address.rfind(':');
    address_.sin_family = AF_INET;
    int64_t port = 0;
    if (colon == std::string::npos || !ParseInt64(address.substr(colon + 1), &port) ||
        inet_pton(AF_INET, address.substr(0, colon).c_str(), &address_.sin_addr) != 1)
      ThrowInvalid("the address must be like 127.0.0.1:8000, got " + Quote(address));
    address_.sin_port = htons(static_cast<uint16_t>(port));
  }
  ~ServerConnection() { Close(); }
  ServerConnection(const ServerConnection&) = delete;
  ServerConnection& operator=(const ServerConnection&) = delete;

  // Throws kIo if the server does not answer.
  ServerAnswer Ask(const std::string& request) {
    Send(request);
    return Receive();
  }
  void Send(const std::string& bytes) {
    Open();
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t count = ::send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) Fail("sending failed");
      sent += static_cast<size_t>(count);
    }
  }
  // Leaves as a client does that is killed: the server sees an error.
  void Reset() {
    if (socket_ < 0) return;
    const linger at_once = {1, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    Close();
  }

 private:
  [[noreturn]] void Fail(const char* what) {
    Close();
    throw Error(ErrorCode::kIo, what);
  }
  void Open() {
    if (socket_ >= 0) return;
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    const int on = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const timeval limit = {120, 0};  // for an answer
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address_), sizeof address_) != 0)
      Fail("connecting failed");
    received_.clear();
  }
  void Close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  void ReceiveMore() {
    char buffer[65536];
    const ssize_t count = ::recv(socket_, buffer, sizeof buffer, 0);
    if (count <= 0) Fail("the server closed the connection");
    received_.append(buffer, static_cast<size_t>(count));
  }
  std::string Take(size_t count) {
    while (received_.size() < count) ReceiveMore();
    std::string taken = received_.substr(0, count);
    received_.erase(0, count);
    return taken;
  }
  std::string TakeLine() {
    size_t end = 0;
    while ((end = received_.find("\r\n")) == std::string::npos) ReceiveMore();
    const std::string line = Take(end + 2);
    return line.substr(0, end);
  }
  ServerAnswer Receive() {
    ServerAnswer answer;
    const std::vector<std::string> words = Split(TakeLine(), ' ');
    int64_t status = 0, length = -1;
    if (words.size() < 2 || !ParseInt64(words[1], &status)) Fail("the answer is not HTTP");
    answer.status = static_cast<int>(status);
    bool close = false, chunked = false;
    for (std::string line = TakeLine(); !line.empty(); line = TakeLine()) {
      const size_t colon = std::min(line.find(':'), line.size());
      const std::string name = Lower(line.substr(0, colon));
      const std::string value(Trim(line.substr(std::min(colon + 1, line.size()))));
      if (name == "content-length") ParseInt64(value, &length);
      if (name == "inference-header-content-length") ParseInt64(value, &answer.json_bytes);
      close |= name == "connection" && Lower(value) == "close";
      chunked |= name == "transfer-encoding" && Lower(value) == "chunked";
    }
    if (chunked)
      answer.body = TakeChunks();
    else if (length > 0)
      answer.body = Take(static_cast<size_t>(length));
    if (close) Close();
    return answer;
  }
  std::string TakeChunks() {
    std::string body;
    for (;;) {
      const size_t size = std::strtoull(TakeLine().c_str(), nullptr, 16);
      if (size > 0) body += Take(size);
      TakeLine();
      if (size == 0) return body;
    }
  }

  sockaddr_in address_ = {};
  int socket_ = -1;
  std::string received_;
};

}  // namespace coracle
