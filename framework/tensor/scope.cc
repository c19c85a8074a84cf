#include <coracle/framework/base/text.h>
#include <coracle/framework/tensor/string_arena.h>
#include <coracle/framework/tensor/tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

namespace coracle {
namespace {

uint64_t NextGeneration() {
  static std::atomic<uint64_t> counter{1};
  return counter++;
}

}  // namespace

Scope::Scope(const Scope* parent) : parent_(parent), generation_(NextGeneration()) {}

Scope::Scope(Scope&& other) noexcept
    : parent_(other.parent_), generation_(NextGeneration()), values_(std::move(other.values_)) {
  other.values_.clear();
  other.generation_ = NextGeneration();
}

Scope& Scope::operator=(Scope&& other) noexcept {
  if (this == &other) return *this;
  parent_ = other.parent_;
  values_ = std::move(other.values_);
  other.values_.clear();
  generation_ = NextGeneration();
  other.generation_ = NextGeneration();
  return *this;
}

bool Scope::Erase(const std::string& name) {
  generation_ = NextGeneration();
  return values_.erase(name) > 0;
}

uint64_t Scope::Generation() const {
  // Numbers only grow, so the maximum over the chain changes whenever one of them does.
  return parent_ ? std::max(generation_, parent_->Generation()) : generation_;
}

VarValue& Scope::Var(const std::string& name) {
  if (const auto found = values_.find(name); found != values_.end()) return *found->second;
  auto value = std::make_unique<VarValue>();  // before the name is there, in case memory runs out
  VarValue& added = *values_.emplace(name, std::move(value)).first->second;
  generation_ = NextGeneration();
  return added;
}

const VarValue* Scope::Find(const std::string& name) const {
  for (const Scope* scope = this; scope; scope = scope->parent_) {
    auto it = scope->values_.find(name);
    if (it != scope->values_.end()) return it->second.get();
  }
  return nullptr;
}

VarValue* Scope::FindLocal(const std::string& name) {
  auto it = values_.find(name);
  return it == values_.end() ? nullptr : it->second.get();
}

const Tensor& Scope::Get(const std::string& name) const {
  const VarValue* value = Find(name);
  if (!value) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("scope has no var {}{}", Quote(name), DidYouMean(name, LocalNames())));
  }
  if (const Tensor* tensor = std::get_if<Tensor>(value)) return *tensor;
  ThrowInvalid(fmt::format("var {} of the scope holds no tensor", Quote(name)));
}

Tensor& Scope::GetMutable(const std::string& name) { return const_cast<Tensor&>(Get(name)); }

std::vector<std::string> Scope::LocalNames() const {
  std::vector<std::string> names;
  names.reserve(values_.size());
  for (const auto& [name, value] : values_) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

Scope Scope::Clone() const {
  Scope copy(parent_);
  for (const auto& [name, value] : values_) copy.Var(name) = CloneValue(*value);
  return copy;
}

VarValue CloneValue(const VarValue& value) {
  VarValue copy;
  CopyValue(value, &copy);
  OwnStrings(copy);
  return copy;
}

}  // namespace coracle
