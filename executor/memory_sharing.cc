#include <coracle/executor/internal/planner.h>
#include <coracle/framework/base/checked.h>

#include <algorithm>

namespace coracle {
namespace {

size_t Index(int32_t i) { return static_cast<size_t>(i); }

class MemorySharer {
 public:
  MemorySharer(Plan& plan, const MemoryUsage& usage) : plan_(plan), usage_(usage) {}

  void Run() {
    FindLifetimes();
    // In program order, so that chains (relu, then reshape) end in one storage.
    for (const MemoryUsage::Pair& pair : usage_.sharing) Share(pair);
    PlaceFetched();
  }

 private:
  Storage& StorageOf(int32_t value) {
    return plan_.storages[Index(plan_.values[Index(value)].storage)];
  }

  void FindLifetimes() {
    for (const auto& [step, value] : usage_.uses) {
      Storage& s = StorageOf(value);
      if (s.first < 0 || step < s.first) s.first = step;
      if (step > s.last) s.last = step;
    }
    for (int32_t value : plan_.fetch_values) {
      Storage& s = StorageOf(value);
      if (s.kind == StorageKind::kArena) s.kind = StorageKind::kFetched;
    }
  }

  void Share(const MemoryUsage::Pair& pair) {
    const PlanValue& in = plan_.values[Index(pair.in)];
    PlanValue& out = plan_.values[Index(pair.out)];
    Storage& a = plan_.storages[Index(in.storage)];
    Storage& b = plan_.storages[Index(out.storage)];
    if (in.storage == out.storage || b.kind != StorageKind::kArena) return;
    if (b.first != pair.step) return;  // it has the memory of another input already
    if (in.numel != out.numel || SizeOf(in.meta.dtype) != SizeOf(out.meta.dtype)) return;
    if (!(pair.alias ? MayAlias(in, a) : MayOverwrite(pair, in.storage))) return;
    if (!pair.alias) overwritten_at_[in.storage] = pair.step;
    a.last = std::max(a.last, b.last);
    b.first = b.last = -1;
    out.storage = in.storage;
  }

  // Two live names for one memory: only where nothing writes it while they live.
  bool MayAlias(const PlanValue& in, const Storage& storage) const {
    switch (storage.kind) {
      case StorageKind::kArena:
      case StorageKind::kFeed:
      case StorageKind::kConstant:
        return true;
      case StorageKind::kPersistable:
        return usage_.writes_of_names->count(in.name) == 0;
      default:
        return false;
    }
  }

  // The op is the last to use the storage, reads it through one input only, and has not given it to
  // another output.
  bool MayOverwrite(const MemoryUsage::Pair& pair, int32_t storage) const {
    const Storage& s = plan_.storages[Index(storage)];
    if (s.kind != StorageKind::kArena || s.last != pair.step) return false;
    auto taken = overwritten_at_.find(storage);
    if (taken != overwritten_at_.end() && taken->second == pair.step) return false;
    int readers = 0;
    for (int32_t value : usage_.step_inputs[Index(pair.step)]) {
      readers += plan_.values[Index(value)].storage == storage;
    }
    return readers == 1;
  }

  void PlaceFetched() {
    for (Storage& s : plan_.storages) {
      if (s.kind != StorageKind::kFetched) continue;
      s.offset = plan_.fetch_bytes;
      plan_.fetch_bytes = static_cast<uint64_t>(CheckedAdd(
          static_cast<int64_t>(plan_.fetch_bytes), static_cast<int64_t>((s.bytes + 63) / 64 * 64)));
    }
  }

  Plan& plan_;
  const MemoryUsage& usage_;
  std::unordered_map<int32_t, int32_t> overwritten_at_;  // storage -> step
};

}  // namespace

void ShareMemory(Plan& plan, const MemoryUsage& usage) { MemorySharer(plan, usage).Run(); }

}  // namespace coracle
