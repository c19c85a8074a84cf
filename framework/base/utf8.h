#pragma once
// Characters of text in UTF-8. Other bytes are let through one by one.

#include <string>
#include <string_view>

namespace coracle::inline internal {

// One character of UTF-8, as the number of its bytes and its code point; a byte that begins none is
// a piece of 1 byte with `code` -1.
struct Utf8Piece {
  int size = 1;
  int code = -1;
};
// REQUIRES: `text` is not empty.
Utf8Piece FirstPiece(std::string_view text);
void AppendUtf8(int code, std::string* text);

}  // namespace coracle::inline internal
