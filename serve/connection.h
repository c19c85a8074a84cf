#pragma once
// A connection of a client: its socket, and the request that it sends.

#include <coracle/serve/request_parser.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace coracle::serve {

// A socket that is closed at the end; -1: none.
class OwnedSocket {
 public:
  explicit OwnedSocket(int socket) : socket_(socket) {}
  ~OwnedSocket();
  OwnedSocket(OwnedSocket&& from) noexcept : socket_(std::exchange(from.socket_, -1)) {}
  OwnedSocket& operator=(OwnedSocket&&) = delete;
  int get() const { return socket_; }

 private:
  int socket_;
};

// A non-blocking socket.
class Connection {
 public:
  explicit Connection(OwnedSocket socket);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int socket() const { return socket_.get(); }
  const std::string& remote() const { return remote_; }

  enum class Got { kBytes, kNothing, kEnd };
  // Appends what has arrived, up to 64 KB, without waiting. kEnd: the client sends no more.
  Got Receive(std::string* bytes);
  // Waits until the client has taken all bytes, or the deadline has passed. False: it has not.
  // `more`: other bytes follow at once.
  bool Send(std::string_view bytes, bool more, Clock::time_point deadline);
  // How long Send has waited for the client to take a byte; 0 if it does not wait. May be called
  // while another thread sends.
  double StalledSeconds() const;
  // Ends Send in another thread, which returns false.
  void Abort() const;
  // Sends what the socket takes without waiting.
  void SendNow(std::string_view bytes);
  // No more bytes are sent; the client may still send some.
  void EndSending();

 private:
  void NoteStall();

  const OwnedSocket socket_;
  const std::string remote_;
  int left_ = 0;  // bytes that the client had not taken at the last look
  std::atomic<Clock::rep> stalled_since_{0};  // 0: Send does not wait
};

// A connection and how far its request is. The server's loop reads it; while the request is
// answered, it belongs to a worker.
struct Peer {
  enum class State {
    kIdle,     // no byte of a request has come
    kHead,     // the head has begun
    kBody,     // the head is there, the body is not
    kAnswer,   // a worker has it
    kLeaving,  // all is sent; bytes that arrive are thrown away
  };

  Peer(OwnedSocket socket, const RequestLimits& request_limits, MemoryBudget* memory)
      : connection(std::move(socket)), limits(request_limits), budget(memory) {
    NextRequest();
  }
  void NextRequest() { parser.emplace(limits, budget); }

  Connection connection;
  const RequestLimits limits;
  MemoryBudget* const budget;
  State state = State::kIdle;
  std::optional<RequestParser> parser;
  std::string unread;                      // bytes of the next request, which came with this one
  std::optional<HttpError> refusal;        // why the request is not read to its end
  bool ended = false;                      // the client sends no more
  bool failed = false;                     // to take an answer
  bool keep = false;                       // the connection goes on after the answer
  Clock::time_point begin = Clock::now();  // of the state kIdle, or of the request
  Clock::time_point deadline = Clock::time_point::max();
};

}  // namespace coracle::serve
