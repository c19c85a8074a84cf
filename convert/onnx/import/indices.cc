#include <coracle/convert/onnx/import/indices.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::onnx {

Variable DimOf(NodeContext& node, const Variable& x, int axis) {
  const int64_t dim = x.shape()[axis];
  if (dim >= 0) return node.ConstantVar(std::vector<int64_t>{dim});
  const Variable shape = node.Make("shape", {{"Input", {x.name()}}});
  return node.Cast(SliceOf(node, shape, 0, axis, axis + 1), DType::kInt64);
}

Variable MoveAxis(NodeContext& node, const Variable& x, int from, int to) {
  const int rank = x.shape().rank();
  if (from < 0) from += rank;
  if (to < 0) to += rank;
  if (from == to) return x;
  std::vector<int32_t> perm;
  for (int i = 0; i < rank; ++i) {
    if (i != from) perm.push_back(i);
  }
  perm.insert(perm.begin() + to, from);
  return node.Transpose(x, perm);
}

Variable Reshaped(NodeContext& node, const Variable& x, const Shape& shape) {
  const std::vector<int64_t> dims = shape.ToVector();
  if (std::count(dims.begin(), dims.end(), -1) > 1)
    node.Refuse("more than one dimension of a shape is not known");
  return node.Reshape(x, dims);
}

Variable SliceOf(NodeContext& node, const Variable& x, int axis, int64_t start, int64_t end) {
  using Ints = std::vector<int32_t>;
  return node.Make("slice", {{"Input", {x.name()}}},
                   {{"axes", Ints{axis}},
                    {"starts", Ints{ToInt32(start, "the start of a slice")}},
                    {"ends", Ints{ToInt32(end, "the end of a slice")}}});
}

Variable IndicesOf(NodeContext& node, size_t i, const Variable& dim) {
  std::optional<std::vector<int64_t>> known;
  // OneHot accepts floats too.
  if (!IsFloating(node.dtype(i))) known = node.ConstantInts(i);
  const Variable index = node.Cast(node.In(i), DType::kInt64);
  if (known && std::all_of(known->begin(), known->end(), [](int64_t k) { return k >= 0; }))
    return index;
  const Variable negative = node.Cast(Less(index, ZerosLike(index)), DType::kInt64);
  return index + negative * dim;
}

Variable Selected(NodeContext& node, const Variable& condition, const Variable& x,
                  const Variable& y, const Shape& shape) {
  return Where(node.BroadcastTo(condition, shape), node.BroadcastTo(x, shape),
               node.BroadcastTo(y, shape));
}

Variable BroadcastWhere(NodeContext& node, const Variable& condition, const Variable& x,
                        const Variable& y) {
  const Shape& shape = condition.shape();
  if (shape.IsKnown() && shape == x.shape() && shape == y.shape()) return Where(condition, x, y);
  const std::string as_number = node.Cast(condition, x.dtype()).name();
  const std::vector<std::string> names = {node.NewName("condition"), node.NewName("x"),
                                          node.NewName("y")};
  node.writer().Append("broadcast_tensors", {{"X", {as_number, x.name(), y.name()}}},
                       {{"Out", names}});
  const Writer& writer = node.writer();
  return Where(node.Cast(writer.Var(names[0]), DType::kBool), writer.Var(names[1]),
               writer.Var(names[2]));
}

namespace {

void RequireAtMost(NodeContext& node, int64_t most, const std::vector<int64_t>& dims,
                   const char* what) {
  int64_t elements = 1;
  for (int64_t dim : dims) {
    if (dim < 0) node.Refuse(fmt::format("{} of unknown shape", what));
    elements = dim == 0 ? 0 : elements > most / dim ? most + 1 : elements * dim;
    if (elements > most)
      node.Refuse(fmt::format("{} of {} elements, which are more than {}", what,
                              fmt::join(dims, " x "), most));
  }
}

}  // namespace

void RequireSmall(NodeContext& node, const std::vector<int64_t>& dims, const char* what) {
  RequireAtMost(node, int64_t{1} << 27, dims, what);
}

void RequireSmallConstant(NodeContext& node, const std::vector<int64_t>& dims, const char* what) {
  RequireAtMost(node, int64_t{1} << 24, dims, what);
}

}  // namespace coracle::onnx
