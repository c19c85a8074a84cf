#include <coracle/executor/internal/activation.h>
#include <coracle/executor/internal/frame.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/mismatch.h>
#include <coracle/framework/op/interpreter.h>
#include <fmt/format.h>

namespace coracle {
namespace {

bool SameTensor(const VarMeta& a, const VarMeta& b) {
  return a.dtype == b.dtype && a.shape == b.shape;
}

bool FitsPersistable(const PlanPersistable& p, const VarValue* held) {
  if (!held) return !p.read_first;
  if (std::holds_alternative<std::monostate>(*held)) return !p.read_first;
  if (const auto* tensor = std::get_if<Tensor>(held)) {
    bool same = p.meta.type == VarType::kLoDTensor && tensor->dtype() == p.meta.dtype &&
                tensor->shape() == p.meta.shape;
    return same || !p.read_first;
  }
  if (std::holds_alternative<SelectedRows>(*held)) {
    return p.meta.type == VarType::kSelectedRows &&
           (!p.read_first || SameTensor(p.meta, MetaOfValue(*held)));
  }
  return p.meta.type != VarType::kLoDTensor && p.meta.type != VarType::kSelectedRows;
}

bool SameType(const VarMeta& a, const VarMeta& b) {
  return a.type == b.type && a.dtype == b.dtype && a.shape == b.shape;
}

const Tensor* FindValue(const ValueGuard& guard, std::span<const Tensor> feeds,
                        std::span<VarCell* const> slots, const Scope& scope) {
  if (guard.feed >= 0) return &feeds[static_cast<size_t>(guard.feed)];
  if (guard.slot < 0) {
    const VarValue* held = scope.Find(guard.name);
    return held ? std::get_if<Tensor>(held) : nullptr;
  }
  const size_t slot = static_cast<size_t>(guard.slot);
  const VarCell* cell = slot < slots.size() ? slots[slot] : nullptr;
  return cell && cell->set ? std::get_if<Tensor>(&cell->value) : nullptr;
}

bool ReliesOnNeeds(const Plan& plan, const Plan& before) {
  if (plan.relies.size() != before.NumKnownNext()) return false;
  return plan.relies.empty() || plan.relies.back().name == before.needs;
}

void MakeEmpty(VarType type, VarCell* cell) {
  if (type == VarType::kLoDTensorArray) {
    if (auto* array = std::get_if<TensorArray>(&cell->value))
      array->clear();
    else
      cell->value = TensorArray();
  } else if (type == VarType::kStepScopes) {
    if (auto* scopes = std::get_if<std::shared_ptr<StepScopes>>(&cell->value))
      (*scopes)->clear();
    else
      cell->value = std::make_shared<StepScopes>();
  } else if (type == VarType::kLoDRankTable) {
    if (!std::holds_alternative<RankTable>(cell->value)) cell->value = RankTable();
  } else if (type == VarType::kSelectedRows) {
    if (!std::holds_alternative<SelectedRows>(cell->value)) cell->value = SelectedRows();
  }
  cell->set = true;
}

Tensor MakePersistable(const PlanPersistable& p) {
  try {
    return Tensor(p.meta.dtype, p.meta.shape);
  } catch (const OutOfMemory& e) {
    throw e.WithPrefix("the persistable var " + Quote(p.name));
  }
}

// "the largest temporary is 'a' float32[1000, 1000] (output of mul); ...".
std::string LargestTemporary(const Plan& plan) {
  size_t largest = 0;
  std::string writer = "memory of an op's own";
  auto bytes = [&](size_t v) {
    return plan.storages[static_cast<size_t>(plan.values[v].storage)].bytes;
  };
  for (size_t v = 0; v < plan.values.size(); ++v) {
    if (bytes(v) > bytes(largest)) largest = v;
  }
  for (const PlanStep& step : plan.steps) {
    for (int32_t v : step.outputs) {
      if (static_cast<size_t>(v) == largest) writer = "output of " + step.op_type;
    }
  }
  const PlanValue& value = plan.values[largest];
  return fmt::format("the largest temporary is {} {} ({}); feed smaller batches or raise the limit",
                     value.name.empty() ? "scratch" : Quote(value.name), value.meta.ToString(),
                     writer);
}

}  // namespace

Frame::Frame(std::shared_ptr<const Plan> plan, Activation& activation)
    : plan_(std::move(plan)), activation_(activation) {
  try {
    arena_ = AllocateBytes(plan_->arena_bytes, "memory for temporaries");
    fetched_ = AllocateBytes(plan_->fetch_bytes, "memory for what is fetched");
  } catch (const OutOfMemory& e) {
    throw Error(e.code(), fmt::format("{}; {}", e.message(), LargestTemporary(*plan_)));
  }
  size_t n = plan_->values.size();
  pointers_.resize(n);
  own_values_.resize(n);
  values_of_.resize(plan_->storages.size());
  for (size_t v = 0; v < n; ++v) {
    const Storage& s = plan_->storages[static_cast<size_t>(plan_->values[v].storage)];
    values_of_[static_cast<size_t>(plan_->values[v].storage)].push_back(static_cast<int32_t>(v));
    pointers_[v] = BaseOf(s);
    if (plan_->values[v].meta.type == VarType::kLoDTensorArray) own_values_[v] = TensorArray{};
    if (plan_->values[v].meta.type == VarType::kSelectedRows) own_values_[v] = SelectedRows{};
  }
  persistables_.resize(plan_->persistables.size());
  bound_data_.resize(plan_->persistables.size());
  slot_data_.resize(plan_->dense_slots.size());
  fed_data_.resize(plan_->feed_values.size());
  fed_.resize(plan_->feed_values.size());
  data_ = pointers_.data();
  for (const PlanStep& s : plan_->steps) {
    times_.push_back(
        {s.op_type, s.outputs.empty() ? "" : plan_->values[static_cast<size_t>(s.outputs[0])].name,
         0, 0});
  }
}

void* Frame::BaseOf(const Storage& s) const {
  switch (s.kind) {
    case StorageKind::kArena:
      return s.bytes ? static_cast<char*>(arena_.get()) + s.offset : nullptr;
    case StorageKind::kFetched:
      return s.bytes ? static_cast<char*>(fetched_.get()) + s.offset : nullptr;
    case StorageKind::kConstant:
      return const_cast<void*>(plan_->constants[static_cast<size_t>(s.source)].raw());
    default:
      return nullptr;
  }
}

void Frame::PointStorage(int32_t storage, void* data) {
  for (int32_t value : values_of_[static_cast<size_t>(storage)])
    pointers_[static_cast<size_t>(value)] = data;
}

bool Frame::FitsScope(const Plan& plan, const Scope& scope) {
  for (const PlanPersistable& p : plan.persistables) {
    const VarValue* held = scope.Find(p.name);
    if (held && !FitsPersistable(p, held)) return false;
  }
  return true;
}

bool Frame::Fits(const Plan& plan, const Plan* before, std::span<const Tensor> feeds,
                 std::span<VarCell* const> slots, const Scope& scope) {
  if (plan.feed_metas.size() != feeds.size()) return false;
  if (before && (plan.feed_names != before->carried || !ReliesOnNeeds(plan, *before))) return false;
  for (size_t i = 0; i < feeds.size(); ++i) {
    const VarMeta& meta = plan.feed_metas[i];
    if (meta.dtype != feeds[i].dtype() || !(meta.shape == feeds[i].shape())) return false;
  }
  for (const SlotGuard& guard : plan.guards) {
    const size_t slot = static_cast<size_t>(guard.slot);
    const VarCell* cell = slot < slots.size() ? slots[slot] : nullptr;
    const bool set = cell && cell->set;
    if (set != guard.set || (set && !SameType(MetaOfValue(cell->value), guard.meta))) return false;
  }
  for (const ValueGuard& guard : plan.relies) {
    const Tensor* value = FindValue(guard, feeds, slots, scope);
    if (!value || !BitEqual(*value, guard.value)) return false;
  }
  return true;
}

bool Frame::StillFits(const Scope& scope) const {
  if (scope_ != &scope || scope_generation_ != scope.Generation()) return false;
  for (size_t i = 0; i < persistables_.size(); ++i) {
    const auto* tensor = std::get_if<Tensor>(persistables_[i]);
    if (tensor && tensor->raw() == bound_data_[i]) continue;
    if (!FitsPersistable(plan_->persistables[i], persistables_[i])) return false;
  }
  return true;
}

void Frame::BindScope(Scope& scope) {
  if (scope_ != &scope || scope_generation_ != scope.Generation()) {
    for (size_t i = 0; i < persistables_.size(); ++i) BindOne(i, scope);
    scope_ = &scope;
    scope_generation_ = scope.Generation();
  }
  for (size_t i = 0; i < persistables_.size(); ++i) {
    const PlanPersistable& p = plan_->persistables[i];
    auto* tensor = std::get_if<Tensor>(persistables_[i]);
    if (!tensor || tensor->raw() == bound_data_[i]) continue;
    if (!FitsPersistable(p, persistables_[i])) BindOne(i, scope);
    if (!(tensor->shape() == p.meta.shape && tensor->dtype() == p.meta.dtype))
      *tensor = MakePersistable(p);
    bound_data_[i] = tensor->raw();
    PointStorage(p.storage, tensor->raw());
  }
}

void Frame::BindOne(size_t i, Scope& scope) {
  const PlanPersistable& p = plan_->persistables[i];
  VarValue* held = const_cast<VarValue*>(scope.Find(p.name));
  bool empty = !held || std::holds_alternative<std::monostate>(*held);
  if (empty && p.read_first) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("the scope has no value for the persistable var {}; run the startup "
                            "program or load the parameters{}",
                            Quote(p.name), DidYouMean(p.name, scope.LocalNames())));
  }
  if (!empty && !FitsPersistable(p, held)) {
    ThrowInvalid(fmt::format("the persistable var {} in the scope {}", Quote(p.name),
                             DescribeMismatch(p.meta, MetaOfValue(*held))));
  }
  if (!held) held = &scope.Var(p.name);
  if (p.meta.type == VarType::kLoDTensor) {
    auto* tensor = std::get_if<Tensor>(held);
    if (!tensor || !(tensor->shape() == p.meta.shape && tensor->dtype() == p.meta.dtype)) {
      *held = MakePersistable(p);
    }
    tensor = std::get_if<Tensor>(held);
    bound_data_[i] = tensor->raw();
    PointStorage(p.storage, tensor->raw());
  } else if (empty) {
    if (p.meta.type == VarType::kSelectedRows) *held = SelectedRows{};
    if (p.meta.type == VarType::kLoDTensorArray) *held = TensorArray{};
  }
  persistables_[i] = held;
}

void Frame::Bind(Scope& scope, std::span<const Tensor> feeds) {
  BindScope(scope);
  feeds_ = feeds;
  for (size_t i = 0; i < feeds.size(); ++i) {
    const void* data = feeds[i].raw();
    if (fed_[i] && data == fed_data_[i]) continue;
    fed_[i] = true;
    fed_data_[i] = data;
    // Kernels only read feeds.
    PointStorage(plan_->values[static_cast<size_t>(plan_->feed_values[i])].storage,
                 const_cast<void*>(data));
  }
  BindSlots();
}

void Frame::BindSlots() {
  for (auto [slot, type] : plan_->new_slots) {
    VarCell* cell = activation_.cell(slot);
    if (!cell->set) MakeEmpty(type, cell);
  }
  for (size_t i = 0; i < plan_->dense_slots.size(); ++i) {
    const int32_t storage = plan_->dense_slots[i];
    const VarCell* cell = activation_.cell(plan_->storages[static_cast<size_t>(storage)].source);
    const auto* tensor = std::get_if<Tensor>(&cell->value);
    const void* data = tensor ? tensor->raw() : nullptr;
    if (data == slot_data_[i]) continue;
    slot_data_[i] = data;
    PointStorage(storage, const_cast<void*>(data));
  }
}

TensorArg Frame::ArgOf(int32_t v) const {
  const PlanValue& value = plan_->values[static_cast<size_t>(v)];
  return {v, value.meta.dtype, value.meta.shape, value.numel, value.meta.type};
}

const LoD* Frame::LodOf(int32_t v) const {
  const int32_t source = plan_->values[static_cast<size_t>(v)].lod_source;
  if (source < 0) return nullptr;
  const PlanValue& value = plan_->values[static_cast<size_t>(source)];
  const Storage& s = plan_->storages[static_cast<size_t>(value.storage)];
  if (s.kind == StorageKind::kFeed) return &feeds_[static_cast<size_t>(s.source)].lod();
  if (s.kind != StorageKind::kSlot) return nullptr;
  const auto* tensor = std::get_if<Tensor>(&activation_.cell(s.source)->value);
  return tensor ? &tensor->lod() : nullptr;
}

VarValue& Frame::ValueOf(const TensorArg& arg) {
  size_t v = static_cast<size_t>(arg.index);
  const PlanValue& value = plan_->values[v];
  const Storage& s = plan_->storages[static_cast<size_t>(value.storage)];
  if (s.kind == StorageKind::kSlot) return activation_.cell(s.source)->value;
  if (s.kind == StorageKind::kPersistable) {
    VarValue& held = *persistables_[static_cast<size_t>(s.source)];
    const auto* tensor = std::get_if<Tensor>(&held);
    // What an op made of it in the same memory (Alias) has a shape of its own.
    if (!tensor || tensor->shape() == value.meta.shape) return held;
  }
  if (value.meta.type == VarType::kLoDTensor) {
    own_values_[v] = Tensor::View(value.meta.dtype, value.meta.shape, pointers_[v]);
    const LoD* lod = LodOf(arg.index);
    if (lod && !lod->empty()) std::get<Tensor>(own_values_[v]).lod() = *lod;
  }
  return own_values_[v];
}

uint64_t Frame::ValueBytes() const {
  uint64_t bytes = 0;
  for (const VarValue& value : own_values_) {
    if (const auto* sparse = std::get_if<SelectedRows>(&value))
      bytes += sparse->rows.capacity() * sizeof(int64_t) + sparse->value.nbytes();
    if (const auto* array = std::get_if<TensorArray>(&value)) bytes += array->capacity();
  }
  return bytes;
}

// --- sub-blocks ---

void Frame::RunBlock(int32_t handle, StepScopes::Step* keep, StepScopes::Step* kept) {
  const SubBlockUse& use = plan_->sub_blocks[static_cast<size_t>(handle)];
  Activation& child = activation_.Child(use);
  for (size_t i = 0; i < use.bindings.size(); ++i) {
    const Binding& binding = use.bindings[i];
    switch (binding.kind) {
      case Binding::Kind::kNone:
        child.BindSlot(binding.slot, nullptr);
        break;
      case Binding::Kind::kGiven:
        activation_.cell(binding.source)->set = true;
        [[fallthrough]];
      case Binding::Kind::kSlot:
        child.BindSlot(binding.slot, activation_.cell(binding.source));
        break;
      case Binding::Kind::kView: {
        VarCell& view = child.View(i);
        view.value = ValueOf(ArgOf(binding.source));
        view.set = true;
        child.BindSlot(binding.slot, &view);
        break;
      }
      case Binding::Kind::kKept: {
        const size_t index = static_cast<size_t>(binding.source);
        child.BindSlot(binding.slot, kept && index < kept->size() ? &(*kept)[index] : nullptr);
        break;
      }
    }
  }
  child.RunInside(activation_.run_number(), step_, use.block, keep);
}

void Frame::CopyInto(int32_t v, VarCell* cell) {
  CopyValue(ValueOf(ArgOf(v)), &cell->value);
  cell->set = true;
}

void Frame::Store(int32_t v, int32_t slot) {
  VarCell* cell = activation_.cell(slot);
  if (v < 0)
    cell->set = false;
  else
    CopyInto(v, cell);
}

void Frame::Keep(int32_t v, size_t index, bool hand_over) {
  StepScopes::Step* step = activation_.keep();
  if (!step) return;
  if (step->size() <= index) step->resize(index + 1);
  VarCell& kept = (*step)[index];
  if (v < 0) {
    kept.set = false;
  } else if (hand_over) {
    const PlanValue& value = plan_->values[static_cast<size_t>(v)];
    VarCell* cell = activation_.cell(plan_->storages[static_cast<size_t>(value.storage)].source);
    std::swap(cell->value, kept.value);
    cell->set = false;
    kept.set = true;
  } else {
    CopyInto(v, &kept);
  }
}

// --- results ---

void Frame::Fetch(int32_t v, bool to_caller, Tensor* out) {
  const PlanValue& value = plan_->values[static_cast<size_t>(v)];
  const Storage& s = plan_->storages[static_cast<size_t>(value.storage)];
  if (value.meta.type != VarType::kLoDTensor) {
    const bool sparse = value.meta.type == VarType::kSelectedRows;
    ThrowInvalid(fmt::format(
        "cannot fetch the var {}, which holds {}{}", Quote(value.name), value.meta.ToString(),
        sparse ? "; fetch the output of get_tensor_from_selected_rows, a dense tensor made of it"
               : ""));
  }
  void* data = pointers_[static_cast<size_t>(v)];
  switch (s.kind) {
    case StorageKind::kFeed:
      *out = feeds_[static_cast<size_t>(s.source)].Reshaped(value.meta.shape);
      return;
    case StorageKind::kPersistable:
      *out = std::get<Tensor>(*persistables_[static_cast<size_t>(s.source)])
                 .Reshaped(value.meta.shape);
      return;
    case StorageKind::kFetched:
      *out = Tensor::View(value.meta.dtype, value.meta.shape, data, fetched_);
      break;
    case StorageKind::kConstant:
      *out = Tensor::View(value.meta.dtype, value.meta.shape, data);
      if (to_caller) *out = out->Clone();
      return;
    case StorageKind::kSlot: {
      const auto* held = std::get_if<Tensor>(&activation_.cell(s.source)->value);
      if (!held) throw InternalError(fmt::format("the var '{}' holds no tensor", value.name));
      *out = to_caller ? held->Clone()
                       : Tensor::View(held->dtype(), held->shape(), const_cast<void*>(held->raw()));
      out->lod() = held->lod();
      return;
    }
    default:
      throw InternalError(fmt::format("the var '{}' was not kept for fetching", value.name));
  }
  if (const LoD* lod = LodOf(v)) out->lod() = *lod;
}

}  // namespace coracle
