#pragma once
// Characters of text in UTF-8. Other bytes are let through one by one.

#include <cstddef>
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

// The number of cells that a terminal needs for the text: two for the characters of East Asian
// scripts and for pictures, none for marks that join the character before them.
size_t DisplayWidth(std::string_view text);
// The longest beginning that needs at most `width` cells. Marks stay with their character.
std::string_view CutToWidth(std::string_view text, size_t width);

}  // namespace coracle::inline internal
