#pragma once
// Errors about labels and ids, told with the row of the data that holds them.

#include <coracle/framework/base/error.h>
#include <coracle/train/data/data_source.h>

#include <vector>

namespace coracle {

// `error`, which a run on the reader's last batch has thrown. The row and the column that hold the
// index stand in front; where it is not certain that the op read it from there, below.
Error WithRow(const Error& error, const BatchReader& reader, const std::vector<Tensor>& batch);

// f(), with the row in its errors about indices out of range.
template <class F>
decltype(auto) NamingRows(const BatchReader& reader, const std::vector<Tensor>& batch, F f) {
  try {
    return f();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfRange) throw;
    throw WithRow(error, reader, batch);
  }
}

}  // namespace coracle
