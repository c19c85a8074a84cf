#pragma once
// Arithmetic on dimensions (-1: not known yet), and shapes that a program gives by attr or
// by tensor.

#include <coracle/framework/op/op_context.h>

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace coracle::inline internal {

// -1 if one is unknown; throws like CheckedAdd and CheckedMul.
int64_t AddDims(int64_t a, int64_t b);
int64_t MulDims(int64_t a, int64_t b);
// Product of dims [begin, end).
int64_t ProductOfDims(const Shape& shape, int begin, int end);
// Number of elements; -1 if unknown.
int64_t NumelOf(const Shape& shape);

// The dtype that an integer attr names; fails with `id` if there is no such dtype.
DType DTypeFromAttr(const InferContext& ctx, std::string_view id, std::string_view attr);

// A list of integers (a shape, starts, axes) from the first source that is given: a slot of
// one-element tensors, a slot of one tensor, an attr.
struct IntList {
  std::vector<int64_t> values;  // -1 where unknown
  bool known = true;            // whether every value is known
};
// If even the length is unknown, returns `otherwise` unknown values. Throws kInvalidArgument for
// tensors that are not int32 or int64, or, in a slot that lists numbers, do not have one element.
IntList ReadIntList(const InferContext& ctx, std::string_view list_slot,
                    std::string_view tensor_slot, std::string_view attr, size_t otherwise = 1);

// The shape of a new tensor (fill_constant, uniform_random). C1 of those ops requires that no
// dimension is negative, C2 that the rank does not exceed Shape::kMaxRank.
Shape ReadNewShape(const InferContext& ctx, std::string_view list_slot,
                   std::string_view tensor_slot, std::string_view attr);

// Shape of the *_batch_size_like ops: attr shape with one dimension from Input. C1: no dimension is
// negative. C2: input_dim_idx is an axis of Input. C3: output_dim_idx is an index of shape.
Shape BatchSizeLikeShape(const InferContext& ctx);

// Fails with `id` if there are more than Shape::kMaxRank dims.
Shape ToShape(const InferContext& ctx, std::string_view id, const std::vector<int64_t>& dims);

}  // namespace coracle::inline internal
