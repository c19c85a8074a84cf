#include <coracle/framework/base/text.h>
#include <coracle/train/job/text_block.h>

#include <algorithm>
#include <utility>

namespace coracle::inline internal {
namespace {

constexpr std::string_view kTriple = "\"\"\"";

// The text up to the last two characters that are not white space, which are the ends of the last
// two tokens.
class LastTokens {
 public:
  void Read(std::string_view text, size_t at) {
    if (Trim(text.substr(at, 1)).empty()) return;
    before_ = std::exchange(last_, text.substr(0, at + 1));
  }
  // Whether the text read so far ends in "field:".
  bool Are(std::string_view field) const {
    return last_.ends_with(':') && before_.ends_with(field);
  }

 private:
  std::string_view before_, last_;  // the text up to each of them
};

// The end of the string that begins at `begin`; npos if it is not closed.
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
  LastTokens before;
  int line = 1;
  size_t line_end = std::min(text.find('\n'), text.size());
  for (size_t at = 0; at < text.size(); ++at) {
    for (; line_end < at; ++line) line_end = std::min(text.find('\n', line_end + 1), text.size());
    if (text[at] == '#') {
      result.text += text.substr(at, line_end - at);
      at = line_end - 1;
      continue;
    }
    const bool ours = before.Are(field);  // whether it is a string of `field`
    before.Read(text, at);
    const bool opens = text[at] == '"' || text[at] == '\'';
    if (!opens) {
      result.text += text[at];
      continue;
    }
    const bool triple = ours && text.substr(at).starts_with(kTriple);
    const std::string_view quote = triple ? kTriple : text.substr(at, 1);
    const size_t begin = at + quote.size();
    const size_t end = EndOf(ours ? text : text.substr(0, line_end), begin, quote);
    if (end == std::string_view::npos) {  // an error at this line
      result.text += text.substr(at, line_end - at);
      at = line_end - 1;
      continue;
    }
    const std::string_view body = text.substr(begin, end - begin);
    if (ours && (triple || body.find('\n') != std::string_view::npos)) {
      result.first_line = line;
      AppendBlock(body, triple, quote[0], &result.text);
    } else {
      result.text += text.substr(at, end + 1 - at);
    }
    at = end + quote.size() - 1;
  }
  return result;
}

}  // namespace coracle::inline internal
