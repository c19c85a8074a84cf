#pragma once
// Errors about labels, ids and other data, told with the row of the data that holds them.

#include <coracle/framework/base/error.h>
#include <coracle/train/data/data_source.h>

#include <string>
#include <vector>

namespace coracle {

// A row of a batch that cannot be fed.
struct BadRow : Error {
  BadRow(const std::string& message, size_t in_column, int64_t in_row)
      : Error(ErrorCode::kInvalidArgument, message), column(in_column), row(in_row) {}

  size_t column;  // of the batch's
  int64_t row;    // of the batch as this rank has it
};

// "iris.csv:9, column 'label'", of the reader's last batch.
std::string PlaceOf(const BadRow& bad, const BatchReader& reader);
// `error`, which a run on the reader's last batch has thrown. The row and the column that hold the
// index stand in front; where it is not certain that the op read it from there, below.
Error WithRow(const Error& error, const BatchReader& reader, const std::vector<Tensor>& batch);

// f(), with the row in its errors about indices out of range and about rows that cannot be fed.
template <class F>
decltype(auto) NamingRows(const BatchReader& reader, const std::vector<Tensor>& batch, F f) {
  try {
    return f();
  } catch (const BadRow& bad) {
    throw bad.WithPrefix(PlaceOf(bad, reader));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfRange) throw;
    throw WithRow(error, reader, batch);
  }
}

}  // namespace coracle
