#include <coracle/train/job/job_text_fields.h>

#include <algorithm>
#include <cctype>

namespace coracle::inline internal {
namespace {

constexpr int kMaxDepth = 32;  // of messages; the parser of jobs allows no more

class EntryScanner {
 public:
  explicit EntryScanner(std::string_view text) : text_(text) {}

  std::vector<JobTextField> Entries(int depth) {
    std::vector<JobTextField> entries;
    while (SkipBlanks(), at_ < text_.size() && !IsCloser(text_[at_])) {
      if (!IsWord(text_[at_])) {  // a separator
        ++at_;
        continue;
      }
      entries.push_back(Entry(depth));
    }
    return entries;
  }

 private:
  static bool IsWord(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '+' ||
           c == '-';
  }
  static bool IsCloser(char c) { return c == '}' || c == '>' || c == ']'; }
  static bool IsQuote(char c) { return c == '"' || c == '\''; }
  bool At(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool AtQuote() const { return at_ < text_.size() && IsQuote(text_[at_]); }

  // Skips white space and comments.
  void SkipBlanks() {
    while (at_ < text_.size()) {
      if (text_[at_] == '#')
        at_ = std::min(text_.find('\n', at_), text_.size());
      else if (std::isspace(static_cast<unsigned char>(text_[at_])))
        ++at_;
      else
        break;
    }
  }
  void SkipWord() {
    while (at_ < text_.size() && IsWord(text_[at_])) ++at_;
  }
  // `blocks`: triple quotes, which only model_text has, are one quote.
  void SkipString(bool blocks = false) {
    constexpr std::string_view kTriple = "\"\"\"";
    if (blocks && text_.substr(at_).starts_with(kTriple)) {
      const size_t end = text_.find(kTriple, at_ + kTriple.size());
      at_ = end == std::string_view::npos ? text_.size() : end + kTriple.size();
      return;
    }
    const char quote = text_[at_++];
    while (at_ < text_.size() && text_[at_] != quote) at_ += text_[at_] == '\\' ? 2 : 1;
    at_ = std::min(at_ + 1, text_.size());
  }

  JobTextField Entry(int depth) {
    JobTextField entry;
    entry.begin = at_;
    SkipWord();
    entry.name = text_.substr(entry.begin, at_ - entry.begin);
    SkipBlanks();
    if (At(':')) ++at_;
    SkipBlanks();
    entry.value = at_;
    if ((At('{') || At('<')) && depth < kMaxDepth) {
      ++at_;
      entry.message = true;
      entry.entries = Entries(depth + 1);
      at_ = std::min(at_ + 1, text_.size());
    } else if (At('[')) {
      SkipList();
    } else {
      SkipScalar(entry.name == "model_text");
    }
    entry.end = at_;
    return entry;
  }

  void SkipList() {
    int open = 0;
    while (at_ < text_.size()) {
      SkipBlanks();
      if (at_ >= text_.size()) return;
      if (AtQuote()) {
        SkipString();
        continue;
      }
      const char c = text_[at_++];
      if (c == '[' || c == '{' || c == '<') ++open;
      if (IsCloser(c) && --open == 0) return;
    }
  }

  // Adjacent strings are one value. Ends after the last string.
  void SkipScalar(bool blocks) {
    if (!AtQuote()) {
      if (At('-')) ++at_;
      SkipBlanks();
      SkipWord();
      return;
    }
    size_t end = at_;
    while (AtQuote()) {
      SkipString(blocks);
      end = at_;
      SkipBlanks();
    }
    at_ = end;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::vector<JobTextField> EntriesOf(std::string_view text) { return EntryScanner(text).Entries(0); }

}  // namespace coracle::inline internal
