#include <coracle/operators/common/conv_onednn.h>
#include <coracle/operators/common/conv_window.h>

namespace coracle {
namespace {

bool IsEmpty(const ConvGeometry& g) {
  return g.InputNumel() == 0 || g.OutputNumel() == 0 || g.FilterNumel() == 0;
}

}  // namespace

Kernel ConvForwardFast(const PrepareContext& ctx, const ConvGeometry& g,
                       const ConvForwardArgs& args) {
  if (args.input.dtype != DType::kFloat32 || IsEmpty(g)) return {};
  if (ConvWindowPays(g, true)) return ConvForwardWindow(ctx, g, args);
  return ConvForwardOneDnn(ctx, g, args);
}

Kernel ConvBackwardFast(const PrepareContext& ctx, const ConvGeometry& g,
                        const ConvBackwardArgs& args) {
  if (args.input.dtype != DType::kFloat32 || IsEmpty(g)) return {};
  if (ConvWindowPays(g, false)) return ConvBackwardWindow(ctx, g, args);
  return ConvBackwardOneDnn(ctx, g, args);
}

}  // namespace coracle
