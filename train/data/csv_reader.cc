#include <coracle/framework/base/error.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/data/csv_reader.h>
#include <fmt/format.h>

#include <utility>

namespace coracle::inline internal {
namespace {

constexpr size_t kMaxColumns = 1 << 20;
constexpr size_t kChunkBytes = 1 << 16;

}  // namespace

CsvReader::CsvReader(std::string_view text, CsvFormat format)
    : format_(std::move(format)), chunk_(text) {
  SkipMark();
}

CsvReader::CsvReader(ReadChunk read, CsvFormat format)
    : format_(std::move(format)), read_(std::move(read)), buffer_(kChunkBytes) {}

bool CsvReader::Refill() {
  if (!read_) return false;
  const bool first = before_ == 0 && chunk_.empty();
  before_ += chunk_.size();
  size_t bytes = read_(buffer_.data(), buffer_.size());
  // A byte order mark may come in parts.
  while (first && bytes > 0 && bytes < 3 && buffer_[0] == '\xEF') {
    const size_t more = read_(buffer_.data() + bytes, buffer_.size() - bytes);
    if (more == 0) break;
    bytes += more;
  }
  chunk_ = {buffer_.data(), bytes};
  pos_ = 0;
  if (first) SkipMark();
  return pos_ < chunk_.size() || (first && bytes > 0 && Refill());
}

// Spreadsheets write a byte order mark before UTF-8.
void CsvReader::SkipMark() {
  if (chunk_.starts_with("\xEF\xBB\xBF")) pos_ = 3;
}

bool CsvReader::Next(std::vector<CsvCell>* cells) {
  if (std::exchange(unclosed_, false))
    Fail(1, "a quoted cell has no closing quote, so the rest of the text belongs to this row");
  while (!AtEnd()) {
    line_ += 1 + std::exchange(lines_in_cells_, 0);
    line_begin_ = before_ + pos_;
    if (SkipLineEnd()) continue;
    in_row_ = true;
    in_quotes_ = false;
    ReadLine(cells);
    in_row_ = false;
    return true;
  }
  return false;
}

void CsvReader::SkipRow() {
  if (!std::exchange(in_row_, false)) return;
  bool quoted = std::exchange(in_quotes_, false), cell_begins = false;
  while (!AtEnd()) {
    const char c = chunk_[pos_];
    if (!quoted && (c == '\n' || c == '\r')) break;
    ++pos_;
    if (quoted && c == '"') {
      quoted = !AtEnd() && chunk_[pos_] == '"';  // a doubled quote is part of the text
      if (quoted) ++pos_;
    } else {
      quoted |= cell_begins && c == '"';
      lines_in_cells_ += quoted && c == '\n';
    }
    cell_begins = !quoted && c == format_.delimiter;
  }
  unclosed_ = quoted;
  SkipLineEnd();
}

std::string CsvReader::Place(int64_t column) const {
  return fmt::format("{}:{}:{}", format_.file, line_, column);
}

void CsvReader::Fail(int64_t column, const std::string& what) const {
  ThrowInvalid(fmt::format("{}: {}", Place(column), what));
}

bool CsvReader::SkipLineEnd() {
  const bool carriage = !AtEnd() && chunk_[pos_] == '\r';
  if (carriage) ++pos_;
  const bool feed = !AtEnd() && chunk_[pos_] == '\n';
  if (feed) ++pos_;
  return carriage || feed;
}

int64_t CsvReader::ColumnHere() const {
  return static_cast<int64_t>(before_ + pos_ - line_begin_) + 1;
}

void CsvReader::CheckSize() const {
  if (before_ + pos_ - line_begin_ > format_.max_row_bytes)
    Fail(1, fmt::format("the row has more than {}", HumanBytes(format_.max_row_bytes)));
}

void CsvReader::ReadLine(std::vector<CsvCell>* cells) {
  size_t n = 0;
  while (true) {
    if (n == kMaxColumns) Fail(ColumnHere(), fmt::format("more than {} cells", kMaxColumns));
    if (n == cells->size()) cells->emplace_back();
    ReadCell(&(*cells)[n++]);
    if (AtEnd() || SkipLineEnd()) break;
    ++pos_;  // the delimiter
  }
  cells->resize(n);
}

void CsvReader::ReadCell(CsvCell* cell) {
  cell->text.clear();
  cell->column = ColumnHere();
  if (!AtEnd() && chunk_[pos_] == '"') return ReadQuoted(cell);
  while (!AtEnd() && !EndsCell(chunk_[pos_])) {
    const size_t begin = pos_;
    while (pos_ < chunk_.size() && !EndsCell(chunk_[pos_])) ++pos_;
    cell->text += chunk_.substr(begin, pos_ - begin);
    CheckSize();
  }
  if (const std::string_view trimmed = Trim(cell->text); trimmed.size() != cell->text.size())
    cell->text = std::string(trimmed);
}

void CsvReader::ReadQuoted(CsvCell* cell) {
  ++pos_;
  in_quotes_ = true;
  while (true) {
    if (AtEnd()) {
      in_quotes_ = false;  // nothing is left to skip
      Fail(cell->column, "a quoted cell has no closing quote");
    }
    if (pos_ == 0) CheckSize();
    const char c = chunk_[pos_++];
    if (c != '"') {
      cell->text += c;
      lines_in_cells_ += c == '\n';
    } else if (!AtEnd() && chunk_[pos_] == '"') {
      if (pos_ == 0) CheckSize();
      cell->text += chunk_[pos_++];
    } else {
      break;
    }
  }
  in_quotes_ = false;
  CheckSize();
  if (!AtCellEnd()) Fail(ColumnHere(), "text follows a closing quote");
}

}  // namespace coracle::inline internal
