#pragma once
// The masks of padding of com.microsoft's attention nodes.

#include <coracle/convert/onnx/import/node_context.h>

namespace coracle::onnx {

// The bias of the scores of q [batch, heads, queries, size] and k [batch, heads, keys, size] that
// follows from the mask in input i:
//   [batch]              the number of keys of each sample
//   [2 * batch]          the same, then the index of the first key
//   [3 * batch + 2]      the same as [batch], then positions in a packed batch, which are ignored
//   [batch, keys]        1 for keys that take part, 0 for others
//   [batch, queries, keys]
//   [batch, 1, most, most] with a row for each position of a query; `past` is the first one,
//                          int64 [1], or empty for 0
// Keys that take no part get the number `hidden`.
Variable PaddingBias(NodeContext& node, size_t i, const Variable& q, const Variable& k,
                     const Variable& past, float hidden);

}  // namespace coracle::onnx
