#include <coracle/framework/op/check/block_use.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>

namespace coracle::inline internal {
namespace {

using Names = std::set<std::string>;

class BlockUseFinder {
 public:
  explicit BlockUseFinder(const ProgramDesc& program)
      : program_(program),
        n_(static_cast<size_t>(program.NumBlocks())),
        uses_(n_),
        free_(n_),
        writes_(n_),
        saved_(n_),
        persistable_(n_) {}

  std::vector<BlockUse> Run() {
    uses_[0].reached = true;
    for (size_t b = 0; b < n_; ++b) {
      if (uses_[b].reached) MarkSubBlocks(b);
    }
    for (size_t b = n_; b-- > 0;) CollectFree(b);
    for (size_t b = n_; b-- > 0;) SeparateSaved(b);
    for (size_t b = n_; b-- > 0;) CollectPersistable(b);
    for (size_t b = 0; b < n_; ++b) Fill(b);
    return std::move(uses_);
  }

 private:
  const BlockDesc& Block(size_t b) const { return program_.Block(static_cast<int>(b)); }

  template <class F>
  void ForEachSubBlock(size_t b, F f) const {
    Block(b).ForEachOp([&](const OpDesc& op) {
      for (int sub : op.SubBlocks()) {
        if (sub > static_cast<int>(b) && sub < program_.NumBlocks()) f(static_cast<size_t>(sub));
      }
    });
  }

  void MarkSubBlocks(size_t b) {
    ForEachSubBlock(b, [&](size_t sub) { uses_[sub].reached = true; });
  }

  // Called from the last block to the first, since sub-blocks come after their blocks. Collects
  // too many names for nested gradient blocks; SeparateSaved removes those that they read from
  // saved values.
  void CollectFree(size_t b) {
    if (b == 0) return;
    const BlockDesc& block = Block(b);
    for (std::string& name : OuterReads(block)) free_[b].insert(std::move(name));
    for (std::string& name : OuterWrites(block)) {
      free_[b].insert(name);
      writes_[b].insert(std::move(name));
    }
    ForEachSubBlock(b, [&](size_t sub) {
      for (const std::string& name : writes_[sub]) {
        if (!block.FindVar(name)) writes_[b].insert(name);
      }
    });
  }

  // Separates, from the innermost block outwards, the values that a gradient block reads from the
  // runs of the forward block.
  void SeparateSaved(size_t b) {
    ForEachSubBlock(b, [&](size_t sub) {
      if (b == 0) return;
      for (const std::string& name : free_[sub]) {
        if (!Block(b).FindVar(name)) free_[b].insert(name);
      }
    });
    const BlockDesc* forward = Block(b).forward_block();
    if (b == 0 || !forward || !uses_[b].reached) return;
    const size_t f = static_cast<size_t>(forward->idx());
    uses_[f].has_gradient = true;
    for (const std::string& name : free_[b]) {
      if (forward->FindVar(name) || writes_[f].count(name)) reads_saved_[b].insert(name);
    }
    for (const std::string& name : reads_saved_[b]) {
      free_[b].erase(name);
      saved_[f].insert(name);
    }
  }

  void CollectPersistable(size_t b) {
    const BlockDesc& block = Block(b);
    block.ForEachOp([&](const OpDesc& op) {
      op.ForEachOutput([&](const std::string& name) {
        const VarDesc* var = block.FindVarRecursive(name);
        if (var && var->persistable()) persistable_[b].insert(name);
      });
    });
    ForEachSubBlock(b, [&](size_t sub) {
      persistable_[b].insert(persistable_[sub].begin(), persistable_[sub].end());
    });
  }

  void Fill(size_t b) {
    BlockUse& use = uses_[b];
    use.saved.assign(saved_[b].begin(), saved_[b].end());
    for (const std::string& name : free_[b]) {
      const VarDesc* var = Block(b).FindVarRecursive(name);
      if (var && var->persistable()) continue;
      use.captured.push_back(name);
      use.written.push_back(writes_[b].count(name) > 0);
    }
    use.writes.assign(writes_[b].begin(), writes_[b].end());
    use.writes_persistable.assign(persistable_[b].begin(), persistable_[b].end());
    const BlockDesc* forward = Block(b).forward_block();
    auto reads = reads_saved_.find(b);
    if (!forward || reads == reads_saved_.end()) return;
    const Names& saved = saved_[static_cast<size_t>(forward->idx())];
    for (const std::string& name : reads->second) {
      const auto position = std::distance(saved.begin(), saved.find(name));
      use.reads_saved.emplace_back(name, static_cast<size_t>(position));
    }
  }

  const ProgramDesc& program_;
  size_t n_;
  std::vector<BlockUse> uses_;
  std::vector<Names> free_, writes_, saved_, persistable_;
  std::map<size_t, Names> reads_saved_;
};

std::vector<std::string> OuterNames(const BlockDesc& block, bool writes) {
  std::vector<std::string> names;
  std::unordered_set<std::string_view> seen;
  auto add = [&](const std::string& name) {
    if (!block.FindVar(name) && seen.insert(name).second) names.push_back(name);
  };
  block.ForEachOp([&](const OpDesc& op) { writes ? op.ForEachOutput(add) : op.ForEachInput(add); });
  return names;
}

}  // namespace

std::vector<std::string> OuterReads(const BlockDesc& block) { return OuterNames(block, false); }
std::vector<std::string> OuterWrites(const BlockDesc& block) { return OuterNames(block, true); }

std::vector<BlockUse> FindBlockUses(const ProgramDesc& program) {
  return BlockUseFinder(program).Run();
}

}  // namespace coracle::inline internal
