#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/json_reader.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/data/data_source.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace coracle {
namespace {

constexpr int kVersion = 1;
constexpr uint64_t kMaxBytes = uint64_t{256} << 20;
constexpr const char* kFormat = "coracle words";

std::vector<std::string> WordsOfJson(const std::string& text, const std::string& path) {
  try {
    const JsonReader json(text, path);
    if (!json.Has("format") || json.At("format").json() != kFormat)
      json.Fail("lacks the format's name");
    if (json.At("version").Integer(0) != kVersion) json.Fail("is of another version of coracle");
    std::vector<std::string> words;
    for (const JsonReader& item : json.At("words").Items()) words.push_back(item.Text());
    return words;
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kDataLoss) throw;
    throw e.WithPrefix("not a list of words");
  }
}

// The lines of a text, up to the first empty one. That one is refused, and a text of empty lines
// would take a hundred times its size.
std::vector<std::string> WordsOfText(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty() && (words.empty() || !words.back().empty())) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    words.emplace_back(line);
  }
  return words;
}

}  // namespace

WordList::WordList(std::vector<std::string> words, const std::string& source)
    : words_(std::move(words)) {
  for (size_t i = 0; i < words_.size(); ++i) {
    const std::string& word = words_[i];
    for (size_t at = 0; at < word.size();) {
      const size_t bytes = Utf8CharacterBytes(std::string_view(word).substr(at));
      if (bytes == 0) ThrowInvalid(fmt::format("{}: word {} is not UTF-8", source, i + 1));
      at += bytes;
    }
    if (word.empty()) ThrowInvalid(fmt::format("{}: word {} is empty", source, i + 1));
    if (!ids_.emplace(word, kFirst + static_cast<int64_t>(i)).second)
      ThrowInvalid(fmt::format("{}: {} appears twice", source, Quote(word, 40)));
  }
}

WordList WordList::Read(const std::string& path) {
  const std::string text = ReadFile(path, kMaxBytes);
  if (text.starts_with('{')) return {WordsOfJson(text, path), path};
  return {WordsOfText(text), path};
}

std::string WordList::ToJson() const {
  const nlohmann::ordered_json json = {
      {"format", kFormat}, {"version", kVersion}, {"words", words_}};
  return json.dump() + "\n";
}

int64_t WordList::Id(std::string_view word) const {
  const auto found = ids_.find(word);
  return found == ids_.end() ? kUnknown : found->second;
}

}  // namespace coracle
