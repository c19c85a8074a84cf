// Reductions, ArgMax and ArgMin, and sums and products along an axis.

#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <numeric>
#include <tuple>

namespace coracle::onnx {
namespace {

// The dims of a reduction.
struct ReducedDims {
  std::vector<int32_t> dims;
  bool none = false;  // attribute noop_with_empty_axes: no reduction
  bool keep = true;
  bool all = false;
};

// Axes were an attribute up to operator set 12 (ReduceSum) or 17 (the others).
ReducedDims DimsOf(NodeContext& node) {
  ReducedDims reduced;
  const int last_attr = node.op_type() == "ReduceSum" ? 12 : 17;
  reduced.keep = node.Flag("keepdims", true);
  const bool empty_is_none = node.opset() > last_attr && node.Flag("noop_with_empty_axes", false);
  const auto axes = node.Axes("axes", 1, last_attr, node.rank(0));
  if (axes) reduced.dims = *axes;
  if (reduced.dims.empty()) {
    reduced.none = empty_is_none;
    reduced.dims.resize(static_cast<size_t>(node.rank(0)));
    std::iota(reduced.dims.begin(), reduced.dims.end(), 0);
  }
  reduced.all = static_cast<int>(reduced.dims.size()) == node.rank(0);
  return reduced;
}

Variable Reduced(NodeContext& node, const std::string& type, const Variable& x,
                 const ReducedDims& by) {
  if (by.none || node.IsScalar(0)) return x;
  return node.UnaryVia(type, x, {{"dim", by.dims}, {"keep_dim", by.keep}, {"reduce_all", by.all}});
}

// A result without dims has rank 0.
void SetReduced(NodeContext& node, const Variable& result, const ReducedDims& by) {
  const bool scalar = node.IsScalar(0) || (by.all && !by.keep && !by.none);
  node.Set(0, node.Cast(result, node.dtype(0)), scalar);
}

// Sums of squares and similar functions of integers are computed in float64.
Variable Floating(NodeContext& node) {
  return node.Cast(node.In(0), IsFloating(node.dtype(0)) ? node.dtype(0) : DType::kFloat64);
}

void ImportReduce(NodeContext& node) {
  const ReducedDims by = DimsOf(node);
  SetReduced(node, Reduced(node, node.row().maps_to, node.In(0), by), by);
}

// The largest (smallest) of bools is whether any (all) are true.
void ImportExtremum(NodeContext& node) {
  const bool max = node.op_type() == "ReduceMax";
  const ReducedDims by = DimsOf(node);
  const std::string type = node.dtype(0) == DType::kBool ? (max ? "reduce_any" : "reduce_all")
                                                         : (max ? "reduce_max" : "reduce_min");
  SetReduced(node, Reduced(node, type, node.In(0), by), by);
}

void ImportReduceMean(NodeContext& node) {
  const ReducedDims by = DimsOf(node);
  SetReduced(node, Reduced(node, "reduce_mean", Floating(node), by), by);
}

void ImportReduceL1(NodeContext& node) {
  const ReducedDims by = DimsOf(node);
  SetReduced(node, Reduced(node, "reduce_sum", node.UnaryVia("abs", node.In(0)), by), by);
}

void ImportReduceL2(NodeContext& node) {
  const ReducedDims by = DimsOf(node);
  SetReduced(node, Sqrt(Reduced(node, "reduce_sum", Square(Floating(node)), by)), by);
}

void ImportReduceSumSquare(NodeContext& node) {
  const ReducedDims by = DimsOf(node);
  SetReduced(node, Reduced(node, "reduce_sum", node.UnaryVia("square", node.In(0)), by), by);
}

void ImportReduceLogSum(NodeContext& node) {
  const ReducedDims by = DimsOf(node);
  SetReduced(node, Log(Reduced(node, "reduce_sum", Floating(node), by)), by);
}

void ImportReduceLogSumExp(NodeContext& node) {
  const ReducedDims by = DimsOf(node);
  const Variable x = Floating(node);
  if (by.none || node.IsScalar(0)) return SetReduced(node, x, by);
  SetReduced(
      node,
      node.Unary("logsumexp", x, {{"axis", by.dims}, {"keepdim", by.keep}, {"reduce_all", by.all}}),
      by);
}

// The last of equal elements is the first in reverse order.
void ImportArg(NodeContext& node) {
  const bool keep = node.Flag("keepdims", true);
  const bool last = node.opset() >= 12 && node.Flag("select_last_index", false);
  const int32_t axis = node.Axis(node.Int("axis", 0), node.rank(0));
  Variable x = node.In(0);
  if (last) x = node.Unary("flip", x, {{"axis", std::vector<int32_t>{axis}}});
  Variable index =
      node.Unary(node.row().maps_to, x, {{"axis", static_cast<int64_t>(axis)}, {"keepdims", keep}});
  if (last) index = Cast(DimOf(node, x, axis) - 1.0, DType::kInt64) - index;
  node.Set(0, index, node.rank(0) == 1 && !keep);
}

int32_t KnownAxis(NodeContext& node) {
  const std::vector<int64_t> axis = node.KnownInts(1, "axis");
  node.Require(axis.size() == 1, "axis must be one number");
  return node.Axis(axis[0], node.rank(0));
}

void ImportCumSum(NodeContext& node) {
  const bool exclusive = node.Flag("exclusive", false), reverse = node.Flag("reverse", false);
  node.RequireOne(1, "axis");
  if (node.Constant(1)) {
    return node.Set(
        0,
        node.UnaryVia("cumsum", node.In(0),
                      {{"axis", KnownAxis(node)}, {"exclusive", exclusive}, {"reverse", reverse}}));
  }
  const DType own = node.dtype(0);
  const Variable x = node.Cast(node.In(0), node.ComputeDType("cumsum", own));
  const Variable sum =
      node.Make("cumsum", {{"X", {x.name()}}, {"AxisTensor", {NumberOf(node, 1).name()}}},
                {{"exclusive", exclusive}, {"reverse", reverse}});
  node.Set(0, node.Cast(sum, own));
}

// Out[i] is the product of the X[j] with j <= i: a row of X for each i, with 1 for the others.
void ImportCumProd(NodeContext& node) {
  const bool exclusive = node.Flag("exclusive", false), reverse = node.Flag("reverse", false);
  const int32_t axis = KnownAxis(node);
  const int64_t n = node.shape(0)[axis];
  if (n < 0) node.RefuseUnknown("the length of the axis", "the table of factors");
  node.Require(n <= 4096, "an axis longer than 4096 is not supported");
  const auto size = static_cast<size_t>(n);
  std::vector<uint8_t> counts(size * size);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const int64_t before = reverse ? j - i : i - j;
      counts[static_cast<size_t>(i * n + j)] = before > 0 || (before == 0 && !exclusive);
    }
  }
  const DType own = node.dtype(0), dtype = node.ComputeDType("reduce_prod", own);
  const Variable rows =
      node.Reshape(MoveAxis(node, node.Cast(node.In(0), dtype), axis, -1), {-1, 1, n});
  const Tensor mask = Tensor::Of<uint8_t>({1, n, n}, counts).Cast(DType::kBool);
  const Variable factors =
      BroadcastWhere(node, node.ConstantVar(mask), rows, node.ScalarVar(dtype, 1));
  const Variable product = node.Unary("reduce_prod", factors, {{"dim", std::vector<int32_t>{2}}});
  Shape moved = node.shape(0);
  for (int i = axis; i + 1 < moved.rank(); ++i) std::swap(moved[i], moved[i + 1]);
  node.Set(0, node.Cast(MoveAxis(node, Reshaped(node, product, moved), -1, axis), own));
}

}  // namespace

void AddReduceImporters(NodeImporters& importers) {
  using Row = std::tuple<const char*, const char*, bool, int, void (*)(NodeContext&), const char*>;
  for (const auto& [op_type, takes, composed, since, import, maps_to] : {
           Row{"ReduceSum", "n i?", false, 1, ImportReduce, "reduce_sum"},
           Row{"ReduceProd", "n i?", false, 1, ImportReduce, "reduce_prod"},
           Row{"ReduceMax", "T i?", false, 1, ImportExtremum, "reduce_max; reduce_any"},
           Row{"ReduceMin", "T i?", false, 1, ImportExtremum, "reduce_min; reduce_all"},
           Row{"ReduceMean", "n i?", false, 1, ImportReduceMean, "reduce_mean"},
           Row{"ReduceL1", "n i?", false, 1, ImportReduceL1, "abs, reduce_sum"},
           Row{"ReduceL2", "n i?", true, 1, ImportReduceL2, "square, reduce_sum, sqrt"},
           Row{"ReduceSumSquare", "n i?", true, 1, ImportReduceSumSquare, "square, reduce_sum"},
           Row{"ReduceLogSum", "n i?", true, 1, ImportReduceLogSum, "reduce_sum, log"},
           Row{"ReduceLogSumExp", "n i?", false, 1, ImportReduceLogSumExp, "logsumexp"},
           Row{"ArgMax", "n1+", false, 1, ImportArg, "arg_max"},
           Row{"ArgMin", "n1+", false, 1, ImportArg, "arg_min"},
           Row{"CumSum", "n1+ i", false, 11, ImportCumSum, "cumsum"},
           Row{"CumProd", "n1+ i", true, 26, ImportCumProd, "reduce_prod"},
       }) {
    const bool moves = import == ImportExtremum || import == ImportArg;
    const bool wraps = import == ImportReduce;
    importers.Add({.op_type = op_type,
                   .since = since,
                   .takes = takes,
                   .import = import,
                   .maps_to = maps_to,
                   .unsigneds = moves   ? Unsigned::kMoves
                                : wraps ? Unsigned::kWraps
                                        : Unsigned::kRefuse,
                   .composed = composed});
  }
}

}  // namespace coracle::onnx
