// How a server ends: what has arrived is answered, and nothing holds it up.

#include <coracle/test/serve/http_client.h>
#include <coracle/test/serve/small_models.h>

#include <atomic>
#include <chrono>
#include <future>

namespace coracle::drain_test {

using serve::Request;
using serve::Response;

const std::string kGet = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";

class Drain : public HttpTest {
 protected:
  void Restart() {
    TearDown();
    Start(SmallLimits());
  }
};

// Requests that the system has received when the server stops, on connections that are kept.
TEST_F(Drain, KeptConnections) {
  for (int round = 0; round < 20; ++round) {
    Restart();
    std::vector<std::unique_ptr<HttpClient>> clients;
    for (int i = 0; i < 16; ++i) {
      clients.push_back(std::make_unique<HttpClient>(port()));
      clients.back()->Send(kGet);
      EXPECT_NE(clients.back()->Read("GET /x 0").find(" 200 "), std::string::npos);
    }
    for (const auto& client : clients) client->Send(kGet);
    server_->Stop();
    for (const auto& client : clients) {
      const std::string answer = client->Read();
      ASSERT_NE(answer.find(" 200 "), answer.npos) << "round " << round << ": " << answer;
    }
  }
}

// Connections that the system has made, but that the server has not accepted.
TEST_F(Drain, NewConnections) {
  for (int round = 0; round < 20; ++round) {
    Restart();
    std::vector<std::unique_ptr<HttpClient>> clients;
    for (int i = 0; i < 8; ++i) {
      clients.push_back(std::make_unique<HttpClient>(port()));
      clients.back()->Send(kGet);
    }
    server_->Stop();
    for (const auto& client : clients) {
      const std::string answer = client->Read();
      ASSERT_NE(answer.find(" 200 "), answer.npos) << "round " << round << ": " << answer;
    }
  }
}

TEST_F(Drain, RequestsThatCameTogether) {
  std::promise<void> begun, open;
  Start(SmallLimits(), [&](const Request& request) {
    if (request.path == "/first") {
      begun.set_value();
      open.get_future().wait();
    }
    return Echo(request);
  });
  const HttpClient client(port());
  client.Send("GET /first HTTP/1.1\r\nHost: a\r\n\r\n" + kGet +
              "GET /last HTTP/1.1\r\nHost: a\r\n\r\n");
  begun.get_future().wait();
  server_->Stop();
  open.set_value();
  const std::string answers = client.Read();
  const size_t last = answers.find("GET /last 0"), close = answers.find("Connection: close");
  EXPECT_NE(last, answers.npos) << answers;
  EXPECT_NE(close, answers.npos);
  EXPECT_GT(close, answers.find("GET /x 0")) << answers;
}

// A client that sends one request after the other is answered for a second, then the server ends.
TEST_F(Drain, EndlessRequestsDoNotHoldItUp) {
  Start(SmallLimits());
  const HttpClient client(port());
  std::atomic<bool> ended{false};
  std::thread sender([&] {
    std::string many;
    for (int i = 0; i < 50; ++i) many += kGet;
    while (!ended) client.Send(many);
  });
  std::thread reader([&] {
    while (!client.Read(size_t{4096}).empty()) continue;
    ended = true;  // closed, or nothing has come for ten seconds
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const auto begin = serve::Clock::now();
  server_->Stop();
  thread_.join();
  const double seconds = serve::SecondsSince(begin);
  EXPECT_LT(seconds, 5);
  ended = true;
  server_.reset();
  reader.join();
  sender.join();
}

// The first run of the model does not end by itself.
TEST(RepositoryDrain, LoadsEnd) {
  SetLogSink([](MessageLevel, const std::string&) {});
  ScratchFolder folder;
  SaveLoop(folder.path + "/loop", -1);
  serve::Repository models(serve::ServeOptions{}, std::make_shared<serve::MetricsTable>());
  models.AddDirectory(folder.path);
  const auto begin = serve::Clock::now();
  std::future<Ended> load =
      std::async(std::launch::async, [&] { return EndOf([&] { models.Load("loop"); }); });
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_EQ(load.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  models.StopLoading();
  load.wait();
  EXPECT_LT(std::chrono::duration<double>(serve::Clock::now() - begin).count(), 20);
  EXPECT_EQ(EndOf([&] { models.Load("loop"); }).status, 503);
}

}  // namespace coracle::drain_test
