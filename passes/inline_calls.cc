#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/block_order.h>
#include <coracle/framework/ir/origin.h>
#include <coracle/framework/op/check/name_attrs.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/passes/pass.h>
#include <fmt/format.h>

#include <deque>
#include <unordered_map>
#include <unordered_set>

namespace coracle::inline internal {
namespace {

using Names = std::vector<std::string>;
using Ops = std::vector<std::unique_ptr<OpDesc>>;

// The depth of nested blocks that Verify allows.
constexpr int kMaxDepth = 128;

// Whether an op is to be replaced.
using IsCallFn = bool (*)(const OpDesc& op);

bool IsCall(const OpDesc& op) { return op.type() == "call" || op.type() == "call_grad"; }

bool IsDerivedCall(const OpDesc& op) {
  return IsCall(op) && !op.HasAttr("gradient_block") &&
         op.GetAttr<std::string>("gradient_function", "").empty();
}

// The replacement of one call. The prefix of its variables' names depends only on the call's
// outputs: random ops draw by the names of their outputs, and must draw the same numbers when
// backward is appended.
struct CallSite {
  std::string prefix;
  std::unordered_map<int, int> copies;  // of the function's sub-blocks
};

class CallSites {
 public:
  CallSites(const ProgramDesc& program, ProgramOrigins* origins) : origins_(origins) {
    std::unordered_map<std::string, int> uses;
    program.ForEachOp([&](const OpDesc& op) {
      if (op.type() != "call") return;
      const std::string base = (op.Output("Out").empty() ? "" : op.Output("Out")[0]) + "/call";
      const int use = uses[base]++;
      CallSite& site = sites_.emplace_back();
      site.prefix = use == 0 ? base : fmt::format("{}_{}", base, use);
      of_call_[&op] = &site;
      if (op.HasOutput("Scope")) of_scope_[op.Output("Scope")[0]] = &site;
    });
  }
  CallSite& OfCall(const OpDesc& op) { return *of_call_.at(&op); }
  CallSite& OfGradient(ProgramDesc& program) {
    CallSite& site = sites_.emplace_back();
    site.prefix = program.UniqueName("call_grad");
    return site;
  }
  void NoteMade(const std::string& made, const std::string& from) {
    if (origins_) origins_->Add(made, from);
  }
  void NoteBlock(int made, int from) {
    if (origins_) origins_->AddBlock(made, from);
  }
  // The call that has this variable in its slot Scope; nullptr if there is none.
  const CallSite* OfScope(const std::string& scope) const {
    const auto found = of_scope_.find(scope);
    return found == of_scope_.end() ? nullptr : found->second;
  }

 private:
  ProgramOrigins* origins_;
  std::deque<CallSite> sites_;
  std::unordered_map<const OpDesc*, CallSite*> of_call_;
  std::unordered_map<std::string, CallSite*> of_scope_;
};

// Inlines one call: the ops of its block with the caller's names, and copies of the blocks
// that these ops run. A name that the function declares is renamed in all of them, even if an
// inner block declares it again, because the two may belong together (recurrent: a sequence
// and its step).
class Inliner {
 public:
  Inliner(BlockDesc& caller, const OpDesc& op, CallSites& sites)
      : caller_(caller), op_(op), sites_(sites), gradient_(op.type() == "call_grad") {
    const BlockRef ref = op.GetAttr<BlockRef>("sub_block", BlockRef{});
    block_ = &BlockRunBy(caller, ref.idx, op);
    site_ = gradient_ ? &sites.OfGradient(caller.program()) : &sites.OfCall(op);
    if (gradient_ && op.HasInput("Scope")) forward_site_ = sites.OfScope(op.Input("Scope")[0]);
  }

  void AppendTo(Ops& ops) {
    for (size_t i = 0; i < block_->NumVars(); ++i) Declare(block_->var(i), caller_);
    const char* in = gradient_ ? "Out@GRAD" : "X";
    const char* out = gradient_ ? "X@GRAD" : "Out";
    const Names parameters = op_.GetAttr<Names>("parameters", {});
    const Names results = op_.GetAttr<Names>("results", {});
    for (size_t i = 0; i < parameters.size() && i < op_.Input(in).size(); ++i)
      Assign(op_.Input(in)[i], Renamed(parameters[i]), ops);
    for (size_t i = 0; i < block_->NumOps(); ++i)
      ops.push_back(Copy(block_->op(i), *block_, caller_));
    for (size_t i = 0; i < results.size() && i < op_.Output(out).size(); ++i) {
      if (!IsEmptyName(op_.Output(out)[i])) Assign(Renamed(results[i]), op_.Output(out)[i], ops);
    }
  }

 private:
  static const BlockDesc& BlockRunBy(const BlockDesc& home, int idx, const OpDesc& op) {
    // A function's block may precede the block that calls it.
    const int first = IsCall(op) ? 1 : home.idx() + 1;
    if (idx < first || idx == home.idx() || idx >= home.program().NumBlocks()) {
      ThrowInvalid(fmt::format("{}: names the block {}, which block {} cannot run", op.type(), idx,
                               home.idx()),
                   "  " + Locate(op));
    }
    return home.program().Block(idx);
  }

  std::string Renamed(const std::string& name) const {
    if (IsEmptyName(name)) return name;
    if (block_->FindVar(name)) return site_->prefix + "/" + name;
    // Variables of the forward call that its gradient block reads.
    const BlockDesc* forward = forward_site_ ? block_->forward_block() : nullptr;
    return forward && forward->FindVar(name) ? forward_site_->prefix + "/" + name : name;
  }
  Names Renamed(Names names) const {
    for (std::string& name : names) name = Renamed(name);
    return names;
  }
  SlotList Renamed(SlotList slots) const {
    for (Slot& slot : slots) slot.args = Renamed(std::move(slot.args));
    return slots;
  }

  void Declare(const VarDesc& var, BlockDesc& block) const {
    VarDesc& copy = block.Var(Renamed(var.name()));
    sites_.NoteMade(copy.name(), var.name());
    copy.SetMeta(var.meta());
    copy.SetStopGradient(var.stop_gradient());
    if (var.error_clip()) copy.SetErrorClip(var.error_clip());
  }

  void Assign(const std::string& from, const std::string& to, Ops& ops) {
    ops.push_back(std::make_unique<OpDesc>("assign", SlotList{{"X", {from}}},
                                           SlotList{{"Out", {to}}},
                                           AttrList{{kOpRoleAttr, int32_t{op_.role()}}}));
    AddOrigins(op_, *ops.back());
  }

  // Copies `op` from the block `from` for the block `to`.
  std::unique_ptr<OpDesc> Copy(const OpDesc& op, const BlockDesc& from, BlockDesc& to) {
    auto copy = std::make_unique<OpDesc>(op.type(), Renamed(op.inputs()), Renamed(op.outputs()),
                                         op.attrs());
    if (!copy->HasAttr(kOpRoleAttr)) copy->SetAttr(kOpRoleAttr, int32_t{op_.role()});
    if (!op.HasSubBlock()) return copy;
    copy->RenumberSubBlocks([&](int idx) { return CopyBlock(BlockRunBy(from, idx, op), to); });
    RenameInAttrs(*copy, [&](const std::string& name) { return Renamed(name); });
    return copy;
  }

  int CopyBlock(const BlockDesc& from, const BlockDesc& parent) {
    const auto known = site_->copies.find(from.idx());
    if (known != site_->copies.end() && known->second > parent.idx()) return known->second;
    if (depth_ >= kMaxDepth)
      ThrowInvalid(fmt::format("call: more than {} sub-blocks are nested", kMaxDepth));
    ++depth_;
    BlockDesc& copy = caller_.program().AppendBlock(parent);
    site_->copies[from.idx()] = copy.idx();
    sites_.NoteBlock(copy.idx(), from.idx());
    if (from.forward_block_idx() >= 0) copy.SetForwardBlockIdx(CopyOfForward(from));
    for (size_t i = 0; i < from.NumVars(); ++i) {
      const VarDesc& var = from.var(i);
      Renamed(var.name()) == var.name() ? void(copy.AppendVar(var)) : Declare(var, copy);
    }
    for (size_t i = 0; i < from.NumOps(); ++i) copy.AppendOp(Copy(from.op(i), from, copy));
    --depth_;
    return copy.idx();
  }

  int CopyOfForward(const BlockDesc& gradient) const {
    const int idx = gradient.forward_block_idx();
    for (const CallSite* site : {static_cast<const CallSite*>(site_), forward_site_}) {
      if (!site) continue;
      const auto found = site->copies.find(idx);
      if (found != site->copies.end()) return found->second;
    }
    return idx;
  }

  BlockDesc& caller_;
  const OpDesc& op_;
  CallSites& sites_;
  bool gradient_;
  const BlockDesc* block_ = nullptr;
  CallSite* site_ = nullptr;
  const CallSite* forward_site_ = nullptr;
  int depth_ = 0;
};

std::unordered_set<std::string> ScopesOf(const ProgramDesc& program, IsCallFn is_call) {
  std::unordered_set<std::string> scopes;
  program.ForEachOp([&](const OpDesc& op) {
    if (is_call(op) && op.HasOutput("Scope")) scopes.insert(op.Output("Scope")[0]);
  });
  return scopes;
}

void InlineInto(BlockDesc& block, CallSites& sites, IsCallFn is_call) {
  if (!AnyOp(block, is_call)) return;
  Ops old = block.ReleaseOps(), ops;
  for (auto& op : old) {
    if (!is_call(*op)) {
      ops.push_back(std::move(op));
      continue;
    }
    Inliner(block, *op, sites).AppendTo(ops);
  }
  block.SetOps(std::move(ops));
}

// Removes the inputs in `scopes` from ops with sub-blocks, because the calls that wrote them no
// longer exist.
void ForgetScopes(ProgramDesc& program, const std::unordered_set<std::string>& scopes) {
  program.ForEachOp([&](OpDesc& op) {
    if (!op.HasSubBlock()) return;
    op.RenameInputs([&](const std::string& name) {
      return scopes.count(name) ? std::string(kEmptyVarName) : name;
    });
  });
}

// The order in which calls in blocks are replaced. A call copies a function and the blocks that
// its ops run, so their calls must have been replaced before. The gradient of a call names the
// copies that the call made, so a block comes before the blocks that its ops run, which may
// contain the gradient.
class InliningOrder {
 public:
  explicit InliningOrder(const ProgramDesc& program)
      : program_(program), n_(program.NumBlocks()), runner_(static_cast<size_t>(n_), -1) {
    for (int b = 0; b < n_; ++b) {
      for (int idx : RunBy(b)) runner_[static_cast<size_t>(idx)] = b;
    }
  }

  std::vector<int> Find() {
    for (int b = 0; b < n_; ++b) Visit(b);
    return std::move(order_);
  }

 private:
  enum class State { kNew, kEntered, kDone };
  struct Entered {
    int node;
    std::vector<int> before;
  };

  // The blocks that ops of a block run, except functions.
  std::vector<int> RunBy(int block) const {
    std::vector<int> blocks;
    program_.Block(block).ForEachOp([&](const OpDesc& op) {
      if (IsCall(op)) return;
      for (int idx : op.SubBlocks()) {
        if (idx > block && idx < n_) blocks.push_back(idx);
      }
    });
    return blocks;
  }

  // Node b is block b; node n + b is block b with all blocks that its ops run.
  std::vector<int> Before(int node) const {
    std::vector<int> before;
    if (node >= n_) {
      before.push_back(node - n_);
      for (int idx : RunBy(node - n_)) before.push_back(n_ + idx);
      return before;
    }
    const BlockDesc& block = program_.Block(node);
    block.ForEachOp([&](const OpDesc& op) {
      if (!IsCall(op)) return;
      for (int idx : op.SubBlocks()) {
        if (idx > 0 && idx < n_) before.push_back(n_ + idx);
      }
    });
    const int forward = block.forward_block_idx(), runner = runner_[static_cast<size_t>(node)];
    if (forward >= 0 && forward < n_) before.push_back(forward);
    if (runner >= 0) before.push_back(runner);
    return before;
  }

  void Visit(int root) {
    std::vector<Entered> stack;
    const auto enter = [&](int node) {
      State& state = states_[static_cast<size_t>(node)];
      if (state == State::kEntered)
        ThrowInvalid(fmt::format("call: the function of block {} calls itself", node % n_));
      if (state == State::kDone) return;
      state = State::kEntered;
      const std::vector<int> before = Before(node);
      stack.push_back({node, {before.rbegin(), before.rend()}});
    };
    for (enter(root); !stack.empty();) {
      std::vector<int>& before = stack.back().before;
      if (before.empty()) {
        const int node = stack.back().node;
        states_[static_cast<size_t>(node)] = State::kDone;
        if (node < n_) order_.push_back(node);
        stack.pop_back();
        continue;
      }
      const int next = before.back();
      before.pop_back();
      enter(next);
    }
  }

  const ProgramDesc& program_;
  int n_;
  std::vector<int> runner_;  // by block; -1 for a function or an unused block
  std::vector<State> states_ = std::vector<State>(2 * static_cast<size_t>(n_), State::kNew);
  std::vector<int> order_;
};

// Random ops of a sub-block also draw by the block's index. Placing gradient blocks last keeps
// these indices the same whether or not backward was appended.
void PutGradientBlocksLast(ProgramDesc& program, ProgramOrigins* origins) {
  const auto n = static_cast<size_t>(program.NumBlocks());
  std::vector<bool> gradient(n, false);
  std::vector<int> order;
  for (size_t b = 1; b < n; ++b) {
    const BlockDesc& block = program.Block(static_cast<int>(b));
    gradient[b] =
        block.forward_block_idx() >= 0 || gradient[static_cast<size_t>(block.parent_idx())];
  }
  for (bool last : {false, true}) {
    for (size_t b = 0; b < n; ++b) {
      if (gradient[b] == last) order.push_back(static_cast<int>(b));
    }
  }
  ReorderBlocks(program, order);
  if (origins) origins->ReorderBlocks(order);
}

bool Inline(ProgramDesc& program, IsCallFn is_call, ProgramOrigins* origins) {
  const int blocks = program.NumBlocks();
  bool any = false;
  for (int b = 0; b < blocks && !any; ++b) any = AnyOp(program.Block(b), is_call);
  if (!any) return false;
  CallSites sites(program, origins);
  const auto scopes = ScopesOf(program, is_call);
  for (int b : InliningOrder(program).Find()) InlineInto(program.Block(b), sites, is_call);
  if (!scopes.empty()) ForgetScopes(program, scopes);
  if (program.NumBlocks() > blocks) PutGradientBlocksLast(program, origins);
  return true;
}

}  // namespace

bool InlineCalls(ProgramDesc& program, ProgramOrigins* origins) {
  return Inline(program, IsCall, origins);
}

bool InlineDerivedCalls(ProgramDesc& program) { return Inline(program, IsDerivedCall, nullptr); }

}  // namespace coracle::inline internal
