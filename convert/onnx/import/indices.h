#pragma once
// What importers of ops on indices and axes share.

#include <string>
#include <vector>

#include "node_context.h"

namespace coracle::onnx {

// The length of an axis of x, int64 [1]: a constant where it is known.
Variable DimOf(NodeContext& node, const Variable& x, int axis);

// x with axis `from` at place `to`, the others in their order; -1 is the last one.
Variable MoveAxis(NodeContext& node, const Variable& x, int from, int to);

// x in a shape with at most one dim that is not known; more are refused.
Variable Reshaped(NodeContext& node, const Variable& x, const Shape& shape);

// The elements [start, end) of x along an axis.
Variable SliceOf(NodeContext& node, const Variable& x, int axis, int64_t start, int64_t end);

// Input i, integers that index a dim of length `dim` ([1], or as many as it has columns), as int64
// without negative ones, which count from the end.
Variable IndicesOf(NodeContext& node, size_t i, const Variable& dim);

// condition ? x : y, all stretched to `shape`, which must be known.
Variable Selected(NodeContext& node, const Variable& condition, const Variable& x,
                  const Variable& y, const Shape& shape);

// condition ? x : y, stretched to each other as ONNX broadcasts, in any shapes. A sum of products
// with 0 and 1 would make nan of infinite elements that are not selected.
Variable BroadcastWhere(NodeContext& node, const Variable& condition, const Variable& x,
                        const Variable& y);

// How many elements a helper tensor may have, such as the table of all pairs of an index and a
// place. Throws kUnimplemented beyond it.
void RequireSmall(NodeContext& node, const std::vector<int64_t>& dims, const char* what);
// The same for a constant that the import makes, of which a few bytes of a file may ask for any
// number.
void RequireSmallConstant(NodeContext& node, const std::vector<int64_t>& dims, const char* what);

}  // namespace coracle::onnx
