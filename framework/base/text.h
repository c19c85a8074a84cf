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

// `text` in single quotes with control characters escaped, cut with "..." past `max_length`: for
// messages.
std::string Quote(std::string_view text, size_t max_length = 80);

// The candidate nearest to `name` by edit distance, or "" when none is near enough to be a likely
// slip.
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
