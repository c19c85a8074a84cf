// Attention with its projections.

#include <coracle/framework/ir/edit_guard.h>
#include <coracle/layers/internal/layer_checks.h>
#include <coracle/layers/internal/layer_defs.h>
#include <coracle/layers/internal/layer_scope.h>
#include <fmt/format.h>

#include <cmath>

namespace coracle {
namespace {

const LayerFields<AttentionOptions>& AttentionLayer() {
  using O = AttentionOptions;
  static const auto layer =
      LayerFields<O>(
          "attention",
          "Attention of several heads: queries from the input, keys and values from the "
          "memory, each projected to `size` columns, which the heads share; the results of "
          "the heads are concatenated and projected again.")
          .Input("input", "tensor [batch, time, features]")
          .OptionalInput("memory", "tensor [batch, steps, features]; default: the input")
          .OptionalInput("mask",
                         "tensor that fits [batch, num_heads, time, steps], added to the "
                         "scores")
          .Field("size", &O::size, "columns of all heads, and of the result", kRequired,
                 PositiveRange())
          .Field("num_heads", &O::num_heads, "divides size", PositiveRange())
          .Field("causal", &O::causal,
                 "each step sees the steps of the memory up to its own; if the memory is longer, "
                 "the input is its end")
          .Field("dropout_prob", &O::dropout_prob,
                 "probability that a weight is dropped while training")
          .Field("is_test", &O::is_test, "drop nothing")
          .Param("param", &O::param_attr,
                 "weights; default: Xavier uniform. A name gets the suffixes _q, _k, _v and _out")
          .Bias("bias", &O::bias_attr, "biases; default: 0. Names as for the weights")
          .BiasTerm();
  return layer;
}

void Check(const Variable& x, const char* what, const AttentionOptions& options) {
  AttentionLayer().Check(options);
  if (options.size % options.num_heads != 0) {
    ThrowInvalid(fmt::format("attention: num_heads must divide size, got {} and {}",
                             options.num_heads, options.size));
  }
  if (x.shape().rank() != 3) {
    ThrowInvalid(fmt::format("attention: its {} must have 3 dims, got {} of shape {}", what,
                             x.name(), x.shape().ToString()));
  }
}

ParamAttr Named(ParamAttr attr, const char* part) {
  if (!attr.name.empty()) attr.name += fmt::format("_{}", part);
  return attr;
}

}  // namespace

Variable Builder::Attention(const Variable& x, const AttentionOptions& options) {
  const EditGuard guard(*main_, *startup_);
  const Variable& memory = options.memory ? options.memory : x;
  Check(x, "input", options);
  Check(memory, "memory", options);
  LayerScope layer(*this, "attention", {.name = options.name, .output = options.output});
  const auto project = [&](const char* part) {
    FcOptions fc{.size = options.size,
                 .num_flatten_dims = 2,
                 .param_attr = Named(options.param_attr, part),
                 .name = fmt::format("{}.{}", layer.name(), part)};
    fc.bias_attr = options.bias_attr;
    if (fc.bias_attr) fc.bias_attr = Named(*fc.bias_attr, part);
    return fc;
  };
  const int32_t columns = options.size / options.num_heads;
  const auto heads = [&](const Variable& from, const char* part) {
    return Reshape(Fc(from, project(part)), {0, 0, options.num_heads, columns}).name();
  };
  const std::string q = heads(x, "q"), k = heads(memory, "k"), v = heads(memory, "v");
  SlotList inputs = {{"Q", {q}}, {"K", {k}}, {"V", {v}}};
  if (options.mask) inputs.push_back({"Mask", {NameIn(*this, options.mask)}});
  const std::string seen = layer.Temp(), stats = layer.Temp(), weights = layer.Temp();
  const std::string seed = layer.Temp();
  Append(
      "scaled_dot_product_attention", std::move(inputs),
      {{"Out", {seen}}, {"SoftmaxStats", {stats}}, {"Weights", {weights}}, {"SeedOffset", {seed}}},
      {{"scale", 1 / std::sqrt(static_cast<float>(columns))},
       {"is_causal", options.causal},
       {"dropout_prob", options.dropout_prob},
       {"is_test", options.is_test},
       {"layout", std::string("BSHD")}});
  for (const std::string& name : {stats, weights, seed}) Var(name).desc().SetStopGradient(true);
  FcOptions out = project("out");
  out.act = options.act;
  out.output = options.output;
  out.error_clip = options.error_clip;
  out.stop_gradient = options.stop_gradient;
  return Fc(Reshape(Var(seen), {0, 0, options.size}), out);
}

std::vector<LayerDef> internal::AttentionLayers() {
  return {AttentionLayer().Build([](Builder& net, const LayerArgs& args, AttentionOptions options) {
    if (args.HasVar("memory")) options.memory = args.Var("memory");
    if (args.HasVar("mask")) options.mask = args.Var("mask");
    return std::vector<Variable>{net.Attention(args.Var("input"), options)};
  })};
}

}  // namespace coracle
