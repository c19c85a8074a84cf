#include <coracle/framework/base/error.h>
#include <coracle/framework/base/file_reader.h>
#include <coracle/framework/base/text.h>
#include <coracle/train/data/csv_columns.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

namespace coracle::inline internal {
namespace {

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
  if (column.text() && column.length == 0 && column.sequence.empty())
    column.sequence = column.ids.empty() ? column.name : column.ids;
  if (column.text())
    layout->texts.push_back(i);
  else if (!column.ids.empty())
    layout->ids.push_back(i);
  else if (!column.sequence.empty())
    layout->sequences.push_back(i);
}

}  // namespace

std::vector<CsvCell> ReadFirstRow(const CsvOptions& options) {
  const auto file = std::make_shared<FileReader>(options.file);
  const ReadChunk read = [file](char* to, size_t size) {
    const auto bytes = static_cast<size_t>(std::min<uint64_t>(size, file->left()));
    file->Read(to, bytes);
    return bytes;
  };
  CsvReader reader(read, {options.file, options.delimiter});
  std::vector<CsvCell> cells;
  if (!reader.Next(&cells)) ThrowInvalid(options.file + ": no rows");
  return cells;
}

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
  for (const auto& own : {layout.ids, layout.sequences, layout.texts})
    for (const size_t i : own) layout.used[i] = false;
  for (size_t i = 0; i < count; ++i) {
    const size_t words = layout.columns[i].categories.size();
    if (layout.used[i]) layout.features += words > 0 ? static_cast<int64_t>(words) : 1;
  }
  return layout;
}

int64_t WordIn(const CsvColumn& column, const std::string& cell) {
  const auto& words = column.categories;
  const auto found = std::find(words.begin(), words.end(), cell);
  if (found != words.end()) return found - words.begin();
  ThrowInvalid(fmt::format("{} is not one of the categories of {}{}", Quote(cell, 40),
                           Quote(column.name), DidYouMean(cell, words)));
}

// Refuses nan: otherwise the loss would become nan much later, without a hint at the cell.
float NumberIn(const std::string& cell, std::optional<float> fill) {
  if (cell.empty()) {
    if (fill) return *fill;
    ThrowInvalid("empty cell; give fill a value to use instead");
  }
  double value = 0;
  if (!ParseNumber(cell, &value)) ThrowInvalid(fmt::format("{} is not a number", Quote(cell, 40)));
  if (!(std::abs(value) <= static_cast<double>(std::numeric_limits<float>::max())))
    ThrowInvalid(fmt::format("{} is not a finite float32", Quote(cell, 40)));
  return static_cast<float>(value);
}

void AppendToData(const CsvColumn& column, const std::string& cell, std::vector<float>* data) {
  if (column.categories.empty()) {
    const float number = NumberIn(cell, column.fill);
    const float value = (number - *column.mean) * *column.scale;
    if (std::isfinite(number) && !std::isfinite(value)) {
      ThrowInvalid(fmt::format("float32 cannot hold ({} - {:g}) * {:g}", Quote(cell, 40),
                               *column.mean, *column.scale));
    }
    data->push_back(value);
    return;
  }
  const size_t first = data->size();
  data->resize(first + column.categories.size(), 0);
  (*data)[first + static_cast<size_t>(WordIn(column, cell))] = 1;
}

std::vector<int64_t> SequenceIn(const CsvColumn& column, const std::string& cell) {
  constexpr const char* kBlanks = " \t";
  std::vector<int64_t> values;
  size_t end = 0;
  for (size_t at = cell.find_first_not_of(kBlanks); at != std::string::npos;
       at = cell.find_first_not_of(kBlanks, end)) {
    end = std::min(cell.find_first_of(kBlanks, at), cell.size());
    const std::string item = cell.substr(at, end - at);
    int64_t value = 0;
    if (!column.categories.empty())
      value = WordIn(column, item);
    else if (!ParseInt64(WithoutPlus(item), &value))
      ThrowInvalid(fmt::format("{} is not an integer", Quote(item, 40)));
    values.push_back(value);
  }
  return values;
}

bool ParseWholeNumber(std::string_view cell, int64_t* value) {
  const std::string_view text = WithoutPlus(Trim(cell));
  if (ParseInt64(text, value)) return true;
  double number = 0;
  if (!ParseNumber(text, &number) || std::trunc(number) != number || std::abs(number) > 0x1p53)
    return false;
  *value = static_cast<int64_t>(number);
  return true;
}

int64_t ClassOfLabel(const std::vector<std::string>& classes, std::string_view cell) {
  int64_t value = 0;
  if (classes.empty()) {
    if (ParseWholeNumber(cell, &value)) return value;
    ThrowInvalid(
        fmt::format("label {} is not an integer; name the classes, or say that labels are real",
                    Quote(cell, 40)));
  }
  const auto found = std::find(classes.begin(), classes.end(), cell);
  if (found == classes.end())
    ThrowInvalid(fmt::format("label {} is not one of the classes{}", Quote(cell, 40),
                             DidYouMean(cell, classes)));
  return found - classes.begin();
}

double NumberOfLabel(std::string_view cell) {
  double value = 0;
  if (ParseNumber(Trim(cell), &value) && std::isfinite(value)) return value;
  ThrowInvalid(fmt::format("label {} is not a finite number", Quote(cell, 40)));
}

}  // namespace coracle::inline internal
