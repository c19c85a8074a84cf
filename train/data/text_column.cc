#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/data/byte_pairs.h>
#include <coracle/train/data/text_column.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace coracle::inline internal {
namespace {

bool IsBlank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool IsPunctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}

std::string Lowered(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

// Cuts a text at blanks. If `marks` is set, each punctuation mark is a word of its own.
std::vector<std::string> WordsOf(std::string_view text, bool marks) {
  std::vector<std::string> words;
  bool open = false;  // whether the next character continues the last word
  for (const char c : text) {
    const bool alone = marks && IsPunctuation(c);
    if (IsBlank(c)) {
      open = false;
      continue;
    }
    if (open && !alone)
      words.back() += c;
    else
      words.emplace_back(1, c);
    open = !alone;
  }
  return words;
}

}  // namespace

std::vector<std::string> TokensOf(const CsvColumn& column, std::string_view cell) {
  const TextColumnOptions& options = *column.text();
  const std::string text = options.lower ? Lowered(std::string(cell)) : std::string(cell);
  std::vector<std::string> characters;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = Utf8CharacterBytes(std::string_view(text).substr(at));
    if (bytes == 0) ThrowInvalid(fmt::format("byte {} of the text is not UTF-8", at));
    if (!column.words) characters.push_back(text.substr(at, bytes));
    at += bytes;
  }
  return column.words ? WordsOf(text, options.split_punctuation) : characters;
}

namespace {

void AppendPairIds(const TextColumnOptions& options, std::string_view cell,
                   std::vector<int64_t>* ids) {
  if (options.lower)
    options.pairs->Append(Lowered(std::string(cell)), ids);
  else
    options.pairs->Append(cell, ids);
}

}  // namespace

std::vector<int64_t> TextIdsOf(const CsvColumn& column, std::string_view cell) {
  std::vector<int64_t> ids;
  if (column.byte_pairs) {
    AppendPairIds(*column.byte_pairs, cell, &ids);
  } else {
    for (const std::string& token : TokensOf(column, cell))
      ids.push_back(column.text()->list->Id(token));
  }
  if (column.length > 0 && static_cast<int64_t>(ids.size()) > column.length)
    ids.resize(static_cast<size_t>(column.length));
  return ids;
}

const std::string& NameOfIds(const CsvColumn& column) {
  if (!column.sequence.empty()) return column.sequence;
  return column.ids.empty() ? column.name : column.ids;
}

int64_t PaddingOf(const CsvColumn& column) {
  return column.byte_pairs ? column.byte_pairs->padding : WordList::kPadding;
}

TextRows::TextRows(const CsvColumn& column) : column_(column) {
  if (column.byte_pairs) {
    TextColumnOptions& pairs = *column_.byte_pairs;
    if (!pairs.pairs)
      pairs.pairs =
          std::make_shared<const BytePairs>(BytePairs::Read(pairs.merges, pairs.vocabulary));
    if (pairs.padding != 0 && column.length == 0)
      ThrowInvalid("byte_pairs: padding needs length, which texts are padded to");
    if (pairs.padding < 0 || pairs.padding >= pairs.pairs->size())
      ThrowInvalid(
          fmt::format("byte_pairs: padding is {}, but the vocabulary has the numbers 0 to "
                      "{}",
                      pairs.padding, pairs.pairs->size() - 1));
    return;
  }
  list_ = options().list;
  if (!list_ && !options().vocabulary.empty())
    list_ = std::make_shared<const WordList>(WordList::Read(options().vocabulary));
}

void TextRows::Add(std::string_view cell) {
  if (column_.byte_pairs) {
    values_.resize(offsets_.back());  // without those of a cell that could not be read
    AppendPairIds(*column_.byte_pairs, cell, &values_);
    offsets_.push_back(values_.size());
    return;
  }
  for (std::string& token : TokensOf(column_, cell)) {
    int64_t value = 0;
    if (list_)
      value = list_->Id(token);
    else
      value =
          numbers_.emplace(std::move(token), static_cast<int64_t>(numbers_.size())).first->second;
    values_.push_back(value);
  }
  offsets_.push_back(values_.size());
}

void TextRows::MakeList(const std::vector<int64_t>& rows, const std::string& file) {
  std::vector<const std::string*> tokens(numbers_.size());
  for (const auto& [token, number] : numbers_) tokens[static_cast<size_t>(number)] = &token;
  std::vector<int64_t> counts(tokens.size(), 0);
  for (const int64_t row : rows) {
    const auto r = static_cast<size_t>(row);
    for (uint64_t i = offsets_[r]; i < offsets_[r + 1]; ++i)
      ++counts[static_cast<size_t>(values_[i])];
  }
  std::vector<size_t> order;
  for (size_t i = 0; i < tokens.size(); ++i)
    if (counts[i] > 0 && counts[i] >= options().min_count) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return counts[a] != counts[b] ? counts[a] > counts[b] : *tokens[a] < *tokens[b];
  });
  if (options().size > 0) {
    const auto most = static_cast<size_t>(std::max<int64_t>(options().size - WordList::kFirst, 0));
    order.resize(std::min(order.size(), most));
  }
  std::vector<std::string> words;
  for (const size_t i : order) words.push_back(*tokens[i]);
  list_ = std::make_shared<const WordList>(std::move(words), file);
  std::vector<int64_t> ids;
  for (const std::string* token : tokens) ids.push_back(list_->Id(*token));
  for (int64_t& value : values_) value = ids[static_cast<size_t>(value)];
}

void TextRows::SetVocabulary(CsvColumn* column) const {
  if (column_.byte_pairs)
    column->byte_pairs->pairs = column_.byte_pairs->pairs;
  else
    (column->words ? column->words : column->characters)->list = list_;
}

std::vector<MemoryColumn> TextRows::Finish(const std::vector<int64_t>& rows,
                                           const std::string& file) {
  if (!list_ && !column_.byte_pairs) MakeList(rows, file);
  const auto count = static_cast<int64_t>(offsets_.size()) - 1;
  const std::string& name = NameOfIds(column_);
  if (column_.length == 0) {
    MemoryColumn ids{name, Tensor(), {1}};
    ids.rows = Tensor::Of<int64_t>({static_cast<int64_t>(values_.size()), 1}, values_);
    ids.offsets = offsets_;
    MemoryColumn lengths = LengthsOf(ids);
    return {std::move(ids), std::move(lengths)};
  }
  MemoryColumn ids{name, Tensor(DType::kInt64, {count, column_.length}), {column_.length}};
  MemoryColumn lengths{name + "@LENGTH", Tensor(DType::kInt64, {count, 1}), {1}};
  int64_t* to = ids.rows.data<int64_t>();
  std::fill_n(to, ids.rows.numel(), PaddingOf(column_));
  for (int64_t row = 0; row < count; ++row, to += column_.length) {
    const auto r = static_cast<size_t>(row);
    const int64_t n = std::min(column_.length, static_cast<int64_t>(offsets_[r + 1] - offsets_[r]));
    std::copy_n(values_.begin() + static_cast<ptrdiff_t>(offsets_[r]), n, to);
    lengths.rows.data<int64_t>()[row] = n;
  }
  return {std::move(ids), std::move(lengths)};
}

}  // namespace coracle::inline internal
