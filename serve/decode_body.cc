#include <coracle/framework/base/resource_limits.h>
#include <coracle/serve/decode_body.h>
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace coracle::serve {
namespace {

[[noreturn]] void Refuse(std::string message) { throw HttpError(400, std::move(message)); }

// Calls take(std::string_view) for each part of the plain text.
template <class Take>
void Inflate(const std::string& encoding, std::string_view packed, Take take) {
  z_stream stream = {};
  const int window = encoding == "gzip" ? 15 + 16 : 15;
  if (inflateInit2(&stream, window) != Z_OK) throw HttpError(503, "out of memory");
  struct End {
    z_stream* stream;
    ~End() { inflateEnd(stream); }
  } end{&stream};
  char buffer[65536];
  for (int state = Z_OK; state != Z_STREAM_END;) {
    CheckTimeLimit("a body is unpacked");
    if (stream.avail_in == 0) {
      const size_t size = std::min(packed.size(), size_t{1} << 30);  // avail_in has 32 bits
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
      stream.avail_in = static_cast<uInt>(size);
      packed.remove_prefix(size);
    }
    stream.next_out = reinterpret_cast<Bytef*>(buffer);
    stream.avail_out = sizeof buffer;
    state = inflate(&stream, Z_NO_FLUSH);  // Z_BUF_ERROR: the body ends too early
    if (state != Z_OK && state != Z_STREAM_END)
      Refuse(fmt::format("the body is not {}, or is damaged", encoding));
    take(std::string_view(buffer, sizeof buffer - stream.avail_out));
  }
  if (stream.avail_in > 0 || !packed.empty())
    Refuse(fmt::format("bytes follow the {} body", encoding));
}

}  // namespace

// Unpacks twice: first to count the bytes. A string that grows with them would take up to three
// times their size, and would take it before the body turns out to be too large.
void DecodeBody(uint64_t max_body, BudgetShare* share, Request* request) {
  const std::string encoding = LowerCase(request->Header("content-encoding"));
  if ((encoding != "gzip" && encoding != "deflate") || request->body.empty()) return;
  uint64_t size = 0;
  Inflate(encoding, request->body, [&](std::string_view part) {
    if (part.size() > max_body - size)
      throw HttpError(413, fmt::format("the body may have {} bytes", max_body));
    size += part.size();
  });
  share->Grow(size);
  std::string plain;
  plain.reserve(size);
  Inflate(encoding, request->body, [&](std::string_view part) { plain.append(part); });
  const size_t packed = request->body.size();
  request->body.swap(plain);
  plain = std::string();  // the packed bytes
  share->Shrink(packed);
}

}  // namespace coracle::serve
