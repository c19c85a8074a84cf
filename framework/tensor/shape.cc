#include <coracle/framework/base/error.h>
#include <coracle/framework/base/required.h>
#include <coracle/framework/tensor/tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace coracle {

Shape::Shape(std::initializer_list<int64_t> dims)
    : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const int64_t> dims) {
  if (dims.size() > kMaxRank) {
    ThrowInvalid(
        fmt::format("a shape of rank {} exceeds the highest rank {}", dims.size(), kMaxRank));
  }
  std::copy(dims.begin(), dims.end(), dims_);
  rank_ = static_cast<int>(dims.size());
}

void Shape::Append(int64_t dim) {
  if (rank_ == kMaxRank) ThrowInvalid(fmt::format("a shape's rank would exceed {}", kMaxRank));
  dims_[rank_++] = dim;
}

bool Shape::IsKnown() const {
  return std::all_of(begin(), end(), [](int64_t d) { return d >= 0; });
}

bool Shape::HasTooManyElements() const {
  const int64_t most = std::find(begin(), end(), 0) == end() ? kMaxElements : kMaxEmpty;
  int64_t product = 1;
  return std::any_of(begin(), end(), [&](int64_t d) {
    return d > 0 && (__builtin_mul_overflow(product, d, &product) || product > most);
  });
}

int64_t Shape::numel() const {
  if (!IsKnown()) {
    throw Error(ErrorCode::kOutOfRange,
                fmt::format("shape {} has an unknown dimension", ToString()));
  }
  if (HasTooManyElements())
    throw Error(ErrorCode::kOutOfRange, fmt::format("shape {} has too many elements", ToString()));
  return Product(0, rank_);
}

int64_t Shape::Product(int first, int last) const {
  int64_t product = 1;
  for (int i = first; i < last; ++i) product *= dims_[i];
  return product;
}

bool Shape::NormalizeAxis(int64_t axis, int* normalized) const {
  if (axis < -rank_ || axis >= rank_) return false;
  Required(normalized, "the result of NormalizeAxis") =
      static_cast<int>(axis < 0 ? axis + rank_ : axis);
  return true;
}

bool Shape::operator==(const Shape& other) const {
  return std::equal(begin(), end(), other.begin(), other.end());
}

bool Shape::CompatibleWith(const Shape& other) const {
  return std::equal(begin(), end(), other.begin(), other.end(),
                    [](int64_t a, int64_t b) { return a == b || a < 0 || b < 0; });
}

std::string Shape::ToString() const { return fmt::format("[{}]", fmt::join(begin(), end(), ", ")); }

}  // namespace coracle
