// Moves ops out of a loop, to before it, if they compute the same in each round because the loop
// does not change what they read:
//
//   while(c): m = mul(x, w), h = tanh(h + m), c = ...
//
// is replaced by
//
//   if (c): m = mul(x, w)
//   while(c): h = tanh(h + m), c = ...
//
// The hoisted ops depend on the loop's condition, because a loop without rounds computes nothing:
// its operands may not even fit each other.

#include <coracle/framework/ir/origin.h>
#include <coracle/passes/passes.h>
#include <coracle/passes/value_flow.h>

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace coracle::inline internal {
namespace {

// Skips a loop whose invariant values are all small, because hoisting them saves no time.
constexpr int64_t kMinElements = 256;

class Hoister {
 public:
  Hoister(ProgramDesc& program, const PassContext& context)
      : program_(program), context_(context), root_(program.Root()), recomputed_(program) {}

  void Run() {
    CountUses();
    std::vector<OpDesc*> loops;
    for (OpDesc* op : root_.SubBlockOps()) {
      if (IsLoop(*op)) loops.push_back(op);
    }
    for (OpDesc* loop : loops) HoistFrom(*loop, program_.Block(loop->SubBlocks()[0]));
    InsertHoisted();
  }

 private:
  // Whether it is a loop whose block is used only once, runs no other block, and is not
  // differentiated (the gradient would read the values that each round saved).
  bool IsLoop(const OpDesc& op) const {
    const OpSpec* spec = context_.ops.Find(op.type());
    if (!spec || spec->block.runs != BlockRuns::kRepeatedly || !spec->block.slices.empty() ||
        !spec->block.arguments.empty() || !spec->block.results.empty() ||
        !spec->block.carries.empty() || op.SubBlocks().size() != 1 ||
        op.Input("Condition").size() != 1)
      return false;
    const int index = op.SubBlocks()[0];
    if (index <= 0 || index >= program_.NumBlocks()) return false;
    const BlockDesc& body = program_.Block(index);
    if (body.parent_idx() != 0 || body.forward_block_idx() >= 0 || !body.SubBlockOps().empty())
      return false;
    return uses_[static_cast<size_t>(index)] == 1;
  }

  // Counts the uses of each block by ops that run it and by gradient blocks.
  void CountUses() {
    uses_.assign(static_cast<size_t>(program_.NumBlocks()), 0);
    const auto count = [&](int block) {
      if (block >= 0 && block < program_.NumBlocks()) ++uses_[static_cast<size_t>(block)];
    };
    program_.ForEachOp([&](const OpDesc& op) {
      for (int block : op.SubBlocks()) count(block);
    });
    for (int b = 1; b < program_.NumBlocks(); ++b) count(program_.Block(b).forward_block_idx());
  }

  void HoistFrom(OpDesc& loop, BlockDesc& body) {
    const bool assigned = RemoveSelfAssignments(body);
    std::unordered_set<std::string> changing;
    body.ForEachOp([&](const OpDesc& op) {
      op.ForEachOutput([&](const std::string& name) { changing.insert(name); });
    });
    if (assigned) {
      std::vector<std::string> outputs = loop.Output("Out");
      std::erase_if(outputs, [&](const std::string& name) { return !changing.count(name); });
      loop.SetOutput("Out", std::move(outputs));
    }
    std::vector<const OpDesc*> invariant;
    bool worthwhile = false;
    body.ForEachOp([&](const OpDesc& op) {
      if (!IsInvariant(op, body, changing)) return;
      invariant.push_back(&op);
      op.ForEachOutput([&](const std::string& name) {
        changing.erase(name);
        worthwhile = worthwhile || IsLarge(body.FindVar(name)->shape());
      });
    });
    if (worthwhile) Hoist(loop, body, invariant);
  }

  // An assignment of a variable to itself does not change it.
  bool RemoveSelfAssignments(BlockDesc& body) const {
    const size_t before = body.NumOps();
    body.RemoveOpsIf([&](const OpDesc& op) {
      return op.type() == "assign" && op.Input("X").size() == 1 &&
             op.Input("X") == op.Output("Out") && !recomputed_.Contain(op);
    });
    return body.NumOps() < before;
  }

  static bool IsLarge(const Shape& shape) {
    return !shape.IsKnown() || shape.numel() >= kMinElements;
  }

  bool IsInvariant(const OpDesc& op, const BlockDesc& body,
                   const std::unordered_set<std::string>& changing) const {
    const OpSpec* spec = context_.ops.Find(op.type());
    if (!spec || !IsFunction(*spec) || spec->makes_lod || spec->FileOf(op) || op.HasSubBlock() ||
        recomputed_.Contain(op))
      return false;
    bool reads = false;
    const bool other_input = op.AnyInput([&](const std::string& name) {
      reads = true;
      const VarDesc* var = body.FindVarRecursive(name);
      return changing.count(name) > 0 || !var || var->type() != VarType::kLoDTensor;
    });
    return reads && !other_input && !op.AnyOutput([&](const std::string& name) {
      const VarDesc* var = body.FindVar(name);
      return !var || var->persistable() || var->type() != VarType::kLoDTensor ||
             body.Uses(name).writers.size() != 1;
    });
  }

  void Hoist(OpDesc& loop, BlockDesc& body, const std::vector<const OpDesc*>& invariant) {
    std::unordered_map<std::string, std::string> names;
    std::vector<std::string> outputs, inputs;
    for (const OpDesc* op : invariant) {
      op->ForEachOutput([&](const std::string& name) {
        const std::string moved =
            context_.AddForm(program_, name, "@HOISTED", body.FindVar(name)->meta());
        names[name] = moved;
        outputs.push_back(moved);
      });
    }
    const auto renamed = [&](const std::string& name) {
      auto it = names.find(name);
      return it == names.end() ? name : it->second;
    };
    BlockDesc& before = program_.AppendBlock(root_);
    for (const OpDesc* op : invariant) {
      OpDesc& moved = before.AppendOp(*op);
      moved.RenameInputs(renamed);
      moved.RenameOutputs(renamed);
      op->ForEachInput([&](const std::string& name) {
        if (!names.count(name)) inputs.push_back(name);
      });
    }
    std::sort(inputs.begin(), inputs.end());
    inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
    const std::unordered_set<const OpDesc*> moved(invariant.begin(), invariant.end());
    body.RemoveOpsIf([&](const OpDesc& op) { return moved.count(&op) > 0; });
    body.ForEachOp([&](OpDesc& op) { op.RenameInputs(renamed); });
    body.RemoveVarsIf([&](const VarDesc& var) { return names.count(var.name()) > 0; });
    const std::string scopes = program_.FreeName(outputs[0] + "@SCOPES");
    root_.Var(scopes).SetType(VarType::kStepScopes);
    hoisted_[&loop] = std::make_unique<OpDesc>(
        "conditional_block", SlotList{{"Cond", loop.Input("Condition")}, {"Input", inputs}},
        SlotList{{"Out", outputs}, {"Scope", {scopes}}},
        AttrList{{"sub_block", BlockRef{before.idx()}}, {"is_scalar_condition", true}});
    AddOrigins(loop, *hoisted_[&loop]);
    std::vector<std::string> reads = loop.Input("X");
    reads.insert(reads.end(), outputs.begin(), outputs.end());
    loop.SetInput("X", std::move(reads));
  }

  // Inserts the hoisted ops before their loops.
  void InsertHoisted() {
    if (hoisted_.empty()) return;
    std::vector<std::unique_ptr<OpDesc>> ops;
    for (std::unique_ptr<OpDesc>& op : root_.ReleaseOps()) {
      auto found = hoisted_.find(op.get());
      if (found != hoisted_.end()) ops.push_back(std::move(found->second));
      ops.push_back(std::move(op));
    }
    root_.SetOps(std::move(ops));
  }

  ProgramDesc& program_;
  const PassContext& context_;
  BlockDesc& root_;
  const RecomputedOps recomputed_;
  std::vector<int> uses_;                                               // by block
  std::unordered_map<const OpDesc*, std::unique_ptr<OpDesc>> hoisted_;  // by loop
};

}  // namespace

void HoistInvariants(ProgramDesc& program, const PassContext& context) {
  Hoister(program, context).Run();
}

}  // namespace coracle::inline internal
