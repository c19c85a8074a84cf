#include <coracle/framework/base/checked.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

void RequireIntegers(const InferContext& ctx, std::string_view slot, size_t i, bool one) {
  const VarMeta& meta = ctx.Input(slot, i);
  const bool few = !one || !meta.shape.IsKnown() || meta.shape.numel() == 1;
  if (meta.type == VarType::kLoDTensor && IsIndexType(meta.dtype) && few) return;
  ThrowInvalid(fmt::format("{}: {} must be int32 or int64{}, got {}", ctx.op().type(), slot,
                           one ? " of one element" : "", meta.ToString()),
               "  " + Locate(ctx.op()));
}

}  // namespace

int64_t AddDims(int64_t a, int64_t b) { return a < 0 || b < 0 ? -1 : CheckedAdd(a, b); }

int64_t MulDims(int64_t a, int64_t b) { return a < 0 || b < 0 ? -1 : CheckedMul(a, b); }

int64_t ProductOfDims(const Shape& shape, int begin, int end) {
  int64_t product = 1;
  for (int i = begin; i < end; ++i) product = MulDims(product, shape[i]);
  return product;
}

int64_t NumelOf(const Shape& shape) { return shape.IsKnown() ? shape.numel() : -1; }

DType DTypeFromAttr(const InferContext& ctx, std::string_view id, std::string_view attr) {
  const int32_t number = ctx.Attr<int32_t>(attr);
  const DType dtype = static_cast<DType>(number);
  ctx.Require(id, IsValid(dtype), attr, number);
  return dtype;
}

IntList ReadIntList(const InferContext& ctx, std::string_view list_slot,
                    std::string_view tensor_slot, std::string_view attr, size_t otherwise) {
  IntList list;
  if (!list_slot.empty() && ctx.HasInput(list_slot)) {
    for (size_t i = 0; i < ctx.NumInputs(list_slot); ++i) {
      RequireIntegers(ctx, list_slot, i, true);
      auto value = ctx.Value(list_slot, i);
      const bool known = value && value->size() == 1;
      list.values.push_back(known ? value->front() : -1);
      list.known = list.known && known;
    }
    return list;
  }
  if (!tensor_slot.empty() && ctx.HasInput(tensor_slot)) {
    RequireIntegers(ctx, tensor_slot, 0, false);
    if (auto value = ctx.Value(tensor_slot)) {
      list.values = std::move(*value);
      return list;
    }
    const int64_t count = NumelOf(ctx.InputShape(tensor_slot));
    const bool sensible = count >= 0 && count <= Shape::kMaxRank;
    list.values.assign(sensible ? static_cast<size_t>(count) : otherwise, -1);
    list.known = false;
    return list;
  }
  list.values = ctx.Attr<std::vector<int64_t>>(attr);
  return list;
}

Shape ToShape(const InferContext& ctx, std::string_view id, const std::vector<int64_t>& dims) {
  ctx.Require(id, dims.size() <= Shape::kMaxRank, dims.size(), Shape::kMaxRank);
  return Shape(dims);
}

Shape ReadNewShape(const InferContext& ctx, std::string_view list_slot,
                   std::string_view tensor_slot, std::string_view attr) {
  IntList list = ReadIntList(ctx, list_slot, tensor_slot, attr);
  for (int64_t& dim : list.values) {
    ctx.Require("C1", dim >= 0 || (dim == -1 && !ctx.exact()), dim);
  }
  return ToShape(ctx, "C2", list.values);
}

Shape BatchSizeLikeShape(const InferContext& ctx) {
  Shape shape = ToShape(ctx, "C3", ctx.Attr<std::vector<int64_t>>("shape"));
  const Shape& input = ctx.InputShape("Input");
  const int32_t from = ctx.Attr<int32_t>("input_dim_idx");
  const int32_t to = ctx.Attr<int32_t>("output_dim_idx");
  ctx.Require("C2", from >= 0 && from < input.rank(), from, input.rank());
  ctx.Require("C3", to >= 0 && to < shape.rank(), to, shape.rank());
  shape[to] = input[from];
  for (int64_t dim : shape) {
    ctx.Require("C1", dim >= 0 || (dim == -1 && !ctx.exact()), dim);
  }
  return shape;
}

}  // namespace coracle::inline internal
