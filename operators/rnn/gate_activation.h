#pragma once
// The activations of recurrent cells, applied to pieces of rows. Arguments are not clamped. (Paddle
// clamps the arguments of sigmoid to [-40, 13], so that its gates end at 1 - 2.3e-6.)

#include <coracle/framework/op/op_def.h>

#include <cstdint>
#include <string>
#include <vector>

namespace coracle::inline internal {

enum class GateActivation {
  kIdentity,
  kSigmoid,
  kTanh,
  kRelu
};  // in the order of gru_unit's attrs

// The possible attr values: "sigmoid", "tanh", "relu", "identity".
const std::vector<std::string>& GateActivationNames();
// REQUIRES: `name` is one of them.
GateActivation GateActivationOf(const std::string& name);

template <class T>
class GateFunction {
 public:
  GateFunction() = default;
  // kAuto uses SIMD loops for float.
  GateFunction(GateActivation kind, KernelMode mode) : kind_(kind), mode_(mode) {}
  // x = f(x)
  void operator()(T* x, int64_t n) const;
  // grad *= f'(x), for out = f(x).
  void Backward(const T* out, T* grad, int64_t n) const;

 private:
  GateActivation kind_ = GateActivation::kIdentity;
  KernelMode mode_ = KernelMode::kReference;
};

extern template class GateFunction<float>;
extern template class GateFunction<double>;

}  // namespace coracle::inline internal
