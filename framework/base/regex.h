#pragma once
// Regex: regular expressions from flags and jobs, in RE2's syntax: matching takes time linear in
// the text, whatever the expression, and bounded memory. There are no back references.

#include <memory>
#include <string>
#include <string_view>

namespace re2 {
class RE2;
}

namespace coracle {

class Regex {
 public:
  // Throws kInvalidArgument for what is no expression or too large a one.
  explicit Regex(const std::string& pattern);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  bool MatchesAll(std::string_view text) const;   // from its beginning to its end
  bool MatchesPart(std::string_view text) const;  // anywhere in it
  // `text` with each match replaced by `with`, in which \1 to \9 stand for groups, \0 for the match
  // and \\ for a backslash. Throws kInvalidArgument for a group that the expression lacks.
  std::string Replaced(const std::string& text, const std::string& with) const;

 private:
  std::unique_ptr<re2::RE2> regex_;
};

}  // namespace coracle
