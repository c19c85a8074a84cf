// How a server shares itself between clients, and how it ends.

#include <coracle/framework/base/error.h>
#include <coracle/serve/decode_body.h>
#include <coracle/serve/end_signals.h>
#include <coracle/test/serve/http_client.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <new>
#include <stdexcept>

namespace coracle::http_limits_test {

using serve::HttpError;
using serve::Request;
using serve::Response;

const std::string kGet = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";

void Sleep(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// A handler that waits until it may answer.
class Gate {
 public:
  Response Wait(const Request& request) {
    std::unique_lock<std::mutex> lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
    return {.body = request.path};
  }
  void WaitFor(int requests) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= requests; });
  }
  void Open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  bool open_ = false;
};

class HttpLimits : public HttpTest {
 protected:
  std::unique_ptr<HttpClient> Answered() const {
    auto client = std::make_unique<HttpClient>(port());
    client->Send(kGet);
    EXPECT_NE(client->Read("GET /x 0").find(" 200 "), std::string::npos);
    return client;
  }
};

TEST_F(HttpLimits, IdleConnectionsMakeRoom) {
  serve::HttpOptions options = SmallLimits();
  options.connections = 4;
  options.idle_seconds = 60;
  Start(options);
  std::vector<std::unique_ptr<HttpClient>> idle;
  for (int i = 0; i < 4; ++i) {
    idle.push_back(Answered());
    Sleep(20);
  }
  for (int i = 0; i < 3; ++i) ExpectAnswers();
  EXPECT_TRUE(idle[0]->IsClosed());  // the one that was idle longest
  idle[3]->Send(kGet);
  EXPECT_EQ(idle[3]->ReadStatus(), 200);
}

// Requests that are being answered are left alone: the others wait.
TEST_F(HttpLimits, BusyConnectionsMakeOthersWait) {
  serve::HttpOptions options = SmallLimits();
  options.connections = 2;
  Gate gate;
  Start(options, [&](const Request& request) { return gate.Wait(request); });
  HttpClient first(port()), second(port());
  first.Send(kGet);
  second.Send(kGet);
  gate.WaitFor(2);
  HttpClient third(port());
  third.Send(kGet);
  Sleep(250);
  gate.Open();
  for (const HttpClient* client : {&first, &second, &third}) EXPECT_EQ(client->ReadStatus(), 200);
}

TEST_F(HttpLimits, ClientsThatDoNotReadAreLeft) {
  serve::HttpOptions options = SmallLimits();
  options.write_seconds = 0.3;
  options.write_rate = 1e9;
  Start(options, [](const Request& request) {
    return Response{.body = std::string(request.path == "/large" ? 40 << 20 : 1, 'a')};
  });
  const HttpClient lazy(port());
  lazy.Send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
  for (int i = 0; i < 200 && Log().empty(); ++i) Sleep(50);
  ASSERT_EQ(Log().size(), 1u);
  EXPECT_FALSE(Log()[0].sent);
  const HttpClient reader(port());
  reader.Send(kGet);
  EXPECT_EQ(reader.ReadStatus(), 200);
}

// A client that does not read its answer makes room before one that reads slowly.
TEST_F(HttpLimits, StalledAnswersMakeRoom) {
  serve::HttpOptions options = SmallLimits();
  options.connections = 2;
  options.write_seconds = 600;
  Start(options, [](const Request& request) {
    return Response{.body = std::string(request.path == "/large" ? 40 << 20 : 1, 'a')};
  });
  const HttpClient lazy(port()), reader(port());
  lazy.Send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
  reader.Send("GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  std::atomic<bool> answered{false};
  std::thread third([&] {
    const HttpClient client(port());
    client.Send(kGet);
    EXPECT_EQ(client.ReadStatus(), 200);
    answered = true;
  });
  std::string text;
  for (int i = 0; i < 1000 && !answered; ++i) {
    text += reader.Read(8000);
    Sleep(10);
  }
  third.join();
  text += reader.Read();
  EXPECT_EQ(text.size() - text.find("\r\n\r\n") - 4, size_t{40} << 20);
  EXPECT_LT(lazy.Read().size(), size_t{40} << 20);
}

TEST_F(HttpLimits, BodiesShareMemory) {
  serve::HttpOptions options = SmallLimits();
  options.body_seconds = 60;
  options.memory = std::make_shared<serve::MemoryBudget>(2000);
  Start(options);
  const std::string head = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n";
  HttpClient first(port()), second(port());
  for (const HttpClient* client : {&first, &second}) client->Send(head + std::string(900, 'x'));
  for (int i = 0; i < 100 && options.memory->used() < 2000; ++i) Sleep(20);
  EXPECT_EQ(options.memory->used(), 2000u);  // the memory of the whole bodies
  const std::string answer = Ask(head + std::string(1000, 'x'));
  EXPECT_NE(answer.find(" 503 "), answer.npos);
  EXPECT_NE(answer.find("\r\nRetry-After: 1\r\n"), answer.npos);
  for (const HttpClient* client : {&first, &second}) {
    client->Send(std::string(100, 'x'));
    EXPECT_NE(client->Read("POST /x 1000").find(" 200 "), std::string::npos);
  }
  for (int i = 0; i < 100 && options.memory->used() > 0; ++i) Sleep(20);
  EXPECT_EQ(options.memory->used(), 0u);
  // What a body becomes counts, too: the compressed one would have room.
  HttpClient third(port());
  third.Send(head + std::string(999, 'x'));
  for (int i = 0; i < 100 && options.memory->used() < 1000; ++i) Sleep(20);
  const std::string zipped = Gzip(std::string(1000, 'a'));
  EXPECT_NE(Ask(fmt::format("POST /x HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\n"
                            "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
                            zipped.size(), zipped))
                .find(" 503 "),
            std::string::npos);
}

TEST_F(HttpLimits, HandlersMayThrow) {
  Start(SmallLimits(), [](const Request& request) -> Response {
    if (request.path == "/memory") throw std::bad_alloc();
    if (request.path == "/teapot") throw HttpError(404, "no coffee");
    throw std::runtime_error("secret");
  });
  const HttpClient client(port());
  for (const auto& [path, status] :
       {std::pair<const char*, int>{"/memory", 503}, {"/teapot", 404}, {"/x", 500}}) {
    client.Send(fmt::format("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", path));
    const std::string answer = client.Read("}");
    EXPECT_NE(answer.find(fmt::format(" {} ", status)), answer.npos) << answer;
    EXPECT_EQ(answer.find("secret"), answer.npos);
    EXPECT_EQ(answer.find("Retry-After: 1") != answer.npos, status == 503) << answer;
  }
}

TEST_F(HttpLimits, AnswersAreCompressed) {
  Start(SmallLimits(), [](const Request& request) {
    return Response{
        .type = request.path == "/bytes" ? "application/octet-stream" : "application/json",
        .body = std::string(request.path == "/short" ? 100 : 5000, '1')};
  });
  const auto ask = [&](const std::string& path, const std::string& accepted) {
    return Ask("GET " + path + " HTTP/1.1\r\nHost: a\r\nAccept-Encoding: " + accepted +
               "\r\nConnection: close\r\n\r\n");
  };
  EXPECT_NE(ask("/x", "br, gzip").find("Content-Encoding: gzip\r\n"), std::string::npos);
  EXPECT_NE(ask("/x", "deflate;q=0.5").find("Content-Encoding: deflate\r\n"), std::string::npos);
  const std::string zipped = ask("/x", "gzip");
  const size_t body = zipped.find("\r\n\r\n") + 4;
  Request request;
  request.headers["content-encoding"] = "gzip";
  request.body = zipped.substr(body);
  serve::BudgetShare share(nullptr);
  serve::DecodeBody(10'000, &share, &request);
  EXPECT_EQ(request.body, std::string(5000, '1'));
  for (const char* accepted : {"", "br", "gzip;q=0", "gzipx", "xgzip", "gzip; q=0.0"})
    EXPECT_NE(ask("/x", accepted).find(std::string(5000, '1')), std::string::npos) << accepted;
  EXPECT_EQ(ask("/bytes", "gzip").find("Content-Encoding"), std::string::npos);
  EXPECT_EQ(ask("/short", "gzip").find("Content-Encoding"), std::string::npos);
}

TEST_F(HttpLimits, StopIsNeverLost) {
  for (int i = 0; i < 50; ++i) {
    serve::HttpServer server(SmallLimits(), Echo);
    server.Bind();
    if (i % 2 == 0) {
      server.Stop();
      server.Run();
      continue;
    }
    std::thread run([&] { server.Run(); });
    if (i % 4 == 1) std::this_thread::yield();
    server.Stop();
    run.join();
  }
}

// Idle connections end at once; requests that have begun are answered.
TEST_F(HttpLimits, StopAnswersWhatHasBegun) {
  serve::HttpOptions options = SmallLimits();
  options.idle_seconds = options.head_seconds = options.body_seconds = 600;
  Gate gate;
  Start(options, [&](const Request& request) {
    return request.path == "/x" ? Echo(request) : gate.Wait(request);
  });
  const auto idle = Answered();
  HttpClient busy(port()), slow(port());
  busy.Send("GET /busy HTTP/1.1\r\nHost: a\r\n\r\n");
  slow.Send("GET /x HTTP/1.1\r\n");
  gate.WaitFor(1);
  Sleep(100);
  server_->Stop();
  EXPECT_TRUE(idle->IsClosed());
  slow.Send("Host: a\r\n\r\n");
  EXPECT_NE(slow.Read().find("GET /x 0"), std::string::npos);
  gate.Open();
  EXPECT_NE(busy.Read().find(" 200 "), std::string::npos);
  thread_.join();
  server_.reset();
}

// --- signals, in processes of their own ---

// Runs a server in another process: it tells its port, and ends with status 7 after Run.
class SignalTest : public ::testing::Test {
 protected:
  void Begin(double grace, bool loads, double drain = 30) {
    int pipes[2];
    ASSERT_EQ(::pipe(pipes), 0);
    child_ = ::fork();
    if (child_ == 0) {
      ::alarm(30);
      serve::EndSignals signals;
      if (loads) {
        const int port = 0;
        static_cast<void>(!::write(pipes[1], &port, sizeof port));
        Sleep(20'000);
      }
      serve::HttpOptions options;
      options.port = 0;
      std::atomic<bool> ready{true};
      serve::HttpServer server(options, [&](const Request& request) -> Response {
        if (request.path == "/slow") Sleep(20'000);
        return {.body = ready ? "ready" : "stopping"};
      });
      server.Bind();
      SetLogSink([](MessageLevel, const std::string&) {});
      signals.Serve([&] { ready = false; }, grace, [&] { server.Stop(); }, drain);
      const int port = server.port();
      static_cast<void>(!::write(pipes[1], &port, sizeof port));
      server.Run();
      ::_exit(7);
    }
    ASSERT_EQ(::read(pipes[0], &port_, sizeof port_), static_cast<ssize_t>(sizeof port_));
    ::close(pipes[0]);
    ::close(pipes[1]);
  }
  void Signal(int signal) const { ::kill(child_, signal); }
  std::string Ask() const {
    const HttpClient client(port_);
    client.Send("GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    const std::string answer = client.Read();
    return answer.substr(std::min(answer.size(), answer.find("\r\n\r\n") + 4));
  }
  int Status() const {
    int status = 0;
    ::waitpid(child_, &status, 0);
    return status;
  }
  void ExpectEndsAfterRun() const {
    const int status = Status();
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
  }
  void ExpectEndsBy(int signal) const {
    const int status = Status();
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
  }

  pid_t child_ = -1;
  int port_ = 0;
};

TEST_F(SignalTest, WhileModelsLoad) {
  for (int signal : {SIGTERM, SIGINT}) {
    Begin(0, true);
    Signal(signal);
    ExpectEndsBy(signal);
  }
}

TEST_F(SignalTest, WhileServing) {
  Begin(0, false);
  Signal(SIGUSR2);  // means nothing
  EXPECT_EQ(Ask(), "ready");
  Signal(SIGTERM);
  ExpectEndsAfterRun();
}

TEST_F(SignalTest, DuringGrace) {
  Begin(60, false);
  Signal(SIGTERM);
  std::string answer;
  for (int i = 0; i < 100 && answer != "stopping"; ++i) {
    Sleep(20);
    answer = Ask();
  }
  EXPECT_EQ(answer, "stopping");  // and it is still served
  Signal(SIGTERM);
  ExpectEndsAfterRun();
}

TEST_F(SignalTest, AfterGrace) {
  Begin(0.2, false);
  Signal(SIGINT);
  ExpectEndsAfterRun();
}

TEST_F(SignalTest, TheDrainHasALimit) {
  Begin(0, false, 0.3);
  const HttpClient slow(port_);
  slow.Send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
  Sleep(200);
  const serve::Clock::time_point begin = serve::Clock::now();
  Signal(SIGTERM);
  const int status = Status();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
  EXPECT_LT(serve::Clock::now() - begin, std::chrono::seconds(10));
}

TEST_F(SignalTest, WhileTheLastRequestsAreAnswered) {
  Begin(0, false);
  const HttpClient slow(port_);
  slow.Send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
  Sleep(200);
  Signal(SIGTERM);
  Sleep(300);
  Signal(SIGTERM);
  ExpectEndsBy(SIGTERM);
}

}  // namespace coracle::http_limits_test
