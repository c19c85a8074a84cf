#pragma once
// How the columns of a csv file are used, and the values of its cells.

#include <coracle/train/data/csv_reader.h>
#include <coracle/train/data/data_source.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace coracle::inline internal {

// How the columns of a file are used.
struct CsvLayout {
  std::vector<CsvColumn> columns;  // the settings of each; those of the file are filled in
  std::vector<bool> used;          // in the data
  std::vector<size_t> ids, sequences, texts;  // columns of their own, in the order of the options
  size_t label = 0;
  int64_t features = 0;  // values of a row of the data
};

// `names` are the names in the header; empty without one. `count` is the number of columns. Throws
// for a column that the file does not have, and for settings that contradict each other.
CsvLayout LayoutOf(const CsvOptions& options, const std::vector<std::string>& names, size_t count);

// The cells of the file's first row: its header, or a row. Throws for an empty file.
std::vector<CsvCell> ReadFirstRow(const CsvOptions& options);

// The column of that name, or number if no name matches. Throws kNotFound, and kInvalidArgument if
// two columns have the name.
size_t FindColumn(const CsvOptions& options, const std::vector<std::string>& names,
                  const std::string& name, size_t count);

// --- values of cells; errors do not say where the cell is: AtCell adds the place ---

// Appends the values of a cell of the data: a number, or one value per category.
void AppendToData(const CsvColumn& column, const std::string& cell, std::vector<float>* data);
// A finite float32; `fill` replaces an empty cell.
float NumberIn(const std::string& cell, std::optional<float> fill);
// The index of the cell among the categories.
int64_t WordIn(const CsvColumn& column, const std::string& cell);
// The integers or words of a cell, separated by blanks. An empty cell has none.
std::vector<int64_t> SequenceIn(const CsvColumn& column, const std::string& cell);
// --- labels: training, `coracle test` and `coracle report` read them by these functions ---

// A whole number: "7", "+7", "07", "7.0", with blanks around it. false for anything else.
bool ParseWholeNumber(std::string_view cell, int64_t* value);
// The index of the name among the classes; without classes, the whole number.
int64_t ClassOfLabel(const std::vector<std::string>& classes, std::string_view cell);
// A finite number.
double NumberOfLabel(std::string_view cell);

// Runs f(text) and adds the cell's place to its errors.
template <class F>
decltype(auto) AtCell(const CsvReader& reader, const CsvCell& cell, F f) {
  try {
    return f(cell.text);
  } catch (const Error& e) {
    throw e.WithPrefix(reader.Place(cell.column));
  }
}

}  // namespace coracle::inline internal
