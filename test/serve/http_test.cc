// Connections: what strangers send, and that the next request is answered.

#include <arpa/inet.h>
#include <coracle/framework/base/error.h>
#include <coracle/serve/http_server.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>

namespace coracle::http_test {

using serve::Request;
using serve::Response;

std::string Gzip(const std::string& text) {
  z_stream stream = {};
  deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

class Http : public ::testing::Test {
 protected:
  void SetUp() override {
    serve::HttpOptions options;
    options.port = 0;
    options.max_body = 1000;
    options.max_head = 4000;
    options.head_seconds = 0.5;
    options.body_seconds = 0.5;
    options.idle_seconds = 2;
    options.connections = 8;
    // Answers with the method, path and size of the body.
    server_ = std::make_unique<serve::HttpServer>(options, [](const Request& request) {
      Response response;
      response.type = "text/plain";
      response.body = fmt::format("{} {} {}", request.method, request.path, request.body.size());
      return response;
    });
    server_->Bind();
    thread_ = std::thread([this] { server_->Run(); });
  }
  void TearDown() override {
    server_->Stop();
    thread_.join();
  }

  int Connect() const {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(server_->port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    timeval limit = {5, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return fd;
  }
  static void Send(int fd, const std::string& text) {
    EXPECT_GE(::send(fd, text.data(), text.size(), MSG_NOSIGNAL), 0);
  }
  // What arrives until the server closes, or `end` has arrived.
  static std::string Read(int fd, const std::string& end = "") {
    std::string text;
    char buffer[4096];
    while (end.empty() || text.find(end) == text.npos) {
      const ssize_t count = ::recv(fd, buffer, sizeof buffer, 0);
      if (count <= 0) break;
      text.append(buffer, static_cast<size_t>(count));
    }
    return text;
  }
  std::string Ask(const std::string& text) const {
    const int fd = Connect();
    Send(fd, text);
    ::shutdown(fd, SHUT_WR);
    const std::string answer = Read(fd);
    ::close(fd);
    return answer;
  }
  int StatusOf(const std::string& text) const {
    const std::string answer = Ask(text);
    EXPECT_EQ(answer.substr(0, 9), "HTTP/1.1 ") << answer;
    // One answer: bytes of a body are not taken for a request.
    EXPECT_EQ(answer.find("HTTP/1.1 ", 9), answer.npos) << answer;
    return answer.size() > 12 ? std::stoi(answer.substr(9, 3)) : 0;
  }
  void ExpectAnswers() const {
    EXPECT_NE(Ask("GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").find("GET /x 0"),
              std::string::npos);
  }

  std::unique_ptr<serve::HttpServer> server_;
  std::thread thread_;
};

TEST_F(Http, Answers) {
  ExpectAnswers();
  EXPECT_NE(Ask("POST /a?b=c HTTP/1.1\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc")
                .find("POST /a 3"),
            std::string::npos);
  EXPECT_NE(Ask("POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
                "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
                .find("POST /a 5"),
            std::string::npos);
  const std::string zipped = Gzip(std::string(900, 'a'));
  EXPECT_NE(Ask(fmt::format("POST /z HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n"
                            "Connection: close\r\n\r\n",
                            zipped.size()) +
                zipped)
                .find("POST /z 900"),
            std::string::npos);
  // A body need not be there; an answer comes at once.
  EXPECT_NE(Ask("POST /empty HTTP/1.1\r\nConnection: close\r\n\r\n").find("POST /empty 0"),
            std::string::npos);
}

TEST_F(Http, ConnectionsAreKept) {
  const int fd = Connect();
  for (int i = 0; i < 20; ++i) {
    Send(fd, fmt::format("POST /{} HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi", i));
    const std::string end = fmt::format("POST /{} 2", i);
    EXPECT_NE(Read(fd, end).find(end), std::string::npos);
  }
  ::close(fd);
}

TEST_F(Http, BadRequests) {
  const std::string post = "POST /x HTTP/1.1\r\n";
  EXPECT_EQ(StatusOf(post + "Content-Length: 1001\r\n\r\n"), 413);
  EXPECT_EQ(StatusOf(post + "Content-Length: 99999999999999999999\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf(post + "Content-Length: abc\r\n\r\nGET /y HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf(post + "Content-Length: -1\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf(post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"), 400);
  EXPECT_EQ(StatusOf(post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            400);
  EXPECT_EQ(StatusOf(post + "Content-Encoding: br\r\nContent-Length: 1\r\n\r\na"), 415);
  EXPECT_EQ(StatusOf("GET /x HTTP/1.1\r\nContent-Length: 20\r\n\r\nGET /y HTTP/1.1\r\n\r\n"), 400);
  // Too large only when it is unpacked, or in chunks.
  const std::string bomb = Gzip(std::string(900'000, 'a'));
  EXPECT_EQ(
      StatusOf(post +
               fmt::format("Content-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", bomb.size()) +
               bomb),
      413);
  std::string chunks;
  for (int i = 0; i < 30; ++i) chunks += "64\r\n" + std::string(100, 'x') + "\r\n";
  EXPECT_EQ(StatusOf(post + "Transfer-Encoding: chunked\r\n\r\n" + chunks + "0\r\n\r\n"), 413);
  ExpectAnswers();
}

TEST_F(Http, SlowClientsAreLeft) {
  // More than there are threads, each with a byte now and then.
  std::vector<int> slow;
  for (int i = 0; i < 16; ++i) slow.push_back(Connect());
  const auto begin = std::chrono::steady_clock::now();
  for (int k = 0; k < 3; ++k) {
    for (int fd : slow) Send(fd, "G");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  ExpectAnswers();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));
  for (int fd : slow) ::close(fd);
  // A body that stops, and a head without end.
  const int fd = Connect();
  Send(fd, "POST /x HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_NE(Read(fd).find(" 400 "), std::string::npos);
  ::close(fd);
  std::string head = "GET /x HTTP/1.1\r\n";
  for (int i = 0; i < 1000; ++i) head += fmt::format("X-{}: y\r\n", i);
  EXPECT_EQ(Ask(head).find(" 200 "), std::string::npos);
  ExpectAnswers();
}

TEST_F(Http, ATakenPortIsAnError) {
  serve::HttpOptions options;
  options.port = server_->port();
  serve::HttpServer other(options, [](const Request&) { return Response(); });
  EXPECT_THROW(other.Bind(), Error);
}

}  // namespace coracle::http_test
