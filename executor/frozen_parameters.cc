#include <coracle/executor/frozen_parameters.h>

namespace coracle {

void FrozenParameters::Add(const std::string& name, Tensor value) {
  const VarMeta meta{VarType::kLoDTensor, value.dtype(), value.shape(), 0};
  parameters_.insert_or_assign(name, Parameter{meta, std::move(value), {}, {}});
}

const VarMeta* FrozenParameters::Find(const std::string& name) const {
  auto it = parameters_.find(name);
  return it == parameters_.end() ? nullptr : &it->second.meta;
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
    packed = std::make_shared<const Tensor>(layout.pack(Elements(name)));
    if (layout.unpack && !parameter.restore)
      parameter.restore = [packed, unpack = layout.unpack] { return unpack(*packed); };
  }
  if (parameter.restore) parameter.plain = Tensor();
  return packed;
}

}  // namespace coracle
