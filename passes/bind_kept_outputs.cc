#include <coracle/framework/op/kernel/kept_outputs.h>
#include <coracle/passes/pass.h>

namespace coracle::inline internal {
namespace {

void BindInBlock(BlockDesc& block, const OpRegistry& ops,
                 const std::unordered_set<std::string>& feeds) {
  std::unordered_set<std::string> written = feeds;
  const auto has_value = [&](const std::string& name) {
    const VarDesc* own = block.FindVar(name);
    return !own || own->persistable() || written.count(name) > 0;
  };
  for (size_t i = 0; i < block.NumOps(); ++i) {
    OpDesc& op = block.op(i);
    const OpSpec* spec = ops.Find(op.type());
    if (spec && LacksKeptInput(*spec, op)) AddKeptInputs(*spec, op, has_value);
    op.ForEachOutput([&](const std::string& name) { written.insert(name); });
  }
}

}  // namespace

void BindKeptOutputs(ProgramDesc& program, const OpRegistry& ops,
                     const std::vector<std::string>& feeds) {
  const auto lacks = [&](const OpDesc& op) {
    const OpSpec* spec = ops.Find(op.type());
    return spec && LacksKeptInput(*spec, op);
  };
  for (int b = 0; b < program.NumBlocks(); ++b) {
    if (AnyOp(program.Block(b), lacks))
      BindInBlock(program.Block(b), ops, {feeds.begin(), feeds.end()});
  }
}

}  // namespace coracle::inline internal
