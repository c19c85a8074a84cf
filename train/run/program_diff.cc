#include <coracle/framework/base/text.h>
#include <coracle/train/run/program_diff.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle {
namespace {

OpDesc Bare(const OpDesc& op) {
  OpDesc copy(op);
  copy.RemoveAttr(kOpCallstackAttr);
  return copy;
}

bool SameVar(const VarDesc& there, const VarDesc& here) {
  TrainingAttr a = there.training(), b = here.training();
  a.creation_site = b.creation_site = "";
  return there.meta() == here.meta() && there.persistable() == here.persistable() &&
         there.is_parameter() == here.is_parameter() && a == b;
}

std::string DifferentVars(const BlockDesc& there, const BlockDesc& here) {
  for (size_t i = 0; i < here.NumVars(); ++i) {
    const VarDesc& var = here.var(i);
    const VarDesc* other = there.FindVar(var.name());
    if (other == nullptr) return fmt::format("variable {} is not there", Quote(var.name()));
    if (SameVar(*other, var)) continue;
    if (other->meta() == var.meta())
      return fmt::format("variable {} has other settings there", Quote(var.name()));
    return fmt::format("variable {} is {} there and {} here", Quote(var.name()),
                       other->meta().ToString(), var.meta().ToString());
  }
  for (size_t i = 0; i < there.NumVars(); ++i) {
    if (here.FindVar(there.var(i).name()) == nullptr)
      return fmt::format("variable {} is not here", Quote(there.var(i).name()));
  }
  return "";
}

std::string DifferentOps(const BlockDesc& there, const BlockDesc& here) {
  size_t n = std::min(there.NumOps(), here.NumOps());
  for (size_t i = 0; i < n; ++i) {
    if (Bare(there.op(i)) == Bare(here.op(i))) continue;
    std::string where = fmt::format("op {} of block {}", i, here.idx());
    if (there.op(i).type() != here.op(i).type())
      return fmt::format("{} is {} there and {} here", where, there.op(i).type(),
                         here.op(i).type());
    return fmt::format("{}, {}, differs in its variables or attrs", where, here.op(i).type());
  }
  if (there.NumOps() == here.NumOps()) return "";
  return fmt::format("block {} has {} ops there and {} here", here.idx(), there.NumOps(),
                     here.NumOps());
}

}  // namespace

std::string FirstDifference(const ProgramDesc& there, const ProgramDesc& here) {
  if (there.NumBlocks() != here.NumBlocks())
    return fmt::format("{} blocks there and {} here", there.NumBlocks(), here.NumBlocks());
  for (int i = 0; i < here.NumBlocks(); ++i) {
    std::string difference = DifferentVars(there.Block(i), here.Block(i));
    if (difference.empty()) difference = DifferentOps(there.Block(i), here.Block(i));
    if (!difference.empty()) return difference;
  }
  return "";
}

}  // namespace coracle
