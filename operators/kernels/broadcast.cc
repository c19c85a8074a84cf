#include <coracle/operators/kernels/broadcast.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

// `small` at dims [axis, axis + rank) of a shape of rank `rank`, with 1s in the other dims.
std::optional<Shape> Spread(const Shape& small, int axis, int rank) {
  if (axis < 0 || axis > rank) return std::nullopt;  // checked first: the attr may be any number
  int kept = small.rank();
  while (kept > 0 && axis + kept > rank && small[kept - 1] == 1) --kept;
  if (axis + kept > rank) return std::nullopt;
  Shape spread;
  for (int i = 0; i < rank; ++i) {
    spread.Append(i >= axis && i < axis + kept ? small[i - axis] : 1);
  }
  return spread;
}

}  // namespace

const char* const kBroadcastDoc =
    "The operand of lower rank (Y when equal) aligns with the last dims of the other one (axis = "
    "-1) or with its dims from axis on; dims of 1 are broadcast.";

void DeclareBroadcast(OpDef& def) {
  def.Constraint("C1", "axis must lie in [-1, rank of the larger operand]")
      .Constraint("C2",
                  "the operand of lower rank must fit into the other one at axis (trailing 1s that "
                  "stick out are dropped)")
      .Constraint("C3", "aligned dims of X and Y must be equal, or one of them 1");
}

std::optional<AlignedShapes> AlignShapes(const Shape& x, const Shape& y, int axis) {
  if (x.rank() == y.rank() && (axis <= 0 || x.CompatibleWith(y))) return AlignedShapes{x, y};
  const bool x_small = x.rank() < y.rank();
  const Shape& small = x_small ? x : y;
  const Shape& big = x_small ? y : x;
  auto spread = Spread(small, axis == -1 ? big.rank() - small.rank() : axis, big.rank());
  if (!spread) return std::nullopt;
  return x_small ? AlignedShapes{*spread, y} : AlignedShapes{x, *spread};
}

Shape InferBroadcast(const InferContext& ctx, const Shape& x, const Shape& y, int axis) {
  const int rank = std::max(x.rank(), y.rank());
  ctx.Require("C1", axis >= -1 && axis <= rank, axis, rank);
  auto aligned = AlignShapes(x, y, axis);
  const auto shapes = [&] {
    return fmt::format("{} and {}, axis {}", x.ToString(), y.ToString(), axis);
  };
  if (!aligned) {
    ctx.Fail("C2", shapes());
  }
  Shape out;
  for (int i = 0; i < rank; ++i) {
    const int64_t a = aligned->x[i], b = aligned->y[i];
    if (a != 1 && b != 1 && !InferContext::Matches(a, b)) {
      ctx.Fail("C3", shapes());
    }
    // An unknown dim aligned with a known dim other than 1 must be that dim or 1.
    out.Append(a == 1 ? b : b == 1 ? a : std::max(a, b));
  }
  return out;
}

BroadcastNest MakeBroadcastNest(const Shape& x, const Shape& y, int axis) {
  auto aligned = AlignShapes(x, y, axis);
  if (!aligned) throw InternalError("broadcast of shapes that do not fit");
  BroadcastNest nest;
  nest.numel = 1;
  // Goes from the innermost dim outwards and merges neighbouring dims in which the same
  // operands repeat.
  int64_t dims[Shape::kMaxRank];
  bool x_repeats[Shape::kMaxRank], y_repeats[Shape::kMaxRank];
  int n = 0;
  for (int i = aligned->x.rank() - 1; i >= 0; --i) {
    const int64_t a = aligned->x[i], b = aligned->y[i], d = a == 1 ? b : a;
    nest.numel *= d;
    if (d == 1) continue;
    const bool xr = a == 1, yr = b == 1;
    if (n > 0 && x_repeats[n - 1] == xr && y_repeats[n - 1] == yr) {
      dims[n - 1] *= d;
    } else {
      dims[n] = d;
      x_repeats[n] = xr;
      y_repeats[n++] = yr;
    }
  }
  if (n == 0) {
    dims[0] = 1;
    x_repeats[0] = y_repeats[0] = false;
    n = 1;
  }
  nest.rank = n;
  int64_t x_step = 1, y_step = 1;
  for (int i = 0; i < n; ++i) {
    const int at = n - 1 - i;
    nest.dims[at] = dims[i];
    nest.x_step[at] = x_repeats[i] ? 0 : x_step;
    nest.y_step[at] = y_repeats[i] ? 0 : y_step;
    if (!x_repeats[i]) x_step *= dims[i];
    if (!y_repeats[i]) y_step *= dims[i];
  }
  return nest;
}

}  // namespace coracle::inline internal
