#include <coracle/operators/kernels/decimal.h>
#include <coracle/operators/update/hyper_parameter.h>

namespace coracle::inline internal {

double HyperParameter(const PrepareContext& ctx, const char* attr) {
  const float value = ctx.Attr<float>(attr);
  return ctx.Input("Param").dtype == DType::kFloat64 ? DecimalOf(value) : double{value};
}

}  // namespace coracle::inline internal
