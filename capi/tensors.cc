#include <coracle/capi/border.h>
#include <coracle/capi/tensors.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

namespace coracle::capi {
namespace {

void CheckStruct(const coracle_tensor& tensor, const std::string& what) {
  if (tensor.struct_size < sizeof(coracle_tensor)) {
    ThrowInvalid(fmt::format("{}: struct_size is {}; it must be sizeof(coracle_tensor), {}", what,
                             tensor.struct_size, sizeof(coracle_tensor)));
  }
}

bool Overlap(const Tensor& a, const Tensor& b) {
  if (a.nbytes() == 0 || b.nbytes() == 0) return false;
  const auto x = reinterpret_cast<uintptr_t>(a.raw()), y = reinterpret_cast<uintptr_t>(b.raw());
  return x < y + b.nbytes() && y < x + a.nbytes();
}

bool LiesIn(const Tensor& result, const Results::Others& others) {
  const auto overlaps = [&](const Tensor& other) { return Overlap(result, other); };
  if (std::any_of(others.feeds.begin(), others.feeds.end(), overlaps)) return true;
  return std::any_of(others.state.begin(), others.state.end(), [&](const VarValue* value) {
    const auto* tensor = std::get_if<Tensor>(value);
    return tensor && overlaps(*tensor);
  });
}

// Checks elements that kernels do not check: a bool must be 0 or 1, a text must have its bytes.
void CheckElements(const coracle_tensor& from, DType dtype, const std::string& what) {
  if (dtype == DType::kBool) {
    const auto* bytes = static_cast<const unsigned char*>(from.data);
    const auto* wrong = std::find_if(bytes, bytes + from.bytes, [](auto byte) { return byte > 1; });
    if (wrong == bytes + from.bytes) return;
    ThrowInvalid(fmt::format("{}: element {} is {}, but a bool is 0 or 1", what, wrong - bytes,
                             static_cast<int>(*wrong)));
  }
  if (dtype != DType::kString) return;
  const auto* texts = static_cast<const coracle_string*>(from.data);
  for (uint64_t i = 0; i < from.bytes / sizeof(coracle_string); ++i) {
    if (texts[i].size > 0 && !texts[i].data)
      ThrowInvalid(
          fmt::format("{}: element {} has {} bytes, but its data is NULL", what, i, texts[i].size));
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
  CheckElements(from, dtype, what);
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

void CheckOutput(const coracle_tensor& to, const std::string& what) {
  CheckStruct(to, what);
  if (to.capacity > 0 && !to.data)
    ThrowInvalid(fmt::format("{}: capacity is {}, but data is NULL", what, to.capacity));
}

const std::vector<const VarValue*>& StateTensors::Of(const Scope& scope) {
  if (generation_ == scope.Generation()) return values_;
  values_.clear();
  for (const std::string& name : scope.LocalNames()) values_.push_back(scope.Find(name));
  generation_ = scope.Generation();
  return values_;
}

void Results::Fill(std::span<const Tensor> from, const Others& others,
                   std::span<const std::string> names, coracle_tensor* to) {
  size_t small = from.size();
  for (size_t i = from.size(); i-- > 0;) {
    if (to[i].capacity == 0) continue;
    if (from[i].dtype() == DType::kString)
      ThrowInvalid(names[i] + ": a result of strings cannot be copied; it needs a capacity of 0");
    if (to[i].capacity < from[i].nbytes()) small = i;
  }
  if (small < from.size()) {
    for (size_t i = 0; i < from.size(); ++i) to[i].bytes = from[i].nbytes();
    throw Error(
        ErrorCode::kOutOfRange,
        fmt::format("{}: the result, {}, has {} bytes, but there is room for {}", names[small],
                    from[small].ToString(), from[small].nbytes(), to[small].capacity));
  }
  // All copies come first: what is written below may be the memory of another result.
  std::vector<Tensor> copies(from.size());
  for (size_t i = 0; i < from.size(); ++i)
    if (LiesIn(from[i], others)) copies[i] = from[i].Clone();
  if (kept_.size() < from.size()) kept_.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) {
    kept_[i].copy = std::move(copies[i]);
    FillOne(from[i], kept_[i], &to[i]);
  }
}

void Results::FillOne(const Tensor& from, Kept& kept, coracle_tensor* to) {
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
  to->bytes = from.nbytes();
  // The caller may write there: the elements belong to it until the next run.
  const void* data = kept.copy.empty() ? from.raw() : std::as_const(kept.copy).raw();
  if (to->capacity == 0)
    to->data = const_cast<void*>(data);
  else if (to->bytes > 0)
    std::memcpy(to->data, data, to->bytes);
}

}  // namespace coracle::capi
