#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <fmt/format.h>

namespace coracle::inline internal {
namespace {

[[noreturn]] void ThrowTooLarge(int64_t a, char sign, int64_t b) {
  throw OutOfMemory(fmt::format("{} {} {} passes the range of 64-bit integers", a, sign, b));
}

}  // namespace

int64_t CheckedAdd(int64_t a, int64_t b) {
  int64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) ThrowTooLarge(a, '+', b);
  return sum;
}

int64_t CheckedMul(int64_t a, int64_t b) {
  int64_t product;
  if (__builtin_mul_overflow(a, b, &product)) ThrowTooLarge(a, '*', b);
  return product;
}

}  // namespace coracle::inline internal
