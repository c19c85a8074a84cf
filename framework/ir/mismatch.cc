#include <coracle/framework/ir/mismatch.h>
#include <fmt/format.h>

namespace coracle::inline internal {

std::string DescribeMismatch(const VarMeta& wanted, const VarMeta& got) {
  const bool dtype = wanted.dtype != got.dtype, shape = !wanted.shape.CompatibleWith(got.shape);
  if (wanted.type == got.type && dtype && !shape)
    return fmt::format("must have the dtype {}, got {}", ToString(wanted.dtype),
                       ToString(got.dtype));
  if (wanted.type == got.type && shape && !dtype) {
    return fmt::format("must have the shape {}, got {}", wanted.shape.ToString(),
                       got.shape.ToString());
  }
  return fmt::format("must be {}, got {}", wanted.ToString(), got.ToString());
}

}  // namespace coracle::inline internal
