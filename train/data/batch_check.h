#pragma once
// What every source of data requires of its callers.

#include <coracle/train/data/data_source.h>

#include <span>
#include <string_view>

namespace coracle {

// Throws kInvalidArgument for a null source; `who` reads from it.
void RequireSource(const DataSourcePtr& source, std::string_view who);
// Throws kOutOfRange for a row that the source does not have, and kInvalidArgument unless there is
// a tensor for each column, of its dtype and with room for the rows (whatever its size where the
// column has sequences).
void CheckBatch(const DataSource& source, std::span<const int64_t> rows,
                std::span<const Tensor> out);

}  // namespace coracle
