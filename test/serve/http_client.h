#pragma once
// A server on a free port, and clients with plain sockets that send it anything.

#include <arpa/inet.h>
#include <coracle/serve/http_server.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace coracle {

inline std::string Gzip(const std::string& text) {
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

class HttpClient {
 public:
  explicit HttpClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    const timeval limit = {10, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  ~HttpClient() { ::close(socket_); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // The server may have closed the connection.
  void Send(const std::string& text) const {
    for (size_t sent = 0; sent < text.size();) {
      const ssize_t count = ::send(socket_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return;
      sent += static_cast<size_t>(count);
    }
  }
  void EndSending() const { ::shutdown(socket_, SHUT_WR); }
  // What arrives until the server closes, or `end` has arrived.
  std::string Read(const std::string& end = "") const {
    std::string text;
    char buffer[4096];
    while (end.empty() || text.find(end) == text.npos) {
      const ssize_t count = ::recv(socket_, buffer, sizeof buffer, 0);
      if (count <= 0) break;
      text.append(buffer, static_cast<size_t>(count));
    }
    return text;
  }
  // Some of what has arrived.
  std::string Read(size_t bytes) const {
    std::string text(bytes, '\0');
    const ssize_t count = ::recv(socket_, text.data(), bytes, 0);
    text.resize(count > 0 ? static_cast<size_t>(count) : 0);
    return text;
  }
  // Reads an answer, and leaves the connection open.
  int ReadStatus() const {
    std::string text = Read("\r\n\r\n");
    return text.size() > 12 ? std::stoi(text.substr(9, 3)) : 0;
  }
  // Whether the server has closed the connection, or does within seconds.
  bool IsClosed(int seconds = 2) const {
    const timeval limit = {seconds, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    char byte = 0;
    return ::recv(socket_, &byte, 1, 0) == 0;
  }

 private:
  const int socket_;
};

// Small limits; the answer is the request's method, path and number of bytes.
class HttpTest : public ::testing::Test {
 protected:
  static serve::HttpOptions SmallLimits() {
    serve::HttpOptions options;
    options.port = 0;
    options.max_body = 1000;
    options.max_head = 4000;
    options.head_seconds = 0.5;
    options.body_seconds = 0.5;
    options.idle_seconds = 3;
    options.connections = 32;
    return options;
  }
  static serve::Response Echo(const serve::Request& request) {
    serve::Response response;
    response.type = "text/plain";
    response.body = fmt::format("{} {} {}", request.method, request.path, request.body.size());
    return response;
  }
  void Start(const serve::HttpOptions& options, serve::HttpServer::Handler handler = Echo) {
    server_ = std::make_unique<serve::HttpServer>(options, std::move(handler),
                                                  [this](const serve::HttpServer::Access& access) {
                                                    const std::lock_guard<std::mutex> lock(mutex_);
                                                    log_.push_back(access);
                                                  });
    server_->Bind();
    thread_ = std::thread([this] { server_->Run(); });
  }
  void TearDown() override {
    if (!server_) return;
    server_->Stop();
    thread_.join();
  }

  int port() const { return server_->port(); }
  // All that the server answers to the text, until it closes the connection.
  std::string Ask(const std::string& text) const {
    const HttpClient client(port());
    client.Send(text);
    client.EndSending();
    return client.Read();
  }
  // The status of the only answer, after which the server closes the connection by itself: bytes
  // of a body are not taken for a request.
  int OnlyStatus(const std::string& text) const {
    const HttpClient client(port());
    client.Send(text);
    const std::string answer = client.Read();
    EXPECT_EQ(answer.substr(0, 9), "HTTP/1.1 ") << answer << "\nto\n" << text.substr(0, 200);
    EXPECT_EQ(answer.find("HTTP/1.1 ", 9), answer.npos) << answer;
    EXPECT_NE(answer.find("\r\nConnection: close\r\n"), answer.npos) << answer;
    return answer.size() > 12 ? std::stoi(answer.substr(9, 3)) : 0;
  }
  void ExpectAnswers() const {
    const std::string answer = Ask("GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    EXPECT_NE(answer.find("GET /x 0"), answer.npos) << answer;
  }
  std::vector<serve::HttpServer::Access> Log() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return log_;
  }

  std::unique_ptr<serve::HttpServer> server_;
  std::thread thread_;
  std::mutex mutex_;
  std::vector<serve::HttpServer::Access> log_;
};

}  // namespace coracle
