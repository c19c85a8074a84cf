#include <coracle/operators/conv/conv_direct.h>
#include <coracle/operators/conv/conv_onednn.h>
#include <coracle/operators/conv/conv_window.h>
#include <coracle/operators/conv/winograd.h>
#include <coracle/operators/kernels/bfloat16_products.h>

namespace coracle {
namespace {

bool IsEmpty(const ConvGeometry& g) {
  return g.InputNumel() == 0 || g.OutputNumel() == 0 || g.FilterNumel() == 0;
}

bool HasFast(DType images, DType filter) {
  if (images != filter) return false;
  return images == DType::kFloat32 || (images == DType::kBFloat16 && BFloat16ProductsPay());
}

}  // namespace

Kernel ConvForwardFast(const PrepareContext& ctx, const ConvGeometry& g,
                       const ConvForwardArgs& args) {
  if (Kernel fewer = ConvForwardWinograd(ctx, g, args)) return fewer;
  if (!HasFast(args.input.dtype, args.filter.dtype) || IsEmpty(g)) return {};
  if (args.input.dtype == DType::kFloat32) {
    if (Kernel direct = ConvForwardDirect(ctx, g, args)) return direct;
    if (ConvWindowPays(g, true)) return ConvForwardWindow(ctx, g, args);
  }
  return ConvForwardOneDnn(ctx, g, args);
}

Kernel ConvBackwardFast(const PrepareContext& ctx, const ConvGeometry& g,
                        const ConvBackwardArgs& args) {
  if (Kernel fewer = ConvBackwardWinograd(ctx, g, args)) return fewer;
  if (!HasFast(args.input.dtype, args.filter.dtype) || IsEmpty(g)) return {};
  if (args.input.dtype == DType::kFloat32 && ConvWindowPays(g, false))
    return ConvBackwardWindow(ctx, g, args);
  return ConvBackwardOneDnn(ctx, g, args);
}

}  // namespace coracle
