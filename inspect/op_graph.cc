#include <coracle/framework/base/text.h>
#include <coracle/inspect/op_matching.h>

#include <functional>

namespace coracle::inline internal {
namespace {

size_t HashOf(std::string_view text) { return MixedBits(std::hash<std::string_view>()(text)); }

// Hashes attrs independently of their order, which has no meaning.
size_t HashOfAttrs(const OpDesc& op, const OpRegistry& ops) {
  size_t sum = 0;
  for (const NamedAttr& attr : op.attrs()) {
    if (IsBookkeepingAttr(attr.name) || IsDefaultAttr(ops, op, attr)) continue;
    const AttrType type = TypeOf(attr.value);
    const bool names_blocks = type == AttrType::kBlock || type == AttrType::kBlocks;
    sum += MixedBits(HashOf(attr.name) + (names_blocks ? 0 : HashOf(ToString(attr.value))));
  }
  return sum;
}

}  // namespace

size_t MixedBits(size_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

NamePairs::NamePairs(const ProgramDesc& before, const ProgramDesc& after) {
  const ProgramDesc* programs[] = {&before, &after};
  for (uint8_t side = 0; side < 2; ++side) {
    const auto note = [&](const std::string& name) { Note(name, static_cast<uint8_t>(side + 1)); };
    for (int b = 0; b < programs[side]->NumBlocks(); ++b) {
      const BlockDesc& block = programs[side]->Block(b);
      for (size_t i = 0; i < block.NumVars(); ++i) note(block.var(i).name());
      block.ForEachOp([&](const OpDesc& op) {
        op.ForEachInput(note);
        op.ForEachOutput(note);
      });
    }
  }
  after_of_.assign(texts_.size(), -1);
  before_of_.assign(texts_.size(), -1);
}

void NamePairs::Note(const std::string& name, uint8_t side) {
  const auto [found, added] = numbers_.try_emplace(name, static_cast<int>(texts_.size()));
  if (added) {
    texts_.push_back(&name);
    sides_.push_back(0);
  }
  sides_[Index(found->second)] |= side;
}

int NamePairs::Find(std::string_view name) const {
  const auto found = numbers_.find(name);
  return found == numbers_.end() ? -1 : found->second;
}

void NamePairs::Pair(int before, int after) {
  if (AfterOf(before) >= 0 || BeforeOf(after) >= 0) return;
  after_of_[Index(before)] = after;
  before_of_[Index(after)] = before;
}

OpGraph::OpGraph(const BlockDesc& block, const NamePairs& names, const OpRegistry& ops)
    : block_(&block), ops_(block.NumOps()) {
  std::unordered_map<int, int> current;  // the current value of each name
  const auto add_value = [&](int op, size_t place, int name) {
    values_.push_back({op, place, name});
    return static_cast<int>(values_.size() - 1);
  };
  for (size_t i = 0; i < ops_.size(); ++i) {
    const OpDesc& desc = block.op(i);
    const int number = static_cast<int>(i);
    const OpSpec* spec = ops.Find(desc.type());
    Op& op = ops_[i];
    op.type = HashOf(desc.type());
    op.counts = !spec || spec->kind == OpKind::kCompute;
    if (!op.counts) continue;
    op.type_and_attrs = MixedBits(op.type + HashOfAttrs(desc, ops));
    desc.ForEachInput([&](const std::string& text, const std::string& slot, size_t index) {
      const int name = names.Number(text);
      const auto [value, added] = current.try_emplace(name, 0);
      if (added) value->second = outer_[name] = add_value(-1, 0, name);
      op.inputs.push_back({MixedBits(HashOf(slot) + index), name, value->second});
      values_[Index(value->second)].readers.push_back(number);
    });
    desc.ForEachOutput([&](const std::string& text, const std::string& slot, size_t index) {
      const size_t place = MixedBits(HashOf(slot) + index);
      const int name = names.Number(text);
      op.outputs.push_back({place, name, add_value(number, place, name)});
      current[name] = op.outputs.back().value;
    });
  }
}

int OpGraph::OuterValue(int name) const {
  const auto found = outer_.find(name);
  return found == outer_.end() ? -1 : found->second;
}

}  // namespace coracle::inline internal
