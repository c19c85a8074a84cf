#include <coracle/backward/backward.h>
#include <coracle/distribute/exchange_ops.h>
#include <coracle/distribute/part_values.h>
#include <coracle/distribute/sequence_lengths.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/training_stage.h>
#include <coracle/framework/op/recomputed.h>
#include <coracle/passes/freeze.h>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace coracle {
namespace {

const PartValue kSameValue = {};

bool IsForward(const OpDesc& op) { return (RoleOf(op) & ~kLoss) == kForward; }

bool IsAnyOf(std::string_view type, std::initializer_list<std::string_view> types) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

// Moves elements, and nothing else.
bool MovesOnly(const OpDesc& op) {
  return IsAnyOf(op.type(), {"assign", "cast", "reshape", "reshape2", "squeeze", "squeeze2",
                             "unsqueeze", "unsqueeze2", "flatten", "flatten2"});
}
// Makes what all ranks have, whatever it reads.
bool Exchanges(const OpDesc& op) {
  return op.type().starts_with("c_allreduce") || op.type() == "c_broadcast";
}
// The running statistics of a batch_norm in training, which it reads only to move them on.
bool MovesOn(const OpDesc& op, const std::string& slot) {
  return (slot == "Mean" || slot == "Variance") && op.HasOutput("MeanOut") &&
         !HasFixedStatistics(op);
}
bool Reduces(const OpDesc& op) { return IsAnyOf(op.type(), {"mean", "reduce_mean", "reduce_sum"}); }

std::string OneInput(const OpDesc& op, const char* slot) {
  const std::vector<std::string>& args = op.Input(slot);
  return args.size() == 1 ? args[0] : std::string();
}

}  // namespace

PartValue PartValues::Unknown(const OpDesc& op, const std::string& why) {
  return {.kind = PartKind::kUnknown, .reason = fmt::format("{} {}", op.type(), why)};
}

PartValues::PartValues(const ProgramDesc& program, const OpRegistry& ops)
    : root_(program.Root()), block_(&root_), ops_(ops) {
  for (size_t i = 0; i < root_.NumVars(); ++i) {
    const VarDesc& var = root_.var(i);
    if (!var.persistable() && root_.Uses(var.name()).writers.empty()) VisitInput(var);
  }
  root_.ForEachOp([&](const OpDesc& op) {
    if (HasRole(op, kBackward)) LinkGradientOp(op);
  });
  root_.ForEachOp([&](const OpDesc& op) { IsForward(op) ? Visit(op) : VisitGradientOp(op); });
}

// What the loss reads of gradients: of those of the rank's rows no rule tells the weight.
void PartValues::VisitGradientOp(const OpDesc& op) {
  if (!HasRole(op, kBackward)) return;
  const bool same =
      !op.AnyInput([&](const std::string& name) { return Of(name).kind != PartKind::kSame; });
  if (same) return;
  op.ForEachOutput([&](const std::string& name) {
    const auto& readers = root_.Uses(name).readers;
    if (std::any_of(readers.begin(), readers.end(), [](const OpDesc* r) { return IsForward(*r); }))
      values_[name] =
          Unknown(op, fmt::format("makes a gradient of the rank's rows, {}", Quote(name)));
  });
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
      if (IsForward(*op) && (linked.empty() || linked.back() != &gradient))
        linked.push_back(&gradient);
    }
  });
}

const std::vector<const OpDesc*>& PartValues::GradientOpsOf(const OpDesc& op) const {
  static const std::vector<const OpDesc*> none;
  const auto at = gradient_ops_.find(&op);
  return at == gradient_ops_.end() ? none : at->second;
}

// x@GRAD, or x@GRAD@RENAME@... where several ops contribute. What other gradient ops of the op read
// is a term of a formula.
std::vector<PartGradient> PartValues::GradientsInto(const OpDesc& op,
                                                    const std::string& input) const {
  const std::vector<const OpDesc*>& gradients = GradientOpsOf(op);
  std::vector<PartGradient> found;
  for (const OpDesc* gradient : gradients) {
    gradient->ForEachOutput([&](const std::string& name) {
      if (!name.starts_with(GradName(input))) return;
      if (std::any_of(gradients.begin(), gradients.end(),
                      [&](const OpDesc* other) { return other->Reads(name); }))
        return;
      std::erase_if(found, [&](const PartGradient& other) { return other.name == name; });
      found.push_back({name, gradient});
    });
  }
  return found;
}

const PartValue& PartValues::Of(const std::string& name) const {
  auto it = values_.find(block_ == &root_ ? name : KeyOf(name));
  return it == values_.end() ? kSameValue : it->second;
}

bool PartValues::IsOpen(const std::string& name) const {
  const VarDesc* var = Find(name);
  return var && (var->shape().rank() == 0 || !var->shape().IsKnown());
}

std::vector<PartRead> PartValues::ReadsOf(const std::string& name) const {
  std::vector<PartRead> reads;
  std::set<std::string> seen = {name};
  std::vector<std::string> open = {name};
  std::set<const OpDesc*> visited;
  while (!open.empty()) {
    const std::string next = std::move(open.back());
    open.pop_back();
    const auto writers = forward_.find(next);
    if (writers == forward_.end()) continue;
    for (const OpDesc* op : writers->second) {
      if (Exchanges(*op) || !visited.insert(op).second) continue;
      op->ForEachInput([&](const std::string& input) {
        const auto read = reads_.find({op, input});
        if (read != reads_.end()) reads.push_back(*read);
        if (seen.insert(input).second) open.push_back(input);
      });
    }
  }
  return reads;
}

void PartValues::VisitInput(const VarDesc& var) {
  if (!IsOpen(var.name())) return;
  const Shape& shape = var.shape();
  PartValue value = {.kind = PartKind::kRows, .ragged = var.lod_level() > 0};
  while (value.place.axis < shape.rank() && shape[value.place.axis] >= 0) ++value.place.axis;
  for (int d = value.place.axis + 1; d < shape.rank(); ++d) value.ragged |= shape[d] < 0;
  values_[var.name()] = value;
}

void PartValues::Visit(const OpDesc& op) {
  if (op.type() == "feed") {
    op.ForEachOutput([&](const std::string& name) {
      if (const VarDesc* var = root_.FindVar(name)) VisitInput(*var);
    });
    return;
  }
  if (op.HasSubBlock()) return VisitBlocksOf(op);
  std::vector<std::pair<std::string, PartValue>> made;
  op.ForEachOutput([&](const std::string& name, const std::string& slot) {
    made.emplace_back(name, Apply(op, name, slot));
  });
  for (auto& [name, value] : made) {
    if (block_ == &root_) forward_[name].push_back(&op);
    const VarDesc* var = Find(name);
    // Elements of an array stay, and so does what the block around may have left as it was.
    const bool joins = (var && var->type() == VarType::kLoDTensorArray) || !IsOwn(name);
    Set(name, joins ? Join(op, Of(name), value) : value);
  }
}

PartValue PartValues::Apply(const OpDesc& op, const std::string& out, const std::string& slot) {
  if (Exchanges(op)) return {};
  const PartValue* unknown = nullptr;
  bool rows = false, numbers = false, unsorted = false, longest = true;
  PartValue inputs{.kind = PartKind::kRows};
  op.ForEachInput([&](const std::string& name, const std::string& slot) {
    if (MovesOn(op, slot)) return;
    const PartValue& value = Of(name);
    if (value.kind == PartKind::kUnknown && !unknown) unknown = &value;
    longest &= value.kind == PartKind::kSame || value.longest;
    rows |= value.kind == PartKind::kRows;
    unsorted |= value.kind == PartKind::kRows && !value.sorted;
    inputs.ragged |= value.ragged;
    inputs.padded |= value.padded;
    inputs.sorted |= value.sorted;
    inputs.places |= value.places && (MovesOnly(op) || op.type() == "slice");
    numbers |= value.IsNumber();
  });
  if (unknown) {
    PartValue value = *unknown;
    value.longest = longest && IsAnyOf(op.type(), {"less_than", "assign"});
    return value;
  }
  if (!rows && !numbers) return {};
  if (!rows) return OfNumbers(op);
  PartValue failed;
  if (numbers) {
    op.ForEachInput([&](const std::string& name, const std::string& slot) {
      if (!Of(name).IsNumber() || MovesOn(op, slot)) return;
      if (!ReadWhole(op, name))
        failed = Unknown(op, fmt::format("reads {} of the rank's part", Quote(name)));
    });
    if (failed.kind == PartKind::kUnknown) return failed;
  }
  if (inputs.sorted || op.type() == "lod_rank_table") {
    if (const auto value = OfSorted(op, out, unsorted)) return *value;
  }
  if (op.type() == "accuracy" && Of(OneInput(op, "Label")).kind == PartKind::kRows) {
    if (slot == "Accuracy") return MeanOf(OneInput(op, "Label"));
    return {.kind = PartKind::kSum};
  }
  if (op.type() == "nll_loss" && slot == "Total_weight") return {.kind = PartKind::kSum};
  return Reduces(op) ? OfReduced(op, out) : OfRows(op, out, inputs);
}

PartValue PartValues::MeanOf(const std::string& x) const {
  return {.kind = PartKind::kMean, .weight = Of(x).ragged ? x : ""};
}

PartValue PartValues::OfReduced(const OpDesc& op, const std::string& out) const {
  const std::string x = OneInput(op, "X");
  const VarDesc* in = Find(x);
  if (in && in->shape().rank() > 0 && IsOpen(out)) {
    // Some of the open dimensions are left; the rows must be among them.
    for (const int32_t dim : op.GetAttr<std::vector<int32_t>>("dim", {0})) {
      if (dim == Of(x).place.axis || dim + in->shape().rank() == Of(x).place.axis)
        return Unknown(op, fmt::format("reduces the rows of {} and leaves others", Quote(x)));
    }
    return FlowInto(op, out, Of(x));
  }
  if (Of(x).padded) {
    return Unknown(op,
                   "reads what is as long as the longest sequence of the rank's part, not of the "
                   "whole batch");
  }
  if (op.type() != "reduce_sum" && !IsFloat(out)) return Unknown(op, "rounds the mean of a part");
  if (IsFloat(x) && !IsFloat(out)) return Unknown(op, "rounds the sum of a part");
  return op.type() == "reduce_sum" ? PartValue{.kind = PartKind::kSum} : MeanOf(x);
}

// An op takes each row by itself, unless it is known to reduce them.
PartValue PartValues::OfRows(const OpDesc& op, const std::string& out, PartValue inputs) const {
  const std::string& type = op.type();
  if (IsAnyOf(type, {"size", "squared_l2_norm", "l1_norm"})) return {.kind = PartKind::kSum};
  if (type == "sigmoid_cross_entropy_with_logits" && op.GetAttr<bool>("normalize", false))
    return Unknown(op, "divides by the number of the rank's labels");
  if (IsAnyOf(type, {"kldiv_loss", "nll_loss"})) {
    const auto how = op.GetAttr<std::string>("reduction", "mean");
    if (how == "sum") return {.kind = PartKind::kSum};
    // Divides by the first dimension, wherever the rows are.
    if (how == "batchmean" && Of(OneInput(op, "X")).place.axis != 0)
      return {.kind = PartKind::kSum};
    if (how == "batchmean") return MeanOf(OneInput(op, "X"));
    if (how == "mean" && type == "kldiv_loss") return MeanOf(OneInput(op, "X"));
    const std::vector<std::string>& weight = op.Output("Total_weight");
    if (how == "mean" && weight.size() == 1)
      return {.kind = PartKind::kMean, .weight = weight[0], .counted = true};
    if (how == "mean") return Unknown(op, "divides by the weight of the rank's labels");
  }
  inputs.ragged |= IsRagged(op, out);
  inputs.places |=
      type == "where_index" ||
      (type == "filter_by_instag" && op.Output("IndexMap") == std::vector<std::string>{out});
  // Of ops in blocks the ranks do not agree on the length.
  if (type == "sequence_pad" || block_ != &root_) inputs.padded |= PadsToLongest(op);
  if (type == "sequence_unpad") inputs.padded = false;
  if (type == "viterbi_decode") inputs.padded = true;
  const PartValue& index = Of(OneInput(op, "Index"));
  if (IsAnyOf(type, {"gather", "gather_nd"}) && Of(OneInput(op, "X")).kind == PartKind::kRows) {
    if (index.places) return inputs;
    if (type == "gather_nd" || index.kind == PartKind::kRows)
      return Unknown(op, "picks rows by places that may be those in the whole batch");
  }
  return FlowInto(op, out, inputs);
}

PartValue PartValues::FlowInto(const OpDesc& op, const std::string& out, PartValue inputs) const {
  if (!IsOpen(out)) return Unknown(op, fmt::format("makes {} of the rank's rows", Quote(out)));
  const RowFlow flow = FlowOf(op, out, *block_, ops_, [&](const std::string& name) {
    const PartValue& value = Of(name);
    return value.kind == PartKind::kRows ? &value.place : nullptr;
  });
  if (!flow.broken.empty()) return Unknown(op, flow.broken);
  inputs.place = flow.place;
  return inputs;
}

// Whether an output has as many rows, or elements of a row, as values tell or the LoD.
bool PartValues::IsRagged(const OpDesc& op, const std::string& out) const {
  const OpSpec* spec = ops_.Find(op.type());
  const VarDesc* var = Find(out);
  return (var && var->lod_level() > 0) || (spec && (spec->run_time_shape || spec->makes_lod));
}

bool PartValues::AreSame(const OpDesc& op, const char* slot) const {
  const std::vector<std::string>& args = op.Input(slot);
  return std::all_of(args.begin(), args.end(),
                     [&](const std::string& name) { return Of(name).kind == PartKind::kSame; });
}

bool PartValues::IsFloat(const std::string& name) const {
  const VarDesc* var = Find(name);
  return var && IsFloating(var->dtype());
}

// Whether the op may read `name` of the rank's part. Of integers only what rounds nothing.
bool PartValues::IsLinear(const OpDesc& op, const std::string& name) const {
  const VarDesc* var = Find(name);
  if (!var || var->dtype() == DType::kBool) return false;
  const bool to_float = !op.AnyOutput([&](const std::string& out) { return !IsFloat(out); });
  if (op.type() == "cast") return to_float;
  const bool exact = MovesOnly(op) || IsAnyOf(op.type(), {"elementwise_add", "elementwise_sub",
                                                          "elementwise_mul", "sum", "reduce_sum"});
  if (!exact && !(IsFloating(var->dtype()) && to_float)) return false;
  if (MovesOnly(op) || Reduces(op)) return true;
  if (op.type() == "scale") {
    return AreSame(op, "ScaleTensor") &&
           (Of(name).kind == PartKind::kMean || op.GetAttr<float>("bias", 0) == 0);
  }
  if (IsAnyOf(op.type(), {"elementwise_add", "elementwise_sub", "sum"})) return true;
  if (op.type() == "elementwise_mul") return AreSame(op, "X") || AreSame(op, "Y");
  return op.type() == "elementwise_div" && OneInput(op, "X") == name && OneInput(op, "Y") != name;
}

// Whether the op, and with it its gradient ops, may read another variable for `name`: that has one
// value in a run, and its gradient is dense.
bool PartValues::MayReplace(const OpDesc& op, const std::string& name) const {
  int writers = 0;
  for (const OpDesc* writer : root_.Uses(name).writers) writers += IsForward(*writer) ? 1 : 0;
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

// Of means and sums, and what is the same on all ranks.
PartValue PartValues::OfNumbers(const OpDesc& op) {
  PartValue failed;
  std::string linear;
  op.ForEachInput([&](const std::string& name) {
    if (!Of(name).IsNumber()) return;
    if (IsLinear(op, name)) {
      linear = name;
      return;
    }
    if (!ReadWhole(op, name))
      failed = Unknown(op, fmt::format("reads {} of the rank's part", Quote(name)));
  });
  if (failed.kind == PartKind::kUnknown) return failed;
  if (linear.empty()) return {};
  if (IsAnyOf(op.type(), {"elementwise_add", "elementwise_sub", "sum"})) return OfSum(op);
  return Of(linear);
}

// Parts of one kind stay what they are; a mean may have something added that all ranks have. Others
// are weighed before they are added, which makes a sum of the result; integers cannot be.
PartValue PartValues::OfSum(const OpDesc& op) {
  const PartValue* kind = nullptr;
  bool same = false, mixed = false, replaced = true;
  op.ForEachInput([&](const std::string& name) {
    const PartValue& value = Of(name);
    same |= value.kind == PartKind::kSame;
    if (!value.IsNumber()) return;
    mixed |= kind && !(*kind == value);
    kind = &value;
  });
  if (!mixed && !(same && kind->kind == PartKind::kSum)) return *kind;
  const bool weighs = !op.AnyInput([&](const std::string& name) { return !IsFloat(name); });
  op.ForEachInput([&](const std::string& name) {
    const PartKind of = Of(name).kind;
    if (weighs ? of != PartKind::kSum : of != PartKind::kSame)
      replaced &= Replace(op, name, !weighs);
  });
  if (!replaced) return Unknown(op, "adds parts that weigh differently");
  return {.kind = weighs ? PartKind::kSum : PartKind::kSame};
}

}  // namespace coracle
