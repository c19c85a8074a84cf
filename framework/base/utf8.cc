#include <coracle/framework/base/text.h>
#include <coracle/framework/base/utf8.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace coracle::inline internal {
namespace {

struct CodeRange {
  int first, last;
};

// Marks of the larger scripts (categories Mn and Me), with the joiner of pictures.
constexpr CodeRange kMarks[] = {
    {0x300, 0x36f},   {0x483, 0x489},   {0x591, 0x5bd},     {0x610, 0x61a},    {0x64b, 0x65f},
    {0x670, 0x670},   {0x6d6, 0x6dc},   {0x900, 0x902},     {0x93c, 0x93c},    {0x941, 0x948},
    {0x94d, 0x94d},   {0x981, 0x981},   {0x9bc, 0x9bc},     {0x9c1, 0x9c4},    {0x9cd, 0x9cd},
    {0xe31, 0xe31},   {0xe34, 0xe3a},   {0xe47, 0xe4e},     {0x1ab0, 0x1aff},  {0x1dc0, 0x1dff},
    {0x200b, 0x200f}, {0x20d0, 0x20ff}, {0x302a, 0x302d},   {0x3099, 0x309a},  {0xfe00, 0xfe0f},
    {0xfe20, 0xfe2f}, {0xfeff, 0xfeff}, {0x1f3fb, 0x1f3ff}, {0xe0100, 0xe01ef}};

// Wide characters of UAX #11, and the blocks of pictures.
constexpr CodeRange kWide[] = {
    {0x1100, 0x115f},   {0x231a, 0x231b},   {0x2329, 0x232a},   {0x23e9, 0x23ec},
    {0x25fd, 0x25fe},   {0x2614, 0x2615},   {0x2648, 0x2653},   {0x26aa, 0x26ab},
    {0x26bd, 0x26be},   {0x26c4, 0x26c5},   {0x2705, 0x2705},   {0x270a, 0x270b},
    {0x2753, 0x2755},   {0x2795, 0x2797},   {0x2b1b, 0x2b1c},   {0x2e80, 0x303e},
    {0x3041, 0x33ff},   {0x3400, 0x4dbf},   {0x4e00, 0xa4cf},   {0xa960, 0xa97c},
    {0xac00, 0xd7a3},   {0xf900, 0xfaff},   {0xfe10, 0xfe19},   {0xfe30, 0xfe6f},
    {0xff00, 0xff60},   {0xffe0, 0xffe6},   {0x16fe0, 0x18cff}, {0x1b000, 0x1b2ff},
    {0x1f18e, 0x1f19a}, {0x1f200, 0x1f320}, {0x1f32d, 0x1f335}, {0x1f337, 0x1f37c},
    {0x1f37e, 0x1f393}, {0x1f3a0, 0x1f3ca}, {0x1f3cf, 0x1f3d3}, {0x1f3e0, 0x1f3f0},
    {0x1f3f8, 0x1f43e}, {0x1f440, 0x1f440}, {0x1f442, 0x1f4fc}, {0x1f4ff, 0x1f53d},
    {0x1f54b, 0x1f54e}, {0x1f550, 0x1f567}, {0x1f5fb, 0x1f64f}, {0x1f680, 0x1f6c5},
    {0x1f6eb, 0x1f6ec}, {0x1f6f4, 0x1f6fc}, {0x1f7e0, 0x1f7eb}, {0x1f90c, 0x1f9ff},
    {0x1fa70, 0x1faff}, {0x20000, 0x3fffd}};

template <size_t kCount>
bool IsIn(const CodeRange (&ranges)[kCount], int code) {
  const auto range = std::lower_bound(std::begin(ranges), std::end(ranges), code,
                                      [](const CodeRange& r, int c) { return r.last < c; });
  return range != std::end(ranges) && range->first <= code;
}

size_t WidthOf(int code) { return IsIn(kMarks, code) ? 0 : IsIn(kWide, code) ? 2 : 1; }

}  // namespace

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

size_t DisplayWidth(std::string_view text) {
  size_t width = 0;
  while (!text.empty()) {
    const Utf8Piece piece = FirstPiece(text);
    width += WidthOf(piece.code);
    text.remove_prefix(static_cast<size_t>(piece.size));
  }
  return width;
}

std::string_view CutToWidth(std::string_view text, size_t width) {
  size_t used = 0, end = 0;
  while (end < text.size()) {
    const Utf8Piece piece = FirstPiece(text.substr(end));
    used += WidthOf(piece.code);
    if (used > width) break;
    end += static_cast<size_t>(piece.size);
  }
  return text.substr(0, end);
}

}  // namespace coracle::inline internal
