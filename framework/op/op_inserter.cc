#include <coracle/framework/op/op_inserter.h>

namespace coracle::inline internal {

void OpInserter::Take(BlockDesc& block, size_t first, Ops* ops) {
  for (size_t i = first; i < block.NumOps(); ++i)
    ops->push_back(std::make_unique<OpDesc>(block.op(i)));
  block.TruncateOps(first);
}

void OpInserter::Apply() {
  for (int b = 0; b < program_.NumBlocks(); ++b) {
    BlockDesc& block = program_.Block(b);
    Ops ops = block.ReleaseOps(), all;
    const auto move = [&](auto& places, const auto& key) {
      const auto at = places.find(key);
      if (at == places.end()) return;
      for (auto& op : at->second) all.push_back(std::move(op));
    };
    for (auto& op : ops) {
      const OpDesc* place = op.get();
      move(before_, place);
      all.push_back(std::move(op));
      move(after_, place);
    }
    move(at_end_, b);
    block.SetOps(std::move(all));
  }
}

}  // namespace coracle::inline internal
