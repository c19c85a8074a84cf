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
#include <coracle/framework/op/interpreter.h>
#include <coracle/framework/op/op_spec.h>
#include <coracle/passes/passes.h>
#include <coracle/passes/transposes.h>
#include <coracle/passes/value_flow.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

namespace coracle {
namespace {

// The fixed cost of a transpose, in elements.
constexpr double kCostOfAnOp = 64;
constexpr int kMaxRounds = 64;
// Each rewrite visits all ops, and a program may have as many lists of axes as ops. Limits the
// number of rewrites so that they visit at most kMaxVisits ops in total, but allows kMinRewrites.
constexpr size_t kMinRewrites = 16, kMaxVisits = size_t{1} << 21;
// Larger constants are not stored in a second order of axes.
constexpr int64_t kMaxConstantElements = 65536;

// How to run an op on its inputs before their transposes.
struct Following {
  std::vector<OpDesc> ops;             // the last one writes its outputs
  std::set<std::string> inputs;        // the transposed ones
  std::vector<std::string> constants;  // frozen ones, to be transposed like the inputs
  bool plain = false;                  // the outputs do not depend on the order of axes
};

// Moves the transposes with one list of axes: v[i] = u[axes[i]]. u is called the form of v.
class Mover {
 public:
  Mover(ProgramDesc& program, const PassContext& context, const ValueFlow& flow,
        const LodFlow& lods, const Ints& axes)
      : program_(program),
        context_(context),
        block_(program.Root()),
        flow_(flow),
        lods_(lods),
        axes_(axes),
        back_(Inverse(axes)) {}

  // `transposes` are the ops with these axes. Returns whether it changed the program.
  bool Run(const std::vector<const OpDesc*>& transposes) {
    for (const OpDesc* op : transposes) waiting_.insert(block_.IndexOf(*op));
    while (!waiting_.empty()) {
      const size_t at = *waiting_.begin();
      waiting_.erase(waiting_.begin());
      Sort(block_.op(at));
    }
    if (followers_.empty() && exits_.empty()) return false;
    FindNeeded();
    Choose();
    if (CostAfter() >= CostBefore()) return false;
    Rewrite();
    return true;
  }

 private:
  // --- classifying the ops ---

  void Sort(const OpDesc& op) {
    if (IsExit(op)) {
      exits_.insert(&op);
    } else if (IsEntry(op)) {
      AddForm(op, op.Output("Out")[0], op.Input("X")[0]);
      entries_.insert(&op);
    } else if (auto following = Follow(op)) {
      if (!following->plain) {
        op.ForEachOutput([&](const std::string& name) {
          if (!flow_.IsUnread(name)) AddForm(op, name, "");
        });
      }
      followers_.emplace(&op, std::move(*following));
      order_.push_back(&op);
    }
  }

  // Records the form of `var` and queues its later readers, in the order of the block.
  void AddForm(const OpDesc& op, const std::string& var, const std::string& source) {
    forms_[var] = source;
    const size_t at = block_.IndexOf(op);
    for (const OpDesc* reader : std::as_const(block_).Uses(var).readers) {
      const size_t its = block_.IndexOf(*reader);
      if (its > at) waiting_.insert(its);
    }
  }
  bool IsForm(const std::string& var) const { return forms_.count(var) > 0; }

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

  // The axis before the transpose.
  int32_t Before(int32_t axis) const {
    const auto rank = static_cast<int32_t>(axes_.size());
    return axes_[static_cast<size_t>(axis < 0 ? axis + rank : axis)];
  }
  bool IsAxis(int32_t axis) const {
    const auto rank = static_cast<int32_t>(axes_.size());
    return -rank <= axis && axis < rank;
  }
  bool AreAxes(const Ints& list) const {
    return std::all_of(list.begin(), list.end(), [&](int32_t axis) { return IsAxis(axis); });
  }
  Ints Before(Ints list) const {
    for (int32_t& axis : list) axis = Before(axis);
    return list;
  }

  std::optional<Following> Follow(const OpDesc& op) const {
    const OpSpec* spec = context_.ops.Find(op.type());
    if (!spec || flow_.IsRecomputed(op) || op.HasSubBlock()) return std::nullopt;
    if (!op.AnyInput([&](const std::string& name) { return IsForm(name); })) return std::nullopt;
    if (op.AnyOutput([&](const std::string& name) {
          return !flow_.IsTemporary(name) && !flow_.IsUnread(name);
        }))
      return std::nullopt;
    Following made;
    op.ForEachInput([&](const std::string& name) {
      if (IsForm(name)) made.inputs.insert(name);
    });
    OpDesc now(op);
    const bool follows =
        spec->shape_only ? FollowShape(op, made)
        : AllAreForms(op)
            ? (spec->elementwise && IsAxiswise(op, *spec)) || FollowByType(op, *spec, now, made)
            : spec->elementwise && FollowBinary(op, *spec, now, made);
    if (!follows) return std::nullopt;
    if (made.ops.empty()) made.ops.push_back(now);
    return made;
  }

  bool AllAreForms(const OpDesc& op) const {
    return !op.AnyInput([&](const std::string& name) { return !IsForm(name); });
  }

  // Whether it is an elementwise op with one operand, with two that are broadcast axis by axis, or
  // with operands of one shape.
  bool IsAxiswise(const OpDesc& op, const OpSpec& spec) const {
    int inputs = 0;
    const Shape* shape = nullptr;
    bool same = true;
    const auto compare = [&](const std::string& name) {
      const VarDesc* var = block_.FindVar(name);
      if (var && !shape) shape = &var->shape();
      same = same && var && var->shape() == *shape;
    };
    op.ForEachInput([&](const std::string& name) {
      ++inputs;
      compare(name);
    });
    op.ForEachOutput(compare);
    return inputs == 1 || same ||
           (spec.FindAttr("axis") && spec.FindInput("X") && spec.FindInput("Y"));
  }

  // One operand is a frozen constant: one number, one number for each element of an axis, or a
  // small image.
  bool FollowBinary(const OpDesc& op, const OpSpec& spec, OpDesc& now, Following& made) const {
    if (!spec.FindAttr("axis") || op.Input("X").size() != 1 || op.Input("Y").size() != 1 ||
        op.outputs().size() != 1 || op.inputs().size() != 2)
      return false;
    const bool x_is_form = IsForm(op.Input("X")[0]);
    const std::string& other = (x_is_form ? op.Input("Y") : op.Input("X"))[0];
    const Tensor* value = context_.FrozenValue(other);
    if (!value) return false;  // the shape in the scope may differ from the declared one
    const Shape& shape = value->shape();
    if (shape.rank() == 1 && shape[0] == 1) return true;
    const int32_t axis = spec.AttrOf<int32_t>(op, "axis");
    if (shape.rank() == 1 && axis >= -1 && IsAxis(axis)) {
      now.SetAttr("axis", Before(axis));
      return true;
    }
    if (shape.rank() != static_cast<int>(axes_.size()) || shape.numel() > kMaxConstantElements ||
        axis > 0)
      return false;
    made.constants.push_back(other);
    return true;
  }

  // Ops whose inputs are all transposed.
  bool FollowByType(const OpDesc& op, const OpSpec& spec, OpDesc& now, Following& made) const {
    const std::string& type = op.type();
    if (type == "cast" || type == "assign") return true;
    if (type == "dropout") return spec.AttrOf<bool>(op, "is_test") && OnlyOneIsRead(op, "Out");
    if (type == "concat" || type == "split" || type == "softmax" || type == "log_softmax") {
      const int32_t axis = spec.AttrOf<int32_t>(op, "axis");
      if (!IsAxis(axis)) return false;
      now.SetAttr("axis", Before(axis));
      return true;
    }
    if (type.starts_with("reduce_")) return FollowReduction(op, spec, now, made);
    if (type == "pad") {
      const Ints old = spec.AttrOf<Ints>(op, "paddings");
      if (old.size() != 2 * axes_.size()) return false;
      Ints paddings(old.size());
      for (size_t i = 0; i < axes_.size(); ++i) {
        const size_t to = 2 * static_cast<size_t>(axes_[i]);
        paddings[to] = old[2 * i];
        paddings[to + 1] = old[2 * i + 1];
      }
      now.SetAttr("paddings", paddings);
      return true;
    }
    if (type == "slice" || type == "strided_slice") {
      const Ints cut = spec.AttrOf<Ints>(op, "axes");
      if (!AreAxes(cut) || !spec.AttrOf<Ints>(op, "decrease_axis").empty()) return false;
      now.SetAttr("axes", Before(cut));
      return true;
    }
    return false;
  }

  bool OnlyOneIsRead(const OpDesc& op, const char* slot) const {
    return op.Output(slot).size() == 1 && flow_.IsOnlyOutput(op, op.Output(slot)[0]);
  }

  bool FollowReduction(const OpDesc& op, const OpSpec& spec, OpDesc& now, Following& made) const {
    if (!spec.FindAttr("keep_dim") || !spec.FindAttr("dim") || !spec.FindAttr("reduce_all") ||
        op.inputs().size() != 1)
      return false;
    const Ints dims = spec.AttrOf<Ints>(op, "dim");
    const bool keep = spec.AttrOf<bool>(op, "keep_dim");
    if (!AreAxes(dims) || dims.empty() || spec.AttrOf<bool>(op, "reduce_all")) return false;
    const Ints before = Before(dims);
    now.SetAttr("dim", before);
    if (keep) return true;
    // The remaining axes must keep their order.
    int32_t last = -1;
    for (int32_t axis : axes_) {
      if (std::count(before.begin(), before.end(), axis) > 0) continue;
      if (axis < last) return false;
      last = axis;
    }
    made.plain = true;
    return true;
  }

  // Reads the dimensions before the transpose and puts them in order.
  bool FollowShape(const OpDesc& op, Following& made) const {
    if (op.type() != "shape" || op.Input("Input").size() != 1 || op.Output("Out").size() != 1 ||
        op.inputs().size() != 1)
      return false;
    const auto rank = static_cast<int32_t>(axes_.size());
    const std::string& out = op.Output("Out")[0];
    const std::string dims = program_.FreeName(out + "@MOVED");
    const std::string order = program_.FreeName(out + "@AXES");
    made.ops.emplace_back(op);
    made.ops.back().SetOutput("Out", {dims});
    made.ops.emplace_back("assign_value", SlotList{}, SlotList{{"Out", {order}}},
                          AttrList{{"shape", Ints{rank}},
                                   {"dtype", static_cast<int32_t>(DType::kInt32)},
                                   {"int32_values", axes_}});
    made.ops.emplace_back("gather", SlotList{{"X", {dims}}, {"Index", {order}}},
                          SlotList{{"Out", {out}}}, AttrList{});
    made.plain = true;
    return true;
  }

  // --- which ops move ---

  bool ReadsForm(const OpDesc& op, const std::string& var) const {
    if (exits_.count(&op)) return true;
    auto follower = followers_.find(&op);
    return follower != followers_.end() && follower->second.inputs.count(var) > 0;
  }

  // Finds the variables that other ops read in their transposed form.
  void FindNeeded() {
    for (const auto& [var, source] : forms_) {
      for (const OpDesc* reader : std::as_const(block_).Uses(var).readers) {
        if (!ReadsForm(*reader, var)) needed_.insert(var);
      }
    }
  }

  // Visits the ops from last to first: an op moves if a moved op reads it, or if that costs less.
  void Choose() {
    for (size_t i = order_.size(); i-- > 0;) {
      const OpDesc& op = *order_[i];
      const Following& following = followers_.at(&op);
      double moved = 0, left = 0;
      bool must = false;
      std::set<const OpDesc*> exits;
      if (!following.plain) {
        op.ForEachOutput([&](const std::string& name) {
          if (needed_.count(name)) moved += CostOf(name);
          for (const OpDesc* reader : std::as_const(block_).Uses(name).readers) {
            must = must || followers_.count(reader) > 0;
            if (exits_.count(reader) && exits.insert(reader).second) left += CostOf(name);
          }
        });
      }
      for (const std::string& name : following.inputs) {
        if (!needed_.count(name)) left += CostOf(name);
      }
      if (must || moved < left) continue;
      needed_.insert(following.inputs.begin(), following.inputs.end());
      for (const OpDesc* exit : exits) exits_.erase(exit);
      op.ForEachOutput([&](const std::string& name) { forms_.erase(name); });
      followers_.erase(&op);
    }
  }

  // The elements of a variable, with a guess for unknown dimensions.
  double CostOf(const std::string& var) const {
    double elements = 1;
    const VarDesc* desc = block_.FindVar(var);
    if (!desc) return kCostOfAnOp;
    for (int i = 0; i < desc->shape().rank(); ++i) {
      const int64_t dim = desc->shape()[i];
      elements *= dim >= 0 ? static_cast<double>(dim) : i == 0 ? 1 : 32;
    }
    return elements + kCostOfAnOp;
  }

  double CostBefore() const {
    double cost = 0;
    for (const OpDesc* op : entries_) cost += CostOf(op->Output("Out")[0]);
    for (const OpDesc* op : exits_) cost += CostOf(op->Input("X")[0]);
    return cost;
  }

  double CostAfter() const {
    double cost = 0;
    for (const auto& [var, source] : forms_) cost += needed_.count(var) ? CostOf(var) : 0;
    return cost;
  }

  // --- the rewrite ---

  void Rewrite() {
    for (auto& [var, source] : forms_) {
      if (source.empty()) source = NewForm(var);
    }
    NoteWriters();
    std::vector<std::unique_ptr<OpDesc>> made;
    for (std::unique_ptr<OpDesc>& op : block_.ReleaseOps()) {
      if (entries_.count(op.get())) {
        if (needed_.count(op->Output("Out")[0])) made.push_back(std::move(op));
      } else if (exits_.count(op.get())) {
        renamed_[op->Output("Out")[0]] = forms_.at(op->Input("X")[0]);
      } else if (auto follower = followers_.find(op.get()); follower != followers_.end()) {
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

  void Emit(const OpDesc& given, const Following& following,
            std::vector<std::unique_ptr<OpDesc>>& made) {
    for (const OpDesc& op : following.ops) {
      made.push_back(std::make_unique<OpDesc>(op));
      OpDesc& last = *made.back();
      AddOrigins(given, last);
      last.ForEachOutput([&](const std::string& name) {
        if (!block_.FindVar(name)) DeclareDims(name);
      });
      last.RenameInputs([&](const std::string& name) {
        if (std::count(following.constants.begin(), following.constants.end(), name) > 0)
          return ConstantForm(name);
        return following.inputs.count(name) ? forms_.at(name) : name;
      });
    }
    if (following.plain) return;
    std::vector<std::string> outputs;
    made.back()->RenameOutputs([&](const std::string& name) {
      auto form = forms_.find(name);
      if (form == forms_.end()) return name;
      outputs.push_back(name);
      return form->second;
    });
    for (const std::string& name : outputs) {
      if (!needed_.count(name)) continue;
      made.push_back(std::make_unique<OpDesc>("transpose2", SlotList{{"X", {forms_.at(name)}}},
                                              SlotList{{"Out", {name}}},
                                              AttrList{{"axis", axes_}, {"keeps_lod", true}}));
      AddOrigins(given, *made.back());
    }
  }

  // Records the original writers of the variables that now exist in another order of axes.
  void NoteWriters() const {
    for (const auto& [op, following] : followers_) {
      if (following.plain) continue;
      const auto writer = std::make_shared<const OpDesc>(*op);
      op->ForEachOutput([&](const std::string& name) {
        const auto form = forms_.find(name);
        if (form != forms_.end()) context_.NoteMade(form->second, name, back_, writer);
      });
    }
  }

  void DeclareDims(const std::string& name) {
    block_.Var(name).SetMeta(
        {VarType::kLoDTensor, DType::kInt32, {static_cast<int64_t>(axes_.size())}, 0});
  }

  std::string NewForm(const std::string& var) {
    VarMeta meta = block_.FindVar(var)->meta();
    const Shape old = meta.shape;
    if (old.rank() == static_cast<int>(axes_.size())) {
      for (size_t i = 0; i < axes_.size(); ++i) meta.shape[axes_[i]] = old[static_cast<int>(i)];
    } else {
      meta.shape = Shape(std::vector<int64_t>(axes_.size(), -1));
    }
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
    it->second =
        context_.AddFrozen(program_, name + "@MOVED", std::move(std::get<Tensor>(env["y"])));
    context_.NoteMade(it->second, name, back_);
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
    for (const auto& [var, source] : forms_) note(var);
    for (const auto& [var, source] : renamed_) note(var);
    block_.RemoveVarsIf([&](const VarDesc& var) { return unused.count(var.name()) > 0; });
  }

  ProgramDesc& program_;
  const PassContext& context_;
  BlockDesc& block_;
  const ValueFlow& flow_;
  const LodFlow& lods_;
  const Ints axes_, back_;
  std::set<size_t> waiting_;                  // positions of ops to visit
  std::map<std::string, std::string> forms_;  // v to u; "" for the output of a follower
  std::unordered_set<const OpDesc*> entries_, exits_;
  std::unordered_map<const OpDesc*, Following> followers_;
  std::vector<const OpDesc*> order_;  // followers, in the order of visits
  std::unordered_set<std::string> needed_;
  std::unordered_map<std::string, std::string> renamed_, constants_;
};

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
    if (Mover(program, context, flow, *lods, axes).Run(it->second)) {
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
    changed = JoinTransposes(program, context);
    changed = MoveAll(program, context, rewrites) || changed;
  }
  AbsorbTransposes(program, context);
}

}  // namespace coracle
