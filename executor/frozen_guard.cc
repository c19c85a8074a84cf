#include <coracle/executor/frozen_guard.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace coracle {
namespace {

// Every step is one to one, so that a change of one word always shows; of several changes one in
// 2^64 does not.
uint64_t Fingerprint(const Tensor& tensor) {
  const auto* bytes = static_cast<const char*>(tensor.raw());
  uint64_t hash = tensor.nbytes();
  for (size_t at = 0; at < tensor.nbytes(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + at, std::min(sizeof word, tensor.nbytes() - at));
    hash = (hash ^ word) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
  }
  return hash;
}

[[noreturn]] void ThrowChanged(const std::string& name) {
  ThrowInvalid(fmt::format(
      "the persistable var {} of the scope is not what it was when the program was prepared with "
      "frozen parameters; prepare it anew, or with Executor::Prepare, which reads it in each run",
      Quote(name)));
}

}  // namespace

FrozenGuard::FrozenGuard(const std::unordered_map<std::string, Tensor>& values) {
  for (const auto& [name, value] : values) names_.push_back(name);
  std::sort(names_.begin(), names_.end());
  for (const std::string& name : names_) {
    const Tensor& value = values.at(name);
    originals_.push_back({value.dtype(), value.shape(), value.version(), Fingerprint(value)});
  }
}

void FrozenGuard::LookUp(const Scope& scope, Watch* watch) const {
  watch->scope = &scope;
  watch->generation = scope.Generation();
  watch->seen.clear();
  for (size_t i = 0; i < names_.size(); ++i)
    watch->seen.push_back({scope.Find(names_[i]), originals_[i].version});
}

void FrozenGuard::Check(const Scope& scope, Watch* watch) const {
  if (names_.empty()) return;
  if (watch->scope != &scope || watch->generation != scope.Generation()) LookUp(scope, watch);
  for (size_t i = 0; i < names_.size(); ++i) {
    Watch::Seen& seen = watch->seen[i];
    if (!seen.held || std::holds_alternative<std::monostate>(*seen.held)) continue;
    const Original& original = originals_[i];
    const auto* tensor = std::get_if<Tensor>(seen.held);
    if (!tensor || tensor->dtype() != original.dtype || !(tensor->shape() == original.shape))
      ThrowChanged(names_[i]);
    const uint64_t version = tensor->version();
    if (version != 0 && version == seen.version) continue;
    if (Fingerprint(*tensor) != original.fingerprint) ThrowChanged(names_[i]);
    seen.version = version;
  }
}

}  // namespace coracle
