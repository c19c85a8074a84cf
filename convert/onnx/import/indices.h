#pragma once
// Shared by importers of ops on indices and axes.

#include <coracle/convert/onnx/import/node_context.h>

#include <string>
#include <vector>

namespace coracle::onnx {

// The length of an axis of x, int64 [1]; a constant if it is known.
Variable DimOf(NodeContext& node, const Variable& x, int axis);

// Moves axis `from` of x to position `to`; the other axes keep their order; -1 is the last one.
Variable MoveAxis(NodeContext& node, const Variable& x, int from, int to);

// x in a shape with at most one unknown dim; throws for more.
Variable Reshaped(NodeContext& node, const Variable& x, const Shape& shape);

// The elements [start, end) of x along an axis.
Variable SliceOf(NodeContext& node, const Variable& x, int axis, int64_t start, int64_t end);

// Input i, integers that index a dim of length `dim` ([1], or one for each column), as int64;
// negative ones, which count from the end, are converted.
Variable IndicesOf(NodeContext& node, size_t i, const Variable& dim);

// condition ? x : y, all broadcast to `shape`, which must be known.
Variable Selected(NodeContext& node, const Variable& condition, const Variable& x,
                  const Variable& y, const Shape& shape);

// condition ? x : y, with the broadcasting of ONNX, in any shapes. A sum of products with 0 and 1
// would give nan for infinite elements that are not selected.
Variable BroadcastWhere(NodeContext& node, const Variable& condition, const Variable& x,
                        const Variable& y);

// Limits the elements of a helper tensor, such as the table of all pairs of an index and a
// position. Throws kUnimplemented beyond the limit.
void RequireSmall(NodeContext& node, const std::vector<int64_t>& dims, const char* what);
// Limits the elements of a constant computed by the import, since a few bytes of a file can request
// any size. Throws like RequireSmall.
void RequireSmallConstant(NodeContext& node, const std::vector<int64_t>& dims, const char* what);

}  // namespace coracle::onnx
