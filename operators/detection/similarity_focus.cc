#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/detection/nms.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>
#include <numeric>

namespace coracle::similarity_focus_op {

using Ints = std::vector<int32_t>;

void InferFocus(InferContext& ctx) {
  const VarMeta& x = ctx.Input("X");
  ctx.Require("C1", x.shape.rank() == 4, x);
  const auto indexes = ctx.Attr<Ints>("indexes");
  const int32_t axis = ctx.Attr<int32_t>("axis");
  const int64_t size = x.shape[axis];
  bool inside = !indexes.empty();
  for (int32_t i : indexes) inside = inside && i >= 0 && (size < 0 || i < size);
  ctx.Require("C2", inside, "indexes", indexes, "size of the axis", size);
  ctx.SetOutput("Out", x);
}

// The positions (row * columns + column) of the largest elements of a matrix that share no row and
// no column.
std::vector<int64_t> Peaks(const std::vector<double>& matrix, int64_t rows, int64_t columns) {
  std::vector<int64_t> order(matrix.size()), peaks;
  std::iota(order.begin(), order.end(), int64_t{0});
  SortByScore(matrix.data(), -1, &order);
  std::vector<char> row_used(static_cast<size_t>(rows)), column_used(static_cast<size_t>(columns));
  for (int64_t at : order) {
    char& row = row_used[static_cast<size_t>(at / columns)];
    char& column = column_used[static_cast<size_t>(at % columns)];
    if (row || column) continue;
    row = column = 1;
    peaks.push_back(at);
    if (static_cast<int64_t>(peaks.size()) == std::min(rows, columns)) break;
  }
  return peaks;
}

Kernel Focus(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const int axis = ctx.Attr<int32_t>("axis");
  const auto indexes = ctx.Attr<Ints>("indexes");
  const Shape s = x.shape;
  const int row_axis = axis == 1 ? 2 : 1, column_axis = axis == 3 ? 2 : 3;
  if (out.numel == 0) return [](Workspace&) {};
  const int64_t strides[4] = {0, s[2] * s[3], s[3], 1};
  const int64_t rows = s[row_axis], columns = s[column_axis], image = s.Product(1, 4);
  const int64_t row_step = strides[row_axis], column_step = strides[column_axis];
  const int64_t step = strides[axis], size = s[axis];
  return [=](Workspace& ws) {
    const Reals from(ws, x);
    const RealsOut to(ws, out);
    for (int64_t i = 0; i < out.numel; ++i) to.Set(i, 0);
    std::vector<double> matrix(static_cast<size_t>(rows * columns));
    for (int64_t n = 0; n < s[0]; ++n) {
      for (int32_t index : indexes) {
        CheckTimeLimit("focusing on similarities");
        const auto place = [&](int64_t k) {
          return n * image + k / columns * row_step + k % columns * column_step;
        };
        for (int64_t k = 0; k < rows * columns; ++k)
          matrix[static_cast<size_t>(k)] = from[place(k) + index * step];
        for (int64_t k : Peaks(matrix, rows, columns)) {
          for (int64_t i = 0; i < size; ++i) to.Set(place(k) + i * step, 1);
        }
      }
    }
  };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("similarity_focus")
          .Doc("For each image and each of indexes: in the slice of X at this index of axis, the "
               "largest element is chosen, then repeatedly the largest in rows and columns not "
               "used yet (the first if several are equal), until all rows or all columns are used. "
               "Out is 1 at the chosen positions, for all indices along axis, else 0.")
          .Constraint("C1", "X must have rank 4")
          .Constraint("C2", "indexes must be one or more within axis")
          .Input("X", "tensor of rank 4")
          .Output("Out", "tensor of X's shape and dtype")
          .Attr<int32_t>("axis", "1, 2 or 3")
          .Range(1, 3)
          .Attr<Ints>("indexes", "which slices")
          .NotDifferentiable("a choice has no derivative")
          .Rows(EachBatchRow, kEachBatchRow)
          .Infer(InferFocus)
          .Reference<float, double>(ForReals{Focus}));
}

}  // namespace coracle::similarity_focus_op
