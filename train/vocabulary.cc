#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/vocabulary.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

namespace coracle {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr uint64_t kMaxBytes = uint64_t{64} << 20;
constexpr const char* kFormat = "coracle vocabulary";

// Bytes of the UTF-8 character at the front of `text`; 0 when there is none (RFC 3629: neither
// overlong forms nor surrogates nor anything past U+10FFFF).
size_t CharacterBytes(std::string_view text) {
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

// Calls f(character, offset) for each character.
template <class F>
void ForCharacters(std::string_view text, const std::string& source, F&& f) {
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = CharacterBytes(text.substr(at));
    if (bytes == 0) ThrowInvalid(fmt::format("{}: byte {} is not UTF-8", source, at));
    f(text.substr(at, bytes), at);
    at += bytes;
  }
}

[[noreturn]] void ThrowDamaged(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::kDataLoss, fmt::format("{}: not a vocabulary: {}", path, what));
}

}  // namespace

// UTF-8 sorts as its code points do.
Vocabulary::Vocabulary(std::vector<std::string> characters) : characters_(std::move(characters)) {
  for (size_t i = 0; i < characters_.size(); ++i)
    ids_.emplace(characters_[i], static_cast<int64_t>(i));
}

Vocabulary Vocabulary::Of(std::string_view text, const std::string& source) {
  std::set<std::string_view> found;
  ForCharacters(text, source, [&](std::string_view c, size_t) { found.insert(c); });
  return Vocabulary({found.begin(), found.end()});
}

Vocabulary Vocabulary::Read(const std::string& path) {
  const Json json = Json::parse(ReadFile(path, kMaxBytes), nullptr, false);
  if (!json.is_object() || json.value("format", Json()) != kFormat)
    ThrowDamaged(path, "it lacks the format's name");
  if (json.value("version", Json()) != kVersion)
    ThrowDamaged(path, "it is of another version of coracle");
  const Json& list = json.value("characters", Json());
  if (!list.is_array()) ThrowDamaged(path, "it lacks the characters");
  std::vector<std::string> characters;
  for (const Json& item : list) {
    if (!item.is_string()) ThrowDamaged(path, "a character is not a string");
    characters.push_back(item.get<std::string>());
    if (CharacterBytes(characters.back()) != characters.back().size() || characters.back().empty())
      ThrowDamaged(path, fmt::format("{} is not one character", Quote(characters.back())));
  }
  Vocabulary vocabulary(std::move(characters));
  if (vocabulary.ids_.size() != vocabulary.characters_.size())
    ThrowDamaged(path, "a character is there twice");
  return vocabulary;
}

std::string Vocabulary::ToJson() const {
  const Json json = {{"format", kFormat}, {"version", kVersion}, {"characters", characters_}};
  return json.dump() + "\n";
}

std::vector<int64_t> Vocabulary::Encode(std::string_view text, const std::string& source) const {
  std::vector<int64_t> ids;
  ids.reserve(text.size());
  ForCharacters(text, source, [&](std::string_view c, size_t at) {
    const auto found = ids_.find(c);
    if (found == ids_.end()) {
      ThrowInvalid(fmt::format("{}: the character {} at byte {} is not in the vocabulary", source,
                               Quote(std::string(c)), at));
    }
    ids.push_back(found->second);
  });
  return ids;
}

const std::string& Vocabulary::Character(int64_t id) const {
  if (id >= 0 && id < size()) return characters_[static_cast<size_t>(id)];
  throw Error(ErrorCode::kOutOfRange,
              fmt::format("the vocabulary has {} characters, not one of number {}", size(), id));
}

}  // namespace coracle
