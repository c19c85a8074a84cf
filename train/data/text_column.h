#pragma once
// Columns of text in a csv file: cells become numbers of words, characters or byte pairs.

#include <coracle/train/data/data_source.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace coracle::inline internal {

// The words or characters of a cell, but no byte pairs. Throws kInvalidArgument for text that is
// not UTF-8.
std::vector<std::string> TokensOf(const CsvColumn& column, std::string_view cell);
// The ids of a cell; the column must have a list. They are cut off at column.length, if it is set,
// but not padded.
std::vector<int64_t> TextIdsOf(const CsvColumn& column, std::string_view cell);
// The number that fills texts up to column.length.
int64_t PaddingOf(const CsvColumn& column);
// The name of the column of ids in the data.
const std::string& NameOfIds(const CsvColumn& column);

// The cells of a column of text, row by row.
class TextRows {
 public:
  // Reads the vocabulary if the column names a file.
  explicit TextRows(const CsvColumn& column);

  void Add(std::string_view cell);
  // Makes the list of words of the chosen rows unless there is one, and returns the columns of ids
  // and of lengths. `file` names the data in errors.
  std::vector<MemoryColumn> Finish(const std::vector<int64_t>& rows, const std::string& file);
  // Gives a column of the same kind the words, or the byte pairs, that these rows use.
  void SetVocabulary(CsvColumn* column) const;

 private:
  const TextColumnOptions& options() const { return *column_.text(); }
  void MakeList(const std::vector<int64_t>& rows, const std::string& file);

  CsvColumn column_;
  std::shared_ptr<const WordList> list_;
  // The words of all rows, numbered in the order in which they come.
  std::map<std::string, int64_t, std::less<>> numbers_;
  std::vector<int64_t> values_;
  std::vector<uint64_t> offsets_ = {0};
};

}  // namespace coracle::inline internal
