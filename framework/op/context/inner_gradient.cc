#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/check/block_use.h>
#include <coracle/framework/op/context/inner_gradient.h>

#include <unordered_map>

namespace coracle::inline internal {
namespace {

using Names = std::vector<std::string>;
using NameViews = std::unordered_set<std::string_view>;

const Names& TextsOf(const OpDesc& op, const std::string& attr) {
  static const Names none;
  const Attribute* value = op.FindAttr(attr);
  const auto* names = value ? std::get_if<Names>(value) : nullptr;
  return names ? *names : none;
}

// The declared trait of the op's block; an empty one if the op is unknown.
const BlockTrait& BlockTraitOf(const OpDesc& op, const OpRegistry& ops) {
  static const BlockTrait none;
  const OpSpec* spec = op.HasSubBlock() ? ops.Find(op.type()) : nullptr;
  return spec ? spec->block : none;
}

void CheckTime() {
  if (const auto& limits = ResourceLimits::Current())
    limits->CheckTime([] { return std::string("while the gradients in sub-blocks were checked"); });
}

// How values flow through a program, by names of variables.
class ValueFlow {
 public:
  ValueFlow(const ProgramDesc& program, const OpRegistry& ops) {
    program.ForEachOp([&](const OpDesc& op) {
      const BlockTrait& block = BlockTraitOf(op, ops);
      if (!OnlyRunsABlock(block)) {
        op.ForEachInput([&](const std::string& name) { readers_[name].push_back(&op); });
        return;
      }
      for (const auto& [slot, attr] : block.arguments) Link(op.Input(slot), TextsOf(op, attr));
      for (const auto& [slot, attr] : block.results) Link(TextsOf(op, attr), op.Output(slot));
      for (const auto& [made, read] : block.carries) Link(TextsOf(op, made), TextsOf(op, read));
    });
  }

  NameViews From(const Names& inputs) const {
    CheckTime();
    NameViews made(inputs.begin(), inputs.end());
    std::vector<std::string_view> next(made.begin(), made.end());
    std::unordered_set<const OpDesc*> followed;
    auto add = [&](std::string_view name) {
      if (made.insert(name).second) next.push_back(name);
    };
    auto follow = [&](const OpDesc& op) {
      op.ForEachOutput([&](const std::string& name) {
        if (CarriesGradient(op, name)) add(name);
      });
    };
    while (!next.empty()) {
      const std::string_view name = next.back();
      next.pop_back();
      for (const OpDesc* op : Find(readers_, name)) {
        if (followed.insert(op).second) follow(*op);
      }
      for (std::string_view linked : Find(links_, name)) add(linked);
    }
    return made;
  }

 private:
  template <class T>
  using ByName = std::unordered_map<std::string_view, std::vector<T>>;

  void Link(const Names& from, const Names& to) {
    for (size_t i = 0; i < from.size() && i < to.size(); ++i) links_[from[i]].push_back(to[i]);
  }

  template <class T>
  static const std::vector<T>& Find(const ByName<T>& map, std::string_view name) {
    static const std::vector<T> none;
    const auto found = map.find(name);
    return found == map.end() ? none : found->second;
  }

  // The op itself adds no edges if the ops of its block read and write its variables, under the
  // same names or under linked ones.
  static bool OnlyRunsABlock(const BlockTrait& block) {
    return block.runs != BlockRuns::kNone && block.runs != BlockRuns::kGradient;
  }

  static bool CarriesGradient(const OpDesc& op, const std::string& name) {
    const VarDesc* var = op.block()->FindVarRecursive(name);
    if (!var || var->stop_gradient()) return false;
    return !IsValid(var->dtype()) || IsFloating(var->dtype()) || IsComplex(var->dtype());
  }

  ByName<const OpDesc*> readers_;
  ByName<std::string_view> links_;
};

// Maps each block to the ops that run it.
class Runners {
 public:
  explicit Runners(const ProgramDesc& program)
      : of_block_(static_cast<size_t>(program.NumBlocks())) {
    program.ForEachOp([&](const OpDesc& op) {
      for (int idx : op.SubBlocks()) {
        if (idx > 0 && idx < program.NumBlocks())
          of_block_[static_cast<size_t>(idx)].push_back(&op);
      }
    });
  }
  const std::vector<const OpDesc*>& Of(const BlockDesc& block) const {
    return of_block_[static_cast<size_t>(block.idx())];
  }

 private:
  std::vector<std::vector<const OpDesc*>> of_block_;
};

// The variables whose values may differ between runs of the block: outer variables written by it or
// by a block that it runs, and the variables that the op passes to it. A function may be called
// from anywhere, so all variables that it reads count.
NameViews ChangedBetweenRuns(const OpDesc& runner, const BlockTrait& trait, const BlockDesc& block,
                             const Names& reads) {
  if (trait.runs == BlockRuns::kOnce) return {};
  if (trait.runs == BlockRuns::kFunction) return {reads.begin(), reads.end()};
  NameViews changed;
  for (const auto& [slot, attr] : trait.arguments)
    changed.insert(TextsOf(runner, attr).begin(), TextsOf(runner, attr).end());
  for (const std::string& slot : trait.slices)
    changed.insert(runner.Input(slot).begin(), runner.Input(slot).end());
  auto add_writes = [&](const OpDesc& op) {
    op.ForEachOutput([&](const std::string& name) {
      if (!op.block()->FindVar(name) && !block.FindVar(name)) changed.insert(name);
    });
  };
  block.ForEachOp(add_writes);
  for (const BlockDesc* nested : block.program().BlocksRunBy(block)) nested->ForEachOp(add_writes);
  return changed;
}

class MissedPathFinder {
 public:
  MissedPathFinder(const ProgramDesc& program, const OpRegistry& ops)
      : ops_(ops), runners_(program), flow_(program, ops) {}

  std::optional<MissedPath> Find(const InnerGradient& gradient) const {
    const NameViews made = flow_.From(gradient.inputs);
    Names reads;
    for (const std::string& name : gradient.reads) {
      if (made.count(name)) reads.push_back(name);
    }
    std::vector<const BlockDesc*> blocks = {gradient.block};
    std::unordered_set<const BlockDesc*> seen(blocks.begin(), blocks.end());
    for (size_t b = 0; b < blocks.size() && !reads.empty(); ++b) {
      for (const OpDesc* runner : runners_.Of(*blocks[b])) {
        const NameViews changed =
            ChangedBetweenRuns(*runner, BlockTraitOf(*runner, ops_), *blocks[b], reads);
        for (const std::string& name : reads) {
          if (changed.count(name)) return MissedPath{runner, name};
        }
        if (seen.insert(runner->block()).second) blocks.push_back(runner->block());
      }
    }
    return {};
  }

 private:
  const OpRegistry& ops_;
  Runners runners_;
  ValueFlow flow_;
};

}  // namespace

std::optional<MissedPath> FindMissedPath(const InnerGradient& gradient, const OpRegistry& ops) {
  if (gradient.reads.empty()) return {};
  return MissedPathFinder(gradient.block->program(), ops).Find(gradient);
}

std::vector<MissedPath> FindMissedPaths(const ProgramDesc& program, const OpRegistry& ops) {
  std::vector<MissedPath> missed;
  std::optional<MissedPathFinder> finder;
  for (int b = 1; b < program.NumBlocks(); ++b) {
    const BlockDesc& block = program.Block(b);
    for (size_t i = 0; i < block.NumOps(); ++i) {
      if (!block.op(i).HasAttr(kOuterReadsAttr)) continue;
      if (!finder) finder.emplace(program, ops);
      const auto path = finder->Find(
          {&block, TextsOf(block.op(i), kOuterReadsAttr), TextsOf(block.op(i), kOuterInputsAttr)});
      if (path) missed.push_back(*path);
    }
  }
  return missed;
}

std::unordered_set<std::string> MadeFrom(const ProgramDesc& program, const OpRegistry& ops,
                                         const Names& inputs) {
  std::unordered_set<std::string> names;
  for (std::string_view name : ValueFlow(program, ops).From(inputs)) names.emplace(name);
  return names;
}

}  // namespace coracle::inline internal
