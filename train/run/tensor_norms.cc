#include <coracle/framework/tensor/complex.h>
#include <coracle/operators/kernels/norm_of.h>
#include <coracle/train/run/tensor_norms.h>

#include <algorithm>
#include <cmath>

namespace coracle::inline internal {
namespace {

// std::max would lose a nan.
double Larger(double a, double b) { return b > a || std::isnan(b) ? b : a; }

}  // namespace

TensorNorms NormsOf(const Tensor& tensor) {
  TensorNorms norms;
  const Tensor wide = tensor.Cast(DType::kComplex128);
  for (const complex128& v : wide.span<complex128>()) {
    const double size = std::abs(v);
    norms.mean_abs += size;
    norms.max_abs = Larger(norms.max_abs, size);
  }
  norms.l2 = NormOf(2, [&](const auto& f) {
    for (const complex128& v : wide.span<complex128>()) f(std::abs(v));
  });
  norms.mean_abs /= static_cast<double>(std::max<int64_t>(tensor.numel(), 1));
  return norms;
}

}  // namespace coracle::inline internal
