#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/serve/connection.h>
#include <coracle/serve/http_server.h>
#include <fmt/format.h>
#include <httplib.h>

#include <atomic>
#include <cctype>
#include <chrono>
#include <set>
#include <utility>

namespace coracle::serve {
namespace {

using Clock = std::chrono::steady_clock;

bool IsDigits(const std::string& text) {
  return !text.empty() && text.size() < 19 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

std::string LowerCase(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// What is wrong with the head of a request, so that its body must not be read.
struct BadHead {
  int status = 0;  // 0: nothing
  std::string message;
};

BadHead Refuse(int status, std::string message) { return {status, std::move(message)}; }

BadHead CheckHead(const httplib::Request& request, uint64_t max_body) {
  const size_t lengths = request.get_header_value_count("Content-Length");
  const bool chunked = request.has_header("Transfer-Encoding");
  if (lengths > 1) return Refuse(400, "several headers Content-Length");
  if (chunked && lengths > 0) return Refuse(400, "both Content-Length and Transfer-Encoding");
  if (chunked && LowerCase(request.get_header_value("Transfer-Encoding")) != "chunked")
    return Refuse(501, "the only Transfer-Encoding is chunked");
  if (lengths > 0) {
    const std::string length = request.get_header_value("Content-Length");
    if (!IsDigits(length)) return Refuse(400, "Content-Length must be a whole number");
    if (std::stoull(length) > max_body)
      return Refuse(413, fmt::format("the body may have {} bytes", max_body));
  }
  const std::string encoding = LowerCase(request.get_header_value("Content-Encoding"));
  if (!encoding.empty() && encoding != "gzip" && encoding != "deflate" && encoding != "identity")
    return Refuse(415, "Content-Encoding may be gzip or deflate");
  const bool has_body =
      chunked || (lengths > 0 && request.get_header_value("Content-Length") != "0");
  if (has_body && request.method != "POST" && request.method != "PUT")
    return Refuse(400, fmt::format("a {} has no body", Quote(request.method, 20)));
  return {};
}

// `left` bytes may follow.
Request PlainRequest(const httplib::Request& from) {
  Request request;
  request.method = from.method;
  request.path = from.target.substr(0, from.target.find('?'));
  for (const auto& [name, value] : from.headers) request.headers.emplace(LowerCase(name), value);
  return request;
}

void Fill(const Response& from, httplib::Response* to) {
  to->status = from.status;
  for (const auto& [name, value] : from.headers) to->set_header(name, value);
  to->set_content(from.body, from.type);
}

}  // namespace

// httplib calls process_and_close_socket for each connection, in one of its threads.
class HttpServer::Impl : public httplib::Server {
 public:
  Impl(const HttpOptions& options, HttpServer::Handler handler, AccessLog log)
      : options_(options), handler_(std::move(handler)), log_(std::move(log)) {
    const int threads = options.connections;
    new_task_queue = [threads] { return new httplib::ThreadPool(static_cast<size_t>(threads)); };
    set_tcp_nodelay(true);
    set_socket_options([](socket_t socket) {
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    set_payload_max_length(options.max_body);
    set_expect_100_continue_handler([](const httplib::Request&, httplib::Response&) {
      return bad_head.status == 0 ? 100 : 417;
    });
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      if (bad_head.status == 0 && (request.method == "POST" || request.method == "PUT"))
        return HandlerResponse::Unhandled;  // its body is read first
      Answer(request, "", &response);
      return HandlerResponse::Handled;
    });
    const auto read = [this](const httplib::Request& request, httplib::Response& response,
                             const httplib::ContentReader& reader) {
      std::string body;
      const uint64_t most = options_.max_body;
      const bool complete = reader([&](const char* data, size_t size) {
        if (size > most - body.size()) return false;
        body.append(data, size);
        return true;
      });
      if (!complete) {
        bad_head = body.size() == most || !connection->FailedToRead()
                       ? Refuse(413, fmt::format("the body may have {} bytes", most))
                       : Refuse(400, "the body ends too early");
      }
      Answer(request, std::move(body), &response);
    };
    Post(".*", httplib::Server::HandlerWithContentReader(read));
    Put(".*", httplib::Server::HandlerWithContentReader(read));
    set_error_handler([](const httplib::Request&, httplib::Response& response) {
      if (response.body.empty()) Fill(ErrorResponse(response.status, "a bad request"), &response);
    });
    set_exception_handler(
        [](const httplib::Request&, httplib::Response& response, std::exception_ptr) {
          Fill(ErrorResponse(500, "the server failed"), &response);
        });
  }

  void Bind() {
    if (options_.port == 0)
      port_ = bind_to_any_port(options_.address);
    else
      port_ = bind_to_port(options_.address, options_.port) ? options_.port : -1;
    if (port_ < 0) {
      throw Error(ErrorCode::kIo, fmt::format("cannot listen on {}:{}; the port is taken, or the "
                                              "address is not one of this machine",
                                              options_.address, options_.port));
    }
    ::listen(svr_sock_, 1024);
  }
  int port() const { return port_; }
  void Run() {
    if (!stopping_) listen_after_bind();
  }
  void Stop() {
    stopping_ = true;
    stop();
  }

 private:
  // Of the request that this thread reads.
  static thread_local BadHead bad_head;
  static thread_local Connection* connection;

  bool process_and_close_socket(socket_t socket) override {
    Connection stream(socket, options_.max_head);
    connection = &stream;
    for (bool closed = false; !closed && !stopping_;) {
      if (!stream.WaitForRequest(options_.idle_seconds, stopping_)) break;
      bad_head = {};
      stream.BeginHead(options_.head_seconds);
      const bool good = process_request(stream, false, closed, [&](httplib::Request& request) {
        request.ranges.clear();
        bad_head = CheckHead(request, options_.max_body);
        if (!request.has_header("Content-Length") && !request.has_header("Transfer-Encoding"))
          request.set_header("Content-Length", "0");  // else it waits for a body
        stream.BeginBody(options_.body_seconds);
      });
      // Bytes of a body that was not read would be taken for the next request.
      if (!good || bad_head.status != 0) break;
    }
    stream.Close();
    connection = nullptr;
    return true;
  }

  void Answer(const httplib::Request& from, std::string body, httplib::Response* to) {
    const Clock::time_point begin = Clock::now();
    Request request = PlainRequest(from);
    request.body = std::move(body);
    const Response response =
        bad_head.status != 0 ? ErrorResponse(bad_head.status, bad_head.message) : handler_(request);
    Fill(response, to);
    if (bad_head.status != 0) to->set_header("Connection", "close");
    if (!log_) return;
    log_({from.method, request.path, from.remote_addr, response.status, request.body.size(),
          response.body.size(), std::chrono::duration<double>(Clock::now() - begin).count()});
  }

  const HttpOptions options_;
  const HttpServer::Handler handler_;
  const AccessLog log_;
  int port_ = -1;
  std::atomic<bool> stopping_{false};
};

thread_local BadHead HttpServer::Impl::bad_head;
thread_local Connection* HttpServer::Impl::connection = nullptr;

HttpServer::HttpServer(const HttpOptions& options, Handler handler, AccessLog log)
    : impl_(std::make_unique<Impl>(options, std::move(handler), std::move(log))) {}
HttpServer::~HttpServer() = default;
void HttpServer::Bind() { impl_->Bind(); }
int HttpServer::port() const { return impl_->port(); }
void HttpServer::Run() { impl_->Run(); }
void HttpServer::Stop() { impl_->Stop(); }

}  // namespace coracle::serve
