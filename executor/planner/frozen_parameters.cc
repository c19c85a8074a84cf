#include <coracle/executor/planner/frozen_parameters.h>
#include <coracle/passes/freeze.h>

#include <cstring>
#include <utility>

namespace coracle::inline internal {
namespace {

// Moves packed elements into the memory of the plain ones, if that is large enough and no one else
// holds it. Copying costs less than fresh pages, which the system fills with zeros.
Tensor InPlaceOf(Tensor plain, Tensor made) {
  void* place = made.nbytes() <= plain.nbytes() ? PlaceOfFrozen(plain) : nullptr;
  if (!place || made.empty()) return made;
  std::memcpy(place, std::as_const(made).raw(), made.nbytes());
  return Tensor::View(made.dtype(), made.shape(), place, plain.memory().lock());
}

}  // namespace

void FrozenParameters::Add(const std::string& name, Tensor value) {
  const VarMeta meta{VarType::kLoDTensor, value.dtype(), value.shape(), 0};
  parameters_.insert_or_assign(name, Parameter{meta, std::move(value), {}, {}});
}

const VarMeta* FrozenParameters::Find(const std::string& name) const {
  auto it = parameters_.find(name);
  return it == parameters_.end() ? nullptr : &it->second.meta;
}

std::unordered_map<std::string, Tensor> FrozenParameters::PlainElements() const {
  std::unordered_map<std::string, Tensor> elements;
  for (const auto& [name, parameter] : parameters_) elements.emplace(name, parameter.plain);
  return elements;
}

const Tensor& FrozenParameters::Elements(const std::string& name) {
  Parameter& parameter = parameters_.at(name);
  if (parameter.plain.empty()) parameter.plain = parameter.restore();
  return parameter.plain;
}

std::shared_ptr<const Tensor> FrozenParameters::Packed(const std::string& name,
                                                       const PackedLayout& layout) {
  Parameter& parameter = parameters_.at(name);
  std::shared_ptr<const Tensor>& packed = parameter.packed[layout.id];
  if (!packed) {
    const auto made = std::make_shared<Tensor>(layout.pack(Elements(name)));
    if (layout.unpack) {
      if (!parameter.restore)
        parameter.restore = [made, unpack = layout.unpack] { return unpack(*made); };
      *made = InPlaceOf(std::move(parameter.plain), std::move(*made));
    }
    packed = made;
  }
  if (parameter.restore) parameter.plain = Tensor();
  return packed;
}

}  // namespace coracle::inline internal
