#include <coracle/operators/common/conv_direct.h>
#include <coracle/operators/common/conv_onednn.h>

namespace coracle {

Kernel ConvForwardFast(const PrepareContext& ctx, const ConvGeometry& g,
                       const ConvForwardArgs& args) {
  if (args.input.dtype != DType::kFloat32) return {};
  if (g.InputNumel() == 0 || g.OutputNumel() == 0 || g.FilterNumel() == 0) return {};
  if (Kernel direct = ConvForwardDirect(ctx, g, args)) return direct;
  return ConvForwardOneDnn(ctx, g, args);
}

Kernel ConvBackwardFast(const PrepareContext& ctx, const ConvGeometry& g,
                        const ConvBackwardArgs& args) {
  if (args.input.dtype != DType::kFloat32) return {};
  if (g.InputNumel() == 0 || g.OutputNumel() == 0 || g.FilterNumel() == 0) return {};
  if (Kernel direct = ConvBackwardDirect(ctx, g, args)) return direct;
  return ConvBackwardOneDnn(ctx, g, args);
}

}  // namespace coracle
