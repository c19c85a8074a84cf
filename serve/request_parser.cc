#include <coracle/framework/base/text.h>
#include <coracle/serve/request_parser.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <utility>

namespace coracle::serve {
namespace {

constexpr uint64_t kMaxChunkLine = 256;  // bytes of a chunk's size, with its extensions
constexpr uint64_t kFirstRoom = 4096;    // bytes of a body that the first memory holds
constexpr uint64_t kLeast = 30;          // bytes that a string allocates at least

[[noreturn]] void Refuse(std::string message) { throw HttpError(400, std::move(message)); }

[[noreturn]] void RefuseSize(uint64_t max_body) {
  throw HttpError(413, fmt::format("the body may have {} bytes", max_body));
}

bool IsTokenChar(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) ||
         (c != '\0' && std::strchr("!#$%&'*+-.^_`|~", c));
}
bool IsToken(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), IsTokenChar);
}

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

// A number of digits only. False: it is something else, or too large.
bool ParseWhole(std::string_view text, int base, uint64_t* number) {
  const auto is_digit = [base](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return base == 16 ? std::isxdigit(byte) : std::isdigit(byte);
  };
  if (text.empty() || !std::all_of(text.begin(), text.end(), is_digit)) return false;
  return std::from_chars(text.data(), text.data() + text.size(), *number, base).ec == std::errc();
}

// Headers of which a second one changes the meaning of the request.
bool MustBeSingle(const std::string& name) {
  return name == "content-length" || name == "transfer-encoding" || name == "host" ||
         name == "inference-header-content-length";
}

}  // namespace

size_t RequestParser::Feed(std::string_view bytes) {
  std::string_view left = bytes;
  while (!left.empty() && !done()) {
    if (!begun_ && !IsTokenChar(left[0])) Refuse("a request begins with its method");
    begun_ = true;
    if (part_ == Part::kBody || part_ == Part::kChunk)
      TakeBody(&left);
    else if (TakeLine(&left))
      TakeLineOf(part_);
  }
  return bytes.size() - left.size();
}

// Moves bytes to line_. True: it is a whole line, without its end.
bool RequestParser::TakeLine(std::string_view* bytes) {
  const size_t end = bytes->find('\n');
  const size_t size = end == bytes->npos ? bytes->size() : end + 1;
  if (size > line_left_) {
    if (head_ended()) Refuse("a line of a chunked body is too long");
    throw HttpError(431, fmt::format("the head of a request may have {} bytes", limits_.max_head));
  }
  line_left_ -= size;
  line_.append(bytes->substr(0, size));
  bytes->remove_prefix(size);
  if (end == bytes->npos) return false;
  if (line_.size() < 2 || line_[line_.size() - 2] != '\r') Refuse("a line must end with CR LF");
  line_.resize(line_.size() - 2);
  for (char c : line_) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\t') || byte == 0x7f) Refuse("a line has a control character");
  }
  return true;
}

void RequestParser::TakeLineOf(Part part) {
  switch (part) {
    case Part::kRequestLine:
      ReadRequestLine();
      part_ = Part::kHeader;
      break;
    case Part::kHeader:
      line_.empty() ? EndHead() : ReadHeader();
      break;
    case Part::kChunkSize:
      ReadChunkSize();
      break;
    case Part::kChunkEnd:
      if (!line_.empty()) Refuse("a chunk is longer than its size");
      part_ = Part::kChunkSize;
      line_left_ = kMaxChunkLine;
      break;
    case Part::kTrailer:  // its fields are not used
      if (line_.empty()) part_ = Part::kDone;
      break;
    case Part::kBody:
    case Part::kChunk:
    case Part::kDone:
      break;
  }
  line_.clear();
}

void RequestParser::TakeBody(std::string_view* bytes) {
  const uint64_t size = std::min<uint64_t>(bytes->size(), body_left_);
  MakeRoom(size);
  request_.body.append(bytes->substr(0, size));
  bytes->remove_prefix(size);
  body_left_ -= size;
  if (body_left_ > 0) return;
  part_ = part_ == Part::kBody ? Part::kDone : Part::kChunkEnd;
  line_left_ = 2;
}

// Makes the body's memory larger. The budget counts all of it, not only the bytes that have
// arrived, and both copies while one becomes the other. A known length is never exceeded.
void RequestParser::MakeRoom(uint64_t bytes) {
  const uint64_t wanted = request_.body.size() + bytes;
  if (wanted <= room_) return;
  const uint64_t most = part_ == Part::kBody ? request_.body.size() + body_left_ : limits_.max_body;
  const uint64_t room = std::max(std::min(std::max({wanted, 2 * room_, kFirstRoom}), most), kLeast);
  share_.Grow(room);
  std::string larger;  // reserve of the body itself might take twice its size
  larger.reserve(room);
  larger.append(request_.body);
  request_.body = std::move(larger);
  share_.Shrink(room_);
  room_ = room;
}

// METHOD TARGET HTTP/1.1
void RequestParser::ReadRequestLine() {
  const std::string_view line = line_;
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == line.npos || first == last)
    Refuse("the request line needs a method, a path, HTTP/1.1");
  request_.method = line.substr(0, first);
  if (!IsToken(request_.method)) Refuse("the method of the request is not a word");
  const std::string_view version = line.substr(last + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    if (version.size() != 8 || version.substr(0, 5) != "HTTP/")
      Refuse("the request line needs HTTP/1.1");
    throw HttpError(505, "the server speaks HTTP/1.1");
  }
  http10_ = version == "HTTP/1.0";
  std::string_view target = line.substr(first + 1, last - first - 1);
  for (char c : target)
    if (c <= ' ' || c > '~' || c == '#')
      Refuse("the path of the request has a character that must be encoded");
  if (const size_t scheme = target.find("://"); scheme != target.npos && target[0] != '/') {
    const std::string name = LowerCase(target.substr(0, scheme));
    if (name != "http" && name != "https") Refuse("the address of a request begins with http://");
    const size_t path = target.find_first_of("/?", scheme + 3);
    target = path == target.npos || target[path] == '?' ? "/" : target.substr(path);
  }
  if (target.empty() || (target[0] != '/' && target != "*"))
    Refuse("the path of a request begins with /");
  request_.path = target.substr(0, target.find('?'));
}

// NAME: VALUE
void RequestParser::ReadHeader() {
  const std::string_view line = line_;
  const size_t colon = line.find(':');
  if (colon == line.npos || !IsToken(line.substr(0, colon)))
    Refuse("a header needs a name and a colon, without spaces before it");
  const std::string name = LowerCase(line.substr(0, colon));
  const std::string value(Trimmed(line.substr(colon + 1)));
  const auto [place, first] = request_.headers.emplace(name, value);
  if (request_.headers.size() > kMaxHeaders)
    throw HttpError(431, fmt::format("a request may have {} headers", kMaxHeaders));
  if (first) return;
  if (MustBeSingle(name)) Refuse(fmt::format("several headers {}", Quote(name)));
  place->second += ", " + value;
}

void RequestParser::EndHead() {
  if (!http10_ && !request_.headers.count("host")) Refuse("the header Host is missing");
  ReadConnection();
  ReadFraming();
}

// Whether the connection goes on.
void RequestParser::ReadConnection() {
  keep_alive_ = !http10_;
  for (const std::string& word : Split(LowerCase(request_.Header("connection")), ',')) {
    if (Trimmed(word) == "close") {
      keep_alive_ = false;
      return;
    }
    if (Trimmed(word) == "keep-alive") keep_alive_ = true;
  }
}

// Where the body ends.
void RequestParser::ReadFraming() {
  const auto& headers = request_.headers;
  const bool chunked = headers.count("transfer-encoding"), sized = headers.count("content-length");
  if (chunked && sized) Refuse("both Content-Length and Transfer-Encoding");
  if (chunked && (http10_ || LowerCase(request_.Header("transfer-encoding")) != "chunked"))
    Refuse("the only Transfer-Encoding is chunked, in HTTP/1.1");
  if (sized && !ParseWhole(request_.Header("content-length"), 10, &body_left_))
    Refuse("Content-Length must be a whole number");
  uint64_t unused = 0;
  if (headers.count("inference-header-content-length") &&
      !ParseWhole(request_.Header("inference-header-content-length"), 10, &unused))
    Refuse("Inference-Header-Content-Length must be a whole number");
  const std::string expected = LowerCase(request_.Header("expect"));
  if (!http10_ && !expected.empty() && expected != "100-continue")
    throw HttpError(417, "the only Expect is 100-continue");
  if (body_left_ > limits_.max_body) RefuseSize(limits_.max_body);
  const std::string encoding = LowerCase(request_.Header("content-encoding"));
  if (!encoding.empty() && encoding != "gzip" && encoding != "deflate" && encoding != "identity")
    throw HttpError(415, "Content-Encoding may be gzip or deflate");
  if ((chunked || body_left_ > 0) && request_.method != "POST" && request_.method != "PUT")
    Refuse(fmt::format("a {} has no body", Quote(request_.method, 20)));
  request_.has_length = chunked || sized;
  wants_continue_ = !http10_ && !expected.empty();
  part_ = chunked ? Part::kChunkSize : body_left_ > 0 ? Part::kBody : Part::kDone;
  line_left_ = kMaxChunkLine;
}

// SIZE[;EXTENSIONS]
void RequestParser::ReadChunkSize() {
  const std::string_view size = std::string_view(line_).substr(0, line_.find(';'));
  if (!ParseWhole(size, 16, &body_left_))
    Refuse("the size of a chunk must be a hexadecimal number");
  if (body_left_ > limits_.max_body - request_.body.size()) RefuseSize(limits_.max_body);
  part_ = body_left_ > 0 ? Part::kChunk : Part::kTrailer;
  line_left_ = limits_.max_head;
}

}  // namespace coracle::serve
