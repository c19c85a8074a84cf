#include <coracle/operators/quantize/quantized.h>
#include <coracle/operators/quantize/signed_filter.h>

#include <algorithm>
#include <cstdlib>

namespace coracle::inline internal {
namespace {

bool AllFit(const Tensor& q, int64_t begin, int64_t n, int32_t zero) {
  for (int64_t i = begin; i < begin + n; ++i) {
    const int32_t v = IntegerAt(q.dtype(), q.raw(), i) - zero;
    if (v < -128 || v > 127) return false;
  }
  return true;
}

}  // namespace

SignedRows::SignedRows(const Tensor& q, const std::vector<int32_t>& zeros, int64_t num_rows)
    : values(DType::kInt8, q.shape()),
      rest(static_cast<size_t>(num_rows)),
      sums(static_cast<size_t>(num_rows)),
      row(num_rows > 0 ? q.numel() / num_rows : 0) {
  const int32_t middle = q.dtype() == DType::kUInt8 ? 128 : 0;
  auto* out = values.data<int8_t>();
  for (int64_t m = 0; m < num_rows; ++m) {
    const auto at = static_cast<size_t>(m);
    const int32_t zero = zeros.empty() ? 0 : zeros[zeros.size() == 1 ? 0 : at];
    const int32_t shift = AllFit(q, m * row, row, zero) ? zero : middle;
    int64_t of_row = 0;
    rest[at] = zero - shift;
    for (int64_t i = m * row; i < (m + 1) * row; ++i) {
      const int32_t v = IntegerAt(q.dtype(), q.raw(), i) - shift;
      out[i] = static_cast<int8_t>(v);
      sums[at] += v;
      of_row += std::abs(v);
      largest = std::max(largest, std::abs(v));
    }
    largest_sum = std::max(largest_sum, of_row);
  }
}

bool SignedRows::has_rest() const {
  return std::any_of(rest.begin(), rest.end(), [](int32_t r) { return r != 0; });
}

}  // namespace coracle::inline internal
