#include <coracle/framework/base/text.h>
#include <coracle/train/internal/text_block.h>

#include <algorithm>

namespace coracle {
namespace {

constexpr std::string_view kTriple = "\"\"\"";

// Whether what stands before a quote is "field:".
bool Follows(std::string_view before, std::string_view field) {
  before = Trim(before);
  if (!before.ends_with(':')) return false;
  before = Trim(before.substr(0, before.size() - 1));
  return before.ends_with(field);
}

// Where the string that begins at `begin` is closed; npos if nowhere.
size_t EndOf(std::string_view text, size_t begin, std::string_view quote) {
  if (quote == kTriple) return text.find(kTriple, begin);
  while (begin < text.size() && text[begin] != quote[0]) begin += text[begin] == '\\' ? 2 : 1;
  return begin < text.size() ? begin : std::string_view::npos;
}

void AppendBlock(std::string_view body, bool triple, char quote, std::string* out) {
  *out += quote;
  for (const char c : body) {
    if (c == '\n')
      *out += std::string("\\n") + quote + '\n' + quote;
    else if (triple && (c == '"' || c == '\\'))
      *out += std::string("\\") + c;
    else
      *out += c;
  }
  *out += quote;
}

}  // namespace

BlockedText SplitBlock(std::string_view text, std::string_view field) {
  BlockedText result;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '#') {
      const size_t line_end = std::min(text.find('\n', at), text.size());
      result.text += text.substr(at, line_end - at);
      at = line_end - 1;
      continue;
    }
    const bool opens = text[at] == '"' || text[at] == '\'';
    if (!opens) {
      result.text += text[at];
      continue;
    }
    const bool ours = Follows(text.substr(0, at), field);
    const bool triple = ours && text.substr(at).starts_with(kTriple);
    const std::string_view quote = triple ? kTriple : text.substr(at, 1);
    const size_t begin = at + quote.size(), end = EndOf(text, begin, quote);
    const size_t line_end = std::min(text.find('\n', at), text.size());
    if (end == std::string_view::npos || (!ours && end > line_end)) {  // an error, of that line
      result.text += text.substr(at, line_end - at);
      at = line_end - 1;
      continue;
    }
    const std::string_view body = text.substr(begin, end - begin);
    if (ours && (triple || body.find('\n') != std::string_view::npos)) {
      result.first_line =
          1 + static_cast<int>(
                  std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
      AppendBlock(body, triple, quote[0], &result.text);
    } else {
      result.text += text.substr(at, end + 1 - at);
    }
    at = end + quote.size() - 1;
  }
  return result;
}

}  // namespace coracle
