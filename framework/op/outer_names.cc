#include <coracle/framework/op/check/name_attrs.h>
#include <coracle/framework/op/outer_names.h>

#include <algorithm>
#include <unordered_set>

namespace coracle::inline internal {
namespace {

using NameSet = std::unordered_set<std::string_view>;

std::vector<std::string_view> Sorted(const NameSet& names) {
  std::vector<std::string_view> sorted(names.begin(), names.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

bool Has(const std::vector<std::string_view>& sorted, std::string_view name) {
  return std::binary_search(sorted.begin(), sorted.end(), name);
}

}  // namespace

BlockOuterNames::BlockOuterNames(const ProgramDesc& program, const OpRegistry& ops)
    : program_(program), ops_(ops), of_block_(static_cast<size_t>(program.NumBlocks())) {
  if (program.NumBlocks() == 1) return;
  for (int b : InnermostFirst()) {
    if (b > 0) of_block_[static_cast<size_t>(b)] = Find(program.Block(b));
  }
}

std::vector<int> BlockOuterNames::BlocksOf(const OpDesc& op) const {
  std::vector<int> blocks = op.SubBlocks();
  const int home = op.block()->idx();
  std::erase_if(blocks, [&](int b) { return b <= 0 || b >= program_.NumBlocks() || b == home; });
  return blocks;
}

std::vector<int> BlockOuterNames::InnermostFirst() const {
  enum class State { kNew, kEntered, kDone };
  std::vector<State> states(of_block_.size(), State::kNew);
  std::vector<int> order, stack;
  for (int root = 0; root < program_.NumBlocks(); ++root) {
    for (stack.push_back(root); !stack.empty();) {
      const int b = stack.back();
      State& state = states[static_cast<size_t>(b)];
      if (state != State::kNew) {
        if (state == State::kEntered) order.push_back(b);
        state = State::kDone;
        stack.pop_back();
        continue;
      }
      state = State::kEntered;
      for (const OpDesc* op : program_.Block(b).SubBlockOps()) {
        for (int inner : BlocksOf(*op)) {
          if (states[static_cast<size_t>(inner)] == State::kNew) stack.push_back(inner);
        }
      }
    }
  }
  return order;
}

OuterNames BlockOuterNames::Find(const BlockDesc& block) const {
  const BlockDesc* forward = block.forward_block();
  const auto is_outer = [&](std::string_view name) {
    return !block.FindVar(name) && !(forward && forward->FindVar(name));
  };
  NameSet reads, writes, written;
  block.ForEachOp([&](const OpDesc& op) {
    ForEachRead(op, [&](std::string_view name) {
      if (is_outer(name) && !written.count(name)) reads.insert(name);
    });
    ForEachWrite(op, [&](std::string_view name) {
      if (is_outer(name)) writes.insert(name);
    });
    op.ForEachOutput([&](const std::string& name, const std::string& slot) {
      if (Overwrites(op, slot, name)) written.insert(name);
    });
  });
  return {Sorted(reads), Sorted(writes)};
}

std::vector<std::string_view> BlockOuterNames::NamesOf(const OpDesc& op, bool reads) const {
  std::vector<std::string_view> names;
  const std::vector<int> blocks = op.HasSubBlock() ? BlocksOf(op) : std::vector<int>();
  const auto only_written = [&](const std::string& name) {
    bool written = false, read = false;
    for (int b : blocks) {
      written |= Has(of_block_[static_cast<size_t>(b)].writes, name);
      read |= Has(of_block_[static_cast<size_t>(b)].reads, name);
    }
    return written && !read;
  };
  if (reads) {
    op.ForEachInput([&](const std::string& name) {
      if (blocks.empty() || !only_written(name)) names.push_back(name);
    });
    ForEachVarAttr(op, [&](const std::string& name) { names.push_back(name); });
  } else {
    op.ForEachOutput([&](const std::string& name) { names.push_back(name); });
  }
  for (int b : blocks) {
    const OuterNames& inner = of_block_[static_cast<size_t>(b)];
    const auto& more = reads ? inner.reads : inner.writes;
    names.insert(names.end(), more.begin(), more.end());
  }
  return names;
}

bool BlockOuterNames::KeepsOutput(const OpDesc& op, const std::string& slot) const {
  const OpSpec* spec = ops_.Find(op.type());
  return spec && std::find(spec->keeps_outputs.begin(), spec->keeps_outputs.end(), slot) !=
                     spec->keeps_outputs.end();
}

bool BlockOuterNames::Overwrites(const OpDesc& op, const std::string& slot,
                                 std::string_view name) const {
  if (!ops_.Find(op.type()) || op.HasSubBlock() || KeepsOutput(op, slot)) return false;
  const VarDesc* var = op.block()->FindVarRecursive(name);
  return var && var->type() != VarType::kLoDTensorArray;
}

}  // namespace coracle::inline internal
