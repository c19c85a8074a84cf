#include <coracle/executor/frame/nan_check.h>

#include <cmath>

namespace coracle::inline internal {

int64_t FindNonFinite(const void* data, DType dtype, int64_t numel) {
  if (IsComplex(dtype)) {
    const int64_t part = FindNonFinite(data, RealOf(dtype), 2 * numel);
    return part < 0 ? -1 : part / 2;
  }
  if (!IsFloating(dtype)) return -1;
  return DispatchDType(dtype, [&]<class T>() -> int64_t {
    const T* values = static_cast<const T*>(data);
    for (int64_t i = 0; i < numel; ++i) {
      if (!std::isfinite(static_cast<double>(values[i]))) return i;
    }
    return -1;
  });
}

}  // namespace coracle::inline internal
