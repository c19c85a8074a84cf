#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/base/json_reader.h>
#include <coracle/framework/base/regex.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/data/byte_pairs.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

namespace coracle::inline internal {
namespace {

constexpr uint64_t kMaxFile = uint64_t{256} << 20;
constexpr size_t kMaxTokens = size_t{1} << 24;

// The bytes of a contraction at the beginning of the text; 0: there is none.
size_t ContractionAt(std::string_view text) {
  constexpr std::array<std::string_view, 7> kEndings = {"'s", "'t",  "'re", "'ve",
                                                        "'m", "'ll", "'d"};
  for (const std::string_view ending : kEndings)
    if (text.starts_with(ending)) return ending.size();
  return 0;
}

template <class Left, class Right>
uint64_t KeyOf(Left left, Right right) {
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

enum class PieceReader::Kind { kLetter, kDigit, kSpace, kOther };

// \s, \p{L} and \p{N} of Unicode. RE2's own \s knows only ASCII.
PieceReader::Kind PieceReader::KindOf(std::string_view character) {
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

PieceReader::Character PieceReader::At(size_t at) {
  if (last_.bytes > 0 && last_.at == at) return last_;
  const size_t bytes = Utf8CharacterBytes(text_.substr(at));
  if (bytes == 0) ThrowInvalid(fmt::format("byte {} of the text is not UTF-8", at));
  last_ = {at, bytes, KindOf(text_.substr(at, bytes))};
  return last_;
}

// The end of the characters of one kind from `first` on. `last` is the beginning of the last one.
size_t PieceReader::EndOfRun(const Character& first, size_t* last) {
  size_t end = first.at + first.bytes;
  *last = first.at;
  while (end < text_.size()) {
    const Character next = At(end);
    if (next.kind != first.kind) break;
    *last = end;
    end += next.bytes;
  }
  return end;
}

bool PieceReader::Next(std::string_view* piece) {
  if (at_ == text_.size()) return false;
  const size_t begin = at_, contraction = ContractionAt(text_.substr(begin));
  const Character first = At(begin);
  const size_t after = begin + first.bytes;
  size_t last = begin;
  if (contraction > 0) {
    at_ += contraction;
  } else if (text_[begin] == ' ' && after < text_.size() && At(after).kind != Kind::kSpace) {
    at_ = EndOfRun(At(after), &last);
  } else {
    at_ = EndOfRun(first, &last);
    // The last one of several spaces belongs to what follows.
    if (first.kind == Kind::kSpace && at_ < text_.size() && last > begin) at_ = last;
  }
  *piece = text_.substr(begin, at_ - begin);
  return true;
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

namespace {

// The symbols of a piece, each at its first byte. The symbol of one byte is its number. That of
// more is its number and, at its second and at its last byte, the negative number of its bytes;
// bytes between hold other negative numbers. So four bytes are enough for each byte of a piece.
class Symbols {
 public:
  explicit Symbols(size_t bytes) { cells_.reserve(bytes); }

  void Add(int64_t id) { cells_.push_back(static_cast<int32_t>(id)); }
  size_t size() const { return cells_.size(); }
  bool Begins(size_t at) const { return cells_[at] >= 0; }
  int64_t Id(size_t at) const { return cells_[at]; }
  // The symbol after it, or size().
  size_t After(size_t at) const {
    const bool longer = at + 1 < size() && cells_[at + 1] < 0;
    return at + (longer ? static_cast<size_t>(-int64_t{cells_[at + 1]}) : 1);
  }
  // REQUIRES: at > 0.
  size_t Before(size_t at) const {
    return at - (cells_[at - 1] < 0 ? static_cast<size_t>(-int64_t{cells_[at - 1]}) : 1);
  }
  // Joins a symbol with the one after it.
  void Join(size_t at, int64_t id) {
    const size_t right = After(at), end = After(right);
    const auto bytes = static_cast<int32_t>(end - at);
    cells_[at] = static_cast<int32_t>(id);
    cells_[right] = -1;
    cells_[at + 1] = cells_[end - 1] = -bytes;
  }

 private:
  std::vector<int32_t> cells_;
};

}  // namespace

// All occurrences of the pair with the smallest rank are merged from left to right, before pairs
// that these merges make are compared. A queue of pairs finds them, so that the time is not
// quadratic in the length of a piece.
void BytePairs::EncodePiece(std::string_view piece, std::vector<int64_t>* ids) const {
  if (piece.size() > std::numeric_limits<int32_t>::max())
    ThrowInvalid("a word of the text has more than 2 GiB");
  Symbols symbols(piece.size());
  for (const char c : piece) {
    const auto byte = static_cast<unsigned char>(c);
    if (bytes_[byte] < 0)
      ThrowInvalid(fmt::format("the vocabulary has no token for the byte 0x{:02x}", byte));
    symbols.Add(bytes_[byte]);
  }
  // The rank, then the place of the left symbol, in one number.
  std::vector<uint64_t> entries;
  entries.reserve(symbols.size());
  const auto merge_at = [&](size_t i) -> const Merge* {
    if (!symbols.Begins(i) || symbols.After(i) == symbols.size()) return nullptr;
    return Find(symbols.Id(i), symbols.Id(symbols.After(i)));
  };
  for (size_t i = 0; i + 1 < symbols.size(); ++i)
    if (const Merge* merge = merge_at(i)) entries.push_back(KeyOf(merge->rank, i));
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> queue(std::greater<>(),
                                                                             std::move(entries));
  std::vector<uint32_t> merged;
  while (!queue.empty()) {
    const uint64_t rank = queue.top() >> 32;
    merged.clear();
    for (; !queue.empty() && queue.top() >> 32 == rank; queue.pop()) {
      const auto left = static_cast<uint32_t>(queue.top());
      const Merge* merge = merge_at(left);
      if (!merge || static_cast<uint64_t>(merge->rank) != rank) continue;  // a neighbour changed
      symbols.Join(left, merge->result);
      merged.push_back(left);
    }
    const auto add = [&](size_t i) {
      if (const Merge* merge = merge_at(i)) queue.push(KeyOf(merge->rank, i));
    };
    for (const uint32_t left : merged) {
      add(left);
      if (left > 0) add(symbols.Before(left));
    }
  }
  queue = {};
  size_t count = 0;
  for (size_t i = 0; i < symbols.size(); i = symbols.After(i)) ++count;
  // A list takes three times its size while it grows; a large piece gets exactly what it needs.
  if (count > ids->size() && ids->capacity() - ids->size() < count)
    ids->reserve(ids->size() + count);
  for (size_t i = 0; i < symbols.size(); i = symbols.After(i)) ids->push_back(symbols.Id(i));
}

void BytePairs::Append(std::string_view text, std::vector<int64_t>* ids) const {
  PieceReader reader(text);
  for (std::string_view piece; reader.Next(&piece);) EncodePiece(piece, ids);
}

std::vector<int64_t> BytePairs::Encode(std::string_view text) const {
  std::vector<int64_t> ids;
  Append(text, &ids);
  return ids;
}

}  // namespace coracle::inline internal
