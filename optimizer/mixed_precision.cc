#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/optimizer/mixed_precision.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

namespace coracle {
namespace {

enum class Color { kNone, kLow, kFloat };

// Whether the slot stays float32 even if other inputs have 16 bits.
bool StaysFloat32(const OpRegistry& ops, const OpDesc& op, const std::string& slot) {
  const OpSpec* spec = ops.Find(op.type());
  return spec && spec->StaysFloat32(slot);
}

class Rewriter {
 public:
  Rewriter(ProgramDesc& main, const MixedPrecisionOptions& options, const PrecisionLists& lists)
      : main_(main),
        options_(options),
        lists_(lists),
        ops_(options.ops ? *options.ops : DefaultOps()),
        all_low_(options.level >= PrecisionLevel::kO2),
        float32_norms_(options.float32_norms.value_or(options.level != PrecisionLevel::kO3)) {
    CountWrites();
    for (const std::string& name : options.black_vars) black_vars_.insert(name);
    for (const std::string& name : options.float32_vars) Protect(main.Root(), name);
  }

  MixedPrecisionReport Run() {
    RewriteBlock(0);
    return report_;
  }

 private:
  // A block being rewritten: its ops so far, and the op that runs the next level.
  struct Level {
    BlockDesc* block;
    OpDesc* op = nullptr;
    // Casts that are valid until the variable is written again.
    std::map<const VarDesc*, std::string> passing;
  };
  struct Writes {
    int count = 0;
    bool elsewhere = false;  // written by an op outside the variable's block
  };

  void CountWrites() {
    for (int b = 0; b < main_.NumBlocks(); ++b) {
      BlockDesc& block = main_.Block(b);
      for (size_t i = 0; i < block.NumVars(); ++i) home_[&block.var(i)] = b;
    }
    main_.ForEachOp([&](const OpDesc& op) {
      const BlockDesc& block = *op.block();
      op.ForEachOutput([&](const std::string& name) {
        const VarDesc* var = block.FindVarRecursive(name);
        if (!var) return;
        Writes& writes = writes_[var];
        ++writes.count;
        writes.elsewhere |= home_[var] != block.idx();
      });
      if (!op.SubBlocks().empty()) ProtectBoundary(block, op);
    });
  }

  void Protect(const BlockDesc& block, const std::string& name) {
    if (const VarDesc* var = block.FindVarRecursive(name)) protected_.insert(var);
  }

  // The inputs and outputs of a block keep their dtype, since attrs of the op may name
  // these variables.
  void ProtectBoundary(const BlockDesc& block, const OpDesc& op) {
    std::vector<const BlockDesc*> blocks = {&block};
    for (int sub : op.SubBlocks()) {
      if (sub < main_.NumBlocks()) blocks.push_back(&main_.Block(sub));
    }
    for (const BlockDesc* seen : blocks) {
      const auto protect = [&](const std::string& name) { Protect(*seen, name); };
      op.ForEachInput(protect);
      op.ForEachOutput(protect);
      for (const NamedAttr& attr : op.attrs()) {
        if (const auto* name = std::get_if<std::string>(&attr.value)) Protect(*seen, *name);
        if (const auto* names = std::get_if<std::vector<std::string>>(&attr.value))
          for (const std::string& name : *names) Protect(*seen, name);
      }
    }
  }

  bool IsStable(const VarDesc* var) const {
    auto it = writes_.find(var);
    return it == writes_.end() || (it->second.count <= 1 && !it->second.elsewhere);
  }

  void RewriteBlock(int index) {
    if (!rewritten_.insert(index).second) return;
    BlockDesc& block = main_.Block(index);
    std::vector<std::unique_ptr<OpDesc>> ops = block.ReleaseOps();
    levels_.push_back({&block, nullptr, {}});
    for (auto& op : ops) RewriteOp(std::move(op));
    levels_.pop_back();
  }

  Level& level() { return levels_.back(); }
  BlockDesc& block() { return *levels_.back().block; }
  VarDesc* Find(const std::string& name) { return block().FindVarRecursive(name); }

  void RewriteOp(std::unique_ptr<OpDesc> op) {
    const std::vector<int> sub_blocks = op->SubBlocks();
    if (!sub_blocks.empty()) {
      const size_t depth = levels_.size() - 1;
      levels_[depth].op = op.get();
      for (int sub : sub_blocks) {
        if (sub > 0 && sub < main_.NumBlocks()) RewriteBlock(sub);
      }
      levels_[depth].op = nullptr;
      for (Level& open : levels_) open.passing.clear();
      block().AppendOp(std::move(op));
      return;
    }
    switch (ColorOf(*op)) {
      case Color::kNone:
        if (op->type() == "cast") PatchCast(op.get());
        return ForgetWritten(block(), block().AppendOp(std::move(op)));
      case Color::kFloat:
        return AppendFloatOp(std::move(op));
      case Color::kLow:
        return AppendLowOp(std::move(op));
    }
  }

  void ForgetWritten(const BlockDesc& in, const OpDesc& op) {
    op.ForEachOutput([&](const std::string& name) {
      const VarDesc* var = in.FindVarRecursive(name);
      for (Level& open : levels_) open.passing.erase(var);
    });
  }

  // --- what an op computes in ---

  bool HasFloatInput(const OpDesc& op) {
    return op.AnyInput([&](const std::string& name) {
      const VarDesc* var = Find(name);
      return var && (var->dtype() == DType::kFloat32 || var->dtype() == options_.dtype);
    });
  }
  bool HasOtherThanTensors(const OpDesc& op) {
    const auto other = [&](const std::string& name) {
      const VarDesc* var = Find(name);
      return var && var->type() != VarType::kLoDTensor;
    };
    return op.AnyInput(other) || op.AnyOutput(other);
  }
  // A persistable variable that the program writes, such as running statistics: its changes may be
  // smaller than 16 bits can represent.
  bool IsState(const VarDesc* var) const {
    return var && var->persistable() && var->dtype() == DType::kFloat32 && writes_.count(var) > 0;
  }
  bool Stays(const OpDesc& op, const std::string& slot, const VarDesc* var) const {
    return StaysFloat32(ops_, op, slot) && (float32_norms_ || IsState(var));
  }
  // In 16 bits, such an op would round the state in each step.
  bool WritesState(const OpDesc& op) {
    bool writes = false;
    op.ForEachOutput([&](const std::string& name, const std::string& slot) {
      writes |= IsState(Find(name)) && !StaysFloat32(ops_, op, slot);
    });
    return writes;
  }
  bool TouchesBlackVar(const OpDesc& op) {
    const auto black = [&](const std::string& name) { return black_vars_.count(name) > 0; };
    return op.AnyInput(black) || op.AnyOutput(black);
  }

  Color ColorOf(const OpDesc& op) {
    const OpSpec* def = ops_.Find(op.type());
    if (!def || def->kind != OpKind::kCompute || def->side_effect || op.type() == "cast")
      return Color::kNone;
    if (def->shape_only || !HasFloatInput(op)) return Color::kNone;
    if (TouchesBlackVar(op) || WritesState(op) || HasOtherThanTensors(op) ||
        lists_.black.count(op.type()))
      return Color::kFloat;
    if (all_low_ || lists_.white.count(op.type())) return Color::kLow;
    return Followed(op);
  }

  Color Followed(const OpDesc& op) {
    Color color = Color::kNone;
    op.ForEachInput([&](const std::string& name) {
      auto it = colors_.find(Find(name));
      if (it == colors_.end() || color == Color::kFloat) return;
      color = it->second;
    });
    return color;
  }

  void SetColors(const OpDesc& op, Color color) {
    op.ForEachOutput([&](const std::string& name) {
      if (const VarDesc* var = Find(name)) colors_[var] = color;
    });
  }

  // --- appending ---

  // A cast written by the user keeps its output dtype, but its input may have changed.
  void PatchCast(OpDesc* op) {
    if (op->Input("X").empty()) return;
    if (const VarDesc* var = Find(op->Input("X")[0]))
      op->SetAttr("in_dtype", static_cast<int32_t>(var->dtype()));
  }

  void CastInputs(OpDesc* op, DType from, DType to) {
    const bool keep = to != DType::kFloat32;
    op->RenameInputs([&](const std::string& name, const std::string& slot) {
      const VarDesc* var = Find(name);
      const bool cast = var && var->dtype() == from && var->type() == VarType::kLoDTensor &&
                        !(keep && Stays(*op, slot, var));
      return cast ? CastOf(name, *var, to) : name;
    });
  }

  void AppendFloatOp(std::unique_ptr<OpDesc> op) {
    ++report_.float_ops;
    CastInputs(op.get(), options_.dtype, DType::kFloat32);
    const OpDesc& added = block().AppendOp(std::move(op));
    ForgetWritten(block(), added);
    SetColors(added, Color::kFloat);
  }

  void AppendLowOp(std::unique_ptr<OpDesc> op) {
    ++report_.low_ops;
    CastInputs(op.get(), DType::kFloat32, options_.dtype);
    for (const char* attr : {"dtype", "in_dtype", "out_dtype"}) {
      if (op->GetAttr<int32_t>(attr, -1) == static_cast<int32_t>(DType::kFloat32))
        op->SetAttr(attr, static_cast<int32_t>(options_.dtype));
    }
    // Outputs whose variable must stay float32 are computed in another variable.
    std::vector<std::pair<std::string, std::string>> beside;
    op->RenameOutputs([&](const std::string& name, const std::string& slot) {
      const VarDesc* var = Find(name);
      const bool computed_here = Stays(*op, slot, var);
      if (computed_here || !var || var->dtype() != DType::kFloat32 || MayBecomeLow(*var))
        return name;
      const std::string temp = NewVar(name, *var, options_.dtype);
      beside.emplace_back(temp, name);
      return temp;
    });
    OpDesc& added = block().AppendOp(std::move(op));
    InferOp(block(), added, ops_);
    SetColors(added, Color::kLow);
    ForgetWritten(block(), added);
    for (const auto& [temp, name] : beside) {
      if (block().FindVar(temp)->dtype() == DType::kFloat32) {  // the op always outputs float32
        added.RenameOutput(temp, name);
        block().RemoveVar(temp);
        continue;
      }
      AppendCast(block(), temp, name, DType::kFloat32);
      colors_[Find(name)] = Color::kLow;
      for (Level& open : levels_) open.passing.erase(Find(name));
    }
  }

  bool MayBecomeLow(const VarDesc& var) const {
    auto home = home_.find(&var);
    const bool here = home == home_.end() || home->second == levels_.back().block->idx();
    return here && IsStable(&var) && !var.persistable() && !protected_.count(&var);
  }

  // --- casts ---

  static const char* SuffixOf(DType dtype) {
    return dtype == DType::kFloat16    ? ".cast_fp16"
           : dtype == DType::kBFloat16 ? ".cast_bf16"
                                       : ".cast_fp32";
  }

  std::string NewVar(const std::string& name, const VarDesc& like, DType dtype,
                     BlockDesc* in = {}) {
    std::string made = main_.FreeName(name + SuffixOf(dtype));
    BlockDesc& home = in ? *in : block();
    VarDesc& var = home.Var(made);
    VarMeta meta = like.meta();
    meta.dtype = dtype;
    var.SetMeta(meta);
    var.SetStopGradient(like.stop_gradient());
    home_[&var] = home.idx();
    return made;
  }

  void AppendCast(BlockDesc& in, const std::string& from, const std::string& to, DType dtype) {
    const VarDesc* var = in.FindVarRecursive(from);
    in.AppendOp("cast", {{"X", {from}}}, {{"Out", {to}}},
                {{"in_dtype", static_cast<int32_t>(var->dtype())},
                 {"out_dtype", static_cast<int32_t>(dtype)}});
    ++report_.casts;
  }

  // The variable in another dtype, cast here or in the block where it is first needed.
  std::string CastOf(const std::string& name, const VarDesc& var, DType dtype) {
    const bool stable = IsStable(&var);
    std::map<const VarDesc*, std::string>& kept = stable ? shared_[dtype] : level().passing;
    const size_t outermost = stable ? Hoist(name, var) : levels_.size() - 1;
    auto it = kept.find(&var);
    const VarDesc* made = it == kept.end() ? nullptr : Find(it->second);
    const size_t at = made ? LevelOf(*made) : outermost;
    if (!made || at < outermost) {
      BlockDesc& in = *levels_[outermost].block;
      kept[&var] = NewVar(name, var, dtype, &in);
      AppendCast(in, name, kept[&var], dtype);
      auto color = colors_.find(&var);
      if (color != colors_.end()) colors_[in.FindVar(kept[&var])] = color->second;
    }
    for (size_t i = std::max(at, outermost); i + 1 < levels_.size(); ++i)
      Capture(levels_[i].op, name, kept[&var]);
    return kept[&var];
  }

  size_t LevelOf(const VarDesc& var) const {
    size_t at = levels_.size() - 1;
    while (at > 0 && levels_[at].block->idx() != home_.at(&var)) --at;
    return at;
  }

  // The outermost open block in which the cast may be placed: every op on the way must take the
  // variable under the same name and meaning.
  size_t Hoist(const std::string& name, const VarDesc& var) const {
    size_t target = levels_.size() - 1;
    auto home = home_.find(&var);
    if (home == home_.end()) return target;
    while (target > 0 && levels_[target].block->idx() != home->second &&
           CaptureSlot(*levels_[target - 1].op, name) != nullptr)
      --target;
    return target;
  }

  // The slot that lists the variables read by the op's block.
  static const Slot* CaptureSlot(const OpDesc& op, const std::string& name) {
    for (const Slot& slot : op.inputs()) {
      if (slot.name != "X" && slot.name != "Input" && slot.name != "parameters") continue;
      if (std::find(slot.args.begin(), slot.args.end(), name) != slot.args.end()) return &slot;
    }
    return nullptr;
  }
  static void Capture(OpDesc* op, const std::string& name, const std::string& cast) {
    const Slot* slot = CaptureSlot(*op, name);
    std::vector<std::string> args = slot->args;
    if (std::find(args.begin(), args.end(), cast) != args.end()) return;
    args.push_back(cast);
    op->SetInput(std::string(slot->name), std::move(args));
  }

  ProgramDesc& main_;
  const MixedPrecisionOptions& options_;
  const PrecisionLists& lists_;
  const OpRegistry& ops_;
  const bool all_low_, float32_norms_;
  MixedPrecisionReport report_;
  std::vector<Level> levels_;
  std::unordered_map<const VarDesc*, int> home_;
  std::unordered_map<const VarDesc*, Writes> writes_;
  std::unordered_map<const VarDesc*, Color> colors_;
  std::unordered_set<const VarDesc*> protected_;
  std::set<std::string> black_vars_;
  std::set<int> rewritten_;
  std::map<DType, std::map<const VarDesc*, std::string>> shared_;  // casts of stable variables
};

// --- parameters of 16 bits ---

// Makes the op that initialises the parameter write 16 bits, or appends a cast to it.
void NarrowInitializer(ProgramDesc& startup, const std::string& name, DType dtype,
                       const OpRegistry& ops) {
  BlockDesc& root = startup.Root();
  VarDesc* var = root.FindVar(name);
  if (!var) return;
  for (size_t i = 0; i < root.NumOps(); ++i) {
    OpDesc& op = root.op(i);
    if (!op.Writes(name)) continue;
    const OpSpec* def = ops.Find(op.type());
    if (op.HasAttr("dtype") || (def && def->FindAttr("dtype"))) {
      op.SetAttr("dtype", static_cast<int32_t>(dtype));
      InferOp(root, op, ops);
      if (var->dtype() == dtype) continue;
      op.SetAttr("dtype", static_cast<int32_t>(DType::kFloat32));
    }
    const std::string wide = startup.FreeName(name + ".cast_fp32");
    VarMeta meta = var->meta();
    meta.dtype = DType::kFloat32;
    root.Var(wide).SetMeta(meta);
    op.RenameOutput(name, wide);
    OpDesc cast("cast", {{"X", {wide}}}, {{"Out", {name}}},
                {{"in_dtype", static_cast<int32_t>(DType::kFloat32)},
                 {"out_dtype", static_cast<int32_t>(dtype)}});
    root.InsertOp(i + 1, cast);
    var->SetDType(dtype);
    ++i;
  }
}

// Persistable float32 tensors that ops read as 16 bits: all except states and slots that norms keep
// in float32.
void NarrowParameters(ProgramDesc& main, ProgramDesc& startup, const MixedPrecisionOptions& options,
                      const PrecisionLists& lists) {
  const OpRegistry& ops = options.ops ? *options.ops : DefaultOps();
  const bool float32_norms = options.float32_norms.value_or(options.level != PrecisionLevel::kO3);
  std::set<std::string> kept(options.float32_vars.begin(), options.float32_vars.end());
  kept.insert(options.black_vars.begin(), options.black_vars.end());
  main.ForEachOp([&](const OpDesc& op) {
    const bool black = lists.black.count(op.type()) > 0;
    op.ForEachInput([&](const std::string& name, const std::string& slot) {
      if (black || (float32_norms && StaysFloat32(ops, op, slot))) kept.insert(name);
    });
    op.ForEachOutput([&](const std::string& name) { kept.insert(name); });
  });
  for (int b = 0; b < main.NumBlocks(); ++b) {
    BlockDesc& block = main.Block(b);
    for (size_t i = 0; i < block.NumVars(); ++i) {
      VarDesc& var = block.var(i);
      const bool takes = var.persistable() && var.type() == VarType::kLoDTensor &&
                         var.dtype() == DType::kFloat32 && !kept.count(var.name());
      if (!takes) continue;
      var.SetDType(options.dtype);
      NarrowInitializer(startup, var.name(), options.dtype, ops);
    }
  }
}

// --- checks ---

PrecisionLists ListsOf(const MixedPrecisionOptions& options) {
  const OpRegistry& ops = options.ops ? *options.ops : DefaultOps();
  PrecisionLists lists = DefaultPrecisionLists(ops);
  // O3 computes everything in 16 bits.
  if (options.level == PrecisionLevel::kO3) lists.black.clear();
  for (const auto* custom : {&options.custom_white, &options.custom_black}) {
    for (const std::string& type : *custom) {
      if (ops.Find(type)) continue;
      throw Error(ErrorCode::kNotFound, fmt::format("mixed precision: there is no op {}{}",
                                                    Quote(type), DidYouMean(type, ops.Types())));
    }
  }
  for (const std::string& type : options.custom_white) {
    const auto& black = options.custom_black;
    if (std::find(black.begin(), black.end(), type) != black.end()) {
      ThrowInvalid(
          fmt::format("mixed precision: {} is in custom_white and in custom_black", Quote(type)));
    }
    lists.white.insert(type);
    lists.black.erase(type);
  }
  for (const std::string& type : options.custom_black) {
    lists.black.insert(type);
    lists.white.erase(type);
  }
  return lists;
}

void CheckProgram(const ProgramDesc& main, const MixedPrecisionOptions& options) {
  if (!IsHalf(options.dtype)) {
    ThrowInvalid(fmt::format("mixed precision: dtype must be float16 or bfloat16, got {}",
                             ToString(options.dtype)));
  }
  if (options.level <= PrecisionLevel::kO1 && (options.master_weights || options.float32_norms)) {
    ThrowInvalid(
        fmt::format("mixed precision: {} contradicts the level O{}, which leaves parameters "
                    "float32; use O2 or O3",
                    options.master_weights ? "master_weights" : "float32_norms",
                    static_cast<int>(options.level)));
  }
  std::vector<std::string> names;
  for (int b = 0; b < main.NumBlocks(); ++b) {
    const BlockDesc& block = main.Block(b);
    for (size_t i = 0; i < block.NumVars(); ++i) names.push_back(block.var(i).name());
    for (size_t i = 0; i < block.NumOps(); ++i) {
      const int role = block.op(i).role();
      if (role == kNotSpecified || (role & (kBackward | kOptimize)) == 0) continue;
      ThrowInvalid(
          fmt::format("mixed precision: the program has gradient or update ops already ({}); "
                      "decorate it before Minimize",
                      block.op(i).type()),
          "  " + Locate(block.op(i)));
    }
  }
  for (const auto* list : {&options.black_vars, &options.float32_vars}) {
    for (const std::string& name : *list) {
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;
      throw Error(ErrorCode::kNotFound,
                  fmt::format("mixed precision: the program has no variable {}{}", Quote(name),
                              DidYouMean(name, names)));
    }
  }
}

}  // namespace

MixedPrecisionReport DecorateMixedPrecision(ProgramDesc& main, ProgramDesc& startup,
                                            const MixedPrecisionOptions& options) {
  const EditGuard guard(main, startup);
  CheckProgram(main, options);
  const PrecisionLists lists = ListsOf(options);
  if (options.level == PrecisionLevel::kO0) return {};
  const bool masters = options.master_weights.value_or(options.level != PrecisionLevel::kO3);
  if (!masters) NarrowParameters(main, startup, options, lists);
  return Rewriter(main, options, lists).Run();
}

}  // namespace coracle
