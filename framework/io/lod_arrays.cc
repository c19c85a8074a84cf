#include <coracle/framework/base/text.h>
#include <coracle/framework/io/internal/lod_arrays.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

namespace coracle::inline internal {
namespace {

constexpr std::string_view kInfix = "@LOD@";
constexpr int64_t kMaxLevels = 64;

// Splits "x@LOD@1" into the name x and level 1; returns false for other names.
bool IsLevel(const std::string& key, std::string* name, int64_t* level) {
  const size_t at = key.rfind(kInfix);
  if (at == std::string::npos) return false;
  const std::string number = key.substr(at + kInfix.size());
  if (number.empty() || number.find_first_not_of("0123456789") != std::string::npos) return false;
  *name = key.substr(0, at);
  return ParseInt64(number, level);
}

std::vector<uint64_t> OffsetsOf(const std::string& key, const Tensor& array,
                                const std::string& source) {
  if (array.shape().rank() != 1 || !IsInteger(array.dtype())) {
    ThrowInvalid(fmt::format("{}: {} must be a vector of integers, got {}", source, Quote(key),
                             array.ToString()));
  }
  const Tensor wide = array.Cast(DType::kInt64);
  std::vector<uint64_t> offsets;
  for (const int64_t offset : wide.span<int64_t>()) {
    if (offset < 0)
      ThrowInvalid(fmt::format("{}: {} has the offset {}", source, Quote(key), offset));
    offsets.push_back(static_cast<uint64_t>(offset));
  }
  return offsets;
}

}  // namespace

NamedTensors TakeLodArrays(NamedTensors arrays, const std::string& source) {
  NamedTensors tensors;
  std::map<std::string, std::map<int64_t, std::vector<uint64_t>>> lods;
  for (auto& [key, array] : arrays) {
    std::string name;
    int64_t level = 0;
    if (!IsLevel(key, &name, &level)) {
      tensors.emplace_back(key, std::move(array));
      continue;
    }
    if (level >= kMaxLevels)
      ThrowInvalid(fmt::format("{}: {} is a level beyond {}", source, Quote(key), kMaxLevels - 1));
    lods[name][level] = OffsetsOf(key, array, source);
  }
  if (lods.empty()) return tensors;
  std::unordered_map<std::string_view, Tensor*> by_name;
  for (auto& [name, tensor] : tensors) by_name.emplace(name, &tensor);
  for (auto& [name, levels] : lods) {
    const auto found = by_name.find(name);
    if (found == by_name.end()) {
      ThrowInvalid(fmt::format("{}: there are offsets {} without {}", source,
                               Quote(fmt::format("{}{}{}", name, kInfix, levels.begin()->first)),
                               Quote(name)));
    }
    Tensor& tensor = *found->second;
    tensor.lod().clear();
    for (auto& [level, offsets] : levels) {
      const auto next = static_cast<int64_t>(tensor.lod().size());
      if (level != next) {
        ThrowInvalid(fmt::format("{}: {} has level {} of LoD, but no {}", source, Quote(name),
                                 level, Quote(fmt::format("{}{}{}", name, kInfix, next))));
      }
      tensor.lod().push_back(std::move(offsets));
    }
    try {
      CheckLod(name, tensor);
    } catch (const Error& e) {
      throw e.WithPrefix(source);
    }
  }
  return tensors;
}

NamedTensors WithLodArrays(const NamedTensors& tensors) {
  NamedTensors arrays;
  for (const auto& [name, tensor] : tensors) {
    arrays.emplace_back(name, tensor);
    CheckLod(name, tensor);
    if (tensor.lod().size() > static_cast<size_t>(kMaxLevels))
      ThrowInvalid(fmt::format("{} has {} levels of LoD; {} can be written", Quote(name),
                               tensor.lod().size(), kMaxLevels));
    for (size_t k = 0; k < tensor.lod().size(); ++k) {
      const std::vector<uint64_t>& level = tensor.lod()[k];
      Tensor offsets(DType::kInt64, {static_cast<int64_t>(level.size())});
      std::copy(level.begin(), level.end(), offsets.data<int64_t>());
      arrays.emplace_back(fmt::format("{}{}{}", name, kInfix, k), std::move(offsets));
    }
  }
  return arrays;
}

}  // namespace coracle::inline internal
