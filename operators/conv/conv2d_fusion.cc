// conv2d_fusion: conv2d with an activation, as used in inference programs.

#include <coracle/framework/op/expansion.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/window.h>
#include <coracle/operators/rules/rows.h>

#include <string>
#include <utility>
#include <vector>

namespace coracle::conv2d_fusion_op {

std::vector<int64_t> PartsOf(const InferContext& ctx, int64_t channels) {
  std::vector<int64_t> parts;
  int64_t sum = 0;
  bool fits = true;
  for (int32_t part : ctx.Attr<std::vector<int32_t>>("split_channels")) {
    fits = fits && part > 0;
    sum += part;
    parts.push_back(part);
  }
  fits = fits && (parts.empty() || InferContext::Matches(sum, channels)) &&
         ctx.NumOutputs("Outputs") == parts.size();
  ctx.Require("C11", fits, "split_channels", parts, "channels", channels, "Outputs",
              ctx.NumOutputs("Outputs"));
  return parts;
}

void InferParts(InferContext& ctx, const InferFn& conv) {
  conv(ctx);
  const ImageLayout layout = ImageLayoutOf(ctx.Attr<std::string>("data_format"));
  const VarMeta* out = ctx.DeclaredOutput("Output");
  const std::vector<int64_t> parts = PartsOf(ctx, ctx.InputShape("Filter")[0]);
  if (!out) return;
  VarMeta part = *out;
  for (size_t i = 0; i < parts.size(); ++i) {
    part.shape[layout.channel()] = parts[i];
    ctx.SetOutput("Outputs", part, i);
  }
}

void ExpandConv(ExpandContext& ctx) {
  const auto activation = ctx.Attr<std::string>("activation");
  SlotList inputs = ctx.Inputs({"Input", "Filter", "Bias", "ResidualData"});
  Variable output;
  if (activation == "identity") {
    output = ctx.Into("Output", "conv2d", std::move(inputs), ctx.AttrsOf("conv2d"), "Output");
  } else {
    const Variable sums = ctx.Make("conv2d", std::move(inputs), ctx.AttrsOf("conv2d"), "Output");
    output = ctx.Into("Output", activation, {{"X", {sums.name()}}});
  }
  const auto sizes = ctx.Attr<std::vector<int32_t>>("split_channels");
  if (sizes.empty()) return;
  std::vector<std::string> parts;
  for (size_t i = 0; i < sizes.size(); ++i) parts.push_back(ctx.Out("Outputs", i));
  const int channel = ImageLayoutOf(ctx.Attr<std::string>("data_format")).channel();
  ctx.Append("split", {{"X", {output.name()}}}, {{"Out", std::move(parts)}},
             {{"axis", int32_t{channel}}, {"sections", sizes}});
}

void Register(OpRegistry& ops) {
  // Uses the rule of conv2d, which has the same slots and attrs.
  const OpSpec& conv = ops.Get("conv2d");
  ops.Add(
      OpDef("conv2d_fusion")
          .Doc("Output = act(conv2d of Input, Filter, ResidualData and Bias). With split_channels, "
               "Outputs are the channels of Output, split into parts of these sizes.")
          .ConstraintsOf("conv2d", {"C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9", "C10"})
          .Constraint("C11",
                      "split_channels must be positive, add up to Output's channels, and have one "
                      "number for each of Outputs")
          .Input("Input", "images [N, C, H, W], or [N, H, W, C] for NHWC")
          .Input("Filter", "filters [M, C / groups, kh, kw] in either layout")
          .OptionalInput("Bias", "[M], added to every output channel")
          .OptionalInput("ResidualData", "added to Output; of its shape")
          .OptionalInput("AlgoCache", "not read")
          .Output("Output", "[N, M, H', W'], or [N, H', W', M] for NHWC")
          .OptionalVariadicOutput("Outputs", "parts of Output")
          .AttrsOf("conv2d")
          .Attr<std::string>("activation", "relu", "act")
          .OneOf({"identity", "relu", "relu6", "sigmoid", "tanh"})
          .Attr<std::vector<int32_t>>("split_channels", {}, "channels of each of Outputs")
          .Attr<int32_t>("search_times", -1, "changes nothing")
          .Rows(EachBatchRow, kEachBatchRow)
          .Tables({"Filter", "Bias"})
          .Infer([infer = conv.infer](InferContext& ctx) { InferParts(ctx, infer); })
          .Expands({"conv2d", "relu", "relu6", "sigmoid", "tanh", "split"}, ExpandConv));
}

}  // namespace coracle::conv2d_fusion_op
