#pragma once
// Rotary position embedding: rotates pairs of the elements of a head. The angles follow from the
// position of the token.

#include <coracle/convert/onnx/import/node_context.h>

namespace coracle::onnx {

struct Rotation {
  // [batch or 1, 1, length, half].
  Variable cos, sin;
  int64_t size = 0;    // number of rotated elements of a head
  bool given = false;  // by the caller, so that a run may have other samples here than in x
};

// Tables [positions, size / 2], of which `ids` [batch or 1, length] selects rows; without ids,
// tables [batch, length, size / 2].
Rotation RotationOf(NodeContext& node, const Variable& cos, const Variable& sin,
                    const Variable& ids, int64_t size);

// Positions [batch or 1, length], or rows of a table [batch or 1, length, any], for the tokens of x
// [batch, heads, length, size], where `what` names them: one of them must not serve all tokens. If
// only a run knows the numbers, it checks them.
Variable ForTokens(NodeContext& node, const Variable& given, const Variable& x, const char* what);

// Rotates the first elements of the heads in x [batch, heads, length, size]. Pairs are neighbours,
// or an element of the first half and one of the second. The result has the shape of x: if
// there are positions of more samples, the run fails.
Variable Rotated(NodeContext& node, const Variable& x, const Rotation& by, bool neighbours);

}  // namespace coracle::onnx
