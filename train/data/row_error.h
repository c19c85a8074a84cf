#pragma once
// Adds the row of the data to errors about labels, ids and other values.

#include <coracle/framework/base/error.h>
#include <coracle/train/data/data_source.h>

#include <string>
#include <vector>

namespace coracle::inline internal {

// A row of a batch that cannot be fed.
struct BadRow : Error {
  BadRow(const std::string& message, size_t in_column, int64_t in_row)
      : Error(ErrorCode::kInvalidArgument, message), column(in_column), row(in_row) {}

  size_t column;  // index of the batch's column
  int64_t row;    // row of this rank's batch
};

// "iris.csv:9, column 'label'"; the row is in the reader's last batch.
std::string PlaceOf(const BadRow& bad, const BatchReader& reader);
// Adds the row and column that hold the bad index to `error`, which a run on the reader's last
// batch threw. They become a prefix of the message if it is certain that the op read this row, else
// a detail.
Error WithRow(const Error& error, const BatchReader& reader, const std::vector<Tensor>& batch);

// Runs f and adds the row to errors about indices out of range and about rows that cannot be fed.
template <class F>
decltype(auto) NameRowsInErrors(const BatchReader& reader, const std::vector<Tensor>& batch, F f) {
  try {
    return f();
  } catch (const BadRow& bad) {
    throw bad.WithPrefix(PlaceOf(bad, reader));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfRange) throw;
    throw WithRow(error, reader, batch);
  }
}

}  // namespace coracle::inline internal
