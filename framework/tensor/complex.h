#pragma once
// Complex elements: traits for templates over element types, and real and imaginary parts.

#include <coracle/framework/tensor/tensor.h>

#include <complex>

namespace coracle::inline internal {

// The real part, then the imaginary part.
using complex64 = std::complex<float>;
using complex128 = std::complex<double>;

// Like DispatchDType, with complex types and uint64 too.
template <class F>
decltype(auto) DispatchAnyDType(DType dtype, F&& f) {
  if (dtype == DType::kComplex64) return f.template operator()<complex64>();
  if (dtype == DType::kComplex128) return f.template operator()<complex128>();
  if (dtype == DType::kUInt64) return f.template operator()<uint64_t>();
  return DispatchDType(dtype, std::forward<F>(f));
}

template <class T>
inline constexpr bool kIsComplex = false;
template <class R>
inline constexpr bool kIsComplex<std::complex<R>> = true;

template <class T>
struct RealPart {
  using type = T;
};
template <class R>
struct RealPart<std::complex<R>> {
  using type = R;
};
// The type of the parts of a complex T, or T itself.
template <class T>
using RealType = typename RealPart<T>::type;

// The conjugate; a real number is its own.
template <class T>
T Conj(T value) {
  if constexpr (kIsComplex<T>)
    return T(value.real(), -value.imag());
  else
    return value;
}

// A view of complex elements as real numbers, with a last dim of 2 for the parts; a real tensor is
// returned unchanged.
inline Tensor PartsOf(const Tensor& tensor) {
  if (!IsComplex(tensor.dtype())) return tensor;
  return Tensor::View(RealOf(tensor.dtype()), {tensor.numel(), 2}, const_cast<void*>(tensor.raw()));
}

}  // namespace coracle::inline internal
