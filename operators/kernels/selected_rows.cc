#include <coracle/framework/base/text.h>
#include <coracle/operators/kernels/selected_rows.h>
#include <fmt/format.h>

#include <array>
#include <bit>

namespace coracle::inline internal {
namespace {

Shape WithRows(const Shape& shape, int64_t count) {
  Shape result = shape;
  result[0] = count;
  return result;
}

[[noreturn]] void ThrowRowRange(const std::string& what, size_t at, int64_t row, int64_t height) {
  throw Error(ErrorCode::kOutOfRange,
              fmt::format("{} holds the row {} at {}, outside [0, {})", what, row, at, height));
}

// Memory for n numbers in element i of the op's own array.
int64_t* Numbers(TensorArray& array, size_t i, int64_t n) {
  return array.Write(i, DType::kInt64, {n}).data<int64_t>();
}

constexpr int kDigitBits = 11;
constexpr size_t kDigits = size_t{1} << kDigitBits;
constexpr int kPositionBits = 32;

// Sorts keys by the `bits` bits from kPositionBits on; equal ones keep their order. `other` has the
// same size. Returns the array with the result: keys or other.
int64_t* SortByRow(int64_t* keys, int64_t* other, int64_t n, int bits) {
  for (int shift = kPositionBits; shift < kPositionBits + bits; shift += kDigitBits) {
    std::array<int64_t, kDigits> next{};
    const auto digit = [=](int64_t key) {
      return (static_cast<uint64_t>(key) >> shift) & (kDigits - 1);
    };
    for (int64_t i = 0; i < n; ++i) ++next[digit(keys[i])];
    int64_t at = 0;
    for (int64_t& count : next) at += std::exchange(count, at);
    for (int64_t i = 0; i < n; ++i) other[next[digit(keys[i])]++] = keys[i];
    std::swap(keys, other);
  }
  return keys;
}

// The positions of the rows in ascending order of the rows, with equal rows in stored order; stored
// in `order` or in memory of `array`.
const int64_t* SortPositions(std::span<const int64_t> rows, TensorArray& array, int64_t* order) {
  const int64_t n = static_cast<int64_t>(rows.size());
  int64_t largest = 0;
  bool ascending = true;
  for (size_t i = 0; i < rows.size(); ++i) {
    ascending &= rows[i] >= largest;
    largest = std::max(largest, rows[i]);
  }
  if (ascending || n >= int64_t{1} << kPositionBits || largest >= int64_t{1} << 31) {
    for (int64_t i = 0; i < n; ++i) order[i] = i;
    if (ascending) return order;
    std::sort(order, order + n, [&](int64_t a, int64_t b) {
      const int64_t x = rows[static_cast<size_t>(a)], y = rows[static_cast<size_t>(b)];
      return x != y ? x < y : a < b;
    });
    return order;
  }
  int64_t* keys = Numbers(array, 1, n);
  for (int64_t i = 0; i < n; ++i) keys[i] = rows[static_cast<size_t>(i)] << kPositionBits | i;
  const int bits = std::bit_width(static_cast<uint64_t>(largest));
  int64_t* sorted = SortByRow(keys, order, n, bits);
  for (int64_t i = 0; i < n; ++i) sorted[i] &= (int64_t{1} << kPositionBits) - 1;
  return sorted;
}

}  // namespace

RowsInput::RowsInput(const PrepareContext& ctx, const char* slot, size_t i, const Shape& like)
    : arg_(ctx.Input(slot, i)), what_(ctx.op().type() + ": " + slot) {
  for (int d = 0; d < like.rank() && d < arg_.shape.rank(); ++d) {
    if (arg_.shape[d] < 0) arg_.shape[d] = like[d];
  }
}

RowsView RowsInput::operator()(Workspace& ws) const {
  const auto* held = std::get_if<SelectedRows>(&ws.ValueOf(arg_));
  if (!held) ThrowInvalid(fmt::format("{} does not hold selected rows", what_));
  const Shape& shape = held->value.shape();
  const int64_t count = static_cast<int64_t>(held->rows.size());
  const bool fits = held->value.dtype() == arg_.dtype && shape.rank() > 0 && shape[0] == count &&
                    arg_.shape.CompatibleWith(WithRows(shape, held->height));
  if (!fits) {
    ThrowInvalid(fmt::format("{} holds {} rows of {} as {}, but the program declares {}{}", what_,
                             count, held->height, held->value.ToString(), ToString(arg_.dtype),
                             arg_.shape.ToString()));
  }
  for (size_t i = 0; i < held->rows.size(); ++i) {
    const int64_t row = held->rows[i];
    if (row < 0 || row >= held->height) ThrowRowRange(what_, i, row, held->height);
  }
  return {held->rows, held->height, shape.Product(1, shape.rank()), &held->value};
}

SelectedRows& RowsOutput::Of(Workspace& ws) const {
  VarValue& value = ws.ValueOf(arg_);
  if (!std::holds_alternative<SelectedRows>(value)) value = SelectedRows{};
  return std::get<SelectedRows>(value);
}

SelectedRows& RowsOutput::Make(Workspace& ws, int64_t count, int64_t height,
                               const Tensor& like) const {
  const Shape shape = WithRows(like.shape(), count);
  SelectedRows& out = Of(ws);
  out.height = height;
  out.rows.resize(static_cast<size_t>(count));
  out.value.Resize(arg_.dtype, shape);
  return out;
}

SelectedRows& RowsOutput::MakeSame(Workspace& ws, const RowsView& in) const {
  SelectedRows& out = Of(ws);
  if (&out.value == in.value && in.value->dtype() == arg_.dtype) return out;
  Make(ws, in.count(), in);
  std::copy(in.rows.begin(), in.rows.end(), out.rows.begin());
  return out;
}

RowGroups RowGrouper::operator()(Workspace& ws, const RowsView& rows) const {
  auto& array = std::get<TensorArray>(ws.ValueOf(scratch_));
  const int64_t n = rows.count();
  int64_t* spare = Numbers(array, 0, n);
  int64_t* distinct = Numbers(array, 2, n);
  int64_t* starts = Numbers(array, 3, n + 1);
  const int64_t* order = SortPositions(rows.rows, array, spare);
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t row = rows.rows[static_cast<size_t>(order[i])];
    if (count > 0 && distinct[count - 1] == row) continue;
    distinct[count] = row;
    starts[count++] = i;
  }
  starts[count] = n;
  return {{distinct, static_cast<size_t>(count)}, starts, order};
}

}  // namespace coracle::inline internal
