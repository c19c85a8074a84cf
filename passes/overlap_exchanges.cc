#include <coracle/framework/ir/op.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/passes/passes.h>

#include <unordered_map>

namespace coracle::inline internal {
namespace {

constexpr const char* kOverlapAttr = "overlap";

int RingOf(const OpDesc& op) { return op.GetAttr<int32_t>("ring_id", 0); }

// The next op that uses a variable: an op that waits for an exchange, or another op.
constexpr int kOther = -1;
using NextUses = std::unordered_map<std::string, int>;  // the ring that the op waits for, or kOther

bool MayOverlap(const OpDesc& op, const OpSpec& spec, const NextUses& next) {
  if (!spec.FindAttr(kOverlapAttr) || !op.HasOutput("Out")) return false;
  return !op.AnyOutput([&](const std::string& name) {
    auto it = next.find(name);
    return it == next.end() || it->second != RingOf(op);
  });
}

void Visit(BlockDesc& block, const OpRegistry& ops) {
  NextUses next;
  for (size_t i = block.NumOps(); i-- > 0;) {
    OpDesc& op = block.op(i);
    const OpSpec* spec = ops.Find(op.type());
    if (spec && MayOverlap(op, *spec, next)) op.SetAttr(kOverlapAttr, true);
    const bool waits = op.type() == "c_sync_comm_stream" || op.type() == "c_wait_comm";
    const auto note = [&](const OpDesc& user, int use) {
      user.ForEachInput([&](const std::string& name) { next[name] = use; });
      user.ForEachOutput([&](const std::string& name) { next[name] = use; });
    };
    note(op, waits && RingOf(op) >= 0 ? RingOf(op) : kOther);
    for (const BlockDesc* inner : block.program().BlocksRunBy(op))
      inner->ForEachOp([&](const OpDesc& user) { note(user, kOther); });
  }
}

}  // namespace

void OverlapExchanges(ProgramDesc& program, const PassContext& context) {
  for (int b = 0; b < program.NumBlocks(); ++b) Visit(program.Block(b), context.ops);
}

}  // namespace coracle::inline internal
