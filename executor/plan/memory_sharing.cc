#include <coracle/executor/plan/memory_plan.h>
#include <coracle/framework/base/checked.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

class MemorySharer {
 public:
  MemorySharer(Plan& plan, const MemoryUsage& usage) : plan_(plan), usage_(usage) {
    overwritten_at_.resize(plan.storages.size());
  }

  void Run() {
    FindLifetimes();
    // In program order, so that a chain (relu, then reshape) ends up in one storage.
    for (const MemoryUsage::Pair& pair : usage_.sharing) Share(pair);
    PlaceResults();
  }

 private:
  Storage& StorageOf(ValueId value) { return plan_.storages[plan_.values[value].storage]; }

  void FindLifetimes() {
    for (const auto& [step, value] : usage_.uses) {
      Storage& s = StorageOf(value);
      if (!s.first || step < s.first) s.first = step;
      if (step > s.last) s.last = step;
    }
    // Results must outlive the run, but the next run overwrites the arena.
    for (ValueId value : plan_.results) {
      Storage& s = StorageOf(value);
      if (s.IsIn<InArena>()) s.place = InResults();
    }
  }

  void Share(const MemoryUsage::Pair& pair) {
    const PlanValue& in = plan_.values[pair.in];
    PlanValue& out = plan_.values[pair.out];
    Storage& a = plan_.storages[in.storage];
    Storage& b = plan_.storages[out.storage];
    if (in.storage == out.storage || !b.IsIn<InArena>()) return;
    if (b.first != pair.step) return;  // it already shares the memory of another input
    if (in.numel != out.numel || SizeOf(in.meta.dtype) != SizeOf(out.meta.dtype)) return;
    if (!(pair.alias ? MayAlias(in, a) : MayOverwrite(pair, in.storage))) return;
    // The input's storage now also holds the output, so it lives as long, and the output's own
    // storage is unused.
    if (!pair.alias) overwritten_at_[in.storage] = pair.step;
    a.last = std::max(a.last, b.last);
    b.first = b.last = StepId();
    out.storage = in.storage;
  }

  // An alias gives two live values the same memory, which nothing may write while both live.
  // Kernels never write feeds and constants, and overwrite arena memory only as its last user; but
  // a later op may update a persistable variable in place.
  bool MayAlias(const PlanValue& in, const Storage& storage) const {
    if (storage.IsIn<PersistableId>()) return usage_.written_names.count(in.name) == 0;
    return storage.IsIn<InArena>() || storage.IsIn<FeedId>() || storage.IsIn<ConstantId>();
  }

  // The op must be the last user of the storage, must read it through only one input (otherwise it
  // might write an element before reading it through the other), and must not have given it to
  // another output.
  bool MayOverwrite(const MemoryUsage::Pair& pair, StorageId storage) const {
    const Storage& s = plan_.storages[storage];
    if (!s.IsIn<InArena>() || s.last != pair.step) return false;
    if (overwritten_at_[storage] == pair.step) return false;
    int readers = 0;
    for (ValueId value : usage_.reads[pair.step]) readers += plan_.values[value].storage == storage;
    return readers == 1;
  }

  // Places results consecutively, without reuse, since all of them live at the end of the run.
  void PlaceResults() {
    int64_t end = 0;
    for (Storage& s : plan_.storages) {
      if (!s.IsIn<InResults>()) continue;
      s.offset = static_cast<uint64_t>(end);
      end = CheckedAdd(end, static_cast<int64_t>(AlignedBytes(s.bytes)));
    }
    plan_.result_bytes = static_cast<uint64_t>(end);
  }

  Plan& plan_;
  const MemoryUsage& usage_;
  IdVector<StorageId, StepId> overwritten_at_;
};

}  // namespace

void ShareMemory(Plan& plan, const MemoryUsage& usage) { MemorySharer(plan, usage).Run(); }

}  // namespace coracle::inline internal
