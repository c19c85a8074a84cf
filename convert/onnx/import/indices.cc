#include <coracle/convert/onnx/import/indices.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace coracle::onnx {

int32_t Clamped(int64_t value) {
  return ToInt32(std::clamp<int64_t>(value, std::numeric_limits<int32_t>::min(),
                                     std::numeric_limits<int32_t>::max()),
                 "a bound");
}

int LengthOf(NodeContext& node, size_t i, const char* what) {
  if (const auto values = node.ConstantInts(i)) return static_cast<int>(values->size());
  const Shape shape = node.shape(i);
  node.Require(shape.rank() == 1, fmt::format("{} must be a vector", what));
  if (shape[0] < 0) node.RefuseUnknown(fmt::format("the length of {}", what), "the result's rank");
  node.Require(shape[0] <= Shape::kMaxRank, fmt::format("{} is too long", what));
  return static_cast<int>(shape[0]);
}

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

Dims& Dims::Add(int64_t dim) {
  shape_.Append(dim);
  sources_.push_back({});
  return *this;
}

Dims& Dims::Add(const Variable& of, int axis) {
  shape_.Append(of.shape()[axis]);
  sources_.push_back({of, axis});
  return *this;
}

Dims& Dims::Add(const Variable& of, int begin, int end) {
  for (int axis = begin; axis < end; ++axis) Add(of, axis);
  return *this;
}

Dims& Dims::AddNumber(const Variable& dim) {
  shape_.Append(-1);
  sources_.push_back({dim, -1});
  return *this;
}

Variable Dims::ToVector(NodeContext& node) const {
  if (shape_.IsKnown()) return node.ConstantVar(shape_.ToVector());
  std::vector<Variable> parts;
  for (int i = 0; i < shape_.rank(); ++i) {
    const Source& source = sources_[static_cast<size_t>(i)];
    if (shape_[i] >= 0)
      parts.push_back(node.ConstantVar(std::vector<int64_t>{shape_[i]}));
    else
      parts.push_back(source.axis < 0 ? source.of : DimOf(node, source.of, source.axis));
  }
  return parts.size() == 1 ? parts[0] : variable_functions::Concat(parts, 0);
}

Variable ReshapedBy(NodeContext& node, const Variable& x, const Variable& shape,
                    const Shape& known) {
  const std::string out = node.NewName("reshape2");
  node.writer().block().Var(out).SetShape(known);
  node.writer().Append("reshape2", {{"X", {x.name()}}, {"Shape", {shape.name()}}},
                       {{"Out", {out}}, {"XShape", {out + ".xshape"}}}, {{"allow_zero", true}});
  const Variable result = node.writer().Var(out);
  result.desc().SetShape(known);
  return result;
}

Variable Reshaped(NodeContext& node, const Variable& x, const Dims& dims) {
  const std::vector<int64_t> known = dims.shape().ToVector();
  const bool plain = std::count(known.begin(), known.end(), -1) <= 1 &&
                     std::count(known.begin(), known.end(), 0) == 0;
  if (plain || (dims.shape().IsKnown() && x.shape() == dims.shape())) return node.Reshape(x, known);
  return ReshapedBy(node, x, dims.ToVector(node), dims.shape());
}

Variable Reshaped(NodeContext& node, const Variable& x, const Shape& shape) {
  const std::vector<int64_t> dims = shape.ToVector();
  if (std::count(dims.begin(), dims.end(), -1) > 1)
    node.RefuseUnknown("more than one dimension of a shape", "the result's shape");
  return node.Reshape(x, dims);
}

Variable BroadcastTo(NodeContext& node, const Variable& x, const Dims& dims) {
  if (dims.shape().IsKnown()) return node.BroadcastTo(x, dims.shape());
  const std::string out = node.NewName("expand_v2");
  node.writer().Append("expand_v2", {{"X", {x.name()}}, {"Shape", {dims.ToVector(node).name()}}},
                       {{"Out", {out}}});
  const Variable result = node.writer().Var(out);
  result.desc().SetShape(dims.shape());
  return result;
}

Variable NumberOf(NodeContext& node, size_t i) {
  return node.Reshape(node.Cast(node.In(i), DType::kInt64), {1});
}

Variable Counted(NodeContext& node, const Variable& begin, const Variable& end) {
  const Variable one = node.ScalarVar(DType::kInt64, 1), last = Max(end, begin);
  return node.Make("range",
                   {{"Start", {begin.name()}}, {"End", {last.name()}}, {"Step", {one.name()}}});
}

Variable Counted(NodeContext& node, const Variable& end) {
  return Counted(node, node.ScalarVar(DType::kInt64, 0), end);
}

Variable PlacesOn(NodeContext& node, const Variable& x, int axis) {
  constexpr int64_t kMost = int64_t{1} << 16;
  const int64_t dim = x.shape()[axis];
  if (dim < 0 || dim > kMost) return Counted(node, DimOf(node, x, axis));
  std::vector<int64_t> places(static_cast<size_t>(dim));
  std::iota(places.begin(), places.end(), 0);
  return node.ConstantVar(places);
}

Variable AlongAxis(NodeContext& node, const Variable& line, int axis, int rank) {
  std::vector<int64_t> shape(static_cast<size_t>(rank), 1);
  shape[static_cast<size_t>(axis)] = line.shape()[0];
  if (line.shape()[0] != 0) return node.Reshape(line, shape);
  return ReshapedBy(node, line, node.ConstantVar(shape), Shape(shape));
}

Variable SliceBetween(NodeContext& node, const Variable& x, int axis, const Variable& start,
                      const Variable& end) {
  return node.Make(
      "slice",
      {{"Input", {x.name()}}, {"StartsTensor", {start.name()}}, {"EndsTensor", {end.name()}}},
      {{"axes", std::vector<int32_t>{axis}}});
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
  const bool texts = x.dtype() == DType::kString;  // for which a bool has no cast
  const std::string as_number = texts ? condition.name() : node.Cast(condition, x.dtype()).name();
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
