#include <coracle/backward/open_types.h>
#include <coracle/framework/op/check/flow_types.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace coracle::inline internal {
namespace {

using Names = std::vector<std::string>;

// The nesting limit of Verify.
constexpr int kMaxDepth = 128;

// A variable that a file declares only as "tensor" looks the same as a declared scalar. For outputs
// that only gradients read (dropout's Mask, rnn's Reserve), files may declare only an element type,
// which may differ from the op's.
bool MayBeOpen(const VarDesc& var) {
  return var.type() == VarType::kLoDTensor && var.shape().rank() == 0 && !var.persistable();
}

}  // namespace

bool IsOpen(const VarMeta& meta) {
  switch (meta.type) {
    case VarType::kLoDTensor:
    case VarType::kSelectedRows:
    case VarType::kLoDTensorArray:
      return !IsValid(meta.dtype);
    case VarType::kFeedMinibatch:
    case VarType::kFetchList:
    case VarType::kStepScopes:
    case VarType::kLoDRankTable:
    case VarType::kPlaceList:
    case VarType::kReader:
    case VarType::kTuple:
      return false;
    case VarType::kRaw:
      break;
  }
  return true;
}

bool IsFloatingOrOpen(const VarMeta& meta) {
  switch (meta.type) {
    case VarType::kLoDTensor:
    case VarType::kSelectedRows:
    case VarType::kLoDTensorArray:
      return IsFloating(meta.dtype) || IsComplex(meta.dtype) || IsOpen(meta);
    default:
      return IsOpen(meta);
  }
}

// Also finds types at the point of the enclosing block that runs this one, and declares the types
// that it infers.
class OpenTypes::Table : public FlowTypes {
 public:
  Table(OpenTypes* types, BlockDesc& block, Table* outer)
      : FlowTypes(block), types_(types), own_(block), outer_(outer) {}

  void Set(const std::string& name, const VarMeta& meta) override {
    if (outer_ && !own_.FindVar(name)) return outer_->Set(name, meta);
    FlowTypes::Set(name, meta);
    VarDesc* var = types_ ? own_.FindVarRecursive(name) : nullptr;
    if (var) types_->Declare(*var, meta);
  }

 protected:
  const VarMeta* Declared(const std::string& name) const override {
    const VarMeta* around = outer_ && !own_.FindVar(name) ? outer_->Find(name) : nullptr;
    return around ? around : FlowTypes::Declared(name);
  }

 private:
  OpenTypes* types_;  // nullptr: writes no declarations
  BlockDesc& own_;
  Table* outer_;
};

bool OpenTypes::Infer(const OpDesc& op, Table& table) const {
  const OpSpec* def = ops_.Find(op.type());
  return !def || table.Infer(*def, op);
}

OpenTypes::~OpenTypes() {
  for (const auto& [var, before] : changed_) var->SetMeta(before);
}

void OpenTypes::Declare(VarDesc& var, const VarMeta& meta) {
  if (IsOpen(meta) || var.meta() == meta) return;
  if (!IsOpen(var.meta()) && !MayBeOpen(var) && !changed_.count(&var)) return;
  changed_.try_emplace(&var, var.meta());
  var.SetMeta(meta);
}

bool OpenTypes::IsOpenIn(BlockDesc& block, const VarDesc& var) {
  if (IsOpen(var.meta())) return true;
  if (!MayBeOpen(var)) return false;
  const auto writers = block.Uses(var.name()).writers;
  if (writers.empty()) return false;
  Table table(nullptr, block, nullptr);
  // If the rule fails, the operands may have open types themselves.
  if (!Infer(*writers[0], table)) return true;
  return !(*table.Find(var.name()) == var.meta());
}

bool OpenTypes::AnyOpen(BlockDesc& block) {
  for (size_t i = 0; i < block.NumVars(); ++i) {
    if (IsOpenIn(block, block.var(i))) return true;
  }
  return false;
}

void OpenTypes::FillWhereOpen() {
  for (int b = 0; b < program_.NumBlocks() && !filled_; ++b) {
    if (AnyOpen(program_.Block(b))) Fill();
  }
}

void OpenTypes::FillWhereOpen(BlockDesc& block, const VarDesc& var) {
  if (!filled_ && IsOpenIn(block, var)) Fill();
}

void OpenTypes::FillWhereOpen(BlockDesc& block, const std::vector<uint32_t>& positions) {
  auto look_at = [&](const std::string& name) {
    if (const VarDesc* var = block.FindVarRecursive(name)) FillWhereOpen(block, *var);
  };
  std::unordered_set<int> seen;
  for (size_t i = 0; i < positions.size() && !filled_; ++i) {
    const OpDesc& op = block.op(positions[i]);
    op.ForEachInput(look_at);
    op.ForEachOutput(look_at);
    for (const BlockDesc* inner : program_.BlocksRunBy(op, &seen)) {
      if (!filled_ && AnyOpen(program_.Block(inner->idx()))) Fill();
    }
  }
}

// Visits a sub-block at the first op that runs it, with the types at that point.
void OpenTypes::Fill() {
  filled_ = true;
  visited_.assign(static_cast<size_t>(program_.NumBlocks()), false);
  for (int b = 0; b < program_.NumBlocks(); ++b) {
    if (!visited_[static_cast<size_t>(b)]) Visit(program_.Block(b), nullptr, 0);
  }
}

void OpenTypes::Visit(BlockDesc& block, Table* outer, int depth) {
  visited_[static_cast<size_t>(block.idx())] = true;
  Table table(this, block, outer);
  for (size_t i = 0; i < block.NumOps(); ++i) {
    const OpDesc& op = block.op(i);
    for (int idx : op.SubBlocks()) {
      const bool later = idx > block.idx() && idx < program_.NumBlocks();
      if (!later || visited_[static_cast<size_t>(idx)] || depth >= kMaxDepth) continue;
      try {
        SetBlockInputs(op, program_.Block(idx), table);
      } catch (const Error&) {  // Verify reports the attrs
      }
      Visit(program_.Block(idx), &table, depth + 1);
    }
    Infer(op, table);
  }
}

// Sets the types of the block's variables that the op sets before it runs the block.
void OpenTypes::SetBlockInputs(const OpDesc& op, BlockDesc& inner, const Table& outer) {
  auto set = [&](const std::string& from, const std::string& to, bool step) {
    const VarMeta* meta = outer.Find(from);
    VarDesc* var = inner.FindVar(to);
    if (!meta || !var || (step && meta->shape.rank() == 0)) return;
    VarMeta given = *meta;
    if (step)
      given.shape = Shape(std::span<const int64_t>(meta->shape.begin() + 1, meta->shape.end()));
    Declare(*var, given);
  };
  const OpSpec* spec = ops_.Find(op.type());
  if (!spec || spec->block.runs == BlockRuns::kGradient) return;
  for (const auto& [slot, attr] : spec->block.arguments) {
    const Names& from = op.Input(slot);
    const Names to = op.GetAttr<Names>(attr, {});
    for (size_t i = 0; i < std::min(from.size(), to.size()); ++i) set(from[i], to[i], false);
  }
  for (const std::string& slot : spec->block.slices) {
    for (const std::string& name : op.Input(slot)) set(name, name, true);
  }
}

}  // namespace coracle::inline internal
