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

// How the columns of a file are used.
struct CsvLayout {
  std::vector<CsvColumn> columns;      // the settings of each
  std::vector<bool> used;              // in the data
  std::vector<size_t> ids, sequences;  // columns of their own, in the order of the options
  size_t label = 0;
  int64_t features = 0;  // values of a row of the data
};

size_t FindColumn(const CsvOptions& options, const std::vector<std::string>& names,
                  const std::string& name, size_t count) {
  if (const auto found = std::find(names.begin(), names.end(), name); found != names.end()) {
    if (std::find(found + 1, names.end(), name) == names.end())
      return static_cast<size_t>(found - names.begin());
    ThrowInvalid(fmt::format("{}: two columns are called {}: give the number of one, from 0",
                             options.file, Quote(name)));
  }
  int64_t number = 0;
  if (ParseInt64(name, &number) && number >= 0 && static_cast<size_t>(number) < count)
    return static_cast<size_t>(number);
  std::string hint = names.empty() ? fmt::format("; there are {}, counted from 0", count)
                                   : DidYouMean(name, names);
  throw Error(ErrorCode::kNotFound,
              fmt::format("{}: no column {}{}", options.file, Quote(name), hint));
}

// If two words were equal, no value could select the second.
void RequireDistinct(const CsvOptions& options, const std::vector<std::string>& words,
                     const std::string& what) {
  std::set<std::string> seen;
  for (const std::string& word : words) {
    if (!seen.insert(word).second)
      ThrowInvalid(fmt::format("{}: {} lists {} twice", options.file, what, Quote(word, 40)));
  }
}

// Replaces the settings of column `i`, taken from the file, by the column's own.
void SetColumn(const CsvOptions& options, const CsvColumn& own, size_t i, CsvLayout* layout) {
  CsvColumn& column = layout->columns[i];
  const bool twice = !column.name.empty();
  if (twice || !layout->used[i]) {
    ThrowInvalid(fmt::format("{}: column {} {}", options.file, Quote(own.name),
                             twice                ? "is described twice"
                             : i == layout->label ? "is the label, which has settings of its own"
                                                  : "is left out by skip"));
  }
  RequireDistinct(options, own.categories, "category of column " + Quote(own.name));
  const CsvColumn usual = std::exchange(column, own);
  if (!column.fill) column.fill = usual.fill;
  if (!column.mean) column.mean = usual.mean;
  if (!column.scale) column.scale = usual.scale;
  if (!column.ids.empty()) layout->ids.push_back(i);
  if (!column.sequence.empty()) layout->sequences.push_back(i);
}

CsvLayout LayoutOf(const CsvOptions& options, const std::vector<std::string>& names, size_t count) {
  RequireDistinct(options, options.classes, "class");
  CsvLayout layout;
  layout.used.assign(count, true);
  layout.label =
      options.label.empty() ? count - 1 : FindColumn(options, names, options.label, count);
  for (const std::string& name : options.skip)
    layout.used[FindColumn(options, names, name, count)] = false;
  layout.used[layout.label] = false;
  CsvColumn usual;
  usual.fill = options.fill;
  usual.mean = options.mean;
  usual.scale = options.scale;
  layout.columns.assign(count, usual);
  for (const CsvColumn& column : options.columns)
    SetColumn(options, column, FindColumn(options, names, column.name, count), &layout);
  for (const auto& own : {layout.ids, layout.sequences})
    for (const size_t i : own) layout.used[i] = false;
  for (size_t i = 0; i < count; ++i) {
    const size_t words = layout.columns[i].categories.size();
    if (layout.used[i]) layout.features += words > 0 ? static_cast<int64_t>(words) : 1;
  }
  return layout;
}

// The index of the cell among the words.
int64_t WordIn(const CsvReader& reader, const CsvColumn& column, const Cell& cell) {
  const auto& words = column.categories;
  const auto found = std::find(words.begin(), words.end(), cell.text);
  if (found != words.end()) return found - words.begin();
  reader.Fail(cell.column,
              fmt::format("{} is not one of the categories of {}{}", Quote(cell.text, 40),
                          Quote(column.name), DidYouMean(cell.text, words)));
}

// Refuses nan: otherwise the loss would become nan much later, without a hint at the cell.
float NumberIn(const CsvReader& reader, const Cell& cell, std::optional<float> fill) {
  if (cell.text.empty()) {
    if (fill) return *fill;
    reader.Fail(cell.column, "empty cell; give fill a value to use instead");
  }
  double value = 0;
  if (!ParseNumber(cell.text, &value))
    reader.Fail(cell.column, fmt::format("{} is not a number", Quote(cell.text, 40)));
  if (!(std::abs(value) <= static_cast<double>(std::numeric_limits<float>::max())))
    reader.Fail(cell.column, fmt::format("{} is not a finite float32", Quote(cell.text, 40)));
  return static_cast<float>(value);
}

// The integers or words of a cell, separated by blanks. An empty cell has none.
std::vector<int64_t> SequenceIn(const CsvReader& reader, const CsvColumn& column,
                                const Cell& cell) {
  constexpr const char* kBlanks = " \t";
  std::vector<int64_t> values;
  size_t end = 0;
  for (size_t at = cell.text.find_first_not_of(kBlanks); at != std::string::npos;
       at = cell.text.find_first_not_of(kBlanks, end)) {
    end = std::min(cell.text.find_first_of(kBlanks, at), cell.text.size());
    const Cell item{cell.text.substr(at, end - at), cell.column};
    int64_t value = 0;
    if (!column.categories.empty())
      value = WordIn(reader, column, item);
    else if (!ParseInt64(WithoutPlus(item.text), &value))
      reader.Fail(cell.column, fmt::format("{} is not an integer", Quote(item.text, 40)));
    values.push_back(value);
  }
  return values;
}

int64_t LabelIn(const CsvReader& reader, const CsvOptions& options, const Cell& cell) {
  if (options.label_kind == CsvLabel::kInteger) {
    int64_t value = 0;
    if (!ParseInt64(WithoutPlus(cell.text), &value))
      reader.Fail(cell.column, fmt::format("label {} is not an integer; name the classes, or "
                                           "say that labels are real",
                                           Quote(cell.text, 40)));
    return value;
  }
  const auto found = std::find(options.classes.begin(), options.classes.end(), cell.text);
  if (found == options.classes.end())
    reader.Fail(cell.column,
                fmt::format("label {} is not one of the classes{}", Quote(cell.text, 40),
                            DidYouMean(cell.text, options.classes)));
  return found - options.classes.begin();
}

// A column of sequences, one after the other.
struct SequenceColumn {
  std::vector<int64_t> values = {};
  std::vector<uint64_t> offsets = {0};

  void Add(const std::vector<int64_t>& sequence) {
    values.insert(values.end(), sequence.begin(), sequence.end());
    offsets.push_back(values.size());
  }
  MemoryColumn Column(const std::string& name) {
    MemoryColumn column{name, Tensor(), {1}};
    column.rows = Tensor::Of<int64_t>({static_cast<int64_t>(values.size()), 1}, values);
    column.offsets = std::move(offsets);
    return column;
  }
};

// The rows read so far, column by column.
class CsvRows {
 public:
  CsvRows(const CsvOptions& options, CsvLayout layout)
      : options_(options),
        layout_(std::move(layout)),
        ids_(layout_.ids.size()),
        sequences_(layout_.sequences.size()) {}

  void Add(const CsvReader& reader, const std::vector<Cell>& cells) {
    const size_t count = layout_.columns.size();
    if (cells.size() != count)
      reader.Fail(1, fmt::format("{} cells, the first line has {}", cells.size(), count));
    for (size_t i = 0; i < count; ++i)
      if (layout_.used[i]) AddToData(reader, layout_.columns[i], cells[i]);
    for (size_t k = 0; k < ids_.size(); ++k) {
      const size_t i = layout_.ids[k];
      ids_[k].push_back(WordIn(reader, layout_.columns[i], cells[i]));
    }
    for (size_t k = 0; k < sequences_.size(); ++k) {
      const size_t i = layout_.sequences[k];
      sequences_[k].Add(SequenceIn(reader, layout_.columns[i], cells[i]));
    }
    const Cell& label = cells[layout_.label];
    if (options_.label_kind == CsvLabel::kReal)
      real_labels_.push_back(NumberIn(reader, label, std::nullopt));
    else
      labels_.push_back(LabelIn(reader, options_, label));
    lines_.push_back(reader.line());
  }

  DataSourcePtr Source() {
    const auto rows = static_cast<int64_t>(lines_.size());
    if (rows == 0) ThrowInvalid(options_.file + ": no rows below the header");
    std::vector<MemoryColumn> columns;
    if (layout_.features > 0)
      columns.push_back(
          {"data", Tensor::Of<float>({rows, layout_.features}, data_), ShapeOfData()});
    for (size_t k = 0; k < ids_.size(); ++k)
      columns.push_back(
          {layout_.columns[layout_.ids[k]].ids, Tensor::Of<int64_t>({rows, 1}, ids_[k]), {1}});
    for (size_t k = 0; k < sequences_.size(); ++k) {
      columns.push_back(sequences_[k].Column(layout_.columns[layout_.sequences[k]].sequence));
      MemoryColumn lengths = LengthsOf(columns.back());
      columns.push_back(std::move(lengths));
    }
    const bool real = options_.label_kind == CsvLabel::kReal;
    columns.push_back({"label",
                       real ? Tensor::Of<float>({rows, 1}, real_labels_)
                            : Tensor::Of<int64_t>({rows, 1}, labels_),
                       {1}});
    const std::string file = std::filesystem::path(options_.file).filename().string();
    return MakeMemorySource(std::move(columns), fmt::format("csv {}", Quote(file, 300)),
                            {file, std::move(lines_)});
  }

 private:
  void AddToData(const CsvReader& reader, const CsvColumn& column, const Cell& cell) {
    if (column.categories.empty()) {
      data_.push_back((NumberIn(reader, cell, column.fill) - *column.mean) * *column.scale);
      return;
    }
    const size_t first = data_.size();
    data_.resize(first + column.categories.size(), 0);
    data_[first + static_cast<size_t>(WordIn(reader, column, cell))] = 1;
  }

  Shape ShapeOfData() const {
    const Shape shape = options_.shape.empty() ? Shape{layout_.features} : Shape(options_.shape);
    if (!shape.IsKnown() || shape.numel() != layout_.features) {
      ThrowInvalid(fmt::format("{}: shape {} does not hold the {} values of a row", options_.file,
                               shape.ToString(), layout_.features));
    }
    return shape;
  }

  const CsvOptions& options_;
  CsvLayout layout_;
  std::vector<float> data_, real_labels_;
  std::vector<int64_t> labels_;
  std::vector<std::vector<int64_t>> ids_;
  std::vector<SequenceColumn> sequences_;
  std::vector<int64_t> lines_;  // where each row begins
};

}  // namespace

DataSourcePtr ParseCsv(std::string_view text, const CsvOptions& options) {
  CsvReader reader(text, options);
  std::vector<Cell> cells;
  if (!reader.Next(&cells)) ThrowInvalid(options.file + ": no rows");
  std::vector<std::string> names;
  for (const Cell& cell : cells)
    if (options.header) names.push_back(cell.text);
  CsvRows rows(options, LayoutOf(options, names, cells.size()));
  bool more = !options.header || reader.Next(&cells);
  for (; more; more = reader.Next(&cells)) rows.Add(reader, cells);
  return rows.Source();
}

DataSourcePtr MakeCsvSource(const CsvOptions& options) {
  return ParseCsv(ReadFile(options.file, kMaxBytes), options);
}

}  // namespace coracle
