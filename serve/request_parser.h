#pragma once
// Reads HTTP/1.1 requests from the bytes of a connection. It is strict: what two readers could
// understand in two ways is refused, since a proxy before the server might be the other reader.
// Source: RFC 9112.

#include <coracle/serve/http_message.h>
#include <coracle/serve/memory_budget.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace coracle::serve {

struct RequestLimits {
  uint64_t max_body = uint64_t{64} << 20;  // bytes
  uint64_t max_head = uint64_t{64} << 10;  // bytes of the request line and headers
};

constexpr size_t kMaxHeaders = 200;

// One request. After an error, the rest of the connection cannot be understood any more.
class RequestParser {
 public:
  explicit RequestParser(const RequestLimits& limits, MemoryBudget* budget = nullptr)
      : limits_(limits), share_(budget), line_left_(limits.max_head) {}

  // Takes bytes up to the end of the request, and returns how many. Throws HttpError.
  size_t Feed(std::string_view bytes);

  bool begun() const { return begun_; }
  bool head_ended() const { return part_ != Part::kRequestLine && part_ != Part::kHeader; }
  bool done() const { return part_ == Part::kDone; }
  // Whether the client waits for "100 Continue" before it sends the body.
  bool wants_continue() const { return wants_continue_ && head_ended() && !done(); }
  // Whether the connection goes on after the answer.
  bool keep_alive() const { return keep_alive_; }
  // What has arrived so far. The memory of its body stays reserved as long as the parser lives.
  Request& request() { return request_; }
  BudgetShare& share() { return share_; }

 private:
  enum class Part { kRequestLine, kHeader, kBody, kChunkSize, kChunk, kChunkEnd, kTrailer, kDone };

  bool TakeLine(std::string_view* bytes);
  void TakeLineOf(Part part);
  void TakeBody(std::string_view* bytes);
  void MakeRoom(uint64_t bytes);
  void ReadRequestLine();
  void ReadHeader();
  void EndHead();
  void ReadFraming();
  void ReadConnection();
  void ReadChunkSize();

  const RequestLimits limits_;
  BudgetShare share_;
  Request request_;
  Part part_ = Part::kRequestLine;
  std::string line_;
  uint64_t line_left_;      // bytes of the lines of the head, of a chunk's size, of the trailer
  uint64_t body_left_ = 0;  // bytes of the body or of a chunk
  uint64_t room_ = 0;       // bytes of memory that the body has reserved
  bool begun_ = false, http10_ = false, keep_alive_ = true, wants_continue_ = false;
};

}  // namespace coracle::serve
