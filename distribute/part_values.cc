#include <coracle/backward/backward.h>
#include <coracle/distribute/exchange_ops.h>
#include <coracle/distribute/part_values.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/role.h>
#include <coracle/framework/op/check/block_use.h>
#include <coracle/framework/op/recomputed.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

const Part kSamePart = {};

using Names = std::vector<std::string>;

// An array whose elements may be either.
Part EitherPart(const OpDesc& op, const Part& a, const Part& b) {
  if (a.kind == PartKind::kSame && b.kind == PartKind::kSame) return a.drawn ? a : b;
  if (a == b || b.kind == PartKind::kSame) return a;
  if (a.kind == PartKind::kSame) return b;
  if (a.kind == PartKind::kUnknown) return a;
  if (b.kind == PartKind::kUnknown) return b;
  if (a.kind != PartKind::kRows || b.kind != PartKind::kRows || !(a.place == b.place))
    return UnknownPart(op, "joins elements that combine differently");
  Part rows = a;
  rows.ragged |= b.ragged;
  return rows;
}

}  // namespace

Part UnknownPart(const OpDesc& op, const std::string& why) {
  return {.kind = PartKind::kUnknown, .reason = op.type() + " " + why};
}

PartValues::PartValues(const ProgramDesc& program, const OpRegistry& ops)
    : root_(program.Root()), ops_(ops) {
  for (size_t i = 0; i < root_.NumVars(); ++i) {
    const VarDesc& var = root_.var(i);
    if (!var.persistable() && root_.Uses(var.name()).writers.empty()) VisitInput(var);
  }
  root_.ForEachOp([&](const OpDesc& op) {
    if (IsBackward(op)) LinkGradientOp(op);
  });
  root_.ForEachOp([&](const OpDesc& op) { HasForwardRole(op) ? Visit(op) : VisitGradientOp(op); });
}

// --- questions ---

const Part& PartValues::Of(const std::string& name) const {
  const auto at = values_.find(name);
  return at == values_.end() ? kSamePart : at->second;
}

std::vector<PartRead> PartValues::ReadsOf(const std::string& name) const {
  std::vector<PartRead> reads;
  std::set<std::string> seen = {name};
  Names open = {name};
  std::set<const OpDesc*> visited;
  while (!open.empty()) {
    const auto writers = writers_.find(open.back());
    open.pop_back();
    if (writers == writers_.end()) continue;
    for (const OpDesc* op : writers->second) {
      if (!visited.insert(op).second) continue;
      op->ForEachInput([&](const std::string& input) {
        const auto read = reads_.find({op, input});
        if (read != reads_.end()) reads.push_back(*read);
        if (seen.insert(input).second) open.push_back(input);
      });
    }
  }
  return reads;
}

const std::vector<const OpDesc*>& PartValues::GradientOpsOf(const OpDesc& op) const {
  static const std::vector<const OpDesc*> none;
  const auto at = gradient_ops_.find(&op);
  return at == gradient_ops_.end() ? none : at->second;
}

// Contributions are called x@GRAD, or x@GRAD@RENAME@... if several ops contribute. One that another
// gradient op of the op reads is a term of a formula.
std::vector<PartGradient> PartValues::GradientsInto(const OpDesc& op,
                                                    const std::string& input) const {
  const std::vector<const OpDesc*>& gradients = GradientOpsOf(op);
  std::vector<PartGradient> found;
  for (const OpDesc* gradient : gradients) {
    gradient->ForEachOutput([&](const std::string& name) {
      if (!name.starts_with(GradName(input))) return;
      const auto reads = [&](const OpDesc* other) { return other->Reads(name); };
      if (std::any_of(gradients.begin(), gradients.end(), reads)) return;
      std::erase_if(found, [&](const PartGradient& other) { return other.name == name; });
      found.push_back({name, gradient});
    });
  }
  return found;
}

// --- variables ---

RowPlaceOf PartValues::Places() const {
  return [this](const std::string& name) {
    const Part& part = Of(name);
    return part.kind == PartKind::kRows ? &part.place : nullptr;
  };
}

RowRule PartValues::RuleOf(const OpDesc& op, const OpSpec& spec, const std::string& slot) const {
  return EffectOn(op, spec, slot, root_, Places()).rule;
}

bool PartValues::IsOpen(const std::string& name) const {
  const VarDesc* var = root_.FindVarRecursive(name);
  return var && (var->shape().rank() == 0 || !var->shape().IsKnown());
}

bool PartValues::IsFloat(const std::string& name) const {
  const VarDesc* var = root_.FindVarRecursive(name);
  return var && IsFloating(var->dtype());
}

// Whether values or LoD decide how many rows the output has, or how many elements a row.
bool PartValues::IsRagged(const OpSpec& spec, const std::string& out) const {
  const VarDesc* var = root_.FindVarRecursive(out);
  return (var && var->lod_level() > 0) || spec.run_time_shape || MakesLod(spec);
}

// --- ops ---

void PartValues::VisitInput(const VarDesc& var) {
  if (!IsOpen(var.name())) return;
  const Shape& shape = var.shape();
  Part part = {.kind = PartKind::kRows, .ragged = var.lod_level() > 0};
  while (part.place.axis < shape.rank() && shape[part.place.axis] >= 0) ++part.place.axis;
  for (int d = part.place.axis + 1; d < shape.rank(); ++d) part.ragged |= shape[d] < 0;
  values_[var.name()] = part;
}

void PartValues::LinkGradientOp(const OpDesc& gradient) {
  if (gradient.HasAttr(kForwardOpAttr)) {
    if (const OpDesc* forward = FindForwardOp(gradient))
      gradient_ops_[forward].push_back(&gradient);
    return;
  }
  if (gradient.HasAttr(kRecomputedFromAttr)) return;
  gradient.ForEachInput([&](const std::string& name) {
    if (!name.ends_with(kGradSuffix) || gradient.Writes(name)) return;
    const std::string output = name.substr(0, name.size() - kGradSuffix.size());
    for (const OpDesc* op : root_.Uses(output).writers) {
      std::vector<const OpDesc*>& linked = gradient_ops_[op];
      if (HasForwardRole(*op) && (linked.empty() || linked.back() != &gradient))
        linked.push_back(&gradient);
    }
  });
}

// A loss may read gradients. No weight is known for gradients of the rank's rows.
void PartValues::VisitGradientOp(const OpDesc& op) {
  if (!IsBackward(op)) return;
  const auto differs = [&](const std::string& name) { return Of(name).kind != PartKind::kSame; };
  if (!op.AnyInput(differs)) return;
  op.ForEachOutput([&](const std::string& name) {
    const auto& readers = root_.Uses(name).readers;
    if (std::any_of(readers.begin(), readers.end(),
                    [](const OpDesc* reader) { return HasForwardRole(*reader); }))
      values_[name] = UnknownPart(op, fmt::format("makes {}, a gradient of the rows", Quote(name)));
  });
}

void PartValues::Visit(const OpDesc& op) {
  const OpSpec* spec = ops_.Find(op.type());
  if (!spec) return;
  if (spec->kind == OpKind::kFeed) {
    op.ForEachOutput([&](const std::string& name) {
      if (const VarDesc* var = root_.FindVar(name)) VisitInput(*var);
    });
    return;
  }
  if (op.HasSubBlock()) return VisitBlocks(op);
  std::vector<std::pair<std::string, Part>> made;
  op.ForEachOutput([&](const std::string& name, const std::string& slot) {
    made.emplace_back(name, Apply(op, *spec, name, slot));
  });
  for (auto& [name, part] : made) {
    writers_[name].push_back(&op);
    // The other elements of an array stay.
    const VarDesc* var = root_.FindVarRecursive(name);
    const bool joins = var && var->type() == VarType::kLoDTensorArray;
    values_[name] = joins ? EitherPart(op, Of(name), part) : part;
  }
}

// Which rows a block mixes, and how often a loop runs, is not followed.
void PartValues::VisitBlocks(const OpDesc& op) {
  Part made;
  const auto note = [&](const std::string& name) {
    const Part& part = Of(name);
    made.drawn |= part.drawn;
    if (made.kind == PartKind::kUnknown || part.kind == PartKind::kSame) return;
    made = part.kind == PartKind::kUnknown
               ? part
               : UnknownPart(op, fmt::format("runs a block on {}", Quote(name)));
  };
  op.ForEachInput(note);
  Names written = OutputNames(op);
  for (const BlockDesc* block : op.block()->program().BlocksRunBy(op)) {
    block->ForEachOp([&](const OpDesc& inner) {
      const OpSpec* spec = ops_.Find(inner.type());
      made.drawn |= spec && spec->random;
      inner.ForEachInput(note);
    });
    for (const std::string& name : OuterWrites(*block)) written.push_back(name);
  }
  for (const std::string& name : written) {
    writers_[name].push_back(&op);
    values_[name] = AfterBlock(op, name, made);
  }
}

// How a variable combines after a block that writes `made` to it, or leaves it as it was.
Part PartValues::AfterBlock(const OpDesc& op, const std::string& name, const Part& made) const {
  const Part& before = Of(name);
  if (made.kind == PartKind::kUnknown) return made;
  if (before.kind == PartKind::kUnknown || before.drawn) return before;
  if (before.kind == PartKind::kSame) return made;
  return UnknownPart(op, fmt::format("may replace {} of the rank's rows by a value that all "
                                     "ranks have",
                                     Quote(name)));
}

// Whether the op reads the input only to update a running statistic.
bool PartValues::IsStatistic(const OpDesc& op, const OpSpec& spec,
                             const std::string& input_slot) const {
  return std::any_of(spec.inplace.begin(), spec.inplace.end(), [&](const auto& pair) {
    return pair.first == input_slot && RuleOf(op, spec, pair.second) == RowRule::kStatistic;
  });
}

Part PartValues::Apply(const OpDesc& op, const OpSpec& spec, const std::string& out,
                       const std::string& slot) {
  if (RuleOf(op, spec, slot) == RowRule::kSame) return {};
  const Part* unknown = nullptr;
  bool rows = false;
  Names numbers;
  op.ForEachInput([&](const std::string& name, const std::string& input_slot) {
    const Part& part = Of(name);
    if (part.kind == PartKind::kSame || IsStatistic(op, spec, input_slot)) return;
    if (part.kind == PartKind::kUnknown && !unknown) unknown = &part;
    rows |= part.kind == PartKind::kRows;
    if (part.IsNumber()) numbers.push_back(name);
  });
  if (unknown) return *unknown;
  if (!rows) {
    Part part = numbers.empty() ? Part() : OfNumbers(op, spec);
    const auto drawn = [&](const std::string& name) { return Of(name).drawn; };
    part.drawn = part.kind == PartKind::kSame && (spec.random || op.AnyInput(drawn));
    return part;
  }
  for (const std::string& name : numbers) {
    if (!Replace(op, name, true))
      return UnknownPart(op, fmt::format("reads {} of the rank's rows", Quote(name)));
  }
  return OfRows(op, spec, out, slot);
}

Part PartValues::OfRows(const OpDesc& op, const OpSpec& spec, const std::string& out,
                        const std::string& slot) const {
  const RowEffect effect = EffectOn(op, spec, slot, root_, Places());
  if (effect.rule == RowRule::kMixes) return UnknownPart(op, "mixes the rows of the batch");
  if (effect.rule == RowRule::kUndeclared)
    return UnknownPart(op, "does not declare how rows pass (OpDef::Rows)");
  if (effect.rule == RowRule::kStatistic)
    return UnknownPart(op, fmt::format("makes {} of all rows together", Quote(out)));
  if (!IsOpen(out)) return OfReduced(op, spec, out, effect);
  const RowFlow flow = FlowOf(op, spec, out, root_, Places());
  if (!flow.broken.empty()) return UnknownPart(op, flow.broken);
  bool ragged = IsRagged(spec, out);
  op.ForEachInput([&](const std::string& name) { ragged |= Of(name).ragged; });
  return {.kind = PartKind::kRows, .place = flow.place, .ragged = ragged};
}

Part PartValues::OfReduced(const OpDesc& op, const OpSpec& spec, const std::string& out,
                           const RowEffect& effect) const {
  const bool mean = effect.rule == RowRule::kMean;
  if (!mean && effect.rule != RowRule::kSum)
    return UnknownPart(op, fmt::format("makes {} of all rows together", Quote(out)));
  const bool from_floats = op.AnyInput([&](const std::string& name) { return IsFloat(name); });
  // A linear op, unlike one that counts (size), adds the values that it reads.
  const bool adds_values = !spec.rows.linear.empty();
  if (!IsFloat(out) && (mean || (from_floats && adds_values)))
    return UnknownPart(op, "rounds the result of a rank's rows");
  if (spec.FindOutput(effect.of))
    return {.kind = PartKind::kMean, .weight = op.Output(effect.of).at(0)};
  const std::string x = op.Input(effect.of).at(0);
  if (Of(x).kind != PartKind::kRows)
    return UnknownPart(op, fmt::format("reduces {}, which has no rows", Quote(x)));
  if (!mean) return {.kind = PartKind::kSum};
  return {.kind = PartKind::kMean, .weight = Of(x).ragged ? x : ""};
}

// --- means and sums ---

// Whether the rank's value may go through the op: nothing is rounded, and no constant is added to
// a sum.
bool PartValues::StaysLinear(const OpDesc& op, const OpSpec& spec, const std::string& name) const {
  if (Of(name).kind == PartKind::kSum && op.GetAttr<float>("bias", 0) != 0) return false;
  if (!spec.alias.empty()) return true;
  const bool moves = spec.rows.effect.rule == RowRule::kMoves;
  return (moves || IsFloat(name)) &&
         !op.AnyOutput([&](const std::string& out) { return !IsFloat(out); });
}

// Numbers among the inputs that the op is linear in together remain parts; the op must read the
// whole values of others.
Part PartValues::OfNumbers(const OpDesc& op, const OpSpec& spec) {
  Names slots, terms, whole;
  op.ForEachInput([&](const std::string& name, const std::string& slot) {
    if (slots.empty() && Of(name).IsNumber() && StaysLinear(op, spec, name))
      slots = LinearWith(spec, slot);
  });
  op.ForEachInput([&](const std::string& name, const std::string& slot) {
    if (Contains(slots, slot) && (!Of(name).IsNumber() || StaysLinear(op, spec, name)))
      terms.push_back(name);
    else if (Of(name).IsNumber())
      whole.push_back(name);
  });
  for (const std::string& name : whole) {
    std::erase(terms, name);  // a product with itself
    if (!Replace(op, name, true))
      return UnknownPart(op, fmt::format("reads {} of the rank's rows", Quote(name)));
  }
  return OfTerms(op, terms);
}

// A sum of terms. Terms that combine in one way keep it, and a mean stays a mean if a value that is
// equal on all ranks is added. Others are weighted before they are added, which makes a sum of the
// result; integers cannot be weighted, so whole values are added.
Part PartValues::OfTerms(const OpDesc& op, const Names& terms) {
  const Part* number = nullptr;
  bool same = false, mixed = false;
  for (const std::string& name : terms) {
    const Part& part = Of(name);
    same |= part.kind == PartKind::kSame;
    if (!part.IsNumber()) continue;
    mixed |= number && !(*number == part);
    number = &part;
  }
  if (!number) return {};
  if (!mixed && !(same && number->kind == PartKind::kSum)) return *number;
  const bool weighs =
      std::all_of(terms.begin(), terms.end(), [&](const auto& name) { return IsFloat(name); });
  bool replaced = true;
  for (const std::string& name : terms) {
    const PartKind kind = Of(name).kind;
    if (weighs ? kind != PartKind::kSum : kind != PartKind::kSame)
      replaced &= Replace(op, name, !weighs);
  }
  if (!replaced) return UnknownPart(op, "adds terms that combine differently");
  return {.kind = weighs ? PartKind::kSum : PartKind::kSame};
}

// Whether the op and its gradient ops may read another variable instead: `name` has one value in a
// run, and its gradient is dense.
bool PartValues::MayReplace(const OpDesc& op, const std::string& name) const {
  int writers = 0;
  for (const OpDesc* writer : root_.Uses(name).writers) writers += HasForwardRole(*writer) ? 1 : 0;
  if (writers > 1 || op.block() != &root_) return false;
  const std::vector<PartGradient> gradients = GradientsInto(op, name);
  return std::all_of(gradients.begin(), gradients.end(), [&](const PartGradient& gradient) {
    const VarDesc* var = root_.FindVar(gradient.name);
    return var && var->type() == VarType::kLoDTensor;
  });
}

bool PartValues::Replace(const OpDesc& op, const std::string& name, bool whole) {
  if (!MayReplace(op, name)) return false;
  reads_.insert({&op, name, whole, Of(name)});
  return true;
}

}  // namespace coracle::inline internal
