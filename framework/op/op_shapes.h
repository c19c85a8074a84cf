#pragma once
// OpShapes: the shapes and attrs of an op, for OpDef::MultiplyAdds.

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_def.h>

#include <string>
#include <string_view>

namespace coracle::inline internal {

// The number of elements; unknown dims count as 1. Counts are doubles, because the dims of a
// hostile program may have any product.
double Elements(const Shape& shape, int begin, int end);
inline double Elements(const Shape& shape) { return Elements(shape, 0, shape.rank()); }

// An op, or the forward op of a gradient op: the gradient op has the inputs of its forward op, and
// the shape of output `slot` is the shape of its input `slot`@GRAD.
class OpShapes {
 public:
  // `spec` describes the forward op.
  OpShapes(const OpSpec& spec, const OpDesc& op, bool is_gradient)
      : spec_(spec), op_(op), is_gradient_(is_gradient) {}

  // nullptr if the op has no such variable.
  const Shape* In(std::string_view slot, size_t i = 0) const;
  const Shape* Out(std::string_view slot) const;
  size_t NumInputs(std::string_view slot) const { return op_.Input(slot).size(); }
  template <class T>
  T Attr(std::string_view name) const {
    return spec_.AttrOf<T>(op_, name);
  }

 private:
  const Shape* Find(const std::vector<std::string>& names, size_t i) const;

  const OpSpec& spec_;
  const OpDesc& op_;
  bool is_gradient_;
};

}  // namespace coracle::inline internal
