#include <coracle/convert/onnx/import/attention_parts.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/padding_mask.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <cmath>

namespace coracle::onnx {
namespace {

using variable_functions::Concat;

// The first key of each sample, if the vector `bounds` has it; {} if it is known not to.
Variable StartsIn(NodeContext& node, const Variable& bounds, const Variable& q) {
  const int64_t given = bounds.shape()[0], batch = q.shape()[0];
  const Variable count = DimOf(node, q, 0), twice = count * 2.0;
  if (given >= 0 && batch >= 0) {
    node.Require(given == batch || given == 2 * batch || given == 3 * batch + 2,
                 fmt::format("a mask of rank 1 has {} elements for a batch of {}", given, batch));
    return given == 2 * batch ? SliceBetween(node, bounds, 0, count, twice) : Variable();
  }
  // A run knows. Zeros stand for starts that are not there.
  Dims dims;
  const Variable zeros = BroadcastTo(node, node.ScalarVar(DType::kInt64, 0), dims.AddNumber(count));
  const Variable there = node.Cast(Equal(DimOf(node, bounds, 0), twice), DType::kInt64);
  return SliceBetween(node, Concat({bounds, zeros}, 0), 0, count, twice) * there;
}

// Whether keys lie in the bounds of their sample, [batch, 1, 1, keys].
Variable KeptBetween(NodeContext& node, const Variable& bounds, const Variable& q,
                     const Variable& k) {
  const auto per_sample = [&](const Variable& x) { return node.Reshape(x, {-1, 1, 1, 1}); };
  const Variable key = PlacesOn(node, k, 2), none = node.ScalarVar(DType::kInt64, 0);
  const Variable ends = SliceBetween(node, bounds, 0, none, DimOf(node, q, 0));
  const Variable kept = node.Binary("less_than", key, per_sample(ends));
  const Variable starts = StartsIn(node, bounds, q);
  if (!starts) return kept;
  return And(kept, node.Binary("greater_equal", key, per_sample(starts)));
}

// The rows of the queries, and the columns of the keys, of a mask of all positions.
Variable RowsOf(NodeContext& node, const Variable& mask, const Variable& q, const Variable& k,
                const Variable& past) {
  const Variable from = past ? past : node.ScalarVar(DType::kInt64, 0);
  const Variable rows = SliceBetween(node, mask, 2, from, from + DimOf(node, q, 2));
  return SliceBetween(node, rows, 3, node.ScalarVar(DType::kInt64, 0), DimOf(node, k, 2));
}

}  // namespace

Variable PaddingBias(NodeContext& node, size_t i, const Variable& q, const Variable& k,
                     const Variable& past, float hidden) {
  Variable mask = node.Cast(node.In(i), DType::kInt64);
  const int rank = node.rank(i);
  const std::vector<int32_t> key_axes = {1, 2}, query_axes = {1};
  if (rank < 1 || rank > 4) node.Refuse(fmt::format("a mask of rank {} (input {})", rank, i));
  Variable kept;
  if (rank == 1) {
    kept = KeptBetween(node, mask, q, k);
  } else {
    if (rank == 2) mask = node.WithXShape("unsqueeze2", mask, {{"axes", key_axes}});
    if (rank == 3) mask = node.WithXShape("unsqueeze2", mask, {{"axes", query_axes}});
    if (rank == 4) mask = RowsOf(node, mask, q, k, past);
    kept = Greater(mask, 0.0);
  }
  if (std::isinf(hidden)) return BiasOf(node, kept, q.dtype());
  return (node.Cast(kept, q.dtype()) - 1.0) * -static_cast<double>(hidden);
}

}  // namespace coracle::onnx
