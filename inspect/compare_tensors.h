#pragma once
// Two lists of named tensors side by side: results of two runs, a run and its stored results,
// two files of parameters.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/var.h>
#include <coracle/framework/tensor/tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace coracle {

// An element of A is within tolerance of B's where |a - b| <= absolute + relative * |b|, as in
// numpy.allclose: B is the reference. A nan is within tolerance of a nan alone, an infinity of the
// same infinity alone.
struct Tolerance {
  double relative = 1e-5;
  double absolute = 1e-6;
  bool same_dtype = true;      // tensors of different dtypes differ, whatever their values
  bool exact_integers = true;  // where both are integers or bools, they must be equal
};

// The element that is farthest out of tolerance (or, where all are within it, nearest to its edge).
// An element with a nan or infinity on one side alone is farther than any other.
struct WorstElement {
  std::vector<int64_t> index;                   // one number for each axis
  complex128 a = 0, b = 0;                      // imaginary part 0 for real tensors
  std::optional<int64_t> integer_a, integer_b;  // where that side is of integers or bools
  double absolute = 0;                          // |a - b|; nan or inf where one of them is
  double relative = 0;  // |a - b| / |b|; 0 for equal elements, inf where only b is 0
};

struct TensorDifference {
  enum class Kind { kEqual, kValues, kShape, kDType, kLod, kOnlyInA, kOnlyInB };

  std::string name;
  Kind kind = Kind::kEqual;     // kEqual: within tolerance
  std::optional<VarMeta> a, b;  // types of what was compared; none where it is missing
  // These are set if the shapes are the same (and there are elements).
  int64_t outside = 0;      // elements out of tolerance
  int64_t non_finite = 0;   // of these: nan or infinity on one side, or another one
  double max_absolute = 0;  // of all elements with two finite values
  std::optional<WorstElement> worst;

  bool Differs() const { return kind != Kind::kEqual; }
};

// Numbers are compared as they are, whatever their dtypes: two int64, or an int64 and a float64,
// may differ by less than doubles tell apart. The sequences (LoD) must be the same.
TensorDifference CompareTensors(const std::string& name, const Tensor& a, const Tensor& b,
                                const Tolerance& tolerance);

// An element with as many digits as tell it from others of its dtype: "3", "0.1", "1+2i".
std::string ElementText(const complex128& value, const std::optional<int64_t>& integer,
                        DType dtype);

// Of a tensor that the other side lacks.
TensorDifference OnlyInA(const std::string& name, const Tensor& a);
TensorDifference OnlyInB(const std::string& name, const Tensor& b);

// By name: first those of A in A's order, then those that only B has. Throws kInvalidArgument for a
// name that stands twice in one list.
std::vector<TensorDifference> CompareNamed(const NamedTensors& a, const NamedTensors& b,
                                           const Tolerance& tolerance);

}  // namespace coracle
