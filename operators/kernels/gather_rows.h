#pragma once
// Rows of bytes, copied by index.

#include <cstdint>
#include <cstring>

namespace coracle::inline internal {

namespace detail {

template <size_t kBytes, class RowOf>
void GatherShortRows(const char* from, char* to, int64_t begin, int64_t end, RowOf&& row_of) {
  constexpr auto kStep = static_cast<int64_t>(kBytes);
  for (int64_t i = begin; i < end; ++i)
    std::memcpy(to + i * kStep, from + row_of(i) * kStep, kBytes);
}

}  // namespace detail

// Row i of `to` = row row_of(i) of `from`, for i in [begin, end). row_of may throw.
template <class RowOf>
void GatherRows(const char* from, char* to, int64_t begin, int64_t end, int64_t bytes,
                RowOf&& row_of) {
  switch (bytes) {
    case 1:
      return detail::GatherShortRows<1>(from, to, begin, end, row_of);
    case 2:
      return detail::GatherShortRows<2>(from, to, begin, end, row_of);
    case 4:
      return detail::GatherShortRows<4>(from, to, begin, end, row_of);
    case 8:
      return detail::GatherShortRows<8>(from, to, begin, end, row_of);
    case 16:
      return detail::GatherShortRows<16>(from, to, begin, end, row_of);
    case 32:
      return detail::GatherShortRows<32>(from, to, begin, end, row_of);
    default:
      break;
  }
  for (int64_t i = begin; i < end; ++i)
    std::memcpy(to + i * bytes, from + row_of(i) * bytes, static_cast<size_t>(bytes));
}

}  // namespace coracle::inline internal
