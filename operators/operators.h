#pragma once
// Arithmetic on Variables. Each function appends one op through the Writer of its operands (the
// Variables of a Builder have one) and returns the op's result.
//
//   Variable loss = Mean(Square(h - y)) + 0.1 * Mean(Abs(w));
//
// Two operands are broadcast as by the elementwise ops, which check their shapes and dtypes. A
// number gets the dtype of the other operand, and is exact if that is float64. A number that an
// integer Variable cannot hold throws kInvalidArgument.
//
// If several operands of one expression append ops, C++ does not specify their order.
//
// Calls with a Variable find these functions without `using` and without qualification; other calls
// never do.

#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/writer.h>

#include <cstdint>
#include <vector>

namespace coracle {

// The registry of all ops that come with Coracle, one per process. A program may Add its own ops
// before it verifies or compiles programs with the registry (Add is not synchronised with readers).
// Functions that take a registry also accept another one.
OpRegistry& DefaultOps();

// The attrs shape, dtype and value of a fill_constant op.
AttrList FillAttrs(const Shape& shape, DType dtype, double value);
// A tensor filled with one value, exact in every dtype.
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
Variable Cast(const Variable& x, DType dtype);  // returns x if it has that dtype
Variable Max(const Variable& x, const Variable& y);
Variable Max(const Variable& x, double y);
Variable Min(const Variable& x, const Variable& y);
Variable Min(const Variable& x, double y);
Variable Pow(const Variable& x, const Variable& y);
Variable Pow(const Variable& x, double y);
Variable Pow(double x, const Variable& y);
// Multiplies x by the one element of `factor`, which may be float32 or float64 even if x
// is neither.
Variable Scale(const Variable& x, const Variable& factor);

// The next functions return bool tensors.
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
Variable IsFinite(const Variable& x);  // bool [1]: whether all elements are finite
// x where the condition holds, else y. All three have the same shape.
Variable Where(const Variable& condition, const Variable& x, const Variable& y);

Variable Mean(const Variable& x);  // [1], of all elements
Variable Sum(const Variable& x);   // [1], of all elements
// Sums over `dims`, which are removed, or become 1 with `keep_dim`.
Variable Sum(const Variable& x, const std::vector<int32_t>& dims, bool keep_dim = false);
Variable Max(const Variable& x);  // [1], the largest of all elements
// AddAll adds Variables of the same shape; Concat joins Variables along an axis.
Variable AddAll(const std::vector<Variable>& x);
Variable Concat(const std::vector<Variable>& x, int32_t axis);

Variable Reshape(const Variable& x, const std::vector<int32_t>& shape);
Variable FillLike(const Variable& x, double value);
Variable ZerosLike(const Variable& x);

}  // namespace variable_functions

}  // namespace coracle
