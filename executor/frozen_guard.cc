#include <coracle/executor/frozen_guard.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace coracle {
namespace {

// Every step is one to one, so that a change of one word always shows; of several changes one in
// 2^64 does not.
uint64_t Mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15;
  return hash ^ hash >> 32;
}

// Four chains, since the multiplications of one wait for each other.
uint64_t Fingerprint(const void* data, size_t size) {
  const auto* bytes = static_cast<const char*>(data);
  std::array<uint64_t, 4> chains = {size, 1, 2, 3};
  for (size_t at = 0; at < size; at += sizeof chains) {
    std::array<uint64_t, 4> words = {};
    std::memcpy(words.data(), bytes + at, std::min(sizeof words, size - at));
    for (size_t i = 0; i < chains.size(); ++i) chains[i] = Mix(chains[i], words[i]);
  }
  for (size_t i = 1; i < chains.size(); ++i) chains[0] = Mix(chains[0], chains[i]);
  return chains[0];
}

[[noreturn]] void ThrowChanged(const std::string& name) {
  ThrowInvalid(fmt::format(
      "the persistable var {} is not what it was when the program was prepared with "
      "frozen parameters; prepare it anew, or with Executor::Prepare, which reads it in each run",
      Quote(name)));
}

}  // namespace

FrozenGuard::FrozenGuard(const std::unordered_map<std::string, Tensor>& values) {
  for (const auto& [name, value] : values) names_.push_back(name);
  std::sort(names_.begin(), names_.end());
  for (const std::string& name : names_) {
    const Tensor& value = values.at(name);
    originals_.push_back({value.dtype(), value.shape(), value.raw(), value.memory(),
                          value.version(), Fingerprint(value.raw(), value.nbytes())});
  }
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
      !tensor->lod().empty()) {  // what has a LoD is not frozen
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

}  // namespace coracle
