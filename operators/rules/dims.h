#pragma once
// Arithmetic on dimensions, of which -1 is one that is not known yet, and shapes that a program
// gives by attr or by tensor.

#include <coracle/framework/op/infer_context.h>

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace coracle {

// -1 when one is unknown; throws as CheckedAdd and CheckedMul do.
int64_t AddDims(int64_t a, int64_t b);
int64_t MulDims(int64_t a, int64_t b);
// Product of dims [begin, end).
int64_t ProductOfDims(const Shape& shape, int begin, int end);
// Number of elements, -1 when not known.
int64_t NumelOf(const Shape& shape);

// The dtype that an integer attr names; fails with `id` when there is no such dtype.
DType DTypeFromAttr(const InferContext& ctx, std::string_view id, std::string_view attr);

// A list of integers (a shape, starts, axes) from the first that is there: a slot of one-element
// tensors, a slot of one tensor, an attr.
struct IntList {
  std::vector<int64_t> values;  // -1 where unknown
  bool known = true;            // every value is
};
// When not even the length is known, `otherwise` unknown values are taken. Throws kInvalidArgument
// for tensors that are not int32 or int64, or not of one element where a slot lists them.
IntList ReadIntList(const InferContext& ctx, std::string_view list_slot,
                    std::string_view tensor_slot, std::string_view attr, size_t otherwise = 1);

// The shape of a new tensor (fill_constant, uniform_random): C1 of those ops is that no dimension
// is negative, C2 that the rank is not over Shape::kMaxRank.
Shape ReadNewShape(const InferContext& ctx, std::string_view list_slot,
                   std::string_view tensor_slot, std::string_view attr);

// Shape of the *_batch_size_like ops: attr shape with one dimension from Input. C1: no dimension is
// negative. C2: input_dim_idx is an axis of Input. C3: output_dim_idx is an index of shape.
Shape BatchSizeLikeShape(const InferContext& ctx);

// Fails with `id` when there are more than Shape::kMaxRank dims.
Shape ToShape(const InferContext& ctx, std::string_view id, const std::vector<int64_t>& dims);

}  // namespace coracle
