#include <coracle/framework/base/text.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/passes/inline_calls.h>
#include <fmt/format.h>

namespace coracle {
namespace {

using Names = std::vector<std::string>;
using Ops = std::vector<std::unique_ptr<OpDesc>>;

bool IsCall(const OpDesc& op) { return op.type() == "call" || op.type() == "call_grad"; }

// One call: the ops of its block with the names that they have at the caller.
class Inliner {
 public:
  Inliner(BlockDesc& caller, const OpDesc& op, const std::string& prefix)
      : caller_(caller), op_(op), gradient_(op.type() == "call_grad") {
    const BlockRef ref = op.GetAttr<BlockRef>("sub_block", BlockRef{});
    if (ref.idx <= caller.idx() || ref.idx >= caller.program().NumBlocks()) {
      ThrowInvalid(fmt::format("{}: names the block {}, which is not a block after block {}",
                               op.type(), ref.idx, caller.idx()),
                   "  " + Locate(op));
    }
    block_ = &caller.program().Block(ref.idx);
    prefix_ = prefix;
    if (gradient_) forward_prefix_ = op.Input("Scope").empty() ? "" : op.Input("Scope")[0];
  }

  void AppendTo(Ops& ops) {
    for (size_t i = 0; i < block_->NumVars(); ++i) Declare(block_->var(i));
    const char* in = gradient_ ? "Out@GRAD" : "X";
    const char* out = gradient_ ? "X@GRAD" : "Out";
    const Names parameters = op_.GetAttr<Names>("parameters", {});
    const Names results = op_.GetAttr<Names>("results", {});
    for (size_t i = 0; i < parameters.size() && i < op_.Input(in).size(); ++i)
      Assign(op_.Input(in)[i], Renamed(parameters[i]), ops);
    for (size_t i = 0; i < block_->NumOps(); ++i) ops.push_back(Copy(block_->op(i)));
    for (size_t i = 0; i < results.size() && i < op_.Output(out).size(); ++i) {
      if (!IsEmptyName(op_.Output(out)[i])) Assign(Renamed(results[i]), op_.Output(out)[i], ops);
    }
  }

 private:
  std::string Renamed(const std::string& name) const {
    if (IsEmptyName(name)) return name;
    if (block_->FindVar(name)) return prefix_ + "/" + name;
    // What a gradient block reads of the call whose gradient it is.
    const BlockDesc* forward = gradient_ ? block_->forward_block() : nullptr;
    return forward && forward->FindVar(name) ? forward_prefix_ + "/" + name : name;
  }

  void Declare(const VarDesc& var) {
    VarDesc& copy = caller_.Var(prefix_ + "/" + var.name());
    copy.SetMeta(var.meta());
    copy.SetStopGradient(var.stop_gradient());
    if (var.error_clip()) copy.SetErrorClip(var.error_clip());
  }

  void Assign(const std::string& from, const std::string& to, Ops& ops) {
    ops.push_back(std::make_unique<OpDesc>("assign", SlotList{{"X", {from}}},
                                           SlotList{{"Out", {to}}},
                                           AttrList{{kOpRoleAttr, int32_t{op_.role()}}}));
  }

  std::unique_ptr<OpDesc> Copy(const OpDesc& op) {
    if (op.HasSubBlock()) {
      throw Error(
          ErrorCode::kUnimplemented,
          fmt::format("call: the function, block {}, has a {} in it, which runs a sub-block",
                      block_->idx(), op.type()),
          "  " + Locate(op_));
    }
    auto rename = [&](const SlotList& slots) {
      SlotList renamed = slots;
      for (Slot& slot : renamed) {
        for (std::string& arg : slot.args) arg = Renamed(arg);
      }
      return renamed;
    };
    auto copy =
        std::make_unique<OpDesc>(op.type(), rename(op.inputs()), rename(op.outputs()), op.attrs());
    if (!copy->HasAttr(kOpRoleAttr)) copy->SetAttr(kOpRoleAttr, int32_t{op_.role()});
    return copy;
  }

  BlockDesc& caller_;
  const OpDesc& op_;
  bool gradient_;
  const BlockDesc* block_ = nullptr;
  std::string prefix_, forward_prefix_;
};

void InlineInto(BlockDesc& block) {
  bool any = false;
  for (size_t i = 0; i < block.NumOps() && !any; ++i) any = IsCall(block.op(i));
  if (!any) return;
  Ops old = block.TakeOps(), ops;
  for (auto& op : old) {
    if (!IsCall(*op)) {
      ops.push_back(std::move(op));
      continue;
    }
    const bool named = op->type() == "call" && op->HasOutput("Scope");
    Inliner(block, *op, named ? op->Output("Scope")[0] : block.program().UniqueName(op->type()))
        .AppendTo(ops);
  }
  block.SetOps(std::move(ops));
}

}  // namespace

void InlineCalls(ProgramDesc& program) {
  // A function comes after the blocks that call it, so its own calls are replaced first.
  for (int b = program.NumBlocks(); b-- > 0;) InlineInto(program.Block(b));
}

}  // namespace coracle
