#include <coracle/framework/base/text.h>
#include <coracle/serve/http_answer.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <zlib.h>

#include <cstdlib>
#include <ctime>
#include <iterator>

namespace coracle::serve {
namespace {

constexpr size_t kMinCompressed = 1024;  // smaller bodies gain nothing
constexpr size_t kMaxCompressed = size_t{1} << 30;

const char* ReasonOf(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Answer";
  }
}

// Whether the list of codings has this one, and not with the weight 0.
bool Accepts(const std::string& accepted, const std::string& coding) {
  for (const std::string& item : Split(accepted, ',')) {
    const size_t end = item.find(';');
    const size_t begin = item.find_first_not_of(" \t");
    if (begin == item.npos || item.compare(begin, coding.size(), coding) != 0) continue;
    const size_t rest = item.find_first_not_of(" \t", begin + coding.size());
    if (rest != item.npos && rest != end) continue;  // a longer word
    const size_t weight = end == item.npos ? item.npos : item.find("q=", end);
    return weight == item.npos || std::strtod(item.c_str() + weight + 2, nullptr) > 0;
  }
  return false;
}

std::string Compressed(const std::string& text, bool gzip) {
  z_stream stream = {};
  if (deflateInit2(&stream, 1, Z_DEFLATED, gzip ? 15 + 16 : 15, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    return {};
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const bool good = deflate(&stream, Z_FINISH) == Z_STREAM_END;
  out.resize(good ? stream.total_out : 0);
  deflateEnd(&stream);
  return out;
}

}  // namespace

std::string AnswerHead(const Response& response, bool keep, double idle_seconds) {
  std::string head = fmt::format(
      "HTTP/1.1 {} {}\r\nDate: {:%a, %d %b %Y %H:%M:%S} GMT\r\nContent-Type: {}\r\n"
      "Content-Length: {}\r\n",
      response.status, ReasonOf(response.status), fmt::gmtime(std::time(nullptr)), response.type,
      response.body.size());
  for (const auto& [name, value] : response.headers) {
    fmt::format_to(std::back_inserter(head), "{}: {}\r\n", name,
                   value.substr(0, value.find_first_of("\r\n")));
  }
  if (!keep) return head + "Connection: close\r\n\r\n";
  return head + fmt::format("Connection: keep-alive\r\nKeep-Alive: timeout={}\r\n\r\n",
                            static_cast<int64_t>(idle_seconds));
}

void CompressBody(const std::string& accepted, Response* response) {
  const size_t size = response->body.size();
  const bool text =
      response->type.compare(0, 5, "text/") == 0 || response->type == "application/json";
  if (!text || size < kMinCompressed || size > kMaxCompressed) return;
  response->headers["Vary"] = "Accept-Encoding";
  const bool gzip = Accepts(accepted, "gzip");
  if (!gzip && !Accepts(accepted, "deflate")) return;
  std::string compressed = Compressed(response->body, gzip);
  if (compressed.empty() || compressed.size() >= size) return;
  response->body = std::move(compressed);
  response->headers["Content-Encoding"] = gzip ? "gzip" : "deflate";
}

}  // namespace coracle::serve
