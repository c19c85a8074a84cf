#include <coracle/framework/base/error.h>
#include <coracle/serve/connection.h>
#include <coracle/serve/decode_body.h>
#include <coracle/serve/http_answer.h>
#include <coracle/serve/http_server.h>
#include <coracle/serve/listener.h>
#include <coracle/serve/request_time.h>
#include <coracle/serve/worker_threads.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace coracle::serve {
namespace {

using PeerPtr = std::shared_ptr<Peer>;

constexpr int kTickMs = 100;           // how often deadlines are compared with the time
constexpr double kLeaveSeconds = 0.5;  // for what a client sends after the last answer
constexpr double kIdleToClose = 0.1;   // an idle connection makes room for another after that
constexpr double kHeadToClose = 0.1;   // a head that is not whole, after that
constexpr std::chrono::seconds kReadAfterStop{1};
constexpr double kSlowHead = 0.5;      // such a head makes room before idle connections, after that
constexpr double kSlowToClose = 1;     // a body that arrives slowly makes room after that
constexpr double kStalledToClose = 3;  // an answer of which the client takes nothing, after that
constexpr int kAcceptsAtOnce = 64;     // before other connections are read
constexpr size_t kMaxId = 128;         // bytes of X-Request-Id

Clock::time_point DeadlineIn(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}
double SecondsFrom(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Finds the peer with the lowest number.
struct Lowest {
  PeerPtr peer;
  double number = std::numeric_limits<double>::infinity();

  void Add(const PeerPtr& other, double its_number) {
    if (peer && its_number >= number) return;
    peer = other;
    number = its_number;
  }
};

// Who could make room for another client.
struct RoomMakers {
  Lowest idle, head, body;  // the longest idle one, the oldest head, the slowest body
  Lowest stalled;           // the answer of which the client has taken nothing for the longest time

  void Add(const PeerPtr& peer) {
    const double age = SecondsFrom(peer->begin);
    switch (peer->state) {
      case Peer::State::kIdle:
      case Peer::State::kLeaving:
        return idle.Add(peer, -age);
      case Peer::State::kHead:
        return head.Add(peer, -age);
      case Peer::State::kBody:
        if (age > kSlowToClose)
          body.Add(peer, static_cast<double>(peer->parser->request().body.size()) / age);
        return;
      case Peer::State::kAnswer:
        return stalled.Add(peer, -peer->connection.StalledSeconds());
    }
  }
};

// A step of the loop. Without memory for it, gives up; the loop goes on.
template <class Step, class GiveUp>
void TryStep(Step step, GiveUp give_up) {
  try {
    step();
  } catch (const std::bad_alloc&) {
    give_up();
  }
}

bool IsId(const std::string& text) {
  return text.size() <= kMaxId &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const HttpOptions& options, HttpServer::Handler handler, AccessLog log);
  ~Impl();

  void Bind();
  int port() const { return listener_.port(); }
  void Run();
  void Stop();

 private:
  void Wake() const;

  // The loop.
  void Watch(int operation, int socket, uint32_t events) const;
  void Listen(bool listen);
  void Accept(int most_clients);
  void EndListening();
  bool MakeRoom();
  void Evict(const PeerPtr& peer);
  void Receive(const PeerPtr& peer);
  void DropBytes(const PeerPtr& peer);
  void ReadRequest(const PeerPtr& peer);
  void Refuse(const PeerPtr& peer, const HttpError& error);
  void Dispatch(const PeerPtr& peer);
  void TakeAnswered();
  void GoOn(const PeerPtr& peer);
  void CheckDeadlines();
  void EndLate(const PeerPtr& peer);
  void Close(const PeerPtr& peer) { peers_.erase(peer->connection.socket()); }
  void Arm(const PeerPtr& peer) const {
    Watch(EPOLL_CTL_MOD, peer->connection.socket(), EPOLLIN | EPOLLONESHOT);
  }

  // A worker.
  static Access AccessOf(Peer& peer);
  void Answer(const PeerPtr& peer);
  Response Handled(Peer& peer);
  void Send(Peer& peer, const Response& response, bool with_body);

  const HttpOptions options_;
  const HttpServer::Handler handler_;
  const AccessLog log_;
  Listener listener_;
  const int epoll_, wake_;
  std::atomic<bool> stopping_{false};
  // After the stop, a client that sends one request after the other is answered until then.
  std::atomic<Clock::rep> last_read_{Clock::time_point::max().time_since_epoch().count()};
  bool listening_ = false, out_of_files_ = false;
  std::map<int, PeerPtr> peers_;  // by socket
  std::mutex mutex_;
  std::list<PeerPtr> answered_;  // by workers; the loop takes them
  WorkerThreads* workers_ = nullptr;
};

HttpServer::Impl::Impl(const HttpOptions& options, HttpServer::Handler handler, AccessLog log)
    : options_(options),
      handler_(std::move(handler)),
      log_(std::move(log)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (options.connections < 1)
    throw Error(ErrorCode::kInvalidArgument, "a server needs at least one connection");
  if (epoll_ < 0 || wake_ < 0)
    throw Error(ErrorCode::kIo, "cannot serve: the process has too many open files");
  Watch(EPOLL_CTL_ADD, wake_, EPOLLIN);
}

HttpServer::Impl::~Impl() {
  if (epoll_ >= 0) ::close(epoll_);
  if (wake_ >= 0) ::close(wake_);
}

void HttpServer::Impl::Bind() {
  listener_.Bind(options_.address, options_.port);
  Listen(true);
}

void HttpServer::Impl::Stop() {
  last_read_ = (Clock::now() + kReadAfterStop).time_since_epoch().count();
  stopping_ = true;
  Wake();
}

void HttpServer::Impl::Wake() const {
  const uint64_t one = 1;
  static_cast<void>(!::write(wake_, &one, sizeof one));
}

void HttpServer::Impl::Run() {
  WorkerThreads workers(static_cast<size_t>(options_.connections));
  workers_ = &workers;
  std::array<epoll_event, 64> events;
  for (Clock::time_point next_check = Clock::now();;) {
    if (stopping_) {
      TryStep([&] { EndListening(); }, [] {});
      TryStep([&] { CheckDeadlines(); }, [] {});
      if (peers_.empty() && listener_.socket() < 0) break;
    }
    const bool wait = peers_.empty() && listening_ && !stopping_;
    const int count =
        ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), wait ? -1 : kTickMs);
    for (int i = 0; i < count; ++i) {
      const int socket = events[static_cast<size_t>(i)].data.fd;
      if (socket == listener_.socket()) {
        TryStep([&] { Accept(kAcceptsAtOnce); }, [] {});
      } else if (socket == wake_) {
        uint64_t times = 0;
        static_cast<void>(!::read(wake_, &times, sizeof times));
      } else if (const auto found = peers_.find(socket); found != peers_.end()) {
        const PeerPtr peer = found->second;
        TryStep([&] { Receive(peer); }, [&] { Close(peer); });
      }
    }
    TakeAnswered();
    const bool has_room = peers_.size() < static_cast<size_t>(options_.connections);
    if (Clock::now() < next_check) {
      if (has_room && !out_of_files_) Listen(true);
      continue;
    }
    next_check = Clock::now() + std::chrono::milliseconds(kTickMs);
    TryStep([&] { CheckDeadlines(); }, [] {});
    out_of_files_ = false;
    Listen(true);
  }
  workers.Finish();
}

void HttpServer::Impl::Watch(int operation, int socket, uint32_t events) const {
  epoll_event event = {};
  event.events = events;
  event.data.fd = socket;
  ::epoll_ctl(epoll_, operation, socket, &event);
}

void HttpServer::Impl::Listen(bool listen) {
  if (listen == listening_ || listener_.socket() < 0) return;
  Watch(listen ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, listener_.socket(), EPOLLIN);
  listening_ = listen;
}

// Accepts who waits, and reads what they have sent: whose head is whole need not make room for the
// next one. Without room, the others wait until the next check.
void HttpServer::Impl::Accept(int most_clients) {
  for (int i = 0; i < most_clients; ++i) {
    if (peers_.size() >= static_cast<size_t>(options_.connections)) {
      if (!listener_.HasClient()) return;
      if (!MakeRoom()) return Listen(false);
    }
    OwnedSocket socket(listener_.Accept());
    if (socket.get() < 0) {
      const bool no_files =
          errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      out_of_files_ = no_files && !MakeRoom();
      if (out_of_files_) Listen(false);
      return;
    }
    const RequestLimits limits = {options_.max_body, options_.max_head};
    const auto peer = std::make_shared<Peer>(std::move(socket), limits, options_.memory.get());
    peer->deadline = DeadlineIn(options_.idle_seconds);
    peers_[peer->connection.socket()] = peer;
    // So that a reset is reported once.
    Watch(EPOLL_CTL_ADD, peer->connection.socket(), EPOLLONESHOT);
    TryStep([&] { Receive(peer); }, [&] { Close(peer); });
  }
}

// Once, when the server stops. Clients whose connections the system has made are accepted.
void HttpServer::Impl::EndListening() {
  if (listener_.socket() < 0) return;
  CheckDeadlines();  // idle connections make room
  Accept(options_.connections);
  Listen(false);
  listener_.Close();
}

// Closes a connection, from the one whose client loses least: a head that arrives slowly, the
// connection that has been idle longest, a head that is not whole, the slowest body. If there is
// none, ends the answer that its client does not read. True: there is room now.
bool HttpServer::Impl::MakeRoom() {
  RoomMakers makers;
  for (const auto& [socket, peer] : peers_) makers.Add(peer);
  if (-makers.head.number > kSlowHead) return Evict(makers.head.peer), true;
  if (-makers.idle.number > kIdleToClose) return Close(makers.idle.peer), true;
  if (-makers.head.number > kHeadToClose) return Evict(makers.head.peer), true;
  if (makers.body.peer) return Evict(makers.body.peer), true;
  if (-makers.stalled.number > kStalledToClose) makers.stalled.peer->connection.Abort();
  return false;
}

// Refuses a request that arrives slowly. It must not wait: many such clients come at once.
void HttpServer::Impl::Evict(const PeerPtr& peer) {
  peer->parser->request().received = Clock::now();
  const Response response = ErrorResponse(408, "the request arrives slowly while others wait");
  peer->connection.SendNow(AnswerHead(response, false, 0) + response.body);
  peer->connection.EndSending();
  Close(peer);
  if (log_) {
    Access access = AccessOf(*peer);
    access.status = response.status;
    access.response_bytes = response.body.size();
    access.sent = true;
    workers_->Add([this, access = std::move(access)] {
      try {
        log_(access);
      } catch (const std::exception&) {  // a full disk of the log must not end the server
      }
    });
  }
}

void HttpServer::Impl::Receive(const PeerPtr& peer) {
  if (peer->state == Peer::State::kAnswer) return;
  if (peer->state == Peer::State::kLeaving) return DropBytes(peer);
  if (peer->connection.Receive(&peer->unread) == Connection::Got::kEnd) peer->ended = true;
  ReadRequest(peer);
}

// With bytes unread, closing would destroy the answer on its way to the client.
void HttpServer::Impl::DropBytes(const PeerPtr& peer) {
  std::string bytes;
  if (peer->connection.Receive(&bytes) == Connection::Got::kEnd) return Close(peer);
  Arm(peer);
}

void HttpServer::Impl::ReadRequest(const PeerPtr& peer) {
  RequestParser& parser = *peer->parser;
  if (peer->state == Peer::State::kIdle && !peer->unread.empty()) {
    peer->state = Peer::State::kHead;
    peer->begin = Clock::now();
    peer->deadline = DeadlineIn(options_.head_seconds);
  }
  try {
    const size_t taken = parser.Feed(peer->unread);
    if (taken == peer->unread.size())
      peer->unread = {};
    else
      peer->unread.erase(0, taken);
    if (peer->ended && parser.begun() && !parser.done())
      throw HttpError(400, "the request ends too early");
  } catch (const HttpError& error) {
    return Refuse(peer, error);
  } catch (const std::bad_alloc&) {
    return Refuse(peer, HttpError(503, "out of memory"));
  }
  if (parser.done()) return Dispatch(peer);
  if (peer->ended) return Close(peer);
  if (peer->state == Peer::State::kHead && parser.head_ended()) {
    peer->state = Peer::State::kBody;
    peer->deadline = DeadlineIn(options_.body_seconds);
    if (parser.wants_continue()) peer->connection.SendNow("HTTP/1.1 100 Continue\r\n\r\n");
  }
  Arm(peer);
}

void HttpServer::Impl::Refuse(const PeerPtr& peer, const HttpError& error) {
  peer->refusal = error;
  Dispatch(peer);
}

void HttpServer::Impl::Dispatch(const PeerPtr& peer) {
  peer->state = Peer::State::kAnswer;
  peer->parser->request().received = Clock::now();
  // A worker must not need memory to give the connection back.
  const auto place = std::make_shared<std::list<PeerPtr>>(1, peer);
  workers_->Add([this, peer, place] {
    try {
      Answer(peer);
    } catch (const std::exception&) {  // out of memory
      peer->keep = false;
      peer->ended = true;
    }
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      answered_.splice(answered_.end(), *place);
    }
    Wake();
  });
}

void HttpServer::Impl::TakeAnswered() {
  std::list<PeerPtr> answered;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    answered.swap(answered_);
  }
  for (const PeerPtr& peer : answered) TryStep([&] { GoOn(peer); }, [&] { Close(peer); });
}

// After an answer. If the server stops, CheckDeadlines closes the connection, unless the client has
// sent a request before it knew that.
void HttpServer::Impl::GoOn(const PeerPtr& peer) {
  peer->begin = Clock::now();
  if (peer->keep) {
    peer->NextRequest();
    peer->state = Peer::State::kIdle;
    peer->deadline = DeadlineIn(options_.idle_seconds);
    return peer->unread.empty() && !peer->ended ? Arm(peer) : ReadRequest(peer);
  }
  if (peer->ended) return Close(peer);
  peer->parser.reset();  // returns its memory
  peer->connection.EndSending();
  peer->state = Peer::State::kLeaving;
  peer->deadline = DeadlineIn(kLeaveSeconds);
  Arm(peer);
}

void HttpServer::Impl::CheckDeadlines() {
  const Clock::time_point now = Clock::now();
  std::vector<PeerPtr> late;
  for (const auto& [socket, peer] : peers_) {
    const bool leaves = stopping_ && peer->state == Peer::State::kIdle;
    if (peer->state != Peer::State::kAnswer && (leaves || peer->deadline < now))
      late.push_back(peer);
  }
  for (const PeerPtr& peer : late) TryStep([&] { EndLate(peer); }, [&] { Close(peer); });
}

void HttpServer::Impl::EndLate(const PeerPtr& peer) {
  if (stopping_ && peer->state == Peer::State::kIdle) {
    Receive(peer);  // what has arrived since the last look
    if (peer->state != Peer::State::kIdle) return;
  }
  if (peer->state == Peer::State::kHead || peer->state == Peer::State::kBody)
    Refuse(peer, HttpError(408, "the request does not arrive in time"));
  else
    Close(peer);
}

HttpServer::Access HttpServer::Impl::AccessOf(Peer& peer) {
  const Request& request = peer.parser->request();
  Access access;
  access.method = request.method;
  access.path = request.path;
  access.remote = peer.connection.remote();
  access.id = request.Header("x-request-id");
  access.trace = request.Header("x-trace") == "1";
  access.request_bytes = request.body.size();
  access.receive_seconds = std::chrono::duration<double>(request.received - peer.begin).count();
  return access;
}

void HttpServer::Impl::Answer(const PeerPtr& peer) {
  Access access = AccessOf(*peer);
  const Request& request = peer->parser->request();
  const Clock::time_point received = request.received;
  const std::string accepted = request.Header("accept-encoding");
  Response response = Handled(*peer);
  CompressBody(accepted, &response);
  if (!access.id.empty() && IsId(access.id)) response.headers["X-Request-Id"] = access.id;
  access.status = response.status;
  access.response_bytes = response.body.size();
  access.queue_seconds = response.queue_seconds;
  access.run_seconds = response.run_seconds;
  const Clock::time_point begin = Clock::now();
  Send(*peer, response, access.method != "HEAD");
  access.send_seconds = SecondsFrom(begin);
  access.seconds = SecondsFrom(received);
  access.sent = !peer->failed;
  if (log_) log_(access);
}

Response HttpServer::Impl::Handled(Peer& peer) {
  RequestParser& parser = *peer.parser;
  peer.keep = false;
  if (peer.refusal) return ErrorResponse(peer.refusal->status(), peer.refusal->what());
  Response response;
  try {
    Request& request = parser.request();
    if (!IsId(request.Header("x-request-id")))
      throw HttpError(400, "X-Request-Id may have 128 characters, and no spaces");
    request.deadline = DeadlineUnchecked(request, options_.time_limit);
    if (!request.body.empty()) {
      DoUntil(request.deadline, "its body was unpacked",
              [&] { DecodeBody(options_.max_body, &parser.share(), &request); });
    }
    response = handler_(std::move(request));
  } catch (const HttpError& error) {
    response = ErrorResponse(error.status(), error.what());
  } catch (const std::bad_alloc&) {
    response = ErrorResponse(503, "out of memory");
  } catch (...) {
    response = ErrorResponse(500, "the server failed");
  }
  // A body without a length might follow. Requests that the client sent before the stop are
  // answered before the connection is closed.
  const bool late = Clock::now().time_since_epoch().count() > last_read_;
  const bool goes_on = !stopping_ || (!peer.unread.empty() && !late);
  peer.keep = parser.keep_alive() && response.status != 411 && goes_on;
  return response;
}

void HttpServer::Impl::Send(Peer& peer, const Response& response, bool with_body) {
  const std::string head = AnswerHead(response, peer.keep, options_.idle_seconds);
  const std::string_view body = with_body ? std::string_view(response.body) : "";
  const Clock::time_point deadline =
      DeadlineIn(options_.write_seconds + static_cast<double>(body.size()) / options_.write_rate);
  const bool sent = peer.connection.Send(head, !body.empty(), deadline) &&
                    peer.connection.Send(body, false, deadline);
  if (sent) return;
  peer.failed = peer.ended = true;
  peer.keep = false;
}

HttpServer::HttpServer(const HttpOptions& options, Handler handler, AccessLog log)
    : impl_(std::make_unique<Impl>(options, std::move(handler), std::move(log))) {}
HttpServer::~HttpServer() = default;
void HttpServer::Bind() { impl_->Bind(); }
int HttpServer::port() const { return impl_->port(); }
void HttpServer::Run() { impl_->Run(); }
void HttpServer::Stop() { impl_->Stop(); }

}  // namespace coracle::serve
