// Moves a transpose after ops that work in any order of axes, if that leaves fewer or smaller
// transposes. Two transposes that cancel disappear:
//
//   a = transpose2(a@NHWC), b = transpose2(b@NHWC), c = concat(a, b) axis=1,
//   c@NHWC = transpose2(c)
//
// is replaced by
//
//   c@MOVED = concat(a@NHWC, b@NHWC) axis=3

#include <coracle/framework/ir/origin.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/passes/passes.h>
#include <coracle/passes/transposed_ops.h>
#include <coracle/passes/transposes.h>
#include <coracle/passes/value_flow.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

namespace coracle::inline internal {
namespace {

// The fixed cost of a transpose, in elements.
constexpr double kCostOfAnOp = 64;
constexpr int kMaxRounds = 64;
// Each rewrite visits all ops, and a program may have as many lists of axes as ops. Limits the
// number of rewrites so that they visit at most kMaxVisits ops in total, but allows kMinRewrites.
constexpr size_t kMinRewrites = 16, kMaxVisits = size_t{1} << 21;

// The transposes with one list of axes, v[i] = u[axes[i]], and the ops that may run before them. We
// call u the form of v.
struct Moves {
  std::map<std::string, std::string> forms;  // v to u; "" for the output of a moved op
  std::unordered_set<const OpDesc*> entries, exits;
  std::unordered_map<const OpDesc*, MovedOp> followers;
  std::vector<const OpDesc*> order;        // followers, in the order of visits
  std::unordered_set<std::string> needed;  // variables that other ops read in transposed form
};

// Finds the ops that may move, from the transposes on.
class MoveFinder {
 public:
  MoveFinder(ProgramDesc& program, const PassContext& context, const ValueFlow& flow,
             const LodFlow& lods, const Ints& axes)
      : block_(program.Root()),
        flow_(flow),
        lods_(lods),
        axes_(axes),
        back_(Inverse(axes)),
        scene_{program, block_, context,
               flow,    axes_,  [this](const std::string& name) { return IsForm(name); }} {}

  // `transposes` are the ops with these axes.
  Moves Run(const std::vector<const OpDesc*>& transposes) {
    for (const OpDesc* op : transposes) waiting_.insert(block_.IndexOf(*op));
    while (!waiting_.empty()) {
      const size_t at = *waiting_.begin();
      waiting_.erase(waiting_.begin());
      Classify(block_.op(at));
    }
    return std::move(moves_);
  }

 private:
  void Classify(const OpDesc& op) {
    if (IsExit(op)) {
      moves_.exits.insert(&op);
    } else if (IsEntry(op)) {
      AddForm(op, op.Output("Out")[0], op.Input("X")[0]);
      moves_.entries.insert(&op);
    } else if (auto moved = MoveBeforeTranspose(op, scene_)) {
      if (!moved->plain) {
        op.ForEachOutput([&](const std::string& name) {
          if (!flow_.IsUnread(name)) AddForm(op, name, "");
        });
      }
      moves_.followers.emplace(&op, std::move(*moved));
      moves_.order.push_back(&op);
    }
  }

  // Records the form of `var` and queues its later readers, in the order of the block.
  void AddForm(const OpDesc& op, const std::string& var, const std::string& source) {
    moves_.forms[var] = source;
    const size_t at = block_.IndexOf(op);
    for (const OpDesc* reader : block_.Uses(var).readers) {
      const size_t its = block_.IndexOf(*reader);
      if (its > at) waiting_.insert(its);
    }
  }
  bool IsForm(const std::string& var) const { return moves_.forms.count(var) > 0; }

  bool IsEntry(const OpDesc& op) const {
    if (!IsTranspose(op) || AxesOf(op) != axes_) return false;
    const std::string &u = op.Input("X")[0], &v = op.Output("Out")[0];
    const VarDesc* from = block_.FindVar(u);
    return from && from->type() == VarType::kLoDTensor && flow_.IsTemporary(v) &&
           flow_.IsOnlyOutput(op, v) && flow_.IsConstantInARun(u) &&
           (KeepsLod(op) || !lods_.MayHaveLod(u));
  }

  // Whether it undoes the transposes.
  bool IsExit(const OpDesc& op) const {
    if (!IsTranspose(op) || AxesOf(op) != back_ || !IsForm(op.Input("X")[0])) return false;
    const std::string& y = op.Output("Out")[0];
    return flow_.IsTemporary(y) && flow_.IsOnlyOutput(op, y) &&
           (KeepsLod(op) || !lods_.MayHaveLod(op.Input("X")[0]));
  }

  const BlockDesc& block_;
  const ValueFlow& flow_;
  const LodFlow& lods_;
  const Ints axes_, back_;
  const TransposeScene scene_;
  std::set<size_t> waiting_;  // positions of ops to visit
  Moves moves_;
};

// Whether the op reads `var` before its transpose.
bool ReadsForm(const Moves& moves, const OpDesc& op, const std::string& var) {
  if (moves.exits.count(&op)) return true;
  auto follower = moves.followers.find(&op);
  return follower != moves.followers.end() && follower->second.inputs.count(var) > 0;
}

// Finds the variables that other ops read in their transposed form.
std::unordered_set<std::string> FindNeeded(const BlockDesc& block, const Moves& moves) {
  std::unordered_set<std::string> needed;
  for (const auto& [var, source] : moves.forms) {
    for (const OpDesc* reader : block.Uses(var).readers) {
      if (!ReadsForm(moves, *reader, var)) needed.insert(var);
    }
  }
  return needed;
}

// The elements of a variable, with a guess for unknown dimensions.
double CostOf(const BlockDesc& block, const std::string& var) {
  double elements = 1;
  const VarDesc* desc = block.FindVar(var);
  if (!desc) return kCostOfAnOp;
  for (int i = 0; i < desc->shape().rank(); ++i) {
    const int64_t dim = desc->shape()[i];
    elements *= dim >= 0 ? static_cast<double>(dim) : i == 0 ? 1 : 32;
  }
  return elements + kCostOfAnOp;
}

// Visits the ops from last to first: an op moves if a moved op reads it, or if that costs less.
void ChooseMoves(const BlockDesc& block, Moves& moves) {
  for (size_t i = moves.order.size(); i-- > 0;) {
    const OpDesc& op = *moves.order[i];
    const MovedOp& moved_op = moves.followers.at(&op);
    double moved = 0, left = 0;
    bool must = false;
    std::set<const OpDesc*> exits;
    if (!moved_op.plain) {
      op.ForEachOutput([&](const std::string& name) {
        if (moves.needed.count(name)) moved += CostOf(block, name);
        for (const OpDesc* reader : block.Uses(name).readers) {
          must = must || moves.followers.count(reader) > 0;
          if (moves.exits.count(reader) && exits.insert(reader).second) left += CostOf(block, name);
        }
      });
    }
    for (const std::string& name : moved_op.inputs) {
      if (!moves.needed.count(name)) left += CostOf(block, name);
    }
    if (must || moved < left) continue;
    moves.needed.insert(moved_op.inputs.begin(), moved_op.inputs.end());
    for (const OpDesc* exit : exits) moves.exits.erase(exit);
    op.ForEachOutput([&](const std::string& name) { moves.forms.erase(name); });
    moves.followers.erase(&op);
  }
}

double CostBefore(const BlockDesc& block, const Moves& moves) {
  double cost = 0;
  for (const OpDesc* op : moves.entries) cost += CostOf(block, op->Output("Out")[0]);
  for (const OpDesc* op : moves.exits) cost += CostOf(block, op->Input("X")[0]);
  return cost;
}

double CostAfter(const BlockDesc& block, const Moves& moves) {
  double cost = 0;
  for (const auto& [var, source] : moves.forms)
    cost += moves.needed.count(var) ? CostOf(block, var) : 0;
  return cost;
}

// Rewrites the block by the moves.
class MoveRewriter {
 public:
  MoveRewriter(ProgramDesc& program, const PassContext& context, const Ints& axes, Moves moves)
      : program_(program),
        context_(context),
        block_(program.Root()),
        axes_(axes),
        back_(Inverse(axes)),
        moves_(std::move(moves)) {}

  void Run() {
    for (auto& [var, source] : moves_.forms) {
      if (source.empty()) source = NewForm(var);
    }
    NoteWriters();
    std::vector<std::unique_ptr<OpDesc>> made;
    for (std::unique_ptr<OpDesc>& op : block_.ReleaseOps()) {
      if (moves_.entries.count(op.get())) {
        if (moves_.needed.count(op->Output("Out")[0])) made.push_back(std::move(op));
      } else if (moves_.exits.count(op.get())) {
        renamed_[op->Output("Out")[0]] = moves_.forms.at(op->Input("X")[0]);
      } else if (auto follower = moves_.followers.find(op.get());
                 follower != moves_.followers.end()) {
        Emit(*op, follower->second, made);
      } else {
        made.push_back(std::move(op));
      }
    }
    for (const std::unique_ptr<OpDesc>& op : made) {
      if (op->AnyInput([&](const std::string& name) { return renamed_.count(name) > 0; }))
        op->RenameInputs([&](const std::string& name) { return Renamed(name); });
    }
    block_.SetOps(std::move(made));
    RemoveUnusedForms();
  }

 private:
  void Emit(const OpDesc& given, const MovedOp& moved, std::vector<std::unique_ptr<OpDesc>>& made) {
    for (const OpDesc& op : moved.ops) {
      made.push_back(std::make_unique<OpDesc>(op));
      OpDesc& last = *made.back();
      AddOrigins(given, last);
      last.ForEachOutput([&](const std::string& name) {
        if (!block_.FindVar(name)) DeclareDims(name);
      });
      last.RenameInputs([&](const std::string& name) {
        if (std::count(moved.constants.begin(), moved.constants.end(), name) > 0)
          return ConstantForm(name);
        return moved.inputs.count(name) ? moves_.forms.at(name) : name;
      });
    }
    if (moved.plain) return;
    std::vector<std::string> outputs;
    made.back()->RenameOutputs([&](const std::string& name) {
      auto form = moves_.forms.find(name);
      if (form == moves_.forms.end()) return name;
      outputs.push_back(name);
      return form->second;
    });
    for (const std::string& name : outputs) {
      if (!moves_.needed.count(name)) continue;
      made.push_back(std::make_unique<OpDesc>(
          "transpose2", SlotList{{"X", {moves_.forms.at(name)}}}, SlotList{{"Out", {name}}},
          AttrList{{"axis", axes_}, {"keeps_lod", true}}));
      AddOrigins(given, *made.back());
    }
  }

  // Records the original writers of the variables that now exist in another order of axes.
  void NoteWriters() const {
    for (const auto& [op, moved] : moves_.followers) {
      if (moved.plain) continue;
      const auto writer = std::make_shared<const OpDesc>(*op);
      op->ForEachOutput([&](const std::string& name) {
        const auto form = moves_.forms.find(name);
        if (form != moves_.forms.end()) context_.NoteMade(form->second, name, back_, writer);
      });
    }
  }

  void DeclareDims(const std::string& name) {
    block_.Var(name).SetMeta(
        {VarType::kLoDTensor, DType::kInt32, {static_cast<int64_t>(axes_.size())}, 0});
  }

  std::string NewForm(const std::string& var) {
    VarMeta meta = block_.FindVar(var)->meta();
    meta.shape = Permuted(meta.shape, back_);
    const std::string name = program_.FreeName(var + "@MOVED");
    block_.Var(name).SetMeta(meta);
    return name;
  }

  std::string ConstantForm(const std::string& name) {
    auto [it, added] = constants_.try_emplace(name);
    if (!added) return it->second;
    const OpDesc transpose("transpose2", {{"X", {"x"}}}, {{"Out", {"y"}}}, {{"axis", back_}});
    VarValues env = {{"x", context_.FrozenValue(name)->Clone()}};
    InterpretOp(transpose, context_.ops, env);
    it->second = context_.AddFrozenForm(program_, name, "@MOVED",
                                        std::move(std::get<Tensor>(env["y"])), back_);
    return it->second;
  }

  const std::string& Renamed(const std::string& name) const {
    auto it = renamed_.find(name);
    return it == renamed_.end() ? name : Renamed(it->second);
  }

  // Removes variables that now exist only in the order before the transpose.
  void RemoveUnusedForms() {
    const BlockDesc& block = block_;
    std::unordered_set<std::string> unused;
    const auto note = [&](const std::string& var) {
      const VarUses uses = block.Uses(var);
      if (uses.readers.empty() && uses.writers.empty()) unused.insert(var);
    };
    for (const auto& [var, source] : moves_.forms) note(var);
    for (const auto& [var, source] : renamed_) note(var);
    block_.RemoveVarsIf([&](const VarDesc& var) { return unused.count(var.name()) > 0; });
  }

  ProgramDesc& program_;
  const PassContext& context_;
  BlockDesc& block_;
  const Ints axes_, back_;
  Moves moves_;
  std::unordered_map<std::string, std::string> renamed_, constants_;
};

// Moves the transposes with these axes. Returns whether that changed the program.
bool MoveOnce(ProgramDesc& program, const PassContext& context, const ValueFlow& flow,
              const LodFlow& lods, const Ints& axes, const std::vector<const OpDesc*>& transposes) {
  const BlockDesc& block = program.Root();
  Moves moves = MoveFinder(program, context, flow, lods, axes).Run(transposes);
  if (moves.followers.empty() && moves.exits.empty()) return false;
  moves.needed = FindNeeded(block, moves);
  ChooseMoves(block, moves);
  if (CostAfter(block, moves) >= CostBefore(block, moves)) return false;
  MoveRewriter(program, context, axes, std::move(moves)).Run();
  return true;
}

using Transposes = std::map<Ints, std::vector<const OpDesc*>>;  // by axes

// The transposes of the root block that keep the first axis.
Transposes FindTransposes(const BlockDesc& block) {
  Transposes found;
  block.ForEachOp([&](const OpDesc& op) {
    if (!IsTranspose(op)) return;
    const Ints axes = AxesOf(op);
    if (axes.size() > 1 && axes[0] == 0 && IsPermutation(axes) && !IsIdentity(axes))
      found[axes].push_back(&op);
  });
  return found;
}

// Moves the transposes of each list of axes while `rewrites` is positive. Returns whether it
// changed the program.
bool MoveAll(ProgramDesc& program, const PassContext& context, size_t& rewrites) {
  const BlockDesc& block = program.Root();
  const ValueFlow flow(program, context);
  auto lods = std::make_unique<LodFlow>(block, context);
  Transposes transposes = FindTransposes(block);
  bool changed = false;
  for (auto it = transposes.begin(); it != transposes.end() && rewrites > 0;) {
    const Ints axes = it->first;
    if (MoveOnce(program, context, flow, *lods, axes, it->second)) {
      changed = true;
      --rewrites;
      lods = std::make_unique<LodFlow>(block, context);
      transposes = FindTransposes(block);
    }
    it = transposes.upper_bound(axes);
  }
  return changed;
}

}  // namespace

void MoveTransposes(ProgramDesc& program, const PassContext& context) {
  size_t rewrites = std::max(kMinRewrites, kMaxVisits / (program.Root().NumOps() + 1));
  bool changed = true;
  for (int round = 0; changed && round < kMaxRounds; ++round) {
    changed = ExchangeSqueezes(program, context);
    changed = JoinTransposes(program, context) || changed;
    changed = MoveAll(program, context, rewrites) || changed;
  }
  AbsorbTransposes(program, context);
}

}  // namespace coracle::inline internal
