#include <coracle/framework/base/file.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/data/data_source.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

namespace coracle {
namespace {

constexpr size_t kMaxColumns = 1 << 20;
constexpr uint64_t kMaxBytes = uint64_t{1} << 34;

struct Cell {
  std::string text;
  int64_t column = 1;  // where the cell begins in its line, from 1
};

// Removes the plus sign that spreadsheets write before positive numbers: "+1.5" becomes "1.5".
std::string_view WithoutPlus(std::string_view text) {
  const bool signed_number = text.size() > 1 && text[0] == '+' && text[1] != '-' && text[1] != '+';
  return signed_number ? text.substr(1) : text;
}

// Reads numbers below the range of double as 0, and numbers above it as infinite.
bool ParseNumber(std::string_view text, double* value) {
  text = WithoutPlus(text);
  if (ParseDouble(text, value)) return true;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  if (error != std::errc::result_out_of_range || end != text.data() + text.size()) return false;
  *value = std::strtod(std::string(text).c_str(), nullptr);
  return true;
}

// Splits text into lines of cells, and counts lines and columns for errors.
class CsvReader {
 public:
  CsvReader(std::string_view text, const CsvOptions& options) : text_(text), options_(options) {
    // Spreadsheets write a byte order mark before UTF-8.
    if (text_.starts_with("\xEF\xBB\xBF")) text_.remove_prefix(3);
  }

  // Reads the next line that is not empty; returns false at the end.
  bool Next(std::vector<Cell>* cells) {
    while (pos_ < text_.size()) {
      line_ += 1 + std::exchange(lines_in_cells_, 0);
      line_begin_ = pos_;
      if (SkipLineEnd()) continue;
      ReadLine(cells);
      return true;
    }
    return false;
  }

  int64_t line() const { return line_; }  // the line where the row begins

  [[noreturn]] void Fail(int64_t column, const std::string& what) const {
    ThrowInvalid(fmt::format("{}:{}:{}: {}", options_.file, line_, column, what));
  }

 private:
  bool SkipLineEnd() {
    size_t before = pos_;
    if (pos_ < text_.size() && text_[pos_] == '\r') ++pos_;
    if (pos_ < text_.size() && text_[pos_] == '\n') ++pos_;
    return pos_ > before;
  }
  bool AtCellEnd() const {
    return pos_ >= text_.size() || text_[pos_] == options_.delimiter || text_[pos_] == '\n' ||
           text_[pos_] == '\r';
  }
  int64_t ColumnHere() const { return static_cast<int64_t>(pos_ - line_begin_) + 1; }

  void ReadLine(std::vector<Cell>* cells) {
    size_t n = 0;
    while (true) {
      if (n == kMaxColumns) Fail(ColumnHere(), fmt::format("more than {} cells", kMaxColumns));
      if (n == cells->size()) cells->emplace_back();
      ReadCell(&(*cells)[n++]);
      if (pos_ >= text_.size() || SkipLineEnd()) break;
      ++pos_;  // the delimiter
    }
    cells->resize(n);
  }

  void ReadCell(Cell* cell) {
    cell->text.clear();
    cell->column = ColumnHere();
    if (pos_ < text_.size() && text_[pos_] == '"') return ReadQuoted(cell);
    size_t begin = pos_;
    while (!AtCellEnd()) ++pos_;
    cell->text = Trim(text_.substr(begin, pos_ - begin));
  }

  void ReadQuoted(Cell* cell) {
    ++pos_;
    while (true) {
      if (pos_ >= text_.size()) Fail(cell->column, "a quoted cell has no closing quote");
      char c = text_[pos_++];
      if (c != '"') {
        cell->text += c;
        lines_in_cells_ += c == '\n';
      } else if (pos_ < text_.size() && text_[pos_] == '"') {
        cell->text += text_[pos_++];
      } else {
        break;
      }
    }
    if (!AtCellEnd()) Fail(ColumnHere(), "text follows a closing quote");
  }

  std::string_view text_;
  const CsvOptions& options_;
  size_t pos_ = 0, line_begin_ = 0;
  int64_t line_ = 0;
  int64_t lines_in_cells_ = 0;  // line ends within quotes in this row
};

class CsvTable {
 public:
  CsvTable(std::string_view text, const CsvOptions& options)
      : options_(options), reader_(text, options) {}

  DataSourcePtr Read() {
    std::vector<Cell> cells;
    if (!reader_.Next(&cells)) ThrowInvalid(options_.file + ": no rows");
    if (options_.header) {
      for (const Cell& cell : cells) names_.push_back(cell.text);
    }
    Choose(cells.size());
    bool more = !options_.header || reader_.Next(&cells);
    for (; more; more = reader_.Next(&cells)) AddRow(cells);
    return Finish();
  }

 private:
  size_t FindColumn(const std::string& name, size_t count) const {
    if (const auto found = std::find(names_.begin(), names_.end(), name); found != names_.end()) {
      if (std::find(found + 1, names_.end(), name) == names_.end())
        return static_cast<size_t>(found - names_.begin());
      ThrowInvalid(fmt::format("{}: two columns are called {}: give the number of one, from 0",
                               options_.file, Quote(name)));
    }
    int64_t number = 0;
    if (ParseInt64(name, &number) && number >= 0 && static_cast<size_t>(number) < count)
      return static_cast<size_t>(number);
    std::string hint = names_.empty() ? fmt::format("; there are {}, counted from 0", count)
                                      : DidYouMean(name, names_);
    throw Error(ErrorCode::kNotFound,
                fmt::format("{}: no column {}{}", options_.file, Quote(name), hint));
  }

  // If two words were equal, no value could select the second.
  void RequireDistinct(const std::vector<std::string>& words, const std::string& what) const {
    std::set<std::string> seen;
    for (const std::string& word : words) {
      if (!seen.insert(word).second)
        ThrowInvalid(fmt::format("{}: {} lists {} twice", options_.file, what, Quote(word, 40)));
    }
  }

  void Choose(size_t count) {
    RequireDistinct(options_.classes, "class");
    used_.assign(count, true);
    label_ = options_.label.empty() ? count - 1 : FindColumn(options_.label, count);
    for (const std::string& name : options_.skip) used_[FindColumn(name, count)] = false;
    used_[label_] = false;
    CsvColumn usual;
    usual.fill = options_.fill;
    usual.mean = options_.mean;
    usual.scale = options_.scale;
    columns_.assign(count, usual);
    for (const CsvColumn& column : options_.columns) Settle(column, count);
    for (size_t i = 0; i < count; ++i) {
      if (!used_[i] || !columns_[i].ids.empty() || !columns_[i].sequence.empty()) continue;
      const size_t words = columns_[i].categories.size();
      features_ += words > 0 ? static_cast<int64_t>(words) : 1;
    }
  }

  void Settle(const CsvColumn& column, size_t count) {
    const size_t i = FindColumn(column.name, count);
    const bool twice = !columns_[i].name.empty();
    if (twice || !used_[i]) {
      ThrowInvalid(fmt::format("{}: column {} {}", options_.file, Quote(column.name),
                               twice         ? "is described twice"
                               : i == label_ ? "is the label, which has settings of its own"
                                             : "is left out by skip"));
    }
    RequireDistinct(column.categories, "category of column " + Quote(column.name));
    const CsvColumn usual = columns_[i];
    columns_[i] = column;
    if (!column.fill) columns_[i].fill = usual.fill;
    if (!column.mean) columns_[i].mean = usual.mean;
    if (!column.scale) columns_[i].scale = usual.scale;
    if (!column.ids.empty()) ids_.emplace_back(i, std::vector<int64_t>());
    if (!column.sequence.empty()) sequences_.push_back({i, {}, {0}});
  }

  void AddRow(const std::vector<Cell>& cells) {
    if (cells.size() != used_.size()) {
      reader_.Fail(1, fmt::format("{} cells, the first line has {}", cells.size(), used_.size()));
    }
    for (size_t i = 0; i < cells.size(); ++i) {
      if (used_[i]) AddCell(columns_[i], cells[i]);
    }
    for (auto& [column, ids] : ids_) ids.push_back(WordOf(columns_[column], cells[column]));
    for (SequenceColumn& sequence : sequences_) AddSequence(cells[sequence.column], &sequence);
    AddLabel(cells[label_]);
    lines_.push_back(reader_.line());
    ++rows_;
  }

  void AddCell(const CsvColumn& column, const Cell& cell) {
    if (!column.ids.empty() || !column.sequence.empty()) return;
    if (column.categories.empty()) {
      data_.push_back((Number(cell, column.fill) - *column.mean) * *column.scale);
      return;
    }
    const size_t first = data_.size();
    data_.resize(first + column.categories.size(), 0);
    data_[first + static_cast<size_t>(WordOf(column, cell))] = 1;
  }

  struct SequenceColumn {
    size_t column;
    std::vector<int64_t> values;
    std::vector<uint64_t> offsets;
  };
  // An empty cell is an empty sequence.
  void AddSequence(const Cell& cell, SequenceColumn* sequence) const {
    const CsvColumn& column = columns_[sequence->column];
    constexpr const char* kBlanks = " \t";
    size_t end = 0;
    for (size_t at = cell.text.find_first_not_of(kBlanks); at != std::string::npos;
         at = cell.text.find_first_not_of(kBlanks, end)) {
      end = std::min(cell.text.find_first_of(kBlanks, at), cell.text.size());
      const Cell item{cell.text.substr(at, end - at), cell.column};
      int64_t value = 0;
      if (!column.categories.empty())
        value = WordOf(column, item);
      else if (!ParseInt64(WithoutPlus(item.text), &value))
        reader_.Fail(cell.column, fmt::format("{} is not an integer", Quote(item.text, 40)));
      sequence->values.push_back(value);
    }
    sequence->offsets.push_back(sequence->values.size());
  }

  // Returns the index of the cell among the column's categories.
  int64_t WordOf(const CsvColumn& column, const Cell& cell) const {
    const auto& words = column.categories;
    const auto found = std::find(words.begin(), words.end(), cell.text);
    if (found != words.end()) return found - words.begin();
    reader_.Fail(cell.column,
                 fmt::format("{} is not one of the categories of {}{}", Quote(cell.text, 40),
                             Quote(column.name), DidYouMean(cell.text, words)));
  }

  // Refuses nan: otherwise the loss would become nan much later, without a hint at the cell.
  float Number(const Cell& cell, std::optional<float> fill) const {
    if (cell.text.empty()) {
      if (fill) return *fill;
      reader_.Fail(cell.column, "empty cell; give fill a value to use instead");
    }
    double value = 0;
    if (!ParseNumber(cell.text, &value))
      reader_.Fail(cell.column, fmt::format("{} is not a number", Quote(cell.text, 40)));
    if (!(std::abs(value) <= static_cast<double>(std::numeric_limits<float>::max())))
      reader_.Fail(cell.column, fmt::format("{} is not a finite float32", Quote(cell.text, 40)));
    return static_cast<float>(value);
  }

  void AddLabel(const Cell& cell) {
    switch (options_.label_kind) {
      case CsvLabel::kReal:
        real_labels_.push_back(Number(cell, std::nullopt));
        break;
      case CsvLabel::kInteger: {
        int64_t value = 0;
        if (!ParseInt64(WithoutPlus(cell.text), &value))
          reader_.Fail(cell.column, fmt::format("label {} is not an integer; name the classes, or "
                                                "say that labels are real",
                                                Quote(cell.text, 40)));
        labels_.push_back(value);
        break;
      }
      case CsvLabel::kClass: {
        auto found = std::find(options_.classes.begin(), options_.classes.end(), cell.text);
        if (found == options_.classes.end())
          reader_.Fail(cell.column,
                       fmt::format("label {} is not one of the classes{}", Quote(cell.text, 40),
                                   DidYouMean(cell.text, options_.classes)));
        labels_.push_back(found - options_.classes.begin());
      }
    }
  }

  DataSourcePtr Finish() {
    if (rows_ == 0) ThrowInvalid(options_.file + ": no rows below the header");
    MemoryColumn label{"label", Tensor(), {1}};
    label.rows = options_.label_kind == CsvLabel::kReal
                     ? Tensor::Of<float>({rows_, 1}, real_labels_)
                     : Tensor::Of<int64_t>({rows_, 1}, labels_);
    std::vector<MemoryColumn> columns;
    if (features_ > 0) {
      Shape shape = options_.shape.empty() ? Shape{features_} : Shape(options_.shape);
      if (!shape.IsKnown() || shape.numel() != features_) {
        ThrowInvalid(fmt::format("{}: shape {} does not hold the {} values of a row", options_.file,
                                 shape.ToString(), features_));
      }
      columns.push_back({"data", Tensor::Of<float>({rows_, features_}, data_), shape});
    }
    for (const auto& [column, ids] : ids_)
      columns.push_back({columns_[column].ids, Tensor::Of<int64_t>({rows_, 1}, ids), {1}});
    for (SequenceColumn& sequence : sequences_) {
      MemoryColumn column{columns_[sequence.column].sequence, Tensor(), {1}};
      const auto size = static_cast<int64_t>(sequence.values.size());
      column.rows = Tensor::Of<int64_t>({size, 1}, sequence.values);
      column.offsets = std::move(sequence.offsets);
      columns.push_back(LengthsOf(column));
      columns.insert(columns.end() - 1, std::move(column));
    }
    columns.push_back(std::move(label));
    const std::string file = std::filesystem::path(options_.file).filename().string();
    return MakeMemorySource(std::move(columns), fmt::format("csv {}", Quote(file, 300)),
                            {file, std::move(lines_)});
  }

  const CsvOptions& options_;
  CsvReader reader_;
  std::vector<std::string> names_;
  std::vector<bool> used_;
  size_t label_ = 0;
  int64_t features_ = 0, rows_ = 0;
  std::vector<float> data_, real_labels_;
  std::vector<int64_t> labels_;
  std::vector<CsvColumn> columns_;                            // settings of each column
  std::vector<std::pair<size_t, std::vector<int64_t>>> ids_;  // by column
  std::vector<SequenceColumn> sequences_;
  std::vector<int64_t> lines_;  // where each row begins
};

}  // namespace

DataSourcePtr ParseCsv(std::string_view text, const CsvOptions& options) {
  return CsvTable(text, options).Read();
}

DataSourcePtr MakeCsvSource(const CsvOptions& options) {
  return ParseCsv(ReadFile(options.file, kMaxBytes), options);
}

}  // namespace coracle
