#include <coracle/framework/base/text.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/tools/tensor_csv.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <type_traits>
#include <unordered_map>
#include <vector>

namespace coracle::tools {
namespace {

constexpr int64_t kMaxColumns = int64_t{1} << 20;
constexpr size_t kMaxRank = Shape::kMaxRank;

// --- writing ---

int64_t RowsOf(const Tensor& tensor) { return tensor.shape().rank() ? tensor.shape()[0] : 1; }
int64_t ColumnsOf(const Tensor& tensor) {
  const int rank = tensor.shape().rank();
  return rank > 1 ? tensor.shape().Product(1, rank) : 1;
}

void CheckTable(const NamedTensors& tensors) {
  int64_t columns = 0;
  for (const auto& [name, tensor] : tensors) {
    const Tensor& first = tensors[0].second;
    if (IsComplex(tensor.dtype()))
      ThrowInvalid(fmt::format("{} is {}, which no csv file holds; npz and json do", Quote(name),
                               tensor.ToString()));
    if (name.ends_with(']'))
      ThrowInvalid(fmt::format(
          "{} ends in ']', which in a csv file begins an index; use npz or json", Quote(name)));
    if (Trim(name) != name || name.find_first_of("\r\n") != name.npos)
      ThrowInvalid(fmt::format(
          "{} has a line end or blanks around it, which no csv file keeps; use npz or json",
          Quote(name)));
    if (ColumnsOf(tensor) == 0)
      ThrowInvalid(fmt::format("{} {} has no column in a csv file; use npz or json", Quote(name),
                               tensor.ToString()));
    if (RowsOf(tensor) != RowsOf(first)) {
      ThrowInvalid(
          fmt::format("a csv file is one table: {} has {} rows and {} {}; fetch them into "
                      "files of their own, or use npz or json",
                      Quote(tensors[0].first), RowsOf(first), Quote(name), RowsOf(tensor)));
    }
    columns += ColumnsOf(tensor);
    if (columns > kMaxColumns)
      ThrowInvalid(fmt::format("{} {} would make more than {} columns; use npz", Quote(name),
                               tensor.ToString(), kMaxColumns));
  }
}

std::string Cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == text.npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

void AppendNames(const std::string& name, const Shape& shape, std::vector<std::string>* cells) {
  const int64_t columns = shape.rank() > 1 ? shape.Product(1, shape.rank()) : 1;
  for (int64_t column = 0; column < columns; ++column) {
    std::string index;
    int64_t rest = column;
    for (int axis = shape.rank() - 1; axis > 0; --axis) {
      index = fmt::format("[{}]{}", rest % shape[axis], index);
      rest /= shape[axis];
    }
    cells->push_back(Cell(name + index));
  }
}

// A line of the file is a line of the table.
std::string TextCell(std::string_view text) {
  if (text.find_first_of("\r\n") != text.npos)
    ThrowInvalid(fmt::format("the text {} has a line end, which no csv file keeps; npz and json do",
                             Quote(text)));
  // Quoted, because a line without a character is no row.
  return text.empty() ? "\"\"" : Cell(std::string(text));
}

template <class T>
std::string NumberText(T value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "1" : "0";
  } else if constexpr (std::is_integral_v<T>) {
    return fmt::format("{}", +value);
  } else if constexpr (std::is_same_v<T, double>) {
    return std::isnan(value) ? "nan" : fmt::format("{}", value);
  } else {
    const auto wide = static_cast<float>(value);
    return std::isnan(wide) ? "nan" : fmt::format("{}", wide);
  }
}

void AppendRow(const Tensor& tensor, int64_t row, std::vector<std::string>* cells) {
  const int64_t columns = ColumnsOf(tensor);
  if (tensor.dtype() == DType::kString) {
    const StringRef* texts = tensor.data<StringRef>() + row * columns;
    for (int64_t i = 0; i < columns; ++i) cells->push_back(TextCell(texts[i].view()));
    return;
  }
  DispatchAnyDType(tensor.dtype(), [&]<class T>() {
    if constexpr (!kIsComplex<T>) {
      const T* numbers = tensor.data<T>() + row * columns;
      for (int64_t i = 0; i < columns; ++i) cells->push_back(NumberText(numbers[i]));
    }
  });
}

// --- reading ---

constexpr const char* kOpenQuotes = "a quotation mark is not closed on its line";

[[noreturn]] void Fail(const std::string& source, size_t line, size_t cell,
                       const std::string& what) {
  ThrowInvalid(fmt::format("{}:{}:{}: {}", source, line, cell, what));
}

// Splits a line into cells and removes their quotes. Stops after kMaxColumns + 1 cells. Returns
// none if a quotation mark is not closed.
std::vector<std::string> CellsOf(std::string_view line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size() && cells.size() <= size_t{kMaxColumns}; ++i) {
    if (line[i] == '"') {
      if (quoted && i + 1 < line.size() && line[i + 1] == '"')
        cells.back() += line[++i];
      else
        quoted = !quoted;
    } else if (line[i] == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += line[i];
    }
  }
  return quoted ? std::vector<std::string>() : cells;
}

bool ParseNatural(std::string_view text, uint64_t* value) {
  const char* end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, *value);
  return !text.empty() && last == end && error == std::errc();
}

// The name of a column: "y[0][2]" is y with index {0, 2}.
struct ColumnName {
  std::string name;
  std::vector<int64_t> index;
};

bool ParseColumnName(const std::string& cell, ColumnName* column) {
  column->name = std::string(Trim(cell));
  while (column->name.ends_with(']')) {
    const size_t begin = column->name.rfind('[');
    int64_t number = 0;
    if (begin == std::string::npos || column->index.size() + 1 >= kMaxRank) return false;
    const size_t digits = column->name.size() - begin - 2;
    if (!ParseInt64(std::string_view(column->name).substr(begin + 1, digits), &number))
      return false;
    column->index.insert(column->index.begin(), number);
    column->name.resize(begin);
  }
  return !column->name.empty();
}

// Adjacent columns that belong to one tensor.
struct Group {
  std::string name;
  size_t begin = 0, end = 0;
  std::vector<int64_t> last;  // index of the last column

  // Computes the shape of a row. Returns false unless the columns are all its elements in order.
  bool RowShape(const std::vector<ColumnName>& columns, std::vector<int64_t>* dims) const {
    dims->clear();
    int64_t count = 1;
    for (const int64_t number : last) {
      if (number < 0 || number >= kMaxColumns) return false;
      dims->push_back(number + 1);
      count *= number + 1;
      if (count > kMaxColumns) return false;
    }
    if (count != static_cast<int64_t>(end - begin)) return false;
    for (size_t i = begin; i < end; ++i) {
      auto rest = static_cast<int64_t>(i - begin);
      if (columns[i].index.size() != dims->size()) return false;
      for (size_t axis = dims->size(); axis-- > 0; rest /= (*dims)[axis]) {
        if (columns[i].index[axis] != rest % (*dims)[axis]) return false;
      }
    }
    return true;
  }
};

class CsvTensors {
 public:
  CsvTensors(std::string_view text, const std::string& source, const std::set<std::string>& texts)
      : source_(source), texts_(texts) {
    // skips the byte order mark that spreadsheets write
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    for (size_t line = 1; !text.empty(); ++line) {
      const size_t end = std::min(text.find('\n'), text.size());
      std::string_view words = text.substr(0, end);
      if (words.ends_with('\r')) words.remove_suffix(1);
      text.remove_prefix(std::min(end + 1, text.size()));
      if (words.empty()) continue;
      columns_.empty() ? ReadNames(words, line) : ReadNumbers(words, line);
    }
    if (columns_.empty()) Fail(source_, 1, 1, "the file is empty: a line of names is missing");
  }

  NamedTensors Run() const {
    NamedTensors tensors;
    for (const Group& group : groups_) tensors.emplace_back(group.name, TensorOf(group));
    return tensors;
  }

 private:
  void ReadNames(std::string_view words, size_t line) {
    std::unordered_map<std::string, size_t> seen;
    const std::vector<std::string> cells = CellsOf(words);
    if (cells.empty()) Fail(source_, line, 1, kOpenQuotes);
    if (cells.size() > size_t{kMaxColumns})
      Fail(source_, line, cells.size(), fmt::format("more than {} columns", kMaxColumns));
    for (const std::string& cell : cells) {
      ColumnName& column = columns_.emplace_back();
      if (!ParseColumnName(cell, &column))
        Fail(source_, line, columns_.size(),
             fmt::format("expected a name such as y or y[0][1], got {}", Quote(cell)));
      if (groups_.empty() || groups_.back().name != column.name || column.index.empty()) {
        if (!seen.emplace(column.name, columns_.size()).second)
          Fail(source_, line, columns_.size(),
               fmt::format("{} has columns before that", Quote(column.name)));
        groups_.push_back({column.name, columns_.size() - 1, columns_.size(), column.index});
      }
      groups_.back().end = columns_.size();
      groups_.back().last = column.index;
    }
    std::vector<int64_t> dims;
    for (const Group& group : groups_) {
      if (!group.RowShape(columns_, &dims))
        Fail(source_, line, group.begin + 1,
             fmt::format("the columns of {} must count all elements of a row, as in y[0][0], "
                         "y[0][1], y[1][0], y[1][1]",
                         Quote(group.name)));
    }
  }

  void ReadNumbers(std::string_view words, size_t line) {
    const std::vector<std::string> cells = CellsOf(words);
    if (cells.empty()) Fail(source_, line, 1, kOpenQuotes);
    if (cells.size() != columns_.size())
      Fail(source_, line, cells.size(),
           fmt::format("{} cells, but the first line names {} columns", cells.size(),
                       columns_.size()));
    whole_.resize(columns_.size(), true);
    negative_.resize(columns_.size(), false);
    large_.resize(columns_.size(), false);
    for (size_t i = 0; i < cells.size(); ++i) {
      const std::string_view cell = Trim(cells[i]);
      double number = 0;
      int64_t integer = 0;
      if (texts_.count(columns_[i].name)) {
        cells_[columns_[i].name].push_back(cells[i]);
        whole_[i] = false;
      } else if (ParseInt64(cell, &integer)) {
        number = static_cast<double>(integer);
        negative_[i] = negative_[i] || integer < 0;
      } else if (uint64_t large = 0; ParseNatural(cell, &large)) {
        number = static_cast<double>(large);
        integer = static_cast<int64_t>(large);
        large_[i] = true;
      } else if (ParseDouble(cell, &number)) {
        whole_[i] = false;
      } else {
        Fail(source_, line, i + 1,
             fmt::format("expected a number, got {}; texts are read only for an input of texts",
                         Quote(cell)));
      }
      numbers_.push_back(number);
      integers_.push_back(integer);
    }
    ++rows_;
  }

  Tensor TensorOf(const Group& group) const {
    std::vector<int64_t> dims, row;
    group.RowShape(columns_, &row);
    dims.push_back(rows_);
    dims.insert(dims.end(), row.begin(), row.end());
    if (texts_.count(group.name)) {
      const auto cells = cells_.find(group.name);
      return Tensor::OfStrings(Shape(dims),
                               cells == cells_.end() ? std::vector<std::string>() : cells->second);
    }
    bool whole = rows_ > 0, negative = false, large = false;
    for (size_t i = group.begin; i < group.end && whole; ++i) {
      whole = whole_[i];
      negative = negative || negative_[i];
      large = large || large_[i];
    }
    if (!whole || (large && negative)) return Filled<double>(group, Shape(dims), numbers_);
    return large ? Filled<uint64_t>(group, Shape(dims), integers_)
                 : Filled<int64_t>(group, Shape(dims), integers_);
  }

  template <class T, class Table>
  Tensor Filled(const Group& group, const Shape& shape, const Table& table) const {
    Tensor tensor(DTypeOf<T>(), shape);
    T* out = tensor.data<T>();
    for (size_t row = 0; row < static_cast<size_t>(rows_); ++row) {
      const auto from = table.begin() + static_cast<ptrdiff_t>(row * columns_.size());
      out = std::transform(from + static_cast<ptrdiff_t>(group.begin),
                           from + static_cast<ptrdiff_t>(group.end), out,
                           [](auto number) { return static_cast<T>(number); });
    }
    return tensor;
  }

  const std::string& source_;
  const std::set<std::string>& texts_;
  std::unordered_map<std::string, std::vector<std::string>> cells_;  // of texts, row by row
  std::vector<ColumnName> columns_;
  std::vector<Group> groups_;
  // By column: all its numbers are integers; some are negative; some are too large for int64.
  std::vector<bool> whole_, negative_, large_;
  std::vector<double> numbers_;    // row by row
  std::vector<int64_t> integers_;  // the same numbers in columns of integers, modulo 2^64
  int64_t rows_ = 0;
};

}  // namespace

std::string TensorCsv(const NamedTensors& tensors) {
  if (tensors.empty()) ThrowInvalid("there is no tensor to write");
  CheckTable(tensors);
  std::vector<std::string> cells;
  for (const auto& [name, tensor] : tensors) AppendNames(name, tensor.shape(), &cells);
  std::string text = Join(cells, ",") + "\n";
  for (int64_t row = 0; row < RowsOf(tensors[0].second); ++row) {
    cells.clear();
    for (const auto& [name, tensor] : tensors) AppendRow(tensor, row, &cells);
    text += Join(cells, ",") + "\n";
  }
  return text;
}

NamedTensors ParseTensorCsv(std::string_view text, const std::string& source,
                            const std::set<std::string>& texts) {
  return CsvTensors(text, source, texts).Run();
}

bool OverflowsIn(const Tensor& from, const Tensor& cast) {
  const Tensor before = from.Cast(DType::kFloat64), after = cast.Cast(DType::kFloat64);
  const auto a = before.span<double>(), b = after.span<double>();
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isfinite(a[i]) && !std::isfinite(b[i])) return true;
  }
  return false;
}

void AdoptDTypes(const NamedTensors& others, NamedTensors* from_csv) {
  std::unordered_map<std::string_view, DType> dtype_of;
  for (const auto& [name, tensor] : others) dtype_of.emplace(name, tensor.dtype());
  for (auto& [name, tensor] : *from_csv) {
    const auto found = dtype_of.find(name);
    if (found == dtype_of.end() || found->second == tensor.dtype()) continue;
    if (found->second == DType::kString) continue;
    Tensor cast = tensor.Cast(found->second);
    // The digits identify a float32, but as a float64 they differ from the value of that float32.
    const bool real =
        IsFloating(tensor.dtype()) && IsFloating(cast.dtype()) && !OverflowsIn(tensor, cast);
    if (real || BitEqual(cast.Cast(tensor.dtype()), tensor)) tensor = std::move(cast);
  }
}

}  // namespace coracle::tools
