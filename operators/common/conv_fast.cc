#include <coracle/operators/common/conv_onednn.h>

namespace coracle {

Kernel ConvForwardFast(const PrepareContext& ctx, const ConvGeometry& g,
                       const ConvForwardArgs& args) {
  if (args.input.dtype != DType::kFloat32) return {};
  if (g.InputNumel() == 0 || g.OutputNumel() == 0 || g.FilterNumel() == 0) return {};
  return ConvForwardOneDnn(ctx, g, args);
}

Kernel ConvBackwardFast(const PrepareContext& ctx, const ConvGeometry& g,
                        const ConvBackwardArgs& args) {
  if (args.input.dtype != DType::kFloat32) return {};
  if (g.InputNumel() == 0 || g.OutputNumel() == 0 || g.FilterNumel() == 0) return {};
  return ConvBackwardOneDnn(ctx, g, args);
}

}  // namespace coracle
