#include <coracle/executor/frame/scope_binding.h>
#include <coracle/executor/plan/guards.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/mismatch.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/tensor/string_arena.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>

namespace coracle::inline internal {
namespace {

Tensor MakePersistable(const PlanPersistable& persistable) {
  try {
    return Tensor(persistable.meta.dtype, persistable.meta.shape);
  } catch (const OutOfMemory& e) {
    throw e.WithPrefix("the persistable var " + Quote(persistable.name));
  }
}

bool HasType(const Tensor& tensor, const VarMeta& meta) {
  return tensor.shape() == meta.shape && tensor.dtype() == meta.dtype;
}

bool Overlaps(const Tensor& tensor, const void* data, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(tensor.raw());
  const auto other = reinterpret_cast<uintptr_t>(data);
  return begin < other + bytes && other < begin + tensor.nbytes();
}

bool Overlaps(const VarValue& held, const void* data, size_t bytes) {
  if (const auto* tensor = std::get_if<Tensor>(&held)) return Overlaps(*tensor, data, bytes);
  const auto* rows = std::get_if<SelectedRows>(&held);
  return rows && Overlaps(rows->value, data, bytes);
}

bool IsEmpty(const VarValue* held) {
  return !held || std::holds_alternative<std::monostate>(*held);
}

}  // namespace

bool ScopeBinding::StillMatches(const Scope& scope) const {
  if (scope_ != &scope || generation_ != scope.Generation()) return false;
  for (PersistableId id : bound_.ids()) {
    const auto* tensor = std::get_if<Tensor>(bound_[id].held);
    if (tensor && IsBound(id, *tensor)) continue;
    if (!MatchesPersistable(plan_.persistables[id], bound_[id].held)) return false;
  }
  return true;
}

void ScopeBinding::Bind(Scope& scope, ValuePointers* pointers) {
  if (scope_ != &scope || generation_ != scope.Generation()) {
    scope_ = nullptr;  // if a variable cannot be bound, the next run binds all of them again
    for (PersistableId id : bound_.ids()) BindOne(id, scope, pointers);
    FindWritten(scope);
    scope_ = &scope;
    generation_ = scope.Generation();  // BindOne may have added variables
  }
  for (PersistableId id : bound_.ids()) {
    BindAgain(id, scope, pointers);
    // Kernels write through the address, which the tensor cannot notice.
    auto* tensor = std::get_if<Tensor>(bound_[id].held);
    if (!tensor || !plan_.persistables[id].written) continue;
    tensor->MarkWritten();
    // Clears the LoD of an earlier run.
    if (!plan_.persistables[id].read_first) tensor->lod().clear();
  }
}

void ScopeBinding::FindWritten(const Scope& scope) {
  written_.clear();
  for (PersistableId id : bound_.ids())
    if (plan_.persistables[id].written) written_.push_back(bound_[id].held);
  for (const std::string& name : plan_.written_by_blocks)
    if (const VarValue* held = scope.Find(name)) written_.push_back(held);
}

void ScopeBinding::OwnStrings() {
  std::exception_ptr error;
  for (const VarValue* held : written_) {
    auto& value = const_cast<VarValue&>(*held);
    try {
      internal::OwnStrings(value);
    } catch (...) {
      if (!error) error = std::current_exception();
      value = std::monostate();  // its elements would point to bytes that are freed
    }
  }
  if (error) std::rethrow_exception(error);
}

bool ScopeBinding::Writes(const void* data, size_t bytes) const {
  return std::any_of(written_.begin(), written_.end(),
                     [&](const VarValue* held) { return Overlaps(*held, data, bytes); });
}

// The variable may hold another tensor than in the previous run: an assignment changes the tensor's
// memory, but not the scope's generation.
void ScopeBinding::BindAgain(PersistableId id, Scope& scope, ValuePointers* pointers) {
  const auto* tensor = std::get_if<Tensor>(bound_[id].held);
  if (!tensor || IsBound(id, *tensor)) return;
  if (!MatchesPersistable(plan_.persistables[id], bound_[id].held)) BindOne(id, scope, pointers);
  BindTensor(id, pointers);
}

bool ScopeBinding::IsBound(PersistableId id, const Tensor& tensor) const {
  return tensor.raw() == bound_[id].data && HasType(tensor, plan_.persistables[id].meta);
}

void ScopeBinding::Follow(PersistableId id, bool used, ValuePointers* pointers) {
  const PlanPersistable& persistable = plan_.persistables[id];
  const VarValue& held = *bound_[id].held;
  const auto* tensor = std::get_if<Tensor>(&held);
  if (persistable.meta.type != VarType::kLoDTensor || (tensor && IsBound(id, *tensor))) return;
  const bool same = tensor && HasType(*tensor, persistable.meta);
  if (!same && used) {
    ThrowInvalid(fmt::format(
        "the persistable var {} would change from {} to {} while an op runs that uses it",
        Quote(persistable.name), persistable.meta.ToString(), MetaOfValue(held).ToString()));
  }
  bound_[id].data = same ? tensor->raw() : nullptr;
  pointers->Point(persistable.storage, const_cast<void*>(bound_[id].data));
}

VarValue* ScopeBinding::Find(const PlanPersistable& persistable, Scope& scope) const {
  // Variables of a parent scope are written in place too.
  VarValue* held = const_cast<VarValue*>(scope.Find(persistable.name));
  if (IsEmpty(held) && persistable.read_first) {
    throw Error(
        ErrorCode::kNotFound,
        fmt::format("the scope has no value for the persistable var {}; run the startup "
                    "program or load the parameters{}",
                    Quote(persistable.name), DidYouMean(persistable.name, scope.LocalNames())));
  }
  if (!IsEmpty(held) && !MatchesPersistable(persistable, held)) {
    ThrowInvalid(fmt::format("the persistable var {} in the scope {}", Quote(persistable.name),
                             DescribeMismatch(persistable.meta, MetaOfValue(*held))));
  }
  return held ? held : &scope.Var(persistable.name);
}

void ScopeBinding::BindOne(PersistableId id, Scope& scope, ValuePointers* pointers) {
  const PlanPersistable& persistable = plan_.persistables[id];
  VarValue* held = Find(persistable, scope);
  bound_[id].held = held;
  if (persistable.meta.type == VarType::kLoDTensor) {
    BindTensor(id, pointers);
  } else if (IsEmpty(held)) {
    if (persistable.meta.type == VarType::kSelectedRows) *held = SelectedRows{};
    if (persistable.meta.type == VarType::kLoDTensorArray) *held = TensorArray{};
  }
}

// Replaces a tensor of another type, which loses nothing: MatchesPersistable accepts it only if the
// plan writes the variable before reading it.
void ScopeBinding::BindTensor(PersistableId id, ValuePointers* pointers) {
  const PlanPersistable& persistable = plan_.persistables[id];
  VarValue* held = bound_[id].held;
  const auto* tensor = std::get_if<Tensor>(held);
  if (!tensor || !HasType(*tensor, persistable.meta)) {
    *held = MakePersistable(persistable);
    tensor = std::get_if<Tensor>(held);
  }
  bound_[id].data = tensor->raw();
  pointers->Point(persistable.storage, const_cast<void*>(tensor->raw()));
}

}  // namespace coracle::inline internal
