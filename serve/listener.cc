#include <coracle/framework/base/error.h>
#include <coracle/serve/listener.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>

namespace coracle::serve {
namespace {

constexpr int kBacklog = 1024;

int PortOf(int socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return -1;
  sockaddr_in6 v6;  // its port is where that of sockaddr_in is
  std::memcpy(&v6, &address, sizeof v6);
  return ntohs(v6.sin6_port);
}

}  // namespace

void Listener::Bind(const std::string& address, int port) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, [](addrinfo* list) {
    if (list) ::freeaddrinfo(list);
  });
  for (const addrinfo* each = found; each && socket_ < 0; each = each->ai_next) {
    socket_ = ::socket(each->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (socket_ < 0) continue;
    const int yes = 1;
    ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (::bind(socket_, each->ai_addr, each->ai_addrlen) != 0 || ::listen(socket_, kBacklog) != 0)
      Close();
  }
  if (socket_ < 0) {
    throw Error(ErrorCode::kIo, fmt::format("cannot listen on {}:{}; the port is taken, or the "
                                            "address is not one of this machine",
                                            address, port));
  }
  port_ = PortOf(socket_);
}

int Listener::Accept() const {
  return ::accept4(socket_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

bool Listener::HasClient() const {
  pollfd waits = {socket_, POLLIN, 0};
  return ::poll(&waits, 1, 0) > 0;
}

void Listener::Close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

}  // namespace coracle::serve
