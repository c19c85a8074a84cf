#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

namespace coracle::inline internal {
namespace {

char Lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

// The number of edits that turn a into b: insert, delete or replace a character, or swap two
// neighbours (Damerau's distance, restricted). Larger distances return limit + 1. Ignores case.
size_t EditDistance(std::string_view a, std::string_view b, size_t limit) {
  if (a.size() > b.size() + limit || b.size() > a.size() + limit) return limit + 1;
  std::vector<size_t> before, last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before = std::move(last);
    last = std::move(row);
    row.assign(b.size() + 1, i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = Lower(a[i - 1]) == Lower(b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && Lower(a[i - 1]) == Lower(b[j - 2]) &&
                           Lower(a[i - 2]) == Lower(b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

bool StartsWith(std::string_view text, std::string_view start) {
  return text.size() >= start.size() &&
         std::equal(start.begin(), start.end(), text.begin(),
                    [](char x, char y) { return Lower(x) == Lower(y); });
}

// The shortest candidate that begins with `name`; "" if the name is too short.
std::string Completion(std::string_view name, const std::vector<std::string>& candidates) {
  std::string best;
  if (name.size() < 3) return best;
  for (const std::string& candidate : candidates) {
    if (StartsWith(candidate, name) && (best.empty() || candidate.size() < best.size()))
      best = candidate;
  }
  return best;
}

// Cuts to at most `max_length` bytes without splitting a UTF-8 character.
std::string_view CutText(std::string_view text, size_t max_length) {
  if (text.size() <= max_length) return text;
  auto continues = [&](size_t i) { return (static_cast<unsigned char>(text[i]) & 0xc0) == 0x80; };
  size_t end = max_length;
  while (end > 0 && max_length - end < 4 && continues(end)) --end;
  return text.substr(0, continues(end) ? max_length : end);
}

uint32_t CodePoint(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return lead;
  uint32_t code = lead & (0x7fu >> character.size());
  for (char c : character.substr(1)) code = code << 6 | (static_cast<unsigned char>(c) & 0x3fu);
  return code;
}

// Characters that are invisible themselves but change how a text looks.
bool IsHidden(uint32_t code) {
  struct Range {
    uint32_t first, last;
  };
  // C0, C1, soft hyphen, grapheme joiner, Arabic letter mark, Hangul fillers, Khmer vowels that
  // are not seen, Mongolian selectors, widthless characters and directions, line and paragraph
  // separators, directions again, invisible operators and isolates, the empty Braille pattern, the
  // Hangul filler, variation selectors, byte order mark, the halfwidth filler, annotations,
  // shorthand and musical controls, tags and further variation selectors.
  static constexpr Range kHidden[] = {
      {0, 0x1f},        {0x7f, 0x9f},       {0xad, 0xad},       {0x34f, 0x34f},
      {0x61c, 0x61c},   {0x115f, 0x1160},   {0x17b4, 0x17b5},   {0x180b, 0x180f},
      {0x200b, 0x200f}, {0x2028, 0x202e},   {0x2060, 0x206f},   {0x2800, 0x2800},
      {0x3164, 0x3164}, {0xfe00, 0xfe0f},   {0xfeff, 0xfeff},   {0xffa0, 0xffa0},
      {0xfff0, 0xfffb}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff}};
  return std::any_of(std::begin(kHidden), std::end(kHidden),
                     [code](Range r) { return code >= r.first && code <= r.last; });
}

std::string Escape(std::string_view text, bool keep_lines) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const bool line = byte == '\n' || byte == '\t';
    if ((byte >= 0x20 && byte < 0x7f) || (keep_lines && line)) {
      out += text[at++];
      continue;
    }
    const size_t bytes = Utf8CharacterBytes(text.substr(at));
    const std::string_view character = text.substr(at, std::max<size_t>(bytes, 1));
    const uint32_t code = bytes > 0 ? CodePoint(character) : byte;
    at += character.size();
    if (bytes > 0 && !IsHidden(code))
      out += character;
    else if (bytes <= 1)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += code > 0xffff ? fmt::format("\\U{:08x}", code) : fmt::format("\\u{:04x}", code);
  }
  return out;
}

}  // namespace

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  if (text.empty()) return parts;
  for (size_t begin = 0;;) {
    size_t end = text.find(separator, begin);
    parts.emplace_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

std::string Join(const std::vector<std::string>& parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

std::string_view Trim(std::string_view text) {
  auto space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  return text;
}

size_t Utf8CharacterBytes(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(i < text.size() ? text[i] : 0); };
  auto follows = [&](size_t n) {
    for (size_t i = 1; i <= n; ++i)
      if ((byte(i) & 0xC0) != 0x80) return false;
    return true;
  };
  const unsigned char lead = byte(0);
  if (text.empty()) return 0;
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return follows(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const bool valid = (lead != 0xE0 || byte(1) >= 0xA0) && (lead != 0xED || byte(1) <= 0x9F);
    return valid && follows(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const bool valid = (lead != 0xF0 || byte(1) >= 0x90) && (lead != 0xF4 || byte(1) <= 0x8F);
    return valid && follows(3) ? 4 : 0;
  }
  return 0;
}

std::string Printable(std::string_view text) { return Escape(text, true); }

std::string PrintableLine(std::string_view text) { return Escape(text, false); }

std::string Quote(std::string_view text, size_t max_length) {
  return "'" + Escape(CutText(text, max_length), false) + (text.size() > max_length ? "...'" : "'");
}

std::string NearestName(std::string_view name, const std::vector<std::string>& candidates) {
  if (name.size() > 200) return "";
  // For one letter, any other letter would be one edit away.
  size_t limit = name.size() < 2 ? 0 : std::max<size_t>(1, name.size() / 3);
  std::string best;
  for (const std::string& candidate : candidates) {
    size_t distance = EditDistance(name, candidate, limit);
    if (distance > limit) continue;
    best = candidate;
    if (distance == 0) break;
    limit = distance - 1;
  }
  return best.empty() ? Completion(name, candidates) : best;
}

std::string DidYouMean(std::string_view name, const std::vector<std::string>& candidates) {
  std::string nearest = NearestName(name, candidates);
  return nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest);
}

std::string Base64(std::string_view bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve(bytes.size() / 3 * 4 + 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k)
      text += i + k <= bytes.size() ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

std::string HumanBytes(uint64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 6) value /= 1024, ++unit;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

std::string HumanCount(uint64_t count) {
  const char* units[] = {"", "K", "M", "G", "T", "P", "E"};
  double value = static_cast<double>(count);
  int unit = 0;
  while (value >= 1000 && unit < 6) value /= 1000, ++unit;
  return unit == 0 ? fmt::format("{}", count) : fmt::format("{:.1f}{}", value, units[unit]);
}

bool ParseInt64(std::string_view text, int64_t* value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

bool ParseDouble(std::string_view text, double* value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace coracle::inline internal
