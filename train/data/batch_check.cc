#include <coracle/framework/base/text.h>
#include <coracle/train/data/batch_check.h>
#include <fmt/format.h>

namespace coracle::inline internal {

void RequireSource(const DataSourcePtr& source, std::string_view who) {
  if (!source) ThrowInvalid(fmt::format("{} was given no data source: the pointer is null", who));
}

void CheckBatch(const DataSource& source, std::span<const int64_t> rows,
                std::span<const Tensor> out) {
  const std::vector<DataColumn>& columns = source.columns();
  for (const int64_t row : rows) {
    if (row >= 0 && row < source.size()) continue;
    throw Error(ErrorCode::kOutOfRange, fmt::format("row {} requested from {}, which has {}", row,
                                                    source.Describe(), source.size()));
  }
  if (out.size() != columns.size()) {
    ThrowInvalid(fmt::format("a batch of {} needs a tensor for each of its {} columns, got {}",
                             source.Describe(), columns.size(), out.size()));
  }
  for (size_t c = 0; c < columns.size(); ++c) {
    if (columns[c].sequences) continue;  // Get sets their size
    const auto needed = static_cast<int64_t>(rows.size()) * columns[c].shape.numel();
    if (out[c].dtype() == columns[c].dtype && out[c].numel() >= needed) continue;
    ThrowInvalid(fmt::format("a batch of {} needs {} elements of {} for its column {}, got {}",
                             source.Describe(), needed, ToString(columns[c].dtype),
                             Quote(columns[c].name), out[c].ToString()));
  }
}

}  // namespace coracle::inline internal
