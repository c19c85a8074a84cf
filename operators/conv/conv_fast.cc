#include <coracle/operators/conv/conv_direct.h>
#include <coracle/operators/conv/conv_implicit.h>
#include <coracle/operators/conv/conv_onednn.h>
#include <coracle/operators/conv/conv_window.h>
#include <coracle/operators/conv/winograd.h>
#include <coracle/operators/kernels/bfloat16_products.h>

namespace coracle::inline internal {
namespace {

bool HasFast(DType images, DType filter) {
  if (images != filter) return false;
  return images == DType::kFloat32 || (images == DType::kBFloat16 && BFloat16ProductsPay());
}

}  // namespace

Kernel ConvForwardFast(const PrepareContext& ctx, const ConvGeometry& g,
                       const ConvForwardArgs& args) {
  if (!HasFast(args.input.dtype, args.filter.dtype) || g.IsEmpty()) return {};
  const bool floats = args.input.dtype == DType::kFloat32;
  return ctx.Choose(
      {args.input, args.filter, args.bias, args.residual, args.output},
      {{"winograd", [=](const PrepareContext& c,
                        bool by_rule) { return ConvForwardWinograd(c, g, args, by_rule); }},
       {"implicit", [=](const PrepareContext& c,
                        bool by_rule) { return ConvForwardImplicit(c, g, args, by_rule); }},
       {"direct", [=](const PrepareContext& c,
                      bool) { return floats ? ConvForwardDirect(c, g, args) : Kernel(); }},
       {"window",
        [=](const PrepareContext& c, bool by_rule) {
          const bool takes = by_rule ? ConvWindowPays(g, true) : ConvWindowTakes(g);
          return floats && takes ? ConvForwardWindow(c, g, args) : Kernel();
        }},
       {"onednn", [=](const PrepareContext& c, bool) { return ConvForwardOneDnn(c, g, args); }}});
}

Kernel ConvBackwardFast(const PrepareContext& ctx, const ConvGeometry& g,
                        const ConvBackwardArgs& args) {
  if (!HasFast(args.input.dtype, args.filter.dtype) || g.IsEmpty()) return {};
  const bool floats = args.input.dtype == DType::kFloat32;
  return ctx.Choose(
      {args.input, args.filter, args.dout, args.dinput, args.dfilter, args.dbias},
      {{"winograd", [=](const PrepareContext& c,
                        bool by_rule) { return ConvBackwardWinograd(c, g, args, by_rule); }},
       {"window",
        [=](const PrepareContext& c, bool by_rule) {
          const bool takes = by_rule ? ConvWindowPays(g, false) : ConvWindowTakes(g);
          return floats && takes ? ConvBackwardWindow(c, g, args) : Kernel();
        }},
       {"onednn", [=](const PrepareContext& c, bool) { return ConvBackwardOneDnn(c, g, args); }}});
}

}  // namespace coracle::inline internal
