// Each allocation of a server that answers a request fails in turn: the server answers the next
// one. Each attempt is made in a child process, so that a crash is one failure.

#include <arpa/inet.h>
#include <coracle/framework/base/error.h>
#include <coracle/serve/http_server.h>
#include <coracle/test/faults/allocations.h>
#include <coracle/test/faults/in_child.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <thread>

namespace coracle::serve_faults_test {

using faults::InChild;
using faults::ScopedAllocationFault;

// What the server at the port answers, up to the first 4 KB. It allocates nothing.
class Client {
 public:
  explicit Client(int port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit = {5, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return;
    const char request[] =
        "POST /a_path_that_is_too_long_for_a_small_string HTTP/1.1\r\nHost: a\r\n"
        "X-Request-Id: an_id_that_is_too_long_for_a_small_string\r\nConnection: close\r\n"
        "Content-Length: 3\r\n\r\nabc";
    static_cast<void>(!::send(socket_, request, sizeof request - 1, MSG_NOSIGNAL));
    while (size_ < sizeof text_) {
      const ssize_t count = ::recv(socket_, text_ + size_, sizeof text_ - size_, 0);
      if (count <= 0) break;
      size_ += static_cast<size_t>(count);
    }
  }
  ~Client() { ::close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  std::string_view answer() const { return {text_, size_}; }

 private:
  const int socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
  char text_[4096];
  size_t size_ = 0;
};

int OpenFiles() {
  int open = 0;
  for (int file = 0; file < 256; ++file) open += ::fcntl(file, F_GETFD) != -1;
  return open;
}

// A server is asked while allocation `at` fails, and once more. "" if all is well. Sets the number
// of allocations that there were.
std::string Outcome(int64_t at, int64_t* count) {
  serve::HttpOptions options;
  options.port = 0;
  serve::HttpServer server(
      options,
      [](const serve::Request& request) {
        serve::Response response;
        response.body = "the answer to " + request.path + " and " + request.body;
        return response;
      },
      [](const serve::HttpServer::Access&) {});
  server.Bind();
  const int files = OpenFiles();
  std::thread loop([&] { server.Run(); });
  std::string problem;
  static_cast<void>(Client(server.port()));  // the worker has begun
  {
    const ScopedAllocationFault fault(at);
    static_cast<void>(Client(server.port()));
    *count = ScopedAllocationFault::Count();
  }
  const Client after(server.port());
  if (after.answer().find(" 200 OK") == std::string::npos ||
      after.answer().find("the answer to /a_path") == std::string::npos)
    problem = "the next answer is " + std::string(after.answer());
  // The loop closes connections in its own time.
  for (int i = 0; i < 200 && OpenFiles() > files + 1; ++i) ::usleep(10'000);
  if (OpenFiles() > files + 1) problem += "; a socket stays open";
  server.Stop();
  loop.join();
  return problem;
}

TEST(ServeFaults, AServerWithoutMemoryGoesOn) {
  const std::string counted = InChild([] {
    int64_t count = 0;
    const std::string problem = Outcome(1'000'000, &count);
    return problem.empty() ? std::to_string(count) : problem;
  });
  const int64_t count = std::stoll(counted);
  ASSERT_GT(count, 10) << counted;
  for (int64_t at = 1; at <= count; ++at) {
    const std::string outcome = InChild([at] {
      int64_t ignored = 0;
      return Outcome(at, &ignored);
    });
    EXPECT_EQ(outcome, "") << "allocation " << at << " of " << count;
  }
}

}  // namespace coracle::serve_faults_test
