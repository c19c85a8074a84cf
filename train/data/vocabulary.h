#pragma once
// Vocabulary: the different characters of a text, numbered from 0 in the order of their code
// points.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace coracle {

class Vocabulary {
 public:
  Vocabulary() = default;
  // The characters of a UTF-8 text. `source` names it in errors: kInvalidArgument for bytes that
  // are not UTF-8, with their offset.
  static Vocabulary Of(std::string_view text, const std::string& source);
  // The file that ToJson's text was written to. Throws kDataLoss for anything else.
  static Vocabulary Read(const std::string& path);
  // {"format": "coracle vocabulary", "version": 1, "characters": ["\n", " ", ...]}.
  std::string ToJson() const;

  int64_t size() const { return static_cast<int64_t>(characters_.size()); }
  // Throws kInvalidArgument for bytes that are not UTF-8 and for a character that is not here, with
  // its offset in bytes.
  std::vector<int64_t> Encode(std::string_view text, const std::string& source) const;
  // The character of an id, as UTF-8. Throws kOutOfRange.
  const std::string& Character(int64_t id) const;

  bool operator==(const Vocabulary& other) const { return characters_ == other.characters_; }

 private:
  explicit Vocabulary(std::vector<std::string> characters);

  std::vector<std::string> characters_;
  std::map<std::string, int64_t, std::less<>> ids_;
};

}  // namespace coracle
