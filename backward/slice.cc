#include <coracle/backward/forward_graph.h>
#include <coracle/backward/slice.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

using Ops = std::span<const OpDesc* const>;

size_t PositionOf(const OpDesc& op) { return op.block()->IndexOf(op); }

// The ops found from one side (the inputs or the targets), with the number of uses to follow.
class Side {
 public:
  explicit Side(size_t num_ops) : seen_(num_ops, 0) {}
  void Add(size_t position) {
    if (seen_[position]) return;
    seen_[position] = 1;
    found_.push_back(static_cast<uint32_t>(position));
  }
  bool done() const { return next_ == found_.size(); }
  size_t Next() { return found_[next_++]; }
  size_t work = 0;
  std::vector<uint32_t> Sorted() {
    std::sort(found_.begin(), found_.end());
    return std::move(found_);
  }

 private:
  std::vector<uint8_t> seen_;
  std::vector<uint32_t> found_;
  size_t next_ = 0;
};

class Slice {
 public:
  Slice(const BlockDesc& block, const OpRegistry& ops)
      : block_(block), ops_(ops), up_(block.NumOps()), down_(block.NumOps()) {}

  std::vector<uint32_t> Find(const std::vector<std::string>& wanted,
                             const std::vector<std::string>& targets) {
    for (const std::string& target : targets) {
      const Ops writers = block_.Uses(target).writers;
      if (writers.empty()) continue;
      up_.Add(PositionOf(*writers.back()));
      last_ = std::max(last_, PositionOf(*writers.back()) + 1);
    }
    first_ = block_.NumOps();
    for (const std::string& name : wanted) Start(block_.Uses(name));
    // Either side suffices once it is complete. The side that has done less work continues, so the
    // total is about twice the work of the cheaper side.
    while (!up_.done() && !down_.done()) {
      if (up_.work <= down_.work)
        StepUp();
      else
        StepDown();
    }
    return up_.done() ? up_.Sorted() : down_.Sorted();
  }

 private:
  void Start(const VarUses& uses) {
    if (!uses.writers.empty()) first_ = std::min(first_, PositionOf(*uses.writers.front()));
    for (const OpDesc* reader : uses.readers) {
      const size_t at = PositionOf(*reader);
      if (at >= last_) break;
      first_ = std::min(first_, at);
      down_.Add(at);
    }
    // Adds writers that keep a part of the old value.
    for (const OpDesc* writer : uses.writers) {
      if (PositionOf(*writer) < last_) down_.Add(PositionOf(*writer));
    }
  }

  // Follows the variables that an op reads to their writers.
  void StepUp() {
    const size_t at = up_.Next();
    const OpDesc& op = block_.op(at);
    auto add = [&](const std::string& name) {
      ++up_.work;
      const Ops writers = block_.Uses(name).writers;
      auto it = Before(writers, at);
      if (it == writers.begin()) return;
      const size_t writer = PositionOf(**(it - 1));
      if (writer >= first_) up_.Add(writer);
    };
    op.ForEachInput(add);
    if (Keeps(op)) op.ForEachOutput(add);
  }

  // Follows the variables that an op writes to their readers.
  void StepDown() {
    const size_t at = down_.Next();
    block_.op(at).ForEachOutput([&](const std::string& name) {
      const VarUses uses = block_.Uses(name);
      auto next = Before(uses.writers, at + 1);
      const size_t end =
          next == uses.writers.end() ? last_ : std::min(last_, PositionOf(**next) + 1);
      for (auto it = Before(uses.readers, at + 1); it != uses.readers.end(); ++it) {
        ++down_.work;
        if (PositionOf(**it) >= end) break;
        down_.Add(PositionOf(**it));
      }
      if (next != uses.writers.end() && PositionOf(**next) < last_ && Keeps(**next))
        down_.Add(PositionOf(**next));
    });
    ++down_.work;
  }

  static Ops::iterator Before(Ops ops, size_t position) {
    return std::partition_point(ops.begin(), ops.end(),
                                [&](const OpDesc* op) { return PositionOf(*op) < position; });
  }
  bool Keeps(const OpDesc& op) const {
    const OpSpec* def = ops_.Find(op.type());
    return def && !def->keeps_outputs.empty();
  }

  const BlockDesc& block_;
  const OpRegistry& ops_;
  Side up_, down_;
  size_t first_ = 0, last_ = 0;  // only ops in [first_, last_) can be on a path
};

}  // namespace

std::optional<std::vector<uint32_t>> OpsBetween(const BlockDesc& block, const OpRegistry& ops,
                                                const std::vector<std::string>& wanted,
                                                const std::vector<std::string>& targets) {
  for (const OpDesc* op : block.SubBlockOps()) {
    if (UsesUnlistedNames(*op)) return std::nullopt;
  }
  return Slice(block, ops).Find(wanted, targets);
}

}  // namespace coracle::inline internal
