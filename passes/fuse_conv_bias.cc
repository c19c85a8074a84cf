#include <coracle/framework/op/recomputed.h>
#include <coracle/passes/match.h>

namespace coracle {
namespace {

const Pattern& Forward() {
  static const Pattern pattern(R"(
    conv: Output=product = conv2d|depthwise_conv2d|conv3d|conv2d_transpose|
          depthwise_conv2d_transpose|conv3d_transpose(Input=x, Filter=w)
    add:  Out=y          = elementwise_add(X=product, Y=bias))");
  return pattern;
}

const Pattern& Gradient() {
  static const Pattern pattern(R"(
    add_grad:  X@GRAD=dproduct, ... = elementwise_add_grad(Out@GRAD=dy, Y=bias, ...)
    conv_grad: ... = conv2d_grad|depthwise_conv2d_grad|conv3d_grad(
               Input=x, Filter=w, Output@GRAD=dproduct))");
  return pattern;
}

bool IsChannelsLast(const OpDesc& conv) {
  const auto format = conv.GetAttr<std::string>("data_format", "");
  return format == "NHWC" || format == "NDHWC";
}

// The channels of the product: filters are [M, C / groups, ...], transposed [C, M / groups, ...].
int64_t ChannelsOf(const OpDesc& conv, const Shape& filter) {
  if (filter.rank() < 2) return -1;
  if (conv.type().find("transpose") == std::string::npos) return filter[0];
  return filter[1] < 0 ? -1 : filter[1] * conv.GetAttr<int32_t>("groups", 1);
}

// One number for each channel: a shorter one would be broadcast, a longer one would
// broadcast the product.
bool IsChannelBias(const Matcher& matcher, const Match& m) {
  const Shape *bias = matcher.ShapeOf(m["bias"]), *filter = matcher.ShapeOf(m["w"]);
  return bias && filter && bias->rank() == 1 && (*bias)[0] > 0 &&
         (*bias)[0] == ChannelsOf(m.op("conv"), *filter) &&
         m.op("add").GetAttr<int32_t>("axis", -1) == 1 && !IsChannelsLast(m.op("conv"));
}

// As IsChannelBias: the bias was added along the channels, in the layout that the fused op has.
bool IsChannelGradient(const Match& m) {
  return m.op("add_grad").GetAttr<int32_t>("axis", -1) == 1 && !IsChannelsLast(m.op("conv_grad"));
}

void FuseForward(const Match& m, Rewrites& rewrites) {
  OpDesc conv = m.op("conv");
  // A copy that is computed again names the variable that the original of the sum writes.
  if (const Attribute* from = m.op("add").FindAttr(kRecomputedFromAttr))
    conv.SetAttr(kRecomputedFromAttr, *from);
  conv.SetInput("Bias", {m["bias"]});
  conv.SetOutput("Output", {m["y"]});
  rewrites.Replace(m, {conv});
}

void FuseGradient(const Match& m, Rewrites& rewrites) {
  const OpDesc& add_grad = m.op("add_grad");
  OpDesc conv_grad = m.op("conv_grad");
  conv_grad.SetInput("Output@GRAD", {m["dy"]});
  conv_grad.SetInput("Bias", {m["bias"]});
  if (add_grad.HasOutput("Y@GRAD")) conv_grad.SetOutput("Bias@GRAD", add_grad.Output("Y@GRAD"));
  rewrites.Replace(m, {conv_grad});
}

}  // namespace

void FuseConvBias(ProgramDesc& program, const PassContext& context) {
  const Matcher matcher(program.Root(), context);
  Rewrites rewrites(program.Root());
  for (const Match& forward : matcher.FindAll(Forward())) {
    if (!IsChannelBias(matcher, forward)) continue;
    if (!forward.op("conv").GetAttr<std::string>("fuse_activation", "").empty()) continue;
    FuseForward(forward, rewrites);
    const std::optional<Match> gradient = matcher.Find(Gradient(), forward);
    if (gradient && IsChannelGradient(*gradient) &&
        gradient->op("conv_grad").type() == forward.op("conv").type() + "_grad")
      FuseGradient(*gradient, rewrites);
  }
  rewrites.Apply();
}

}  // namespace coracle
