#pragma once
// Broadcasting of two operands by Paddle's axis rule. Let "small" be the operand of lower rank (Y
// if the ranks are equal). With axis = -1, its dims align with the last dims of the other one; with
// axis = k >= 0, they align with dims k, k + 1, ... (excess trailing 1s are dropped). Then dims of
// 1 are broadcast.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_def.h>

#include <cstdint>
#include <optional>

namespace coracle::inline internal {

// Both shapes extended by 1s to the rank of the larger one.
struct AlignedShapes {
  Shape x, y;
};
// nullopt if the small one does not fit at `axis`. Dims may be -1.
std::optional<AlignedShapes> AlignShapes(const Shape& x, const Shape& y, int axis);

// The shape of the result. Checks C1 (axis in [-1, rank]), C2 (the small one fits) and C3 (aligned
// dims are equal or 1). Dims may be -1.
Shape InferBroadcast(const InferContext& ctx, const Shape& x, const Shape& y, int axis);

// The rule as doc text, and the declaration of these constraints.
extern const char* const kBroadcastDoc;
void DeclareBroadcast(OpDef& def);

// A loop nest over the elements of the result, innermost dim last, with as few dims as possible.
struct BroadcastNest {
  int rank = 0;                     // at least 1
  int64_t dims[Shape::kMaxRank];    // of the result
  int64_t x_step[Shape::kMaxRank];  // elements between two steps of a dim in x; 0: repeated
  int64_t y_step[Shape::kMaxRank];
  int64_t numel = 0;  // of the result

  int64_t inner() const { return dims[rank - 1]; }
  // Inner steps are 0 or 1.
  bool x_repeats() const { return x_step[rank - 1] == 0; }
  bool y_repeats() const { return y_step[rank - 1] == 0; }
};
// REQUIRES: InferBroadcast has accepted the shapes, and they are exact.
BroadcastNest MakeBroadcastNest(const Shape& x, const Shape& y, int axis);

// Calls row(x_offset, y_offset, out_offset, count) for the pieces of innermost rows in the result's
// elements [begin, end).
template <class Row>
void ForEachRow(const BroadcastNest& nest, int64_t begin, int64_t end, Row&& row) {
  if (begin >= end) return;
  const int outer = nest.rank - 1;
  const int64_t inner = nest.inner();
  int64_t index[Shape::kMaxRank] = {};
  int64_t rest = begin / inner, column = begin % inner, x = 0, y = 0;
  for (int i = outer - 1; i >= 0; --i) {
    index[i] = rest % nest.dims[i];
    rest /= nest.dims[i];
    x += index[i] * nest.x_step[i];
    y += index[i] * nest.y_step[i];
  }
  for (int64_t at = begin; at < end;) {
    const int64_t count = inner - column < end - at ? inner - column : end - at;
    row(x + column * nest.x_step[outer], y + column * nest.y_step[outer], at, count);
    at += count;
    column = 0;
    for (int i = outer - 1; i >= 0; --i) {
      x += nest.x_step[i];
      y += nest.y_step[i];
      if (++index[i] < nest.dims[i]) break;
      x -= nest.x_step[i] * nest.dims[i];
      y -= nest.y_step[i] * nest.dims[i];
      index[i] = 0;
    }
  }
}

// out[i] = f(x[.], y[.]) for the whole result, on one thread: the reference.
template <class X, class Y, class Out, class F>
void BroadcastLoop(const BroadcastNest& nest, const X* x, const Y* y, Out* out, F&& f) {
  const int64_t dx = nest.x_repeats() ? 0 : 1, dy = nest.y_repeats() ? 0 : 1;
  ForEachRow(nest, 0, nest.numel, [&](int64_t xo, int64_t yo, int64_t oo, int64_t count) {
    for (int64_t i = 0; i < count; ++i) out[oo + i] = f(x[xo + i * dx], y[yo + i * dy]);
  });
}

}  // namespace coracle::inline internal
