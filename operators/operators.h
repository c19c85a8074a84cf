#pragma once
// Arithmetic on Variables: each function appends one op through the Writer of its operands (a
// Builder's Variables have one), and returns what the op makes.
//
//   Variable loss = Mean(Square(h - y)) + 0.1 * Mean(Abs(w));
//
// Two operands are broadcast as by the elementwise ops, whose checks refuse unsuitable shapes and
// dtypes. A number gets the dtype of the Variable beside it, and is exact if that is float64; a
// number that an integer Variable cannot hold throws kInvalidArgument.
//
// If several operands of one expression append ops, C++ leaves open which come first.
//
// Calls with a Variable find these functions without `using` and without qualification; other
// calls never do.

#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/writer.h>

#include <cstdint>
#include <vector>

namespace coracle {

// The registry of all ops that come with Coracle.

// Process-wide. Own ops may be added to it before programs are verified or compiled with it (Add
// is not synchronised with readers); wherever a registry is a parameter, one's own serves as well.
OpRegistry& DefaultOps();

// The attrs shape, dtype and value of a fill_constant op.
AttrList FillAttrs(const Shape& shape, DType dtype, double value);
// A tensor of one value, exact in every dtype.
Variable FillConstant(const Writer& writer, DType dtype, double value, const Shape& shape = {1});
// The attrs in_dtype and out_dtype of a cast op.
AttrList CastAttrs(DType from, DType to);

namespace variable_functions {

Variable operator+(const Variable& x, const Variable& y);
Variable operator-(const Variable& x, const Variable& y);
Variable operator*(const Variable& x, const Variable& y);
Variable operator/(const Variable& x, const Variable& y);
Variable operator-(const Variable& x);
Variable operator+(const Variable& x, double y);
Variable operator-(const Variable& x, double y);
Variable operator*(const Variable& x, double y);
Variable operator/(const Variable& x, double y);
Variable operator+(double x, const Variable& y);
Variable operator-(double x, const Variable& y);
Variable operator*(double x, const Variable& y);
Variable operator/(double x, const Variable& y);

Variable Abs(const Variable& x);
Variable Cos(const Variable& x);
Variable Exp(const Variable& x);
Variable Floor(const Variable& x);
Variable Log(const Variable& x);
Variable Sigmoid(const Variable& x);
Variable Sign(const Variable& x);
Variable Sqrt(const Variable& x);
Variable Square(const Variable& x);
Variable Cast(const Variable& x, DType dtype);  // x itself where it has that dtype
Variable Max(const Variable& x, const Variable& y);
Variable Max(const Variable& x, double y);
Variable Min(const Variable& x, const Variable& y);
Variable Min(const Variable& x, double y);
Variable Pow(const Variable& x, const Variable& y);
Variable Pow(const Variable& x, double y);
Variable Pow(double x, const Variable& y);
// x times the one element of `factor`, which may be float32 or float64 where x is neither.
Variable Scale(const Variable& x, const Variable& factor);

// bool tensors.
Variable Equal(const Variable& x, const Variable& y);
Variable Greater(const Variable& x, const Variable& y);
Variable Greater(const Variable& x, double y);
Variable GreaterEqual(const Variable& x, const Variable& y);
Variable GreaterEqual(const Variable& x, double y);
Variable Less(const Variable& x, const Variable& y);
Variable Less(const Variable& x, double y);
Variable And(const Variable& x, const Variable& y);
Variable Or(const Variable& x, const Variable& y);
Variable Not(const Variable& x);
Variable IsFinite(const Variable& x);  // bool [1]: of all elements
// x where the condition holds, else y: all of one shape.
Variable Where(const Variable& condition, const Variable& x, const Variable& y);

Variable Mean(const Variable& x);  // [1], of all elements
Variable Sum(const Variable& x);   // [1], of all elements
// Without the dims, or with 1 in their place.
Variable Sum(const Variable& x, const std::vector<int32_t>& dims, bool keep_dim = false);
Variable Max(const Variable& x);  // [1], the largest of all elements
// The sum of Variables of one shape, the side-by-side of Variables along an axis.
Variable AddAll(const std::vector<Variable>& x);
Variable Concat(const std::vector<Variable>& x, int32_t axis);

Variable Reshape(const Variable& x, const std::vector<int32_t>& shape);
Variable FillLike(const Variable& x, double value);
Variable ZerosLike(const Variable& x);

}  // namespace variable_functions

}  // namespace coracle
