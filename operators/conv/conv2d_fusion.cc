// conv2d_fusion: conv2d with an activation, as used in inference programs.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/activation/activation_formulas.h>
#include <coracle/operators/kernels/window.h>

#include <algorithm>
#include <cmath>
#include <string>
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

template <class T>
void Activate(const std::string& name, T* x, int64_t n) {
  ParallelFor(n, 16384, [&](int64_t begin, int64_t end) {
    if (name == "relu") {
      for (int64_t k = begin; k < end; ++k) x[k] = x[k] < 0 ? T(0) : x[k];
    } else if (name == "relu6") {
      for (int64_t k = begin; k < end; ++k) x[k] = x[k] < 0 ? T(0) : x[k] > 6 ? T(6) : x[k];
    } else if (name == "sigmoid") {
      for (int64_t k = begin; k < end; ++k) x[k] = activation::SigmoidOf(x[k]);
    } else if (name == "tanh") {
      for (int64_t k = begin; k < end; ++k) x[k] = std::tanh(x[k]);
    }
  });
}

// Runs after the convolution.
template <class T>
Kernel Finish(const PrepareContext& ctx, Kernel conv) {
  const TensorArg out = ctx.Output("Output");
  const std::vector<TensorArg> parts = ctx.Outputs("Outputs");
  const auto sizes = ctx.Attr<std::vector<int32_t>>("split_channels");
  const std::string activation = ctx.Attr<std::string>("activation");
  const int channel = ImageLayoutOf(ctx.Attr<std::string>("data_format")).channel();
  const int64_t outer = out.shape.Product(0, channel);
  const int64_t inner = out.shape.Product(channel + 1, 4), channels = out.shape[channel];
  return [=](Workspace& ws) {
    conv(ws);
    T* o = ws.Data<T>(out);
    Activate(activation, o, out.numel);
    int64_t first = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      const int64_t own = sizes[i] * inner;
      for (int64_t n = 0; parts[i] && own > 0 && n < outer; ++n)
        std::copy_n(o + n * channels * inner + first, own, ws.Data<T>(parts[i]) + n * own);
      first += own;
    }
  };
}

void Register(OpRegistry& ops) {
  // Uses the rule and the kernels of conv2d, which has the same slots and attrs.
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
          .NoGradient("it is made for inference; train with conv2d and an activation")
          .Infer([infer = conv.infer](InferContext& ctx) { InferParts(ctx, infer); })
          .Reference<float, double>([prepare = conv.reference]<class T>(const PrepareContext& ctx) {
            return Finish<T>(ctx, prepare(ctx));
          })
          .Fast([prepare = conv.fast](const PrepareContext& ctx) -> Kernel {
            if (ctx.Input("Input").dtype != DType::kFloat32) return {};
            Kernel kernel = prepare(ctx);
            return kernel ? Finish<float>(ctx, std::move(kernel)) : Kernel();
          }));
}

}  // namespace coracle::conv2d_fusion_op
