#include <coracle/operators/update/hyper_parameter.h>

#include <charconv>

namespace coracle {

double HyperParameter(const PrepareContext& ctx, const char* attr) {
  const float value = ctx.Attr<float>(attr);
  if (ctx.Input("Param").dtype != DType::kFloat64) return double{value};
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  double exact = 0;
  std::from_chars(text, end, exact);
  return exact;
}

}  // namespace coracle
