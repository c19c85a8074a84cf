// What PartValues follows in the blocks that ops run. Ranks run a block alike only where its
// condition is the same on all of them, and no op in a block reads the value of the whole batch: a
// mean or a sum that a block makes is the rank's alone.

#include <coracle/distribute/part_values.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/block_use.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle {
namespace {

// A chain of carried values changes one more of them in each run; blocks within blocks multiply
// the runs.
constexpr int kMostRuns = 20, kMostRunsOfAll = 5000;
constexpr size_t kMostOpenBlocks = 50;

std::string InnerKey(const std::string& name, const BlockDesc& block) {
  return fmt::format("{}@BLOCK@{}", name, block.idx());
}

const BlockDesc* BlockAt(const OpDesc& op, int idx) {
  const ProgramDesc& program = op.block()->program();
  return idx > 0 && idx < program.NumBlocks() ? &program.Block(idx) : nullptr;
}

}  // namespace

std::string PartValues::KeyOf(const std::string& name) const {
  for (const BlockDesc* block = block_; block && block != &root_; block = block->parent())
    if (block->FindVar(name)) return InnerKey(name, *block);
  return name;
}

bool PartValues::IsOwn(const std::string& name) const {
  return block_ == &root_ || block_->FindVar(name);
}

void PartValues::Set(const std::string& name, PartValue value) {
  values_[KeyOf(name)] = std::move(value);
}

// Of a variable that may have either.
PartValue PartValues::Join(const OpDesc& op, const PartValue& a, const PartValue& b) {
  if (a == b || b.kind == PartKind::kSame) return a;
  if (a.kind == PartKind::kSame) return b;
  if (a.kind == PartKind::kUnknown || b.kind == PartKind::kUnknown) {
    PartValue unknown = a.kind == PartKind::kUnknown ? a : b;
    unknown.longest = a.longest && b.longest;
    return unknown;
  }
  if (a.kind != PartKind::kRows || b.kind != PartKind::kRows || !(a.place == b.place) ||
      a.sorted != b.sorted)
    return Unknown(op, "writes again what weighs differently");
  PartValue rows = a;
  rows.ragged |= b.ragged;
  rows.padded |= b.padded;
  rows.places |= b.places;
  return rows;
}

PartValue PartValues::ConditionOf(const OpDesc& op) const {
  PartValue condition;
  for (const char* slot : {"Cond", "Condition"}) {
    for (const std::string& name : op.Input(slot)) {
      const PartValue& value = Of(name);
      if (value.kind == PartKind::kSame) continue;
      condition =
          Unknown(op, value.reason.empty()
                          ? fmt::format("runs by {}, which is of the rank's rows", Quote(name))
                          : "runs by what the rank's rows decide: " + value.reason);
      condition.longest = value.longest;
    }
  }
  return condition;
}

void PartValues::RunBlock(const BlockDesc& block) {
  const BlockDesc* around = block_;
  open_.push_back(&block);
  block_ = &block;
  block.ForEachOp([&](const OpDesc& op) { Visit(op); });
  block_ = around;
  open_.pop_back();
}

// Runs the block until it leaves what it found; `carry` hands values of a run to the next, and
// returns whether they changed.
bool PartValues::CarriesTheSame(const OpDesc& op, const BlockDesc& block,
                                const std::function<bool()>& carry) {
  if (std::find(open_.begin(), open_.end(), &block) != open_.end()) return false;
  if (open_.size() == kMostOpenBlocks) return false;
  const std::vector<std::string> written = OuterWrites(block);
  const auto values = [&] {
    std::vector<PartValue> all;
    for (const std::string& name : written) all.push_back(Of(name));
    return all;
  };
  for (int run = 0; run < kMostRuns && runs_++ < kMostRunsOfAll; ++run) {
    const std::vector<PartValue> before = values();
    RunBlock(block);
    const bool changed = carry && carry();
    if (!changed && (op.type() == "conditional_block" || values() == before)) return true;
  }
  return false;
}

PartValue PartValues::LeftBy(const OpDesc& op, const std::string& name, PartValue value,
                             bool settled) {
  if (!settled) return Unknown(op, "carries what no rule tells");
  if (value.IsNumber()) return Unknown(op, fmt::format("makes {} of the rank's rows", Quote(name)));
  return value;
}

// What the block has written of the variables around it. Where it runs as often as the rank's
// longest sequence has steps, arrays have the rows of all of them.
void PartValues::Leave(const OpDesc& op, const BlockDesc& block, bool settled) {
  const PartValue condition = ConditionOf(op);
  for (const std::string& name : OuterWrites(block)) {
    const VarDesc* var = Find(name);
    const bool keeps = op.type() == "while" && condition.longest && Of(name).sorted && var &&
                       var->type() == VarType::kLoDTensorArray;
    if (settled && condition.kind != PartKind::kSame && !keeps &&
        Of(name).kind != PartKind::kUnknown)
      Set(name, condition);
    else
      Set(name, LeftBy(op, name, Of(name), settled));
  }
}

void PartValues::VisitBlocksOf(const OpDesc& op) {
  for (const int idx : op.SubBlocks()) {
    const BlockDesc* block = BlockAt(op, idx);
    if (!block) continue;
    if (op.type() == "recurrent")
      VisitRecurrent(op, *block);
    else if (op.type() == "call")
      VisitCall(op, *block);
    else
      Leave(op, *block, CarriesTheSame(op, *block, nullptr));
  }
  if (block_ == &root_)
    op.ForEachOutput([&](const std::string& name) { forward_[name].push_back(&op); });
}

// A step has the slices of its inputs, along the first dimension, and makes those of its outputs.
void PartValues::VisitRecurrent(const OpDesc& op, const BlockDesc& block) {
  using Names = std::vector<std::string>;
  const Names ex_states = op.GetAttr<Names>("ex_states", {}),
              states = op.GetAttr<Names>("states", {});
  const Names &inputs = op.Input("inputs"), &initial = op.Input("initial_states");
  for (const std::string& name : inputs) {
    PartValue slice = Of(name);
    if (slice.kind == PartKind::kRows && (slice.place.axis == 0 || slice.place.folded != 1))
      slice = Unknown(op, "works along the rows of the rank's part");
    slice.place.axis = std::max(slice.place.axis - 1, 0);
    values_[InnerKey(name, block)] = slice.IsNumber() ? Unknown(op, "runs a block") : slice;
  }
  const size_t carried = std::min({ex_states.size(), states.size(), initial.size()});
  for (size_t k = 0; k < carried; ++k) values_[InnerKey(ex_states[k], block)] = Of(initial[k]);
  const bool settled = CarriesTheSame(op, block, [&] {
    bool changed = false;
    for (size_t k = 0; k < carried; ++k) {
      PartValue& before = values_[InnerKey(ex_states[k], block)];
      PartValue now = Join(op, before, values_[InnerKey(states[k], block)]);
      changed |= !(now == before);
      before = std::move(now);
    }
    return changed;
  });
  Leave(op, block, settled);
  for (const std::string& name : op.Output("outputs")) {
    PartValue made = values_[InnerKey(name, block)];
    if (made.kind == PartKind::kRows) ++made.place.axis;
    Set(name, LeftBy(op, name, std::move(made), settled));
  }
}

void PartValues::VisitCall(const OpDesc& op, const BlockDesc& block) {
  using Names = std::vector<std::string>;
  const Names parameters = op.GetAttr<Names>("parameters", {}),
              results = op.GetAttr<Names>("results", {});
  const Names &given = op.Input("X"), &made = op.Output("Out");
  for (size_t i = 0; i < std::min(parameters.size(), given.size()); ++i)
    values_[InnerKey(parameters[i], block)] = Of(given[i]);
  const bool settled = CarriesTheSame(op, block, nullptr);
  Leave(op, block, settled);
  for (size_t i = 0; i < std::min(results.size(), made.size()); ++i)
    Set(made[i], LeftBy(op, made[i], values_[InnerKey(results[i], block)], settled));
}

// Ops on rows in the order of a rank table, and what joins them with rows in the order of the
// batch; nullopt for an op that is like others.
std::optional<PartValue> PartValues::OfSorted(const OpDesc& op, const std::string& out,
                                              bool unsorted) const {
  const std::string& type = op.type();
  const PartValue sorted{.kind = PartKind::kRows, .ragged = true, .sorted = true};
  if (type == "lod_rank_table") return sorted;
  if (type == "max_sequence_len") {
    PartValue length = Unknown(op, fmt::format("makes {} of the rank's rows", Quote(out)));
    length.longest = true;
    return length;
  }
  const std::vector<std::string>& args = op.Input("X");
  const PartValue x = args.size() == 1 ? Of(args[0]) : PartValue();
  const bool has_rows = x.kind == PartKind::kRows;
  if (type == "lod_tensor_to_array" || type == "reorder_lod_tensor_by_rank") {
    if (has_rows && !x.sorted) return sorted;
    return Unknown(op, "sorts what has no rows in the order of the batch");
  }
  if (type == "shrink_rnn_memory" || type == "array_to_lod_tensor") {
    if (!has_rows || !x.sorted) return Unknown(op, "takes rows for those of a rank table");
    PartValue rows = sorted;
    rows.sorted = type == "shrink_rnn_memory";
    return rows;
  }
  if (unsorted)
    return Unknown(op, "joins rows in the order of a rank table with those of the batch");
  if (type == "tensor_array_to_tensor")
    return Unknown(op, "joins the steps of the rank's sequences");
  return std::nullopt;
}

}  // namespace coracle
