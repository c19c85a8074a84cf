#pragma once
// Regex: regular expressions from flags and jobs, in RE2's syntax. Matching takes time linear in
// the text, whatever the expression, and bounded memory. Back references are not supported.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace re2 {
class RE2;
}

namespace coracle::inline internal {

class Regex {
 public:
  // What a character is: a byte, because names are bytes and not always UTF-8, or one of UTF-8.
  enum Characters { kBytes, kUtf8 };
  static constexpr size_t kMaxPattern = 1000;
  // Throws kInvalidArgument if the pattern is invalid, or has more than `most` bytes.
  explicit Regex(const std::string& pattern, Characters characters = kBytes,
                 size_t most = kMaxPattern);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  bool MatchesAll(std::string_view text) const;   // the whole text
  bool MatchesPart(std::string_view text) const;  // some part of it
  // Returns `text` with each match replaced by `with`, in which \1 to \9 are groups, \0 is the
  // match and \\ is a backslash. Throws kInvalidArgument for a group that the expression lacks.
  std::string Replaced(const std::string& text, const std::string& with) const;

 private:
  std::unique_ptr<re2::RE2> regex_;
};

}  // namespace coracle::inline internal
