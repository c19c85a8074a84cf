#include <coracle/executor/internal/frame.h>
#include <coracle/executor/internal/planner_impl.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/interpreter.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle {

int32_t Planner::SubBlock(BlockRef block, const BlockArgs& args) {
  const BlockUse& use = UseOf(block);
  std::vector<std::string> in, out;
  for (const auto& [name, arg] : args.in) in.push_back(name);
  for (const auto& [name, arg] : args.out) out.push_back(name);
  SubBlockUse made;
  made.unit = request_.units->Find(block.idx, in, out);
  made.block = block.idx;
  made.site = unit_.Site(op_index_, sub_blocks_of_op_++);
  Unit& inner = (*request_.units)[made.unit];
  for (size_t i = 0; i < args.in.size(); ++i) {
    made.bindings.push_back(BindingOf(inner.Slot(in[i], false), args.in[i].second.index));
    Binding::Kind& kind = made.bindings.back().kind;
    if (kind == Binding::Kind::kSlot) kind = Binding::Kind::kGiven;
  }
  for (size_t i = 0; i < args.out.size(); ++i) {
    made.bindings.push_back(
        BindingOf(inner.Slot(Unit::OutName(i), false), args.out[i].second.index));
  }
  for (const auto& [name, index] : use.taken) {
    made.bindings.push_back(
        {inner.Slot(name, false), Binding::Kind::kKept, static_cast<int32_t>(index)});
  }
  for (size_t i = 0; i < use.captured.size(); ++i) {
    const std::string& name = use.captured[i];
    if (std::find(in.begin(), in.end(), name) != in.end()) continue;
    const int32_t value = use.written[i] ? MoveToSlot(name) : CurrentOrPersistable(name);
    if (use.written[i]) changed_.insert(name);
    made.bindings.push_back(BindingOf(inner.Slot(name, false), value));
  }
  plan_.sub_blocks.push_back(std::move(made));
  return static_cast<int32_t>(plan_.sub_blocks.size()) - 1;
}

const BlockUse& Planner::UseOf(BlockRef block) const {
  if (block.idx <= unit_.block || block.idx >= request_.program->NumBlocks()) {
    ThrowInvalid(fmt::format("{}: block {} is not a sub-block", op_->type(), block.idx),
                 "  " + Locate(*op_));
  }
  return (*request_.uses)[Index(block.idx)];
}

void Planner::DeclareSlots() {
  for (const std::string& name : unit_.in) unit_.Slot(name, false);
  for (size_t i = 0; i < unit_.out.size(); ++i) unit_.Slot(Unit::OutName(i), false);
  for (const auto& [name, index] : use_.taken) unit_.Slot(name, false);
  for (const std::string& name : use_.captured) unit_.Slot(name, false);
}

const VarCell* Planner::CellAt(int32_t slot) const {
  return Index(slot) < request_.slots.size() ? request_.slots[Index(slot)] : nullptr;
}

int32_t Planner::NewSlotValue(const std::string& name, VarMeta meta, int32_t slot) {
  const int32_t storage = NewStorage(StorageKind::kSlot, slot, 0);
  const int32_t value = NewValue(name, meta, storage);
  if (meta.type == VarType::kLoDTensor) plan_.values.back().lod_source = value;
  return value;
}

int32_t Planner::ScratchSlot() {
  const std::string name = fmt::format("#{}#{}", op_index_, scratch_slots_of_op_++);
  return NewSlotValue("", VarMeta{VarType::kLoDTensor, DType::kFloat32, Shape{-1}, 0},
                      unit_.Slot(name, true));
}

int32_t Planner::ValueInSlot(const std::string& name) {
  const VarDesc* declared = block_.FindVar(name);
  const bool array =
      declared && declared->type() == VarType::kLoDTensorArray && !declared->persistable();
  const int32_t slot = array ? unit_.Slot(name, true) : unit_.FindSlot(name);
  if (slot < 0) return -1;
  const VarCell* cell = CellAt(slot);
  const bool set = cell && cell->set;
  VarMeta meta = set ? MetaOfValue(cell->value) : VarMeta{};
  if (guarded_.insert(slot).second) plan_.guards.push_back({slot, set, meta});
  if (!set && !(array && unit_.own[Index(slot)])) return -1;
  if (!set) {
    plan_.new_slots.emplace_back(slot, VarType::kLoDTensorArray);
    meta = {VarType::kLoDTensorArray, declared->dtype(), Shape{-1, -1}, 0};
  }
  const int32_t value = NewSlotValue(name, meta, slot);
  if (meta.type == VarType::kLoDTensor)
    plan_.dense_slots.push_back(plan_.values[Index(value)].storage);
  return current_[name] = value;
}

bool Planner::IsInSlot(int32_t value, int32_t slot) {
  const Storage& s = StorageOf(value);
  return s.kind == StorageKind::kSlot && s.source == slot;
}

int32_t Planner::MoveToSlot(const std::string& name) {
  const int32_t now = CurrentOrPersistable(name);
  const int32_t slot = unit_.Slot(name, true);
  if (now >= 0 && IsInSlot(now, slot)) return now;
  const VarMeta unset{VarType::kLoDTensor, DType::kFloat32, Shape{-1}, 0};
  const int32_t value = NewSlotValue(name, now >= 0 ? plan_.values[Index(now)].meta : unset, slot);
  if (now >= 0) {
    AppendStore(now, slot);
    current_[name] = value;
  }
  return value;
}

Binding Planner::BindingOf(int32_t inner_slot, int32_t value) {
  if (value < 0) return {inner_slot, Binding::Kind::kNone, -1};
  inside_uses_.push_back(value);
  const Storage& s = StorageOf(value);
  if (s.kind == StorageKind::kSlot) return {inner_slot, Binding::Kind::kSlot, s.source};
  return {inner_slot, Binding::Kind::kView, value};
}

void Planner::AppendFrameStep(const char* type, int32_t value, Kernel kernel) {
  const int32_t step = static_cast<int32_t>(plan_.steps.size());
  plan_.steps.push_back({std::move(kernel), type, {}, op_ ? Locate(*op_) : ""});
  usage_.step_inputs.emplace_back();
  if (value < 0) return;
  usage_.step_inputs.back().push_back(value);
  usage_.uses.emplace_back(step, value);
}

void Planner::AppendStore(int32_t value, int32_t slot) {
  AppendFrameStep("store", value,
                  [=](Workspace& ws) { static_cast<Frame&>(ws).Store(value, slot); });
}

void Planner::Deliver() {
  op_ = nullptr;
  for (const std::string& name : use_.writes) {
    auto now = current_.find(name);
    const int32_t slot = unit_.FindSlot(name);
    if (now == current_.end() || slot < 0 || IsInSlot(now->second, slot)) continue;
    if (StorageOf(now->second).kind != StorageKind::kPersistable) AppendStore(now->second, slot);
  }
  for (size_t i = 0; i < unit_.out.size(); ++i) {
    const int32_t value = CurrentOrPersistable(unit_.out[i]);
    if (value < 0) {
      ThrowInvalid(
          fmt::format("block {} gives its var {} no value, which the op that runs it takes",
                      unit_.block, Quote(unit_.out[i])));
    }
    AppendStore(value, unit_.FindSlot(Unit::OutName(i)));
  }
  for (size_t i = 0; i < use_.kept.size(); ++i) AppendKeep(use_.kept[i], i);
}

void Planner::AppendKeep(const std::string& name, size_t index) {
  const int32_t value = CurrentOrPersistable(name);
  bool hand_over = false;
  if (value >= 0) {
    const Storage& s = StorageOf(value);
    hand_over = s.kind == StorageKind::kSlot && unit_.own[Index(s.source)] &&
                plan_.values[Index(value)].meta.type != VarType::kLoDTensor;
  }
  AppendFrameStep("keep", value,
                  [=](Workspace& ws) { static_cast<Frame&>(ws).Keep(value, index, hand_over); });
}

void Planner::RequireValue(const std::string& needed) {
  const int32_t value = CurrentOrPersistable(needed);
  if (value >= 0 && plan_.values[Index(value)].meta.type == VarType::kLoDTensor) return;
  throw Error(
      ErrorCode::kUnimplemented,
      fmt::format("{}: an output shape depends on the value of {}, which is no dense tensor",
                  op_->type(), Quote(needed)),
      "  " + Locate(*op_));
}

std::set<std::string> Planner::UsedFrom(size_t next) const {
  std::set<std::string> used(request_.fetches.begin(), request_.fetches.end());
  used.insert(unit_.out.begin(), unit_.out.end());
  used.insert(use_.kept.begin(), use_.kept.end());
  used.insert(use_.writes.begin(), use_.writes.end());
  for (size_t i = next; i < block_.NumOps(); ++i) {
    ForEachName(block_.op(i).inputs(), [&](const std::string& name) { used.insert(name); });
    for (int sub : SubBlocksOf(block_.op(i))) {
      const auto& captured = (*request_.uses)[Index(sub)].captured;
      used.insert(captured.begin(), captured.end());
    }
  }
  return used;
}

void Planner::EndStage(size_t next, const std::string& needs) {
  plan_.next_op = static_cast<int32_t>(next);
  plan_.needs = needs;
  std::set<std::string> used = UsedFrom(next);
  if (!needs.empty()) used.insert(needs);
  for (const std::string& name : used) {
    auto it = current_.find(name);
    if (it == current_.end() || StorageOf(it->second).kind == StorageKind::kPersistable) continue;
    const int32_t value = it->second, slot = unit_.FindSlot(name);
    if (slot >= 0 && IsInSlot(value, slot)) continue;
    if (plan_.values[Index(value)].meta.type == VarType::kLoDTensor) {
      plan_.carried.push_back(name);
    } else {
      AppendStore(value, unit_.Slot(name, true));
    }
  }
}

int32_t Planner::ArrayOutput(const std::string& name, const VarMeta& meta) {
  const int32_t now = CurrentOrPersistable(name);
  const int32_t slot = unit_.Slot(name, true);
  if (now < 0) plan_.new_slots.emplace_back(slot, VarType::kLoDTensorArray);
  VarMeta merged = meta;
  if (now >= 0) {
    const VarMeta& held = plan_.values[Index(now)].meta;
    const bool none = held.shape == Shape{-1, -1};
    if (!none && !SameType(held, meta)) merged.shape = Shape{-1};
  }
  return NewSlotValue(name, merged, slot);
}

}  // namespace coracle
