#include <coracle/executor/frame/frame.h>
#include <coracle/executor/frame/step_labels.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/tensor/string_arena.h>
#include <fmt/format.h>

#include <cstring>

namespace coracle::inline internal {
namespace {

void* AddressIn(const std::shared_ptr<void>& memory, const Storage& storage) {
  return storage.bytes ? static_cast<char*>(memory.get()) + storage.offset : nullptr;
}

[[noreturn]] void ThrowNotFetchable(const PlanValue& value) {
  const bool sparse = value.meta.type == VarType::kSelectedRows;
  ThrowInvalid(fmt::format(
      "cannot fetch the var {}, which holds {}{}", Quote(value.name), value.meta.ToString(),
      sparse ? "; fetch the output of get_tensor_from_selected_rows, a dense tensor made of it"
             : ""));
}

void FetchFromCell(const PlanValue& value, const VarValue& cell, bool to_caller, Tensor* out) {
  const auto* held = std::get_if<Tensor>(&cell);
  if (!held) throw InternalError(fmt::format("the var '{}' holds no tensor", value.name));
  *out = to_caller ? held->Clone()
                   : Tensor::View(held->dtype(), held->shape(), const_cast<void*>(held->raw()));
  out->lod() = held->lod();
}

}  // namespace

// --- memory ---

Frame::Frame(std::shared_ptr<const Plan> plan, const Cells& cells, BlockCaller& caller)
    : plan_(std::move(plan)), cells_(cells), caller_(caller), pointers_(*plan_), scope_(*plan_) {
  Allocate();
  for (StorageId storage : plan_->storages.ids())
    pointers_.Point(storage, FixedAddress(plan_->storages[storage]));
  own_values_.resize(plan_->values.size());
  for (ValueId value : plan_->values.ids()) {
    const VarType type = plan_->values[value].meta.type;
    has_strings_ |= plan_->values[value].meta.dtype == DType::kString;
    if (type == VarType::kLoDTensorArray) own_values_[value] = TensorArray{};
    if (type == VarType::kSelectedRows) own_values_[value] = SelectedRows{};
  }
  lods_.resize(plan_->values.size());
  for (ValueId value : plan_->values.ids()) {
    const ConstantId constant = plan_->StorageOf(value).As<ConstantId>();
    if (constant && plan_->values[value].lod_source == value)
      lods_[value] = plan_->constants[constant].lod();
  }
  fed_.resize(plan_->feeds.size());
  cell_data_.resize(plan_->dense_cells.size());
  times_.resize(plan_->steps.size());
  data_ = pointers_.data();
}

Frame::~Frame() {
  try {
    OwnStrings();
  } catch (const std::exception&) {  // a variable whose strings find no memory is empty now
  }
}

void Frame::OwnStrings() {
  if (std::exchange(owns_strings_, true)) return;
  scope_.OwnStrings();
}

void Frame::Allocate() {
  try {
    arena_ = AllocateBytes(plan_->arena_bytes, "memory for temporaries");
    results_ = AllocateBytes(plan_->result_bytes, "memory for what is fetched");
  } catch (const OutOfMemory& e) {
    throw Error(e.code(), fmt::format("{}; {}", e.message(), plan_->DescribeLargestTemporary()));
  }
}

// Returns nullptr if the address is known only during a run.
void* Frame::FixedAddress(const Storage& storage) const {
  if (storage.IsIn<InArena>()) return AddressIn(arena_, storage);
  if (storage.IsIn<InResults>()) return AddressIn(results_, storage);
  if (const ConstantId constant = storage.As<ConstantId>())
    return const_cast<void*>(plan_->constants[constant].raw());  // kernels only read it
  return nullptr;
}

uint64_t Frame::Bytes() const {
  uint64_t bytes = plan_->FrameBytes() + plan_->constant_bytes;
  for (const VarValue& value : own_values_) {
    if (const auto* sparse = std::get_if<SelectedRows>(&value))
      bytes += sparse->rows.capacity() * sizeof(int64_t) + sparse->value.nbytes();
    if (const auto* array = std::get_if<TensorArray>(&value)) bytes += array->capacity();
  }
  return bytes;
}

Trace::LabelId Frame::LabelIn(Trace& trace, StepId step) {
  if (labelled_for_ != trace.id()) {
    labels_ = AddStepLabels(*plan_, trace);
    labelled_for_ = trace.id();
  }
  return labels_[step];
}

// --- before a run ---

void Frame::Begin(Scope& scope, std::span<const Tensor> feeds, const RunNumbers& run) {
  scope_.Bind(scope, &pointers_);
  BindFeeds(feeds);
  BindCells();
  seed_ = run.seed;
  step_ = run.step;
  comm_ = run.comm;
  save_to_ = run.save_to;
  if (!has_strings_) return;
  owns_strings_ = false;
  StringArena::OfRun().MarkUsed();
}

// Whether the run overwrites this memory: a result of the last run, or a variable of the scope that
// is written by the plan or by a block that it runs.
bool Frame::Overwrites(const Tensor& feed) const {
  if (!feed.raw()) return false;
  const auto at = reinterpret_cast<uintptr_t>(feed.raw());
  const auto results = reinterpret_cast<uintptr_t>(results_.get());
  return at - results < plan_->result_bytes || scope_.Writes(feed.raw(), feed.nbytes());
}

void Frame::BindFeeds(std::span<const Tensor> feeds) {
  feeds_ = feeds;
  for (FeedId feed : fed_.ids()) {
    const void* data = feeds[feed.index()].raw();
    Fed& fed = fed_[feed];
    // Ops read the feed until the end of the run.
    fed.copy = Overwrites(feeds[feed.index()]) ? feeds[feed.index()].Clone() : Tensor();
    if (!fed.copy.empty()) data = fed.copy.raw();
    // Training loops feed the same memory repeatedly, and changing the address of a storage costs a
    // pass over its values.
    if (fed.bound && data == fed.data) continue;
    fed.bound = true;
    fed.data = data;
    // Kernels only read feeds.
    pointers_.Point(plan_->values[plan_->feeds[feed]].storage, const_cast<void*>(data));
  }
}

void Frame::BindCells() {
  for (size_t i = 0; i < cell_data_.size(); ++i) {
    const ValueId value = plan_->dense_cells[i];
    const auto* tensor = std::get_if<Tensor>(&InCell(plan_->StorageOf(value).As<CellId>()));
    const void* data = tensor ? tensor->raw() : nullptr;
    if (tensor)
      lods_[value] = tensor->lod();
    else
      lods_[value].clear();
    if (data == cell_data_[i]) continue;
    cell_data_[i] = data;
    pointers_.Point(plan_->values[value].storage, const_cast<void*>(data));
  }
}

// --- values ---

VarValue& Frame::Held(ValueId id) {
  const PlanValue& value = plan_->values[id];
  const Storage& storage = plan_->storages[value.storage];
  if (const CellId cell = storage.As<CellId>()) return cells_[cell]->value;
  if (const PersistableId persistable = storage.As<PersistableId>()) {
    VarValue& held = scope_[persistable];
    const auto* tensor = std::get_if<Tensor>(&held);
    // An alias of the variable (reshape) has the same memory but another shape or LoD, so it needs
    // a view.
    if (!tensor) return held;
    if (InScopeAt(id)) {
      CheckLod(value.name, *tensor);
      return held;
    }
  }
  if (value.IsDense()) {
    own_values_[id] = Tensor::View(value.meta.dtype, value.meta.shape, pointers_[id]);
    std::get<Tensor>(own_values_[id]).lod() = LodAt(id);
  }
  return own_values_[id];
}

const LoD& Frame::LodAt(ValueId id) const {
  static const LoD none;
  const ValueId source = plan_->values[id].lod_source;
  if (!source) return none;
  // An op's output may share the memory of a feed or of a persistable variable.
  const FeedId feed = plan_->StorageOf(source).As<FeedId>();
  if (feed && plan_->feeds[feed] == source) return feeds_[feed.index()].lod();
  if (const Tensor* tensor = InScopeAt(source)) {
    CheckLod(plan_->values[source].name, *tensor);
    return tensor->lod();
  }
  return lods_[source];
}

Tensor* Frame::InScopeAt(ValueId id) const {
  const PersistableId persistable = plan_->StorageOf(id).As<PersistableId>();
  if (!persistable || plan_->persistables[persistable].value != id) return nullptr;
  return std::get_if<Tensor>(&scope_[persistable]);
}

LoD& Frame::OutputLod(const TensorArg& out) {
  const ValueId id = Plan::IdOf(out);
  if (Tensor* tensor = InScopeAt(id)) return tensor->lod();
  return plan_->values[id].lod_source == id ? lods_[id] : std::get<Tensor>(Held(id)).lod();
}

void Frame::Do(const LodPass& action) {
  static const LoD none;
  Tensor* in_scope = InScopeAt(action.to);
  LoD& to = in_scope ? in_scope->lod() : lods_[action.to];
  const LoD& from = action.from ? LodAt(action.from) : none;
  if (&from != &to && from != to) to = from;
}

void Frame::Fetch(ValueId id, bool to_caller, Tensor* out) const {
  const PlanValue& value = plan_->values[id];
  const Storage& storage = plan_->storages[value.storage];
  if (!value.IsDense()) ThrowNotFetchable(value);
  if (const CellId cell = storage.As<CellId>())
    return FetchFromCell(value, InCell(cell), to_caller, out);
  // Reshaped, because an alias may have another shape than the feed or persistable variable.
  if (const FeedId feed = storage.As<FeedId>()) {
    const Tensor& copy = fed_[feed].copy;
    *out = (copy.empty() ? feeds_[feed.index()] : copy).Reshaped(value.meta.shape);
  } else if (const PersistableId persistable = storage.As<PersistableId>()) {
    *out = std::get<Tensor>(scope_[persistable]).Reshaped(value.meta.shape);
  } else if (storage.IsIn<ConstantId>()) {
    *out = Tensor::View(value.meta.dtype, value.meta.shape, pointers_[id]);
    if (to_caller) *out = out->Clone();
  } else if (storage.IsIn<InResults>()) {
    *out = Tensor::View(value.meta.dtype, value.meta.shape, pointers_[id], results_);
  } else {
    throw InternalError(fmt::format("the var '{}' was not kept for fetching", value.name));
  }
  if (to_caller && value.meta.dtype == DType::kString) *out = out->Clone();
  out->lod() = LodAt(id);
}

// --- steps ---

void Frame::Run(const PlanStep& step) {
  std::visit([this](const auto& action) { Do(action); }, step.action);
}

void Frame::Do(const RunKernel& action) {
  action.kernel(*this);
  for (const LodPass& pass : action.lods) Do(pass);
}

void Frame::Do(const CopyElements& action) {
  if (action.bytes > 0) std::memcpy(pointers_[action.to], pointers_[action.from], action.bytes);
  Do(LodPass{action.from, action.to});
}

void Frame::Do(const StoreInCell& action) {
  VarCell& cell = *cells_[action.cell];
  CopyValue(Held(action.value), &cell.value);
  cell.set = true;
}

void Frame::Do(const SaveForGradient& action) {
  if (!save_to_) return;
  if (save_to_->size() <= action.index) save_to_->resize(action.index + 1);
  VarCell& saved = (*save_to_)[action.index];
  saved.set = false;
  if (!action.value) return;
  if (action.move) {  // swapped, so that the cell can reuse the memory of an earlier run
    VarCell& cell = *cells_[plan_->StorageOf(action.value).As<CellId>()];
    std::swap(cell.value, saved.value);
    cell.set = false;
  } else {
    CopyValue(Held(action.value), &saved.value);
  }
  saved.set = true;
}

void Frame::RunBlock(int32_t handle, StepScopes::Step* save_to, StepScopes::Step* saved) {
  const BlockCall& call = plan_->calls[CallId::FromNumber(handle)];
  caller_.Call(call, *this, save_to, saved);
  for (const Rebinding& written : call.rebindings)
    scope_.Follow(written.persistable, written.used, &pointers_);
}

}  // namespace coracle::inline internal
