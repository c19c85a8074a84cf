#include <coracle/framework/base/text.h>
#include <coracle/framework/base/utf8.h>

#include <cstdint>

namespace coracle::inline internal {

Utf8Piece FirstPiece(std::string_view text) {
  const size_t size = Utf8CharacterBytes(text);
  if (size == 0) return {};
  const auto lead = static_cast<uint8_t>(text[0]);
  int code = size == 1 ? lead : lead & (0x7f >> size);
  for (size_t i = 1; i < size; ++i) code = code << 6 | (static_cast<uint8_t>(text[i]) & 0x3f);
  return {static_cast<int>(size), code};
}

void AppendUtf8(int code, std::string* text) {
  const auto put = [&](int byte) { *text += static_cast<char>(byte); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xc0 | code >> 6);
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
  }
  put(0x80 | (code & 0x3f));
}

}  // namespace coracle::inline internal
