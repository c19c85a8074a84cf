#pragma once
// Second-order rules that several losses share, composed of other ops.

#include <coracle/framework/op/op_context.h>
#include <coracle/operators/operators.h>

#include <string>

namespace coracle::inline internal {

// The op to differentiate is dX = dLoss * J, with J of X's shape and dLoss broadcast along `axis`,
// which it may lack. Sets the gradient of dLoss, sum(ddx * J) along the axis; J is computed by the
// same op with a dLoss of ones.
inline void SetLossGradGradient(GradientContext& g, const std::string& loss_grad_slot,
                                const std::string& x_grad_slot, int32_t axis, bool reduce) {
  SlotList inputs = g.op().inputs();
  for (Slot& slot : inputs) {
    if (slot.name == loss_grad_slot) slot.args = {FillLike(g.In(loss_grad_slot), 1).name()};
  }
  const Variable jacobian =
      g.Make(g.op().type(), std::move(inputs), g.ForwardAttrs(g.op().type()), x_grad_slot);
  const Variable product = g.Grad(x_grad_slot) * jacobian;
  const bool keep = g.In(loss_grad_slot).shape().rank() == product.shape().rank();
  g.Set(loss_grad_slot, reduce ? Sum(product, {axis}, keep) : product);
}

}  // namespace coracle::inline internal
