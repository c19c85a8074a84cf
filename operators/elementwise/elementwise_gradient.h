#pragma once
// Shared by the gradient rules of the elementwise family.

#include <coracle/framework/op/op_context.h>

namespace coracle::inline internal {

// The axis attr for pairs of a value of Out's shape and one operand of an op with slots X, Y and
// attr axis.
class ElementwiseAxes {
 public:
  explicit ElementwiseAxes(const GradientContext& g, const std::string& x, const std::string& y);
  explicit ElementwiseAxes(const GradientContext& g)
      : ElementwiseAxes(g, g.Input("X"), g.Input("Y")) {}

  AttrList Original() const { return {{"axis", axis_}}; }
  AttrList OfX() const { return {{"axis", x_small_ ? axis_ : int32_t{-1}}}; }
  AttrList OfY() const { return {{"axis", x_small_ ? int32_t{-1} : axis_}}; }

 private:
  int32_t axis_;
  bool x_small_;
};

// The forward values that elementwise_<op>_grad reads, besides their shapes.
struct ElementwiseReads {
  bool x, y, out;
};
// Appends the op elementwise_<op>_grad. An operand whose elements it does not read is omitted if
// its shape is certainly Out's, so that its memory can be reused.
void AppendElementwiseGrad(GradientContext& g, const ElementwiseReads& reads);

// Sets the gradients of Out = the derivative of X^Y of these orders (elementwise_pow for 0 and 0):
// products with the derivatives of the next higher order.
void SetPowGradient(GradientContext& g, int32_t x_order, int32_t y_order);

}  // namespace coracle::inline internal
