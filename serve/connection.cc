#include <arpa/inet.h>
#include <coracle/serve/connection.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace coracle::serve {
namespace {

constexpr size_t kReceive = size_t{64} << 10;
constexpr int kLookMs = 500;  // how often Send looks whether the client takes bytes

std::string AddressOf(int socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  char text[INET6_ADDRSTRLEN] = "";
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return text;
  if (address.ss_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &address, sizeof v4);
    ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
  } else if (address.ss_family == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, &address, sizeof v6);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
  }
  return text;
}

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

OwnedSocket::~OwnedSocket() {
  if (socket_ >= 0) ::close(socket_);
}

Connection::Connection(OwnedSocket socket)
    : socket_(std::move(socket)), remote_(AddressOf(socket_.get())) {
  const int yes = 1;
  ::setsockopt(this->socket(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

Connection::Got Connection::Receive(std::string* bytes) {
  thread_local char buffer[kReceive];
  const ssize_t count = ::recv(socket(), buffer, sizeof buffer, MSG_DONTWAIT);
  if (count < 0 && WouldBlock()) return Got::kNothing;
  if (count <= 0) return Got::kEnd;
  bytes->append(buffer, static_cast<size_t>(count));
  return Got::kBytes;
}

bool Connection::Send(std::string_view bytes, bool more, Clock::time_point deadline) {
  const int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0);
  while (!bytes.empty()) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left < 0) return false;
    const ssize_t count = ::send(socket(), bytes.data(), bytes.size(), flags);
    if (count > 0) {
      bytes.remove_prefix(static_cast<size_t>(count));
      stalled_since_ = 0;
      continue;
    }
    if (count < 0 && !WouldBlock()) return false;
    NoteStall();
    pollfd poll_for = {socket(), POLLOUT, 0};
    ::poll(&poll_for, 1, static_cast<int>(std::min<int64_t>(left + 1, kLookMs)));
  }
  return true;
}

// A socket says that it has room when a third of it is free; slow clients take less in a second.
void Connection::NoteStall() {
  int left = 0;
  if (::ioctl(socket(), SIOCOUTQ, &left) != 0) left = 0;
  if (stalled_since_ != 0 && left == left_) return;
  left_ = left;
  stalled_since_ = Clock::now().time_since_epoch().count();
}

double Connection::StalledSeconds() const {
  const Clock::rep since = stalled_since_;
  if (since == 0) return 0;
  return std::chrono::duration<double>(Clock::now() - Clock::time_point(Clock::duration(since)))
      .count();
}

void Connection::Abort() const { ::shutdown(socket(), SHUT_RDWR); }

void Connection::SendNow(std::string_view bytes) {
  static_cast<void>(::send(socket(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

void Connection::EndSending() { ::shutdown(socket(), SHUT_WR); }

}  // namespace coracle::serve
