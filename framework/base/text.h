#pragma once
// Small text helpers used across Coracle.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace coracle {

std::vector<std::string> Split(std::string_view text,
                               char separator);  // "a,,b" -> {"a", "", "b"}; "" -> {}
std::string Join(const std::vector<std::string>& parts, std::string_view separator);
std::string_view Trim(std::string_view text);  // without white space at both ends

// `text` for a terminal or a log: whatever could act on either, or make text look like other
// text, is escaped as in \x1b or \u202e: control characters but tabs and line ends, bytes that
// are not UTF-8, characters that turn the direction of text or have no width. Text without them
// is kept as it is.
std::string Printable(std::string_view text);
std::string PrintableLine(std::string_view text);  // tabs and line ends are escaped too

// Bytes of the UTF-8 character at the front of `text`; 0 when there is none (RFC 3629: neither
// overlong forms nor surrogates nor anything past U+10FFFF).
size_t Utf8CharacterBytes(std::string_view text);

// `text` in single quotes, as PrintableLine gives it, cut with "..." past `max_length`:
// for messages.
std::string Quote(std::string_view text, size_t max_length = 80);

// The candidate nearest to `name` by edit distance, or "" when none is near enough to be
// a likely slip.
std::string NearestName(std::string_view name, const std::vector<std::string>& candidates);
// "; did you mean X?" or "".
std::string DidYouMean(std::string_view name, const std::vector<std::string>& candidates);

std::string HumanBytes(uint64_t bytes);  // "1.5 KiB", "2.0 MiB"
std::string HumanCount(uint64_t count);  // "1.5K", "2.0M"

// Whole-text numbers; false when the text is anything else (or out of range). "inf" and "nan" are
// taken by ParseDouble.
bool ParseInt64(std::string_view text, int64_t* value);
bool ParseDouble(std::string_view text, double* value);

}  // namespace coracle
