#pragma once
// Small text helpers used across Coracle.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace coracle::inline internal {

// "a,,b" -> {"a", "", "b"}; "" -> {}.
std::vector<std::string> Split(std::string_view text, char separator);
std::string Join(const std::vector<std::string>& parts, std::string_view separator);
std::string_view Trim(std::string_view text);  // without white space at both ends

// Escapes `text` for a terminal or a log, as in \x1b or \u202e: control characters except tabs and
// line ends, bytes that are not UTF-8, and characters that change the direction of text or have no
// width. These could act on the terminal or disguise the text. Other text is unchanged.
std::string Printable(std::string_view text);
std::string PrintableLine(std::string_view text);  // escapes tabs and line ends too

// Length in bytes of the UTF-8 character at the front of `text`; 0 if there is none (RFC 3629: no
// overlong forms, no surrogates, nothing past U+10FFFF).
size_t Utf8CharacterBytes(std::string_view text);

// `text` in single quotes for messages: escaped like PrintableLine, and cut with "..." past
// `max_length` bytes.
std::string Quote(std::string_view text, size_t max_length = 80);

// The candidate nearest to `name` by edit distance; "" if none is near enough to be a likely slip.
std::string NearestName(std::string_view name, const std::vector<std::string>& candidates);
// "; did you mean X?" or "".
std::string DidYouMean(std::string_view name, const std::vector<std::string>& candidates);

std::string Base64(std::string_view bytes);  // with padding

std::string HumanBytes(uint64_t bytes);  // "1.5 KiB", "2.0 MiB"
std::string HumanCount(uint64_t count);  // "1.5K", "2.0M"

// Parse the whole text as a number; return false if it is anything else or out of range.
// ParseDouble accepts "inf" and "nan".
bool ParseInt64(std::string_view text, int64_t* value);
bool ParseDouble(std::string_view text, double* value);

}  // namespace coracle::inline internal
