#pragma once
// Operands of matrix products as batches of matrices.

#include <coracle/framework/base/error.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_shapes.h>
#include <coracle/operators/kernels/broadcast.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

namespace coracle::inline internal {

// An operand; rows and columns after the transposition.
struct Matrices {
  Shape batch;
  int64_t rows = 0, cols = 0;
  bool transposed = false;
};

// A vector is one row (X) or one column (Y), without regard to transposition.
inline Matrices MatricesOf(const Shape& shape, bool is_x, bool transpose) {
  if (shape.rank() == 1)
    return is_x ? Matrices{{}, 1, shape[0], false} : Matrices{{}, shape[0], 1, false};
  Matrices m{{}, shape[shape.rank() - 2], shape[shape.rank() - 1], transpose};
  for (int i = 0; i < shape.rank() - 2; ++i) m.batch.Append(shape[i]);
  if (transpose) std::swap(m.rows, m.cols);
  return m;
}

// The shape of the product of X and Y, whose batch dims must be equal or 1 (constraint `id`). For a
// vector, the dim of 1 is omitted; two vectors give [1].
inline Shape ProductShape(const InferContext& ctx, std::string_view id, const Shape& x,
                          const Shape& y, const Matrices& a, const Matrices& b) {
  const auto aligned = AlignShapes(a.batch, b.batch, -1);
  if (!aligned) throw InternalError("batches do not align");
  Shape out;
  for (int i = 0; i < std::max(a.batch.rank(), b.batch.rank()); ++i) {
    const int64_t p = aligned->x[i], q = aligned->y[i];
    ctx.Require(id, p == 1 || q == 1 || InferContext::Matches(p, q), p, q);
    out.Append(p == 1 ? q : q == 1 ? p : std::max(p, q));
  }
  if (x.rank() > 1) out.Append(a.rows);
  if (y.rank() > 1) out.Append(b.cols);
  if (out.rank() == 0) out.Append(1);
  return out;
}

// The number of multiply-adds: the leading dims, which are broadcast, times one product.
inline double ProductMultiplyAdds(const OpShapes& op, bool transposed_y) {
  const Shape *x = op.In("X"), *y = op.In("Y");
  if (!x || !y || x->rank() < 1 || y->rank() < 1) return 0;
  double products = 1;
  for (int back = 3; back <= std::max(x->rank(), y->rank()); ++back) {
    const auto dim = [back](const Shape& shape) {
      const int axis = shape.rank() - back;
      return axis < 0 ? 1 : Elements(shape, axis, axis + 1);
    };
    products *= dim(*x) == 1 ? dim(*y) : dim(*x);
  }
  const int n = transposed_y ? y->rank() - 2 : y->rank() - 1;
  const double columns = y->rank() < 2 ? 1 : Elements(*y, n, n + 1);
  return products * Elements(*x, std::max(0, x->rank() - 2), x->rank()) * columns;
}

}  // namespace coracle::inline internal
