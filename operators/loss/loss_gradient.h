#pragma once
// Second-order rules that several losses share, composed of other ops.

#include <coracle/framework/op/gradient_context.h>

#include <string>

namespace coracle {

// The op under differentiation is dX = dLoss * J, with J of X's shape and dLoss broadcast along
// `axis`. Gives the gradient of dLoss, sum(ddx * J) along the axis, where J comes from the same op
// with a dLoss of ones.
inline void AppendLossGradGradient(GradientContext& g, const std::string& loss_grad_slot,
                                   const std::string& x_grad_slot, int32_t axis, bool reduce) {
  if (!g.NeedsInputGrad(loss_grad_slot)) return;
  const std::string ddx = g.OutputGrad(x_grad_slot);
  const std::string loss_grad = g.Input(loss_grad_slot);
  const std::string ones = g.Temp(loss_grad + "@ONES"), jacobian = g.Temp(loss_grad + "@JACOBIAN");
  g.Append("fill_any_like", {{"X", {loss_grad}}}, {{"Out", {ones}}}, {{"value", 1.0f}});
  SlotList inputs = g.op().inputs();
  for (Slot& slot : inputs) {
    if (slot.name == loss_grad_slot) slot.args = {ones};
  }
  AttrList attrs;
  for (const NamedAttr& attr : g.op().attrs()) {
    if (attr.name.rfind("op_", 0) != 0) attrs.push_back(attr);
  }
  g.Append(g.op().type(), inputs, {{x_grad_slot, {jacobian}}}, attrs);
  const std::string target = g.InputGrad(loss_grad_slot);
  const std::string product = reduce ? g.Temp(loss_grad + "@TERM") : target;
  g.Append("elementwise_mul", {{"X", {ddx}}, {"Y", {jacobian}}}, {{"Out", {product}}});
  if (!reduce) return;
  g.Append("reduce_sum", {{"X", {product}}}, {{"Out", {target}}},
           {{"dim", std::vector<int32_t>{axis}}, {"keep_dim", true}});
}

}  // namespace coracle
