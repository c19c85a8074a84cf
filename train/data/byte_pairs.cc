#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/json_reader.h>
#include <coracle/framework/base/regex.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/data/byte_pairs.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <queue>
#include <utility>

namespace coracle::inline internal {
namespace {

constexpr uint64_t kMaxFile = uint64_t{256} << 20;
constexpr size_t kMaxTokens = size_t{1} << 24;

enum class Kind { kLetter, kDigit, kSpace, kOther };

// \s, \p{L} and \p{N} of Unicode. RE2's own \s knows only ASCII.
Kind KindOf(std::string_view character) {
  static const Regex letter("\\p{L}", Regex::kUtf8), digit("\\p{N}", Regex::kUtf8),
      space(
          "[\\t-\\r\\x1c-\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"
          "\\x{202f}\\x{205f}\\x{3000}]",
          Regex::kUtf8);
  if (character.size() == 1) {
    const char c = character[0];
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return Kind::kLetter;
    if (c >= '0' && c <= '9') return Kind::kDigit;
    const bool blank = (c >= '\t' && c <= '\r') || (c >= '\x1c' && c <= ' ');
    return blank ? Kind::kSpace : Kind::kOther;
  }
  if (letter.MatchesAll(character)) return Kind::kLetter;
  if (digit.MatchesAll(character)) return Kind::kDigit;
  return space.MatchesAll(character) ? Kind::kSpace : Kind::kOther;
}

struct Character {
  size_t at, bytes;
  Kind kind;
};

std::vector<Character> CharactersOf(std::string_view text) {
  std::vector<Character> characters;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = Utf8CharacterBytes(text.substr(at));
    if (bytes == 0) ThrowInvalid(fmt::format("byte {} of the text is not UTF-8", at));
    characters.push_back({at, bytes, KindOf(text.substr(at, bytes))});
    at += bytes;
  }
  return characters;
}

// The bytes of a contraction at the beginning of the text; 0: there is none.
size_t ContractionAt(std::string_view text) {
  constexpr std::array<std::string_view, 7> kEndings = {"'s", "'t",  "'re", "'ve",
                                                        "'m", "'ll", "'d"};
  for (const std::string_view ending : kEndings)
    if (text.starts_with(ending)) return ending.size();
  return 0;
}

// The end of the piece that begins at character i, for a text without a contraction there.
size_t EndOfPiece(std::string_view text, const std::vector<Character>& all, size_t i) {
  const auto end_of_run = [&all](size_t k) {
    size_t end = k + 1;
    while (end < all.size() && all[end].kind == all[k].kind) ++end;
    return end;
  };
  const bool blank = text[all[i].at] == ' ';
  if (blank && i + 1 < all.size() && all[i + 1].kind != Kind::kSpace) return end_of_run(i + 1);
  const size_t end = end_of_run(i);
  if (all[i].kind != Kind::kSpace || end == all.size() || end == i + 1) return end;
  return end - 1;  // the last one belongs to what follows
}

uint64_t KeyOf(int64_t left, int64_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint64_t>(right);
}

std::vector<std::string> MergesOf(const std::string& path) {
  std::vector<std::string> merges;
  for (std::string& line : Split(ReadFile(path, kMaxFile), '\n')) {
    if (line.ends_with('\r')) line.pop_back();
    const bool version = merges.empty() && line.starts_with("#version");
    if (!line.empty() && !version) merges.push_back(std::move(line));
  }
  return merges;
}

std::vector<std::string> TokensOf(const std::string& path) {
  const auto members = JsonReader(ReadFile(path, kMaxFile), path).Members();
  std::vector<std::string> tokens(members.size());
  std::vector<bool> seen(members.size());
  for (const auto& [token, number] : members) {
    const int64_t id = number.Integer(0);
    if (id >= static_cast<int64_t>(tokens.size()) || seen[static_cast<size_t>(id)]) {
      ThrowInvalid(
          fmt::format("{}: the token {} has the number {}; the numbers of {} tokens must "
                      "be 0 to {}, each once",
                      path, Quote(token, 40), id, tokens.size(), tokens.size() - 1));
    }
    seen[static_cast<size_t>(id)] = true;
    tokens[static_cast<size_t>(id)] = token;
  }
  return tokens;
}

}  // namespace

std::string AlphabetOf(unsigned char byte) {
  const auto printable = [](uint32_t b) {
    return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
  };
  uint32_t code = byte;
  if (!printable(byte)) {
    code = 0x100;
    for (uint32_t b = 0; b < byte; ++b) code += !printable(b);
  }
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

std::vector<std::string_view> PiecesOf(std::string_view text) {
  const std::vector<Character> all = CharactersOf(text);
  std::vector<std::string_view> pieces;
  for (size_t i = 0; i < all.size();) {
    const size_t begin = all[i].at, contraction = ContractionAt(text.substr(begin));
    // A contraction is ASCII: a character for each byte.
    i = contraction > 0 ? i + contraction : EndOfPiece(text, all, i);
    const size_t end = i < all.size() ? all[i].at : text.size();
    pieces.push_back(text.substr(begin, end - begin));
  }
  return pieces;
}

BytePairs::BytePairs(std::vector<std::string> tokens, std::vector<std::string> merges,
                     const std::string& source)
    : tokens_(std::move(tokens)), merges_(std::move(merges)), bytes_(256, -1) {
  if (tokens_.size() > kMaxTokens)
    ThrowInvalid(fmt::format("{}: more than {} tokens", source, kMaxTokens));
  std::map<std::string_view, int64_t> numbers;
  for (size_t i = 0; i < tokens_.size(); ++i)
    if (!numbers.emplace(tokens_[i], static_cast<int64_t>(i)).second)
      ThrowInvalid(fmt::format("{}: the token {} appears twice", source, Quote(tokens_[i], 40)));
  const auto number = [&](const std::string& token, const std::string& merge) {
    const auto found = numbers.find(token);
    if (found != numbers.end()) return found->second;
    ThrowInvalid(fmt::format("{}: the merge {} needs the token {}, which the vocabulary lacks",
                             source, Quote(merge, 40), Quote(token, 40)));
  };
  for (size_t i = 0; i < merges_.size(); ++i) {
    const std::vector<std::string> parts = Split(merges_[i], ' ');
    if (parts.size() != 2 || parts[0].empty() || parts[1].empty())
      ThrowInvalid(fmt::format("{}: merge {} is {}, but must be two tokens with a space between",
                               source, i + 1, Quote(merges_[i], 40)));
    const int64_t left = number(parts[0], merges_[i]), right = number(parts[1], merges_[i]);
    const Merge merge = {static_cast<int64_t>(i), number(parts[0] + parts[1], merges_[i])};
    if (!ranks_.emplace(KeyOf(left, right), merge).second)
      ThrowInvalid(fmt::format("{}: the merge {} appears twice", source, Quote(merges_[i], 40)));
  }
  for (size_t byte = 0; byte < bytes_.size(); ++byte) {
    const auto found = numbers.find(AlphabetOf(static_cast<unsigned char>(byte)));
    if (found != numbers.end()) bytes_[byte] = found->second;
  }
}

BytePairs BytePairs::Read(const std::string& merges_file, const std::string& vocabulary_file) {
  return {TokensOf(vocabulary_file), MergesOf(merges_file), merges_file};
}

const BytePairs::Merge* BytePairs::Find(int64_t left, int64_t right) const {
  const auto found = ranks_.find(KeyOf(left, right));
  return found == ranks_.end() ? nullptr : &found->second;
}

// All occurrences of the pair with the smallest rank are merged from left to right, before pairs
// that these merges make are compared. A queue of pairs finds them, so that the time is not
// quadratic in the length of a piece.
void BytePairs::EncodePiece(std::string_view piece, std::vector<int64_t>* ids) const {
  struct Symbol {
    int64_t id, before, after;  // neighbours; -1: none
  };
  const auto count = static_cast<int64_t>(piece.size());
  std::vector<Symbol> symbols;
  symbols.reserve(piece.size());
  for (int64_t i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned char>(piece[static_cast<size_t>(i)]);
    if (bytes_[byte] < 0)
      ThrowInvalid(fmt::format("the vocabulary has no token for the byte 0x{:02x}", byte));
    symbols.push_back({bytes_[byte], i - 1, i + 1 < count ? i + 1 : -1});
  }
  using Entry = std::pair<int64_t, int64_t>;  // rank, place of the left symbol
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  const auto at = [&symbols](int64_t i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };
  const auto merge_at = [&](int64_t i) {
    return i < 0 || at(i).id < 0 || at(i).after < 0 ? nullptr : Find(at(i).id, at(at(i).after).id);
  };
  const auto add = [&](int64_t i) {
    if (const Merge* merge = merge_at(i)) queue.emplace(merge->rank, i);
  };
  for (int64_t i = 0; i < count; ++i) add(i);
  while (!queue.empty()) {
    const int64_t rank = queue.top().first;
    std::vector<int64_t> merged;
    for (; !queue.empty() && queue.top().first == rank; queue.pop()) {
      const int64_t left = queue.top().second;
      const Merge* merge = merge_at(left);
      if (!merge || merge->rank != rank) continue;  // a merge has changed a neighbour
      const int64_t right = at(left).after;
      at(left).id = merge->result;
      at(left).after = at(right).after;
      if (at(left).after >= 0) at(at(left).after).before = left;
      at(right).id = -1;
      merged.push_back(left);
    }
    for (const int64_t left : merged) {
      add(left);
      add(at(left).before);
    }
  }
  for (const Symbol& symbol : symbols)
    if (symbol.id >= 0) ids->push_back(symbol.id);
}

std::vector<int64_t> BytePairs::Encode(std::string_view text) const {
  std::vector<int64_t> ids;
  for (const std::string_view piece : PiecesOf(text)) EncodePiece(piece, &ids);
  return ids;
}

}  // namespace coracle::inline internal
