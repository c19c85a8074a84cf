#include <coracle/distribute/op_inserter.h>

namespace coracle {

std::vector<OpDesc*> OpInserter::Apply(ProgramDesc& program) {
  std::vector<OpDesc*> inserted;
  for (int b = 0; b < program.NumBlocks(); ++b) {
    BlockDesc& block = program.Block(b);
    Ops ops = block.ReleaseOps(), all;
    const auto move = [&](Ops& from) {
      for (auto& op : from) {
        inserted.push_back(op.get());
        all.push_back(std::move(op));
      }
    };
    for (auto& op : ops) {
      const OpDesc* place = op.get();
      if (auto it = before_.find(place); it != before_.end()) move(it->second);
      all.push_back(std::move(op));
      if (auto it = behind_.find(place); it != behind_.end()) move(it->second);
    }
    if (auto it = at_end_.find(b); it != at_end_.end()) move(it->second);
    block.SetOps(std::move(all));
  }
  return inserted;
}

}  // namespace coracle
