#pragma once
// Second-order rules that several losses share, composed of other ops.

#include <coracle/framework/op/op_context.h>
#include <coracle/operators/operators.h>

#include <string>

namespace coracle::inline internal {

// The op to differentiate is dX = dLoss * J. J has X's shape; dLoss is broadcast along `axis`,
// which it may lack. Sets the gradient of dLoss, which is ddx * J summed along the axis. The same
// op computes J, from a dLoss of ones.
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
