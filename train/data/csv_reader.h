#pragma once
// Splits csv text into rows of cells. The text may come in chunks, so that memory does not grow
// with the file, and a row is complete as soon as its line end has come.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace coracle::inline internal {

struct CsvCell {
  std::string text;    // unquoted, or without the white space at both ends
  int64_t column = 1;  // where the cell begins in its line, from 1
};

struct CsvFormat {
  std::string file = "csv";  // only for errors
  char delimiter = ',';
  uint64_t max_row_bytes = uint64_t{1} << 34;  // larger rows are errors
};

// Reads up to `size` bytes into `buffer`; returns their number, and 0 at the end of the text.
using ReadChunk = std::function<size_t(char* buffer, size_t size)>;

class CsvReader {
 public:
  // `text` must outlive the reader.
  CsvReader(std::string_view text, CsvFormat format);
  CsvReader(ReadChunk read, CsvFormat format);
  CsvReader(const CsvReader&) = delete;
  CsvReader& operator=(const CsvReader&) = delete;

  // Reads the next line that is not empty; returns false at the end. Throws kInvalidArgument with
  // file, line and column for an unclosed quote, for text after a closing quote, and for a row that
  // is too large; SkipRow then moves on.
  bool Next(std::vector<CsvCell>* cells);
  // Moves to the end of the row in which Next failed: to a line end outside of quotes. Does nothing
  // if Next did not fail. If a quote is open up to the end of the text, the following Next fails.
  void SkipRow();

  int64_t line() const { return line_; }  // the line where the row begins
  // "FILE:LINE:COLUMN"
  std::string Place(int64_t column) const;
  [[noreturn]] void Fail(int64_t column, const std::string& what) const;

 private:
  bool AtEnd() { return pos_ >= chunk_.size() && !Refill(); }
  bool Refill();
  void SkipMark();
  bool SkipLineEnd();
  bool EndsCell(char c) const { return c == format_.delimiter || c == '\n' || c == '\r'; }
  bool AtCellEnd() { return AtEnd() || EndsCell(chunk_[pos_]); }
  int64_t ColumnHere() const;
  void ReadLine(std::vector<CsvCell>* cells);
  void ReadCell(CsvCell* cell);
  void ReadQuoted(CsvCell* cell);
  void CheckSize() const;

  CsvFormat format_;
  ReadChunk read_;            // null: there is only one chunk
  std::vector<char> buffer_;  // holds the chunk if it was read
  std::string_view chunk_;
  uint64_t before_ = 0;  // bytes of the chunks before this one
  size_t pos_ = 0;       // in the chunk
  uint64_t line_begin_ = 0;
  int64_t line_ = 0;
  int64_t lines_in_cells_ = 0;  // line ends within quotes in this row
  bool in_row_ = false;         // Next failed within a row
  bool in_quotes_ = false;      // and within a quoted cell
  bool unclosed_ = false;       // SkipRow reached the end of the text within quotes
};

}  // namespace coracle::inline internal
