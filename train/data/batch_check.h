#pragma once
// Checks of arguments that all data sources share.

#include <coracle/train/data/data_source.h>

#include <span>
#include <string_view>

namespace coracle::inline internal {

// Throws kInvalidArgument for a null source. `who` names the caller in the message.
void RequireSource(const DataSourcePtr& source, std::string_view who);
// Throws kOutOfRange for a row number outside the source. Throws kInvalidArgument unless there is
// one tensor for each column, of its dtype and with room for the rows. Columns of sequences may
// have any size.
void CheckBatch(const DataSource& source, std::span<const int64_t> rows,
                std::span<const Tensor> out);

}  // namespace coracle::inline internal
