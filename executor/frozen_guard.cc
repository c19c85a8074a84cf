#include <coracle/executor/frozen_guard.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/tensor/fingerprint.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

[[noreturn]] void ThrowChanged(const std::string& name) {
  ThrowInvalid(fmt::format(
      "the persistable var {} has changed since the program was prepared with frozen parameters; "
      "prepare it again, or with Executor::Prepare, which reads it in each run",
      Quote(name)));
}

}  // namespace

FrozenGuard::FrozenGuard(const std::unordered_map<std::string, Tensor>& values) {
  for (const auto& [name, value] : values) names_.push_back(name);
  std::sort(names_.begin(), names_.end());
  for (const std::string& name : names_) {
    const Tensor& value = values.at(name);
    originals_.push_back(
        {value.dtype(), value.shape(), value.raw(), value.memory(), value.version(), 0});
  }
  ParallelFor(static_cast<int64_t>(names_.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      originals_[i].fingerprint = Fingerprint(originals_[i].data, values.at(names_[i]).nbytes());
  });
}

void FrozenGuard::LookUp(const Scope& scope, Watch* watch) const {
  watch->scope = &scope;
  watch->generation = scope.Generation();
  while (watch->seen.size() < names_.size())
    watch->seen.push_back({nullptr, originals_[watch->seen.size()].version});
  for (size_t i = 0; i < names_.size(); ++i) watch->seen[i].held = scope.Find(names_[i]);
}

void FrozenGuard::Check(const Scope& scope, Watch* watch) const {
  if (names_.empty()) return;
  if (watch->scope != &scope || watch->generation != scope.Generation()) LookUp(scope, watch);
  for (size_t i = 0; i < names_.size(); ++i) {
    CheckFrozen(i, &watch->seen[i]);
    CheckHeld(i, &watch->seen[i]);
  }
}

void FrozenGuard::CheckFrozen(size_t i, Watch::Seen* seen) const {
  const Original& original = originals_[i];
  const std::shared_ptr<void> memory = original.memory.lock();
  if (!memory) return;
  const uint64_t version = Tensor::VersionOf(memory);
  if (version == seen->frozen) return;
  const size_t size = ByteSize(original.dtype, original.shape);
  if (Fingerprint(original.data, size) != original.fingerprint) ThrowChanged(names_[i]);
  seen->frozen = version;
}

void FrozenGuard::CheckHeld(size_t i, Watch::Seen* seen) const {
  if (!seen->held || std::holds_alternative<std::monostate>(*seen->held)) return;
  const Original& original = originals_[i];
  const auto* tensor = std::get_if<Tensor>(seen->held);
  if (!tensor || tensor->dtype() != original.dtype || !(tensor->shape() == original.shape) ||
      !tensor->lod().empty()) {  // tensors with LoD are never frozen
    ThrowChanged(names_[i]);
  }
  const uint64_t version = tensor->version();
  const void* data = tensor->raw();
  if (version != 0) {
    if (version == seen->frozen && data == original.data) return;
    if (version == seen->version && data == seen->data) return;
  }
  if (Fingerprint(data, tensor->nbytes()) != original.fingerprint) ThrowChanged(names_[i]);
  seen->version = version;
  seen->data = data;
}

}  // namespace coracle::inline internal
