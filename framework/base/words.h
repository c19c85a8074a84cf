#pragma once
// Lists of words in one text.

#include <string_view>

namespace coracle::inline internal {

// Whether Split(text, separator) has the word.
inline bool HasWord(std::string_view text, char separator, std::string_view word) {
  if (text.empty()) return false;
  for (;;) {
    const size_t end = text.find(separator);
    if (text.substr(0, end) == word) return true;
    if (end == std::string_view::npos) return false;
    text.remove_prefix(end + 1);
  }
}

}  // namespace coracle::inline internal
