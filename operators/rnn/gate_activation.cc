#include <coracle/framework/base/error.h>
#include <coracle/operators/activation/activation_formulas.h>
#include <coracle/operators/kernels/simd.h>
#include <coracle/operators/rnn/gate_activation.h>

#include <algorithm>
#include <cmath>

namespace coracle::inline internal {
namespace {

simd::UnaryLoop SimdLoop(GateActivation kind) {
  static const simd::UnaryLoop sigmoid = simd::FindUnary(simd::Unary::kSigmoid);
  static const simd::UnaryLoop tanh = simd::FindUnary(simd::Unary::kTanh);
  static const simd::UnaryLoop relu = simd::FindUnary(simd::Unary::kRelu);
  return kind == GateActivation::kSigmoid ? sigmoid : kind == GateActivation::kTanh ? tanh : relu;
}

}  // namespace

const std::vector<std::string>& GateActivationNames() {
  static const std::vector<std::string> names = {"identity", "sigmoid", "tanh", "relu"};
  return names;
}

GateActivation GateActivationOf(const std::string& name) {
  const std::vector<std::string>& names = GateActivationNames();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) throw InternalError("no activation of gates: " + name);
  return static_cast<GateActivation>(found - names.begin());
}

template <class T>
void GateFunction<T>::operator()(T* x, int64_t n) const {
  if (kind_ == GateActivation::kIdentity) return;
  if constexpr (std::is_same_v<T, float>) {
    if (mode_ == KernelMode::kAuto) return SimdLoop(kind_)(x, x, n, {});
  }
  for (int64_t k = 0; k < n; ++k) {
    if (kind_ == GateActivation::kSigmoid)
      x[k] = activation::SigmoidOf(x[k]);
    else if (kind_ == GateActivation::kTanh)
      x[k] = std::tanh(x[k]);
    else
      x[k] = x[k] < 0 ? T(0) : x[k];
  }
}

template <class T>
void GateFunction<T>::Backward(const T* out, T* grad, int64_t n) const {
  switch (kind_) {
    case GateActivation::kIdentity:
      return;
    case GateActivation::kSigmoid:
      for (int64_t k = 0; k < n; ++k) grad[k] *= out[k] * (1 - out[k]);
      return;
    case GateActivation::kTanh:
      for (int64_t k = 0; k < n; ++k) grad[k] *= 1 - out[k] * out[k];
      return;
    case GateActivation::kRelu:
      for (int64_t k = 0; k < n; ++k) grad[k] = out[k] <= 0 ? T(0) : grad[k];
      return;
  }
}

template class GateFunction<float>;
template class GateFunction<double>;

}  // namespace coracle::inline internal
