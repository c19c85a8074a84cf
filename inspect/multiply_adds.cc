#include <coracle/framework/base/error.h>
#include <coracle/inspect/multiply_adds.h>
#include <coracle/operators/operators.h>

namespace coracle::inline internal {
namespace {

// The forward op's declaration, if `type` computes its gradient.
const OpSpec* ForwardOf(std::string_view type) {
  for (const std::string_view suffix : {"_grad", "_gradients"}) {
    if (type.ends_with(suffix))
      return DefaultOps().Find(type.substr(0, type.size() - suffix.size()));
  }
  return nullptr;
}

// The number of gradients of factors of the forward op's products. For a recurrent op, the gradient
// of the input represents the gradients of all factors of the weights.
double Gradients(const OpSpec& forward, const OpDesc& op) {
  double count = 0;
  for (const std::string& slot : forward.factor_slots)
    count += op.HasOutput(slot + "@GRAD") ? 1 : 0;
  return count;
}

}  // namespace

double MultiplyAdds(const OpDesc& op) {
  const OpSpec* spec = DefaultOps().Find(op.type());
  const OpSpec* forward = ForwardOf(op.type());
  try {
    if (spec && spec->multiply_adds) return spec->multiply_adds(OpShapes(*spec, op, false));
    if (forward && forward->multiply_adds)
      return forward->multiply_adds(OpShapes(*forward, op, true)) * Gradients(*forward, op);
  } catch (const Error&) {  // an attr of another type, in a program that was not verified
  }
  return 0;
}

}  // namespace coracle::inline internal
