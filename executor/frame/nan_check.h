#pragma once
// Searches for values that are not finite. Internal to executor/.

#include <coracle/framework/tensor/tensor.h>

#include <cstdint>

namespace coracle::inline internal {

// Index of the first nan or inf among `numel` elements; -1 if there is none (as always
// for integers).
int64_t FindNonFinite(const void* data, DType dtype, int64_t numel);

}  // namespace coracle::inline internal
