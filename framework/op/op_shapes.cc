#include <coracle/framework/op/op_shapes.h>

namespace coracle::inline internal {

double Elements(const Shape& shape, int begin, int end) {
  double product = 1;
  for (int i = begin; i < end; ++i) product *= static_cast<double>(shape[i] < 0 ? 1 : shape[i]);
  return product;
}

const Shape* OpShapes::Find(const std::vector<std::string>& names, size_t i) const {
  const VarDesc* var = i < names.size() ? op_.block()->FindVarRecursive(names[i]) : nullptr;
  return var ? &var->shape() : nullptr;
}

const Shape* OpShapes::In(std::string_view slot, size_t i) const {
  return Find(op_.Input(slot), i);
}

const Shape* OpShapes::Out(std::string_view slot) const {
  return is_gradient_ ? Find(op_.Input(std::string(slot) + "@GRAD"), 0) : Find(op_.Output(slot), 0);
}

}  // namespace coracle::inline internal
