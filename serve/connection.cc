#include <arpa/inet.h>
#include <coracle/serve/connection.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace coracle::serve {
namespace {

// Seconds in which a client must take some bytes of an answer.
constexpr double kWriteSeconds = 30;
// How often a waiting connection looks whether the server stops.
constexpr int kLookMs = 200;

void AddressOf(const sockaddr_storage& address, std::string& ip, int& port) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &address, sizeof v4);
    ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    port = ntohs(v4.sin_port);
  } else if (address.ss_family == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, &address, sizeof v6);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
    port = ntohs(v6.sin6_port);
  }
  ip = text;
}

}  // namespace

Connection::Connection(socket_t socket, uint64_t max_head) : socket_(socket), max_head_(max_head) {
  SetDeadline(0);
}

void Connection::SetDeadline(double seconds) {
  deadline_ = Clock::now() +
              std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

bool Connection::Wait(short events, Clock::time_point until) const {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left < 0) return false;
    pollfd poll_for = {socket_, events, 0};
    const int ready = ::poll(&poll_for, 1, static_cast<int>(std::min<int64_t>(left + 1, 60'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

bool Connection::WaitForRequest(double seconds, const std::atomic<bool>& stopping) {
  SetDeadline(seconds);
  while (begin_ == end_) {
    if (stopping || Clock::now() > deadline_) return false;
    const auto look = Clock::now() + std::chrono::milliseconds(kLookMs);
    if (!Wait(POLLIN, std::min(look, deadline_))) continue;
    const ssize_t count = ::recv(socket_, buffer_, sizeof buffer_, 0);
    if (count <= 0) return false;
    begin_ = 0;
    end_ = static_cast<size_t>(count);
  }
  return true;
}

void Connection::BeginHead(double seconds) {
  SetDeadline(seconds);
  in_head_ = true;
  head_left_ = max_head_;
  failed_ = false;
}

void Connection::BeginBody(double seconds) {
  SetDeadline(seconds);
  in_head_ = false;
}

void Connection::Close() {
  // With bytes unread, close would throw away the answer that is on its way.
  ::shutdown(socket_, SHUT_WR);
  const auto until = Clock::now() + std::chrono::milliseconds(kLookMs);
  while (Wait(POLLIN, until) && ::recv(socket_, buffer_, sizeof buffer_, 0) > 0) {
  }
  ::shutdown(socket_, SHUT_RDWR);
  ::close(socket_);
}

bool Connection::is_readable() const { return begin_ < end_ || Wait(POLLIN, deadline_); }
bool Connection::is_writable() const {
  return Wait(POLLOUT, Clock::now() + std::chrono::seconds(5));
}

ssize_t Connection::read(char* data, size_t size) {
  if (begin_ == end_) {
    if (!Wait(POLLIN, deadline_)) return failed_ = true, -1;
    const ssize_t count = ::recv(socket_, buffer_, sizeof buffer_, 0);
    if (count <= 0) return failed_ = true, count;
    begin_ = 0;
    end_ = static_cast<size_t>(count);
  }
  size_t count = std::min(size, end_ - begin_);
  if (in_head_) {
    if (count > head_left_) return failed_ = true, -1;
    head_left_ -= count;
  }
  std::memcpy(data, buffer_ + begin_, count);
  begin_ += count;
  return static_cast<ssize_t>(count);
}

ssize_t Connection::write(const char* data, size_t size) {
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::duration<double>(kWriteSeconds));
  for (;;) {
    const ssize_t count = ::send(socket_, data, size, MSG_NOSIGNAL);
    if (count >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) return count;
    if (!Wait(POLLOUT, until)) return -1;
  }
}

void Connection::get_remote_ip_and_port(std::string& ip, int& port) const {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  if (::getpeername(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0)
    AddressOf(address, ip, port);
}
void Connection::get_local_ip_and_port(std::string& ip, int& port) const {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  if (::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0)
    AddressOf(address, ip, port);
}

}  // namespace coracle::serve
