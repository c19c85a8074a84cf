#include <coracle/executor/internal/frame.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/interpreter.h>
#include <fmt/format.h>

namespace coracle {
namespace {

std::shared_ptr<void> AllocateBytes(uint64_t bytes) {
  if (bytes == 0) return {};
  auto tensor = std::make_shared<Tensor>(DType::kUInt8, Shape{static_cast<int64_t>(bytes)});
  void* data = tensor->raw();
  return {data, [tensor](void*) {}};
}

bool SameTensor(const VarMeta& a, const VarMeta& b) {
  return a.dtype == b.dtype && a.shape == b.shape;
}

bool FitsPersistable(const PlanPersistable& p, const Value* held) {
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

}  // namespace

Frame::Frame(std::shared_ptr<const Plan> plan, uint64_t memory_limit, Frame* parent)
    : plan_(std::move(plan)), parent_(parent), children_(plan_->sub_plans.size()) {
  uint64_t bytes = plan_->FrameBytes();
  if (memory_limit > 0 && bytes > memory_limit) {
    throw Error(ErrorCode::kResourceExhausted,
                fmt::format("a run needs {} for temporaries, more than the memory limit of {}; "
                            "feed smaller batches or "
                            "raise the limit",
                            HumanBytes(bytes), HumanBytes(memory_limit)));
  }
  arena_ = AllocateBytes(plan_->arena_bytes);
  fetched_ = AllocateBytes(plan_->fetch_bytes);
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
  fed_data_.resize(plan_->feed_values.size());
  fed_.resize(plan_->feed_values.size());
  data_ = pointers_.data();
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

// The enclosing frame's addresses may have changed since the last run.
void Frame::BindOuter() {
  for (size_t i = 0; i < plan_->storages.size(); ++i) {
    const Storage& s = plan_->storages[i];
    if (s.kind == StorageKind::kOuter) {
      PointStorage(static_cast<int32_t>(i), parent_->pointers_[static_cast<size_t>(s.source)]);
    }
  }
}

void Frame::RunBlock(int32_t handle) {
  std::unique_ptr<Frame>& child = children_[static_cast<size_t>(handle)];
  if (!child)
    child = std::make_unique<Frame>(plan_->sub_plans[static_cast<size_t>(handle)], 0, this);
  child->BindOuter();
  child->SetRun(seed_, step_);
  for (const PlanStep& s : child->plan_->steps) s.kernel(*child);
}

void Frame::PointStorage(int32_t storage, void* data) {
  for (int32_t value : values_of_[static_cast<size_t>(storage)])
    pointers_[static_cast<size_t>(value)] = data;
}

bool Frame::Fits(const Plan& plan, const Scope& scope) {
  for (const PlanPersistable& p : plan.persistables) {
    const Value* held = scope.Find(p.name);
    if (held && !FitsPersistable(p, held)) return false;
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
      *tensor = Tensor(p.meta.dtype, p.meta.shape);
    bound_data_[i] = tensor->raw();
    PointStorage(p.storage, tensor->raw());
  }
}

void Frame::BindOne(size_t i, Scope& scope) {
  const PlanPersistable& p = plan_->persistables[i];
  Value* held = const_cast<Value*>(scope.Find(p.name));
  bool empty = !held || std::holds_alternative<std::monostate>(*held);
  if (empty && p.read_first) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("the scope has no value for the persistable var {}; run the startup "
                            "program or load the parameters{}",
                            Quote(p.name), DidYouMean(p.name, scope.LocalNames())));
  }
  if (!empty && !FitsPersistable(p, held)) {
    const auto* tensor = std::get_if<Tensor>(held);
    ThrowInvalid(fmt::format("the persistable var {} is {} in the scope, but the program needs {}",
                             Quote(p.name), tensor ? tensor->ToString() : "no dense tensor",
                             p.meta.ToString()));
  }
  if (!held) held = &scope.Var(p.name);
  if (p.meta.type == VarType::kLoDTensor) {
    auto* tensor = std::get_if<Tensor>(held);
    if (!tensor || !(tensor->shape() == p.meta.shape && tensor->dtype() == p.meta.dtype)) {
      *held = Tensor(p.meta.dtype, p.meta.shape);
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

void Frame::BindFeeds(std::span<const Tensor> feeds) {
  for (size_t i = 0; i < feeds.size(); ++i) {
    const void* data = feeds[i].raw();
    if (fed_[i] && data == fed_data_[i]) continue;
    fed_[i] = true;
    fed_data_[i] = data;
    // Kernels only read feeds.
    PointStorage(plan_->values[static_cast<size_t>(plan_->feed_values[i])].storage,
                 const_cast<void*>(data));
  }
}

Value& Frame::ValueOf(const TensorArg& arg) {
  size_t v = static_cast<size_t>(arg.index);
  const PlanValue& value = plan_->values[v];
  const Storage& s = plan_->storages[static_cast<size_t>(value.storage)];
  if (s.kind == StorageKind::kOuter) {
    return parent_->ValueOf(
        {s.source, value.meta.dtype, value.meta.shape, value.numel, value.meta.type});
  }
  if (s.kind == StorageKind::kPersistable) return *persistables_[static_cast<size_t>(s.source)];
  if (value.meta.type == VarType::kLoDTensor) {
    own_values_[v] = Tensor::View(value.meta.dtype, value.meta.shape, pointers_[v]);
  }
  return own_values_[v];
}

uint64_t Frame::ValueBytes() const {
  uint64_t bytes = 0;
  for (const Value& value : own_values_) {
    if (const auto* sparse = std::get_if<SelectedRows>(&value))
      bytes += sparse->rows.capacity() * sizeof(int64_t) + sparse->value.nbytes();
    if (const auto* array = std::get_if<TensorArray>(&value)) {
      for (const Tensor& tensor : *array) bytes += tensor.nbytes();
    }
  }
  return bytes;
}

void Frame::Fetch(int32_t v, std::span<const Tensor> feeds, Tensor* out) {
  const PlanValue& value = plan_->values[static_cast<size_t>(v)];
  const Storage& s = plan_->storages[static_cast<size_t>(value.storage)];
  if (value.meta.type != VarType::kLoDTensor) {
    const bool sparse = value.meta.type == VarType::kSelectedRows;
    ThrowInvalid(fmt::format(
        "cannot fetch the var {}, which holds {}{}", Quote(value.name), value.meta.ToString(),
        sparse ? "; fetch the output of get_tensor_from_selected_rows, a dense tensor made of it"
               : ""));
  }
  switch (s.kind) {
    case StorageKind::kFeed:
      *out = feeds[static_cast<size_t>(s.source)].Reshaped(value.meta.shape);
      return;
    case StorageKind::kPersistable:
      *out = std::get<Tensor>(*persistables_[static_cast<size_t>(s.source)])
                 .Reshaped(value.meta.shape);
      return;
    case StorageKind::kFetched:
      *out = Tensor::View(value.meta.dtype, value.meta.shape, pointers_[static_cast<size_t>(v)],
                          fetched_);
      return;
    case StorageKind::kConstant:
      *out = plan_->constants[static_cast<size_t>(s.source)].Clone().Reshaped(value.meta.shape);
      return;
    default:
      throw InternalError(fmt::format("the var '{}' was not kept for fetching", value.name));
  }
}

}  // namespace coracle
