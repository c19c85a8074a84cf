#pragma once
// Initializers: how the startup program fills a parameter. Each factory returns a
// Setting, which a ParamAttr carries and a program keeps. Formulas and defaults are
// Paddle's (python/paddle/fluid/initializer.py).

#include <coracle/framework/ir/fields.h>
#include <coracle/framework/ir/op.h>
#include <coracle/framework/tensor/tensor.h>

#include <optional>
#include <string>

namespace coracle {

// A seed of 0 means the program's seed; every parameter then draws different numbers.

Setting ConstantInitializer(double value = 0);
Setting UniformInitializer(double low = -1, double high = 1, int32_t seed = 0);
Setting NormalInitializer(double mean = 0, double std = 1, int32_t seed = 0);
// Values more than two std from the mean are redrawn.
Setting TruncatedNormalInitializer(double mean = 0, double std = 1, int32_t seed = 0);

// Glorot and Bengio 2010: uniform in +-sqrt(6 / (fan_in + fan_out)), or normal with
// std sqrt(2 / (fan_in + fan_out)).
struct XavierOptions {
  bool uniform = true;
  std::optional<double> fan_in = std::nullopt;  // absent: from the shape, see FansOf
  std::optional<double> fan_out = std::nullopt;
  int32_t seed = 0;
};
Setting XavierInitializer(const XavierOptions& options = {});

// He et al. 2015: uniform in +-sqrt(6 / fan_in), or normal with std sqrt(2 / fan_in).
struct MsraOptions {
  bool uniform = true;
  std::optional<double> fan_in = std::nullopt;
  int32_t seed = 0;
};
Setting MsraInitializer(const MsraOptions& options = {});

// The elements of `values`. The parameter must have the same shape, or only the same numel if
// `values` has rank 1.
Setting ArrayInitializer(const Tensor& values);

struct FanCounts {
  double in = 1, out = 1;
};
// fan_in and fan_out of a shape. [n]: n and n. [rows, columns]: rows and columns. [M, C, k...], a
// convolution's filter: C * k... and M * k....
FanCounts FansOf(const Shape& shape);

// The kinds with the fields that a text may set: all kinds except "array".
KindsWithFields InitializerFields();

// The op that fills `var`: fill_constant, uniform_random, gaussian_random,
// truncated_gaussian_random or assign_value. Throws kInvalidArgument for an unknown kind, a number
// that is not finite, or an array of another shape.
OpDesc InitializerOp(const Setting& initializer, const std::string& var, const Shape& shape,
                     DType dtype);

}  // namespace coracle
