#include <coracle/framework/base/text.h>
#include <coracle/train/data/row_error.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>

namespace coracle::inline internal {
namespace {

struct BadIndex {
  long long value = 0, at = 0;  // the element `at` of the op's input holds `value`
};

// Parses the messages of ThrowLabel, of ThrowIndexRange and of a metric.
std::optional<BadIndex> FindBadIndex(const std::string& message) {
  BadIndex bad;
  const auto scan = [&message](const char* word, const char* format, long long* a, long long* b) {
    for (size_t at = message.find(word); at != std::string::npos; at = message.find(word, at + 1))
      if (std::sscanf(message.c_str() + at, format, a, b) == 2) return true;  // NOLINT: checked
    return false;
  };
  if (scan("label ", "label %lld at index %lld", &bad.value, &bad.at) ||
      scan("holds ", "holds %lld at %lld", &bad.value, &bad.at) ||
      scan("[", "[%lld] is %lld", &bad.at, &bad.value)) {
    return bad;
  }
  return std::nullopt;
}

// The element of a column that holds the value; prefers the element at bad.at.
std::optional<int64_t> Find(const Tensor& column, const BadIndex& bad) {
  if (!IsInteger(column.dtype())) return std::nullopt;
  const Tensor wide = column.Cast(DType::kInt64);
  const auto values = wide.span<int64_t>();
  const bool there =
      bad.at >= 0 && bad.at < column.numel() && values[static_cast<size_t>(bad.at)] == bad.value;
  if (there) return bad.at;
  const auto found = std::find(values.begin(), values.end(), bad.value);
  if (found == values.end()) return std::nullopt;
  return found - values.begin();
}

// The row of the batch that an element belongs to.
int64_t RowAt(const Tensor& column, int64_t element) {
  const int64_t part = element / (column.numel() / column.shape()[0]);
  if (column.lod().empty()) return part;
  const std::vector<uint64_t>& offsets = column.lod()[0];
  const auto end = std::upper_bound(offsets.begin(), offsets.end(), static_cast<uint64_t>(part));
  return end - offsets.begin() - 1;
}

}  // namespace

std::string PlaceOf(const BadRow& bad, const BatchReader& reader) {
  return fmt::format("{}, column {}", reader.PlaceOf(bad.row),
                     Quote(reader.columns()[bad.column].name));
}

Error WithRow(const Error& error, const BatchReader& reader, const std::vector<Tensor>& batch) {
  const std::optional<BadIndex> bad = FindBadIndex(error.message());
  std::vector<std::string> there, elsewhere;
  for (size_t c = 0; bad && c < batch.size(); ++c) {
    const std::optional<int64_t> element = Find(batch[c], *bad);
    if (!element) continue;
    const int64_t row = RowAt(batch[c], *element);
    (*element == bad->at ? there : elsewhere)
        .push_back(fmt::format("{}, holds {}", PlaceOf(BadRow(error.message(), c, row), reader),
                               bad->value));
  }
  if (there.size() == 1) return error.WithPrefix(there[0]);
  // The op may read any of these columns.
  if (there.size() > 1) return error.WithDetail("one of these: " + Join(there, "; "));
  return elsewhere.empty() ? error : error.WithDetail(elsewhere[0]);
}

}  // namespace coracle::inline internal
