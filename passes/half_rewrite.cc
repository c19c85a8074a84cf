#include <coracle/framework/op/op_context.h>
#include <coracle/passes/half_rewrite.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace coracle::inline internal {
namespace {

enum class Color { kNone, kLow, kFloat };

bool StaysFloat32(const OpRegistry& ops, const OpDesc& op, const std::string& slot) {
  const OpSpec* spec = ops.Find(op.type());
  return spec && spec->StaysFloat32(slot);
}

// How the program uses its variables.
class VarFacts {
 public:
  explicit VarFacts(const ProgramDesc& main) : main_(main) {
    for (int b = 0; b < main.NumBlocks(); ++b) {
      const BlockDesc& block = main.Block(b);
      for (size_t i = 0; i < block.NumVars(); ++i) AddVar(block.var(i), b);
    }
    main.ForEachOp([&](const OpDesc& op) {
      op.ForEachOutput([&](const std::string& name) { AddWrite(*op.block(), name); });
      if (!op.SubBlocks().empty()) KeepBoundary(*op.block(), op);
    });
  }

  void AddVar(const VarDesc& var, int block) { home_[&var] = block; }
  void Keep(const BlockDesc& block, const std::string& name) {
    if (const VarDesc* var = block.FindVarRecursive(name)) kept_.insert(var);
  }

  // Written at most once, in its own block, so that a cast of it stays valid.
  bool IsStable(const VarDesc* var) const {
    const auto it = writes_.find(var);
    return it == writes_.end() || (it->second.count <= 1 && !it->second.elsewhere);
  }
  // A persistable variable that the program writes, such as running statistics: its changes may be
  // smaller than 16 bits can represent.
  bool IsState(const VarDesc* var) const {
    return var && var->persistable() && var->dtype() == DType::kFloat32 && writes_.count(var) > 0;
  }
  // Whether an op of the block may write the variable with 16 bits.
  bool MayBecomeLow(const VarDesc& var, int block) const {
    return HomeOf(var).value_or(block) == block && IsStable(&var) && !var.persistable() &&
           !kept_.count(&var);
  }
  // The index of its block; nullopt for a variable of no block.
  std::optional<int> HomeOf(const VarDesc& var) const {
    const auto home = home_.find(&var);
    return home == home_.end() ? std::nullopt : std::optional(home->second);
  }

 private:
  struct Writes {
    int count = 0;
    bool elsewhere = false;  // written by an op outside the variable's block
  };

  void AddWrite(const BlockDesc& block, const std::string& name) {
    const VarDesc* var = block.FindVarRecursive(name);
    if (!var) return;
    Writes& writes = writes_[var];
    ++writes.count;
    writes.elsewhere |= home_[var] != block.idx();
  }

  // The inputs and outputs of a block keep their dtype, since attrs of the op may name
  // these variables.
  void KeepBoundary(const BlockDesc& block, const OpDesc& op) {
    std::vector<const BlockDesc*> blocks = {&block};
    for (int sub : op.SubBlocks()) {
      if (sub < main_.NumBlocks()) blocks.push_back(&main_.Block(sub));
    }
    for (const BlockDesc* seen : blocks) {
      const auto keep = [&](const std::string& name) { Keep(*seen, name); };
      op.ForEachInput(keep);
      op.ForEachOutput(keep);
      for (const NamedAttr& attr : op.attrs()) {
        if (const auto* name = std::get_if<std::string>(&attr.value)) keep(*name);
        if (const auto* names = std::get_if<std::vector<std::string>>(&attr.value))
          for (const std::string& name : *names) keep(name);
      }
    }
  }

  const ProgramDesc& main_;
  std::unordered_map<const VarDesc*, int> home_;
  std::unordered_map<const VarDesc*, Writes> writes_;
  std::unordered_set<const VarDesc*> kept_;
};

// Decides what each op computes in. Ops belong to no block while they are rewritten, so each
// function takes the block whose variables they use.
class OpColors {
 public:
  OpColors(const HalfRewriteOptions& options, const VarFacts& facts)
      : options_(options), facts_(facts), ops_(*options.ops) {}

  Color Of(const OpDesc& op, const BlockDesc& block) const {
    const OpSpec* def = ops_.Find(op.type());
    if (!def || def->kind != OpKind::kCompute || def->side_effect || op.type() == "cast")
      return Color::kNone;
    if (def->shape_only || !HasFloatInput(op, block)) return Color::kNone;
    if (UsesBlackVar(op) || WritesState(op, block) || HasOtherThanTensors(op, block) ||
        options_.black.count(op.type()) || (options_.keeps_float && options_.keeps_float(op)))
      return Color::kFloat;
    if (options_.all_low || options_.white.count(op.type())) return Color::kLow;
    return OfInputs(op, block);
  }

  // Whether the variable stays float32 in this slot of an op that computes in 16 bits.
  bool Stays(const OpDesc& op, const std::string& slot, const VarDesc* var) const {
    return StaysFloat32(ops_, op, slot) && (options_.float32_norms || facts_.IsState(var));
  }

  void Set(const VarDesc* var, Color color) {
    if (var) colors_[var] = color;
  }
  void SetOutputs(const OpDesc& op, const BlockDesc& block, Color color) {
    op.ForEachOutput([&](const std::string& name) { Set(block.FindVarRecursive(name), color); });
  }
  void Copy(const VarDesc* from, const VarDesc* to) {
    if (const auto color = colors_.find(from); color != colors_.end()) colors_[to] = color->second;
  }

 private:
  bool HasFloatInput(const OpDesc& op, const BlockDesc& block) const {
    return op.AnyInput([&](const std::string& name) {
      const VarDesc* var = block.FindVarRecursive(name);
      return var && (var->dtype() == DType::kFloat32 || var->dtype() == options_.dtype);
    });
  }
  static bool HasOtherThanTensors(const OpDesc& op, const BlockDesc& block) {
    const auto other = [&](const std::string& name) {
      const VarDesc* var = block.FindVarRecursive(name);
      return var && var->type() != VarType::kLoDTensor;
    };
    return op.AnyInput(other) || op.AnyOutput(other);
  }
  // In 16 bits, such an op would round the state in each step.
  bool WritesState(const OpDesc& op, const BlockDesc& block) const {
    return op.AnyOutput([&](const std::string& name, const std::string& slot) {
      return facts_.IsState(block.FindVarRecursive(name)) && !StaysFloat32(ops_, op, slot);
    });
  }
  bool UsesBlackVar(const OpDesc& op) const {
    const auto& black = options_.black_vars;
    const auto is_black = [&](const std::string& name) {
      return std::find(black.begin(), black.end(), name) != black.end();
    };
    return op.AnyInput(is_black) || op.AnyOutput(is_black);
  }
  // The color of the first input that has one; kFloat if any input has it.
  Color OfInputs(const OpDesc& op, const BlockDesc& block) const {
    Color color = Color::kNone;
    op.ForEachInput([&](const std::string& name) {
      const auto it = colors_.find(block.FindVarRecursive(name));
      if (it != colors_.end() && color != Color::kFloat) color = it->second;
    });
    return color;
  }

  const HalfRewriteOptions& options_;
  const VarFacts& facts_;
  const OpRegistry& ops_;
  std::unordered_map<const VarDesc*, Color> colors_;
};

// A block being rewritten: its ops so far, and the op that runs the next level.
struct Level {
  BlockDesc* block;
  OpDesc* op = nullptr;
  // Casts that are valid until the variable is written again.
  std::map<const VarDesc*, std::string> passing = {};
};

// The slot that lists the variables read by the op's block, if it names this one; else nullptr.
const Slot* CaptureSlot(const OpDesc& op, const std::string& name) {
  for (const Slot& slot : op.inputs()) {
    if (slot.name != "X" && slot.name != "Input" && slot.name != "parameters") continue;
    if (std::find(slot.args.begin(), slot.args.end(), name) != slot.args.end()) return &slot;
  }
  return nullptr;
}

// Adds the cast to the variables that the op's block reads.
void Capture(OpDesc* op, const std::string& name, const std::string& cast) {
  const Slot* slot = CaptureSlot(*op, name);
  std::vector<std::string> args = slot->args;
  if (std::find(args.begin(), args.end(), cast) != args.end()) return;
  args.push_back(cast);
  op->SetInput(std::string(slot->name), std::move(args));
}

// The open blocks, and the casts in them.
class Casts {
 public:
  Casts(ProgramDesc& main, const HalfRewriteOptions& options, VarFacts& facts, OpColors& colors)
      : main_(main), options_(options), facts_(facts), colors_(colors) {}

  int count() const { return count_; }
  BlockDesc& block() const { return *levels_.back().block; }
  VarDesc* Find(const std::string& name) const { return block().FindVarRecursive(name); }

  void Open(BlockDesc& block) { levels_.push_back({&block}); }
  void Close() { levels_.pop_back(); }
  // The op of the innermost block that runs the next one; nullptr: none.
  void SetRunner(OpDesc* op) { levels_.back().op = op; }

  // Forgets casts of variables that the op may have written.
  void ForgetAll() {
    for (Level& open : levels_) open.passing.clear();
  }
  void Forget(const VarDesc* var) {
    for (Level& open : levels_) open.passing.erase(var);
  }
  void ForgetWritten(const OpDesc& op) {
    op.ForEachOutput([&](const std::string& name) { Forget(Find(name)); });
  }

  // A new variable of the block that differs from `like` in its dtype only.
  std::string NewVar(const std::string& name, const VarDesc& like, DType dtype, BlockDesc& in) {
    const char* suffix = dtype == DType::kFloat16    ? ".cast_fp16"
                         : dtype == DType::kBFloat16 ? ".cast_bf16"
                                                     : ".cast_fp32";
    const std::string made = main_.FreeName(name + suffix);
    VarDesc& var = in.Var(made);
    VarMeta meta = like.meta();
    meta.dtype = dtype;
    var.SetMeta(meta);
    var.SetStopGradient(like.stop_gradient());
    facts_.AddVar(var, in.idx());
    if (options_.note_made) options_.note_made(made, name);
    return made;
  }

  void Append(BlockDesc& in, const std::string& from, const std::string& to, DType dtype) {
    const VarDesc* var = in.FindVarRecursive(from);
    in.AppendOp("cast", {{"X", {from}}}, {{"Out", {to}}},
                {{"in_dtype", static_cast<int32_t>(var->dtype())},
                 {"out_dtype", static_cast<int32_t>(dtype)}});
    ++count_;
  }

  // The variable in another dtype, cast here or in the block where it is first needed.
  std::string Of(const std::string& name, const VarDesc& var, DType dtype) {
    const bool stable = facts_.IsStable(&var);
    std::map<const VarDesc*, std::string>& known = stable ? stable_[dtype] : levels_.back().passing;
    const size_t outermost = stable ? OutermostLevel(name, var) : levels_.size() - 1;
    const auto it = known.find(&var);
    const VarDesc* made = it == known.end() ? nullptr : Find(it->second);
    const size_t at = made ? LevelOf(*made) : outermost;
    if (!made || at < outermost) {
      BlockDesc& in = *levels_[outermost].block;
      known[&var] = NewVar(name, var, dtype, in);
      Append(in, name, known[&var], dtype);
      colors_.Copy(&var, in.FindVar(known[&var]));
    }
    for (size_t i = std::max(at, outermost); i + 1 < levels_.size(); ++i)
      Capture(levels_[i].op, name, known[&var]);
    return known[&var];
  }

 private:
  size_t LevelOf(const VarDesc& var) const {
    size_t at = levels_.size() - 1;
    while (at > 0 && levels_[at].block->idx() != facts_.HomeOf(var)) --at;
    return at;
  }

  // The outermost open block in which the cast may be placed: every op on the way must take the
  // variable under the same name and meaning.
  size_t OutermostLevel(const std::string& name, const VarDesc& var) const {
    size_t target = levels_.size() - 1;
    const std::optional<int> home = facts_.HomeOf(var);
    while (home && target > 0 && levels_[target].block->idx() != *home &&
           CaptureSlot(*levels_[target - 1].op, name) != nullptr)
      --target;
    return target;
  }

  ProgramDesc& main_;
  const HalfRewriteOptions& options_;
  VarFacts& facts_;
  OpColors& colors_;
  std::vector<Level> levels_;
  std::map<DType, std::map<const VarDesc*, std::string>> stable_;  // casts of stable variables
  int count_ = 0;
};

class Rewriter {
 public:
  Rewriter(ProgramDesc& main, const HalfRewriteOptions& options)
      : main_(main),
        options_(options),
        ops_(*options.ops),
        facts_(main),
        colors_(options, facts_),
        casts_(main, options, facts_, colors_) {
    for (const std::string& name : options.float32_vars) facts_.Keep(main.Root(), name);
  }

  HalfRewriteReport Run() {
    RewriteBlock(0);
    report_.casts = casts_.count();
    return report_;
  }

 private:
  void RewriteBlock(int index) {
    if (!rewritten_.insert(index).second) return;
    BlockDesc& block = main_.Block(index);
    std::vector<std::unique_ptr<OpDesc>> ops = block.ReleaseOps();
    casts_.Open(block);
    for (auto& op : ops) RewriteOp(std::move(op));
    casts_.Close();
  }

  void RewriteOp(std::unique_ptr<OpDesc> op) {
    if (!op->SubBlocks().empty()) return RewriteRunner(std::move(op));
    switch (colors_.Of(*op, casts_.block())) {
      case Color::kNone:
        if (op->type() == "cast") SetInputDType(op.get());
        return casts_.ForgetWritten(casts_.block().AppendOp(std::move(op)));
      case Color::kFloat:
        return AppendFloatOp(std::move(op));
      case Color::kLow:
        return AppendLowOp(std::move(op));
    }
  }

  // An op that runs blocks.
  void RewriteRunner(std::unique_ptr<OpDesc> op) {
    casts_.SetRunner(op.get());
    for (int sub : op->SubBlocks()) {
      if (options_.sub_blocks && sub > 0 && sub < main_.NumBlocks()) RewriteBlock(sub);
    }
    casts_.SetRunner(nullptr);
    casts_.ForgetAll();
    casts_.block().AppendOp(std::move(op));
  }

  // A cast written by the user keeps its output dtype, but its input may have changed.
  void SetInputDType(OpDesc* op) const {
    if (op->Input("X").empty()) return;
    if (const VarDesc* var = casts_.Find(op->Input("X")[0]))
      op->SetAttr("in_dtype", static_cast<int32_t>(var->dtype()));
  }

  void CastInputs(OpDesc* op, DType from, DType to) {
    const bool keep = to != DType::kFloat32;
    op->RenameInputs([&](const std::string& name, const std::string& slot) {
      const VarDesc* var = casts_.Find(name);
      const bool cast = var && var->dtype() == from && var->type() == VarType::kLoDTensor &&
                        !(keep && colors_.Stays(*op, slot, var));
      return cast ? casts_.Of(name, *var, to) : name;
    });
  }

  void AppendFloatOp(std::unique_ptr<OpDesc> op) {
    ++report_.float_ops;
    CastInputs(op.get(), options_.dtype, DType::kFloat32);
    const OpDesc& added = casts_.block().AppendOp(std::move(op));
    casts_.ForgetWritten(added);
    colors_.SetOutputs(added, casts_.block(), Color::kFloat);
  }

  void AppendLowOp(std::unique_ptr<OpDesc> op) {
    ++report_.low_ops;
    BlockDesc& block = casts_.block();
    CastInputs(op.get(), DType::kFloat32, options_.dtype);
    for (const char* attr : {"dtype", "in_dtype", "out_dtype"}) {
      if (op->GetAttr<int32_t>(attr, -1) == static_cast<int32_t>(DType::kFloat32))
        op->SetAttr(attr, static_cast<int32_t>(options_.dtype));
    }
    const std::vector<Renamed> renamed = RenameFloatOutputs(op.get());
    OpDesc& added = block.AppendOp(std::move(op));
    InferOp(block, added, ops_);
    colors_.SetOutputs(added, block, Color::kLow);
    casts_.ForgetWritten(added);
    for (const auto& [low, name] : renamed) {
      if (block.FindVar(low)->dtype() == DType::kFloat32) {  // the op always outputs float32
        added.RenameOutput(low, name);
        block.RemoveVar(low);
        continue;
      }
      casts_.Append(block, low, name, DType::kFloat32);
      colors_.Set(casts_.Find(name), Color::kLow);
      casts_.Forget(casts_.Find(name));
    }
  }

  // Outputs whose variable must stay float32 are computed in another variable, `low`.
  struct Renamed {
    std::string low, name;
  };
  std::vector<Renamed> RenameFloatOutputs(OpDesc* op) {
    std::vector<Renamed> renamed;
    op->RenameOutputs([&](const std::string& name, const std::string& slot) {
      const VarDesc* var = casts_.Find(name);
      if (!var || var->dtype() != DType::kFloat32 || colors_.Stays(*op, slot, var) ||
          facts_.MayBecomeLow(*var, casts_.block().idx()))
        return name;
      renamed.push_back({casts_.NewVar(name, *var, options_.dtype, casts_.block()), name});
      return renamed.back().low;
    });
    return renamed;
  }

  ProgramDesc& main_;
  const HalfRewriteOptions& options_;
  const OpRegistry& ops_;
  VarFacts facts_;
  OpColors colors_;
  Casts casts_;
  HalfRewriteReport report_;
  std::set<int> rewritten_;
};

}  // namespace

HalfRewriteReport RewriteForHalves(ProgramDesc& main, const HalfRewriteOptions& options) {
  return Rewriter(main, options).Run();
}

}  // namespace coracle::inline internal
