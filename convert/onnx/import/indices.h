#pragma once
// Shared by importers of ops on indices and axes.

#include <coracle/convert/onnx/import/node_context.h>

#include <string>
#include <vector>

namespace coracle::onnx {

// A bound of a slice, which may be arbitrarily far outside of a tensor.
int32_t Clamped(int64_t value);

// The number of elements of the vector in input i: the rank of a shape. Throws kUnimplemented if it
// is not known.
int LengthOf(NodeContext& node, size_t i, const char* what);

// The length of an axis of x, int64 [1]; a constant if it is known.
Variable DimOf(NodeContext& node, const Variable& x, int axis);

// Moves axis `from` of x to position `to`; the other axes keep their order; -1 is the last one.
Variable MoveAxis(NodeContext& node, const Variable& x, int from, int to);

// Dims of a result: those of a variable (some may be known only at run time), or numbers.
class Dims {
 public:
  Dims& Add(int64_t dim);                   // not negative
  Dims& Add(const Variable& of, int axis);  // the length of that axis
  Dims& Add(const Variable& of, int begin, int end);
  Dims& AddNumber(const Variable& dim);          // int64 [1]
  const Shape& shape() const { return shape_; }  // -1: not known
  // As an int64 vector.
  Variable ToVector(NodeContext& node) const;

 private:
  struct Source {
    Variable of;
    int axis = 0;  // -1: the variable is the number
  };
  Shape shape_;
  std::vector<Source> sources_;  // of each dim
};

// x in a shape with at most one unknown dim; throws for more.
Variable Reshaped(NodeContext& node, const Variable& x, const Shape& shape);
// x in the shape of these dims.
Variable Reshaped(NodeContext& node, const Variable& x, const Dims& dims);
// x in the shape of an int64 vector, of which `known` tells what is known. A 0 is a dimension of 0.
Variable ReshapedBy(NodeContext& node, const Variable& x, const Variable& shape,
                    const Shape& known);

// x broadcast to the shape of these dims by the rules of ONNX.
Variable BroadcastTo(NodeContext& node, const Variable& x, const Dims& dims);

// Input i as int64 [1].
Variable NumberOf(NodeContext& node, size_t i);
// 0, 1, ... up to `end` (int64 [1]), which is not included; {} if it is negative.
Variable Counted(NodeContext& node, const Variable& end);
// begin, begin + 1, ... up to `end`; {} if there is none.
Variable Counted(NodeContext& node, const Variable& begin, const Variable& end);
// 0, 1, ... up to the length of an axis of x; a constant if that is known, and small.
Variable PlacesOn(NodeContext& node, const Variable& x, int axis);
// The vector as a line along an axis of a tensor of that rank, whose other dims are 1.
Variable AlongAxis(NodeContext& node, const Variable& line, int axis, int rank);
// Elements of x in slices [starts, ends) along the axis, bounds int64 [1].
Variable SliceBetween(NodeContext& node, const Variable& x, int axis, const Variable& start,
                      const Variable& end);

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
