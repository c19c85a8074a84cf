#include <coracle/framework/op/recomputed.h>
#include <coracle/passes/match.h>
#include <coracle/passes/passes.h>
#include <coracle/passes/value_flow.h>

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace coracle::inline internal {
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

// The channels of the product: a filter is [M, C / groups, ...], a transposed one [C, M /
// groups, ...].
int64_t ChannelsOf(const OpDesc& conv, const Shape& filter) {
  if (filter.rank() < 2) return -1;
  if (conv.type().find("transpose") == std::string::npos) return filter[0];
  return filter[1] < 0 ? -1 : filter[1] * conv.GetAttr<int32_t>("groups", 1);
}

// Whether there is one number per channel: a shorter bias would be broadcast, and a longer one
// would broadcast the product.
bool IsChannelBias(const Matcher& matcher, const Match& m) {
  const Shape *bias = matcher.ShapeOf(m["bias"]), *filter = matcher.ShapeOf(m["w"]);
  return bias && filter && bias->rank() == 1 && (*bias)[0] > 0 &&
         (*bias)[0] == ChannelsOf(m.op("conv"), *filter) &&
         m.op("add").GetAttr<int32_t>("axis", -1) == 1 && !IsChannelsLast(m.op("conv"));
}

// A frozen bias [1, M, 1, 1] or [M, 1, 1] of images in NCHW. ONNX models add such biases to the
// results of ConvInteger.
bool IsFrozenImageBias(const Matcher& matcher, const Match& m) {
  const Tensor* bias = matcher.Constant(m["bias"]);
  const Shape* filter = matcher.ShapeOf(m["w"]);
  const OpDesc& conv = m.op("conv");
  if (!bias || !filter || filter->rank() != 4 || IsChannelsLast(conv)) return false;
  const int rank = bias->shape().rank(), at = rank - 3;
  const auto axis = m.op("add").GetAttr<int32_t>("axis", -1);
  return (rank == 3 || rank == 4) && (axis == -1 || axis == 4 - rank) &&
         bias->shape()[at] == bias->numel() && bias->numel() == ChannelsOf(conv, *filter);
}

// The bias as a vector.
std::string VectorOf(const Match& m, ProgramDesc& program, const PassContext& context) {
  const Tensor* bias = context.FrozenValue(m["bias"]);
  if (!bias || bias->shape().rank() == 1) return m["bias"];
  return context.AddFrozenForm(program, m["bias"], "@VECTOR",
                               bias->Reshaped({bias->numel()}).Clone());
}

// Like IsChannelBias: whether the bias was added along the channels, in the layout of the fused op.
bool IsChannelGradient(const Match& m) {
  return m.op("add_grad").GetAttr<int32_t>("axis", -1) == 1 && !IsChannelsLast(m.op("conv_grad"));
}

void FuseForward(const Match& m, const std::string& bias, Rewrites& rewrites) {
  OpDesc conv = m.op("conv");
  // A recomputed convolution now names the variable that the original sum writes.
  if (const Attribute* from = m.op("add").FindAttr(kRecomputedFromAttr))
    conv.SetAttr(kRecomputedFromAttr, *from);
  conv.SetInput("Bias", {bias});
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

bool IsGradientOfConv(const OpDesc& op) {
  return op.type() == "conv2d_grad" || op.type() == "depthwise_conv2d_grad" ||
         op.type() == "conv3d_grad";
}

// In mixed precision, only a cast of the bias's gradient separates `add_grad` from the gradient
// op of the convolution. Returns that gradient op and that cast, if the cast may run after the
// op instead.
std::pair<const OpDesc*, const OpDesc*> CastBefore(BlockDesc& block, const OpDesc& add_grad,
                                                   const PassContext& context) {
  const std::string made = OnlyVariable(add_grad.Output("Y@GRAD"));
  const std::string product = OnlyVariable(add_grad.Output("X@GRAD"));
  if (made.empty() || product.empty() || context.IsVisible(block, made)) return {};
  const auto casts = block.Uses(made).readers, convs = block.Uses(product).readers;
  if (casts.size() != 1 || casts[0]->type() != "cast" || block.Uses(made).writers.size() != 1)
    return {};
  if (convs.size() != 1 || !IsGradientOfConv(*convs[0])) return {};
  const std::string& cast = casts[0]->Output("Out")[0];
  const size_t from = block.IndexOf(*casts[0]), to = block.IndexOf(*convs[0]);
  if (from >= to || context.captured.count(cast)) return {};
  const auto uses = block.Uses(cast);
  const auto between = [&](const OpDesc* op) {
    return op != casts[0] && block.IndexOf(*op) >= from && block.IndexOf(*op) <= to;
  };
  if (std::any_of(uses.readers.begin(), uses.readers.end(), between) ||
      std::any_of(uses.writers.begin(), uses.writers.end(), between))
    return {};
  return {convs[0], casts[0]};
}

void MoveCastsBack(BlockDesc& block, const PassContext& context) {
  std::unordered_map<const OpDesc*, const OpDesc*> moved;  // casts, by the op that they will follow
  std::unordered_set<const OpDesc*> casts;
  block.ForEachOp([&](const OpDesc& op) {
    if (op.type() != "elementwise_add_grad") return;
    const auto [conv, cast] = CastBefore(block, op, context);
    if (conv && moved.emplace(conv, cast).second) casts.insert(cast);
  });
  if (casts.empty()) return;
  std::vector<std::unique_ptr<OpDesc>> ops = block.ReleaseOps(), ordered;
  std::unordered_map<const OpDesc*, std::unique_ptr<OpDesc>> waiting;
  for (std::unique_ptr<OpDesc>& op : ops) {
    if (casts.count(op.get())) {
      const OpDesc* key = op.get();
      waiting.emplace(key, std::move(op));
      continue;
    }
    const auto cast = moved.find(op.get());
    ordered.push_back(std::move(op));
    if (cast != moved.end()) ordered.push_back(std::move(waiting.at(cast->second)));
  }
  block.SetOps(std::move(ordered));
}

}  // namespace

void FuseConvBias(ProgramDesc& program, const PassContext& context) {
  MoveCastsBack(program.Root(), context);
  const Matcher matcher(program.Root(), context);
  Rewrites rewrites(program.Root());
  for (const Match& forward : matcher.FindAll(Forward())) {
    if (!IsChannelBias(matcher, forward) && !IsFrozenImageBias(matcher, forward)) continue;
    if (!forward.op("conv").GetAttr<std::string>("fuse_activation", "").empty()) continue;
    FuseForward(forward, VectorOf(forward, program, context), rewrites);
    const std::optional<Match> gradient = matcher.Find(Gradient(), forward);
    if (gradient && IsChannelBias(matcher, forward) && IsChannelGradient(*gradient) &&
        gradient->op("conv_grad").type() == forward.op("conv").type() + "_grad")
      FuseGradient(*gradient, rewrites);
  }
  rewrites.Apply();
}

}  // namespace coracle::inline internal
