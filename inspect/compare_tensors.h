#pragma once
// Compares two lists of named tensors: the results of two runs, a run and its stored results, or
// two files of parameters.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/var.h>
#include <coracle/framework/tensor/tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace coracle {

// An element of A is within tolerance of B's if |a - b| <= absolute + relative * |b|, as in
// numpy.allclose: B is the reference. A nan is within tolerance only of a nan, an infinity only of
// the same infinity.
struct Tolerance {
  double relative = 1e-5;
  double absolute = 1e-6;
  bool same_dtype = true;      // tensors of different dtypes differ, whatever their values
  bool exact_integers = true;  // if both are integers or bools, they must be equal
};

// The element that is farthest out of tolerance, or closest to the limit if all are within. An
// element with nan or infinity on only one side is farther than all others.
struct WorstElement {
  std::vector<int64_t> index;                   // one number for each axis
  complex128 a = 0, b = 0;                      // imaginary part 0 for real tensors
  std::optional<int64_t> integer_a, integer_b;  // if that side has integers or bools
  double absolute = 0;                          // |a - b|; nan or inf if one of them is
  double relative = 0;  // |a - b| / |b|; 0 for equal elements, inf if only b is 0
};

struct TensorDifference {
  enum class Kind { kEqual, kValues, kShape, kDType, kLod, kOnlyInA, kOnlyInB };

  std::string name;
  Kind kind = Kind::kEqual;     // kEqual: within tolerance
  std::optional<VarMeta> a, b;  // types of the compared tensors; empty for a missing one
  // Set only if the shapes are equal (and there are elements).
  int64_t outside = 0;      // elements out of tolerance
  int64_t non_finite = 0;   // of these: nan or infinity on one side, or unequal ones
  double max_absolute = 0;  // over all elements with two finite values
  std::optional<WorstElement> worst;

  bool Differs() const { return kind != Kind::kEqual; }
};

// Compares numbers exactly, for any dtypes: two int64, or an int64 and a float64, may differ by
// less than doubles can represent. The sequences (LoD) must be equal.
TensorDifference CompareTensors(const std::string& name, const Tensor& a, const Tensor& b,
                                const Tolerance& tolerance);

// Formats an element with as many digits as identify it in its dtype: "3", "0.1", "1+2i".
std::string ElementText(const complex128& value, const std::optional<int64_t>& integer,
                        DType dtype);

// The result for a tensor that only A has; OnlyInB is the same for B.
TensorDifference OnlyInA(const std::string& name, const Tensor& a);
TensorDifference OnlyInB(const std::string& name, const Tensor& b);

// Compares tensors of the same name: first those of A in A's order, then those that only B has.
// Throws kInvalidArgument if a list has a name twice.
std::vector<TensorDifference> CompareNamed(const NamedTensors& a, const NamedTensors& b,
                                           const Tolerance& tolerance);

}  // namespace coracle
