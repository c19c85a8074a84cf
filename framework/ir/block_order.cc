#include <coracle/framework/ir/block_order.h>
#include <coracle/framework/ir/file_fields.h>

#include <utility>

namespace coracle::inline internal {

void CopyContents(const BlockDesc& from, BlockDesc& to) {
  FileFields::SetUnknown(to, FileFields::Unknown(from));
  to.Reserve(from.NumVars(), from.NumOps());
  for (size_t i = 0; i < from.NumVars(); ++i) to.AppendVar(from.var(i));
  from.ForEachOp([&](const OpDesc& op) { to.AppendOp(op); });
}

void ReorderBlocks(ProgramDesc& program, const std::vector<int>& order) {
  const int n = program.NumBlocks();
  std::vector<int> index(static_cast<size_t>(n), kEmptyBlock);
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] != kEmptyBlock) index.at(static_cast<size_t>(order[i])) = static_cast<int>(i);
  }
  const auto renumbered = [&](int b) {
    const bool known = b >= 0 && b < n && index[static_cast<size_t>(b)] != kEmptyBlock;
    return known ? index[static_cast<size_t>(b)] : b;
  };
  const ProgramDesc old = program;
  program.TruncateBlocks(1);
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i] == kEmptyBlock) {
      program.AppendBlock(0);
      continue;
    }
    const BlockDesc& from = old.Block(order[i]);
    BlockDesc& to = program.AppendBlock(renumbered(from.parent_idx()));
    if (from.forward_block_idx() >= 0) to.SetForwardBlockIdx(renumbered(from.forward_block_idx()));
    CopyContents(from, to);
  }
  program.ForEachOp([&](OpDesc& op) { op.RenumberSubBlocks(renumbered); });
}

}  // namespace coracle::inline internal
