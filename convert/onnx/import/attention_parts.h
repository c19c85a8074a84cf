#pragma once
// Shared by importers of attention: heads, masks and the products. Heads are in tensors
// [batch, heads, length, size]; scores are [batch, heads, queries, keys].

#include <coracle/convert/onnx/import/indices.h>

#include <string>
#include <vector>

namespace coracle::onnx {

// [batch, length, heads * size] as [batch, heads, length, size].
Variable WithHeads(NodeContext& node, const Variable& x, int64_t heads);
// The inverse of WithHeads.
Variable WithoutHeads(NodeContext& node, const Variable& x);
// Repeats each head of K or V for each of the `times` heads of Q that share it.
Variable WithRepeatedHeads(NodeContext& node, const Variable& x, int64_t times);
// Throws unless `kv_heads` is a divisor of `q_heads`, and both are below 2^20.
void RequireShared(NodeContext& node, int64_t q_heads, int64_t kv_heads);

// x, int64, as it is. The run fails with the reason `why` if an element of `wrong` is true, which
// broadcasts to x. The error shows the first 80 characters.
Variable CheckedAtRun(NodeContext& node, const Variable& x, const Variable& wrong,
                      const std::string& why);
// x in dims that only a run knows, all of them: it fails unless x has as many elements.
Variable InDims(NodeContext& node, const Variable& x, const Dims& dims);
// The vector x, whose length must be `length`.
Variable OfLength(NodeContext& node, const Variable& x, int64_t length, const char* what);

// 0 for keys that take part, minus infinity for others: the logarithm of 1 and 0.
Variable BiasOf(NodeContext& node, const Variable& takes_part, DType dtype);

// The positions of the queries among the keys, int64 [queries, 1], or [batch, 1, queries, 1] if
// `past`, the number of keys before the first query, has a number for each sample. `past` may be
// an empty Variable.
Variable PositionsOfQueries(NodeContext& node, const Variable& q, const Variable& past);
// Hides the keys after each query.
Variable CausalBias(NodeContext& node, const Variable& k, const Variable& queries, DType dtype);

// Whether a query may see no key, given a mask in input `mask` (if it is there) and a causal bias,
// which leaves the first key.
bool MayBeBlind(const NodeContext& node, size_t mask, bool causal);

// Queries that see no key: their rows of the bias are -inf throughout, for which a softmax would
// give nan. The operator's result for them is 0.
struct Blind {
  Variable rows;  // bool [..., queries, 1]; {} if each query sees a key
  Variable bias;  // 0 in these rows
};
Blind BlindOf(NodeContext& node, const Variable& bias);
Variable ZeroInBlind(NodeContext& node, const Blind& blind, const Variable& x);

// x times `scale`; for 0 times 1 / sqrt(the size of a head).
Variable ScaledHeads(NodeContext& node, const Variable& x, float scale);

struct Product {
  Variable q, k, v;  // as many heads of each
  float scale = 0, softcap = 0;
  Variable bias = {};  // added to the scores; may be empty
  bool may_be_blind = false;
  Variable sink = {};  // one more score for each query, of a key without a value; may be empty
};
// softmax(softcap(Q K^T scale) + bias) V.
Variable Attended(NodeContext& node, const Product& product);

}  // namespace coracle::onnx
