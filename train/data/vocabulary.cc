#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/json_reader.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/data/data_source.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

namespace coracle {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr uint64_t kMaxBytes = uint64_t{64} << 20;
constexpr const char* kFormat = "coracle vocabulary";

// Calls f(character, offset) for each character.
template <class F>
void ForCharacters(std::string_view text, const std::string& source, F&& f) {
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = Utf8CharacterBytes(text.substr(at));
    if (bytes == 0) ThrowInvalid(fmt::format("{}: byte {} is not UTF-8", source, at));
    f(text.substr(at, bytes), at);
    at += bytes;
  }
}

}  // namespace

// Sorted UTF-8 strings are in the order of their code points.
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
  try {
    const JsonReader json(ReadFile(path, kMaxBytes), path);
    if (!json.Has("format") || json.At("format").json() != kFormat)
      json.Fail("lacks the format's name");
    if (json.At("version").Integer(0) != kVersion) json.Fail("is of another version of coracle");
    std::vector<std::string> characters;
    for (const JsonReader& item : json.At("characters").Items()) {
      characters.push_back(item.Text());
      if (characters.back().empty() ||
          Utf8CharacterBytes(characters.back()) != characters.back().size())
        item.Fail(fmt::format("must be one character, got {}", Quote(characters.back())));
    }
    Vocabulary vocabulary(std::move(characters));
    if (vocabulary.ids_.size() != vocabulary.characters_.size()) json.Fail("has a character twice");
    return vocabulary;
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kDataLoss) throw;
    throw e.WithPrefix("not a vocabulary");
  }
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
