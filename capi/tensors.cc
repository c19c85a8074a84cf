#include <coracle/capi/border.h>
#include <coracle/capi/tensors.h>
#include <fmt/format.h>

#include <cstring>

namespace coracle::capi {
namespace {

void CheckStruct(const coracle_tensor& tensor, const std::string& what) {
  if (tensor.struct_size < sizeof(coracle_tensor)) {
    ThrowInvalid(fmt::format("{}: struct_size is {}; it must be sizeof(coracle_tensor), {}", what,
                             tensor.struct_size, sizeof(coracle_tensor)));
  }
}

}  // namespace

void ViewOf(const coracle_tensor& from, const std::string& what, Tensor* tensor) {
  CheckStruct(from, what);
  const auto dtype = static_cast<DType>(from.dtype);
  if (!IsValid(dtype)) ThrowInvalid(fmt::format("{}: {} is no dtype", what, from.dtype));
  if (from.rank < 0 || from.rank > Shape::kMaxRank) {
    ThrowInvalid(
        fmt::format("{}: the rank must be from 0 to {}, got {}", what, Shape::kMaxRank, from.rank));
  }
  if (from.rank > 0 && !from.dims) ThrowInvalid(what + ": dims is NULL");
  const Shape shape(std::span<const int64_t>(from.dims, static_cast<size_t>(from.rank)));
  for (int64_t dim : shape)
    if (dim < 0) ThrowInvalid(fmt::format("{}: a dim is {}", what, dim));
  const uint64_t bytes = ByteSize(dtype, shape);
  if (bytes != from.bytes) {
    ThrowInvalid(fmt::format("{}: {} of shape {} has {} bytes, but bytes is {}", what,
                             ToString(dtype), shape.ToString(), bytes, from.bytes));
  }
  if (bytes > 0 && !from.data) ThrowInvalid(what + ": data is NULL");
  *tensor = Tensor::View(dtype, shape, from.data);
  if (from.lod_levels == 0) return;
  if (from.lod_levels < 0 || !from.lod || !from.lod_sizes)
    ThrowInvalid(what + ": lod_levels needs lod and lod_sizes");
  for (int32_t level = 0; level < from.lod_levels; ++level) {
    if (!from.lod[level]) ThrowInvalid(fmt::format("{}: lod[{}] is NULL", what, level));
    tensor->lod().emplace_back(from.lod[level], from.lod[level] + from.lod_sizes[level]);
  }
  CheckLod(what, *tensor);
}

void Results::Fill(size_t index, const Tensor& from, const std::string& what, coracle_tensor* to) {
  CheckStruct(*to, what);
  if (kept_.size() <= index) kept_.resize(index + 1);
  Kept& kept = kept_[index];
  kept.dims.assign(from.shape().begin(), from.shape().end());
  kept.lod = from.lod();
  kept.levels.clear();
  kept.sizes.clear();
  for (const auto& level : kept.lod) {
    kept.levels.push_back(level.data());
    kept.sizes.push_back(level.size());
  }
  to->dtype = static_cast<int32_t>(from.dtype());
  to->rank = from.shape().rank();
  to->dims = kept.dims.data();
  to->lod_levels = static_cast<int32_t>(kept.lod.size());
  to->lod = kept.levels.data();
  to->lod_sizes = kept.sizes.data();
  const uint64_t room = to->bytes;
  to->bytes = from.nbytes();
  if (!to->data) {
    // The caller may write there: the elements belong to it until the next run.
    to->data = const_cast<void*>(from.raw());
    return;
  }
  if (from.dtype() == DType::kString)
    ThrowInvalid(what + ": a result of strings needs data of NULL");
  if (room < to->bytes) {
    throw Error(ErrorCode::kOutOfRange,
                fmt::format("{}: the result, {}, has {} bytes, but there is room for {}", what,
                            from.ToString(), to->bytes, room));
  }
  if (to->bytes > 0) std::memcpy(to->data, from.raw(), to->bytes);
}

}  // namespace coracle::capi
