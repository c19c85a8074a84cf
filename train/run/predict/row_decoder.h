#pragma once
// RowDecoder: makes of raw rows (cells, pictures, texts) the columns of a batch, in the same way as
// the data source of the job that trained the model.

#include <coracle/framework/base/error.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/job/preprocess.h>

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace coracle::inline internal {

// A raw cell that cannot be decoded.
struct CellError : Error {
  CellError(const Error& error, size_t in_column) : Error(error), column(in_column) {}
  size_t column;  // index in RawCsv::columns
};

// A decoded row: the elements of each column of RowDecoder::columns().
using ColumnValues = std::variant<std::vector<float>, std::vector<int64_t>, std::vector<double>,
                                  std::vector<int32_t>, std::vector<uint8_t>>;
using DecodedRow = std::vector<ColumnValues>;

// Immutable: any number of threads may use it.
class RowDecoder {
 public:
  explicit RowDecoder(PreprocessConfig config);

  const PreprocessConfig& config() const { return config_; }
  // The columns of a batch. The length of texts is -1: see ColumnsOf.
  const std::vector<DataColumn>& columns() const { return columns_; }

  // `cells` are those of RawCsv::columns, in this order. Throws CellError.
  DecodedRow DecodeCells(std::span<const std::string_view> cells) const;
  // `picture` is uint8 [C, H, W] or [H, W]. Throws kInvalidArgument for another dtype or size.
  DecodedRow DecodePicture(const Tensor& picture) const;
  // `arrays` are a row of each of config().arrays; a sequence has its length as first dimension.
  // Throws kInvalidArgument for another dtype or shape.
  DecodedRow DecodeArrays(std::span<const Tensor> arrays) const;
  // Throws kInvalidArgument for an unknown character, an empty text and bytes that are not UTF-8.
  DecodedRow DecodeText(std::string_view text) const;

  // The name of a raw column in requests: its name or, without a header, its number.
  std::string NameOf(size_t column) const;

  // Whether rows can be in one batch: texts must have the same length.
  bool Together(const DecodedRow& a, const DecodedRow& b) const;
  // Joins decoded rows to a batch: a tensor per column. Sequences get their LoD.
  std::vector<Tensor> Batch(std::span<const DecodedRow> rows) const;
  // The columns of a batch of such rows.
  std::vector<DataColumn> ColumnsOf(const DecodedRow& row) const;

 private:
  void AddCsvColumns(const RawCsv& csv);
  static void AppendOwn(const CsvColumn& column, const std::string& cell, DecodedRow* row);
  void AddArrayColumns();
  void SetTables(const RawPicture& picture);

  PreprocessConfig config_;
  std::vector<DataColumn> columns_;
  std::vector<size_t> data_, ids_, sequences_, texts_;  // indices in RawCsv::columns
  std::map<std::string, int64_t, std::less<>> characters_;
  // Of each channel: the value of each byte, before the transform.
  std::vector<std::array<float, 256>> bytes_;
  std::vector<float> mean_;  // of the transform, [C, H, W]
};

}  // namespace coracle::inline internal
