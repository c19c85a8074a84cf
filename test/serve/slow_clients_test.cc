// Clients that send slowly do not hold up others.

#include <coracle/framework/base/error.h>
#include <coracle/test/serve/http_client.h>
#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>

namespace coracle::slow_clients_test {

using serve::Clock;

const std::string kGet = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";

// Sends a byte of each head again and again, and connects again when the server has closed.
class Dribblers {
 public:
  Dribblers(int port, size_t count, std::string head)
      : port_(port), head_(std::move(head)), clients_(count), thread_([this] { Run(); }) {}
  ~Dribblers() {
    stop_ = true;
    thread_.join();
  }
  // Until each has sent something.
  void WaitForAll() const {
    while (rounds_ < 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

 private:
  struct Client {
    int socket = -1;
    size_t sent = 0;
    ~Client() {
      if (socket >= 0) ::close(socket);
    }
  };

  void Run() {
    for (; !stop_; ++rounds_) {
      for (Client& client : clients_) Step(client);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  void Step(Client& client) const {
    char buffer[4096];
    if (client.socket >= 0 && ::recv(client.socket, buffer, sizeof buffer, MSG_DONTWAIT) >= 0) {
      ::close(client.socket);
      client.socket = -1;
    }
    if (client.socket < 0) {
      client.socket = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
      sockaddr_in address = {};
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<uint16_t>(port_));
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      static_cast<void>(
          !::connect(client.socket, reinterpret_cast<sockaddr*>(&address), sizeof address));
      client.sent = 0;
    }
    const char* next = &head_[client.sent++ % head_.size()];
    static_cast<void>(!::send(client.socket, next, 1, MSG_NOSIGNAL | MSG_DONTWAIT));
  }

  const int port_;
  const std::string head_;
  std::vector<Client> clients_;
  std::atomic<bool> stop_{false};
  std::atomic<int> rounds_{0};
  std::thread thread_;
};

class SlowClients : public HttpTest {
 protected:
  void ExpectNewcomersGoFirst(const std::string& head) {
    serve::HttpOptions options = SmallLimits();
    options.connections = 64;
    options.head_seconds = options.body_seconds = 60;
    Start(options);
    std::vector<std::unique_ptr<HttpClient>> active;
    for (int i = 0; i < 16; ++i) active.push_back(std::make_unique<HttpClient>(port()));
    const Dribblers dribblers(port(), 300, head);
    dribblers.WaitForAll();
    double longest = 0;
    for (int i = 0; i < 20; ++i) {
      for (const auto& client : active) client->Send(kGet);
      const Clock::time_point begin = Clock::now();
      const HttpClient newcomer(port());
      newcomer.Send(kGet);
      ASSERT_EQ(newcomer.ReadStatus(), 200);
      longest = std::max(longest, std::chrono::duration<double>(Clock::now() - begin).count());
    }
    EXPECT_LT(longest, 3);
  }
};

TEST_F(SlowClients, HeadsDoNotHoldUpNewcomers) {
  ExpectNewcomersGoFirst("GET /x HTTP/1.1\r\nHost: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
}

// A connection whose client sends nothing is idle.
TEST_F(SlowClients, OldestHeadsGoFirst) {
  serve::HttpOptions options = SmallLimits();
  options.connections = 3;
  options.head_seconds = options.body_seconds = 60;
  Start(options);
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
  HttpClient body(port()), first(port()), second(port());
  body.Send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx");
  first.Send("G");
  pause();
  second.Send("G");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  ExpectAnswers();
  EXPECT_EQ(first.ReadStatus(), 408);
  body.Send("12345678");
  EXPECT_EQ(body.ReadStatus(), 200);
  second.Send("ET /x HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(second.ReadStatus(), 200);
}

// Of bodies, the one that arrives at the lowest rate makes room, even if another began before it.
TEST_F(SlowClients, SlowestBodiesMakeRoom) {
  serve::HttpOptions options = SmallLimits();
  options.connections = 2;
  options.max_body = 1 << 20;
  options.body_seconds = 60;
  Start(options);
  const std::string head = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 100001\r\n\r\n";
  HttpClient fast(port());
  fast.Send(head + std::string(100'000, 'x'));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  HttpClient slow(port());
  slow.Send(head + "x");
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  ExpectAnswers();
  EXPECT_EQ(slow.ReadStatus(), 408);
  fast.Send("x");
  EXPECT_EQ(fast.ReadStatus(), 200);
}

// The log of a full disk throws. A client that is refused for its slow head is logged, too.
TEST(FullLog, DoesNotEndTheServer) {
  serve::HttpOptions options;
  options.port = 0;
  options.connections = 1;
  std::atomic<int> logged{0};
  double received = -1;
  serve::HttpServer server(
      options, [](const serve::Request&) { return serve::Response(); },
      [&](const serve::HttpServer::Access& access) {
        if (access.status == 408) received = access.receive_seconds;
        ++logged;
        throw Error(ErrorCode::kIo, "no space left");
      });
  server.Bind();
  std::thread run([&] { server.Run(); });
  for (int i = 0; i < 3; ++i) {
    const HttpClient slow(server.port());
    slow.Send("GET /x HTTP/1.1\r\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    const HttpClient client(server.port());
    client.Send(kGet);
    EXPECT_EQ(client.ReadStatus(), 200);
    EXPECT_EQ(slow.ReadStatus(), 408);
  }
  server.Stop();
  run.join();
  EXPECT_EQ(logged, 6);
  EXPECT_GT(received, 0.5);
  EXPECT_LT(received, 60);
}

double ProcessorSeconds() {
  timespec time = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// The loop gets one notice of a connection that its client resets while the answer is made.
TEST_F(SlowClients, ResetsKeepNoProcessorBusy) {
  Start(SmallLimits(), [](const serve::Request& request) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    return Echo(request);
  });
  {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ASSERT_GT(::send(socket, kGet.data(), kGet.size(), MSG_NOSIGNAL), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const linger reset = {1, 0};
    ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    ::close(socket);
  }
  const double before = ProcessorSeconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  EXPECT_LT(ProcessorSeconds() - before, 0.2);
}

}  // namespace coracle::slow_clients_test
