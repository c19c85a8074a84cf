// Normalisation layers.

#include <coracle/framework/ir/edit_guard.h>
#include <coracle/layers/internal/layer_checks.h>
#include <coracle/layers/internal/layer_defs.h>
#include <coracle/layers/internal/layer_scope.h>

namespace coracle {
namespace {

LayerDef BatchNormLayer() {
  using O = BatchNormOptions;
  return LayerFields<O>("batch_norm",
                        "Normalises each channel over the batch, then scales and shifts it; keeps "
                        "running statistics for evaluation.")
      .Input("input", "tensor [N, C, ...]")
      .Field("momentum", &O::momentum, "share of the old running statistics")
      .Field("epsilon", &O::epsilon, "added to the variance")
      .Param("param", &O::param_attr, "scale; default: 1")
      .Param("bias", &O::bias_attr, "shift; default: 0")
      .Field("moving_mean_name", &O::moving_mean_name, "name of the running mean")
      .Field("moving_variance_name", &O::moving_variance_name, "name of the running variance")
      .Field("data_layout", &O::data_layout, "or NHWC")
      .Field("use_global_stats", &O::use_global_stats, "use the running statistics in training too")
      .Field("is_test", &O::is_test, "use the running statistics")
      .Build(&Builder::BatchNorm);
}

LayerDef LayerNormLayer() {
  using O = LayerNormOptions;
  return LayerFields<O>("layer_norm",
                        "Normalises each sample over its dims from begin_norm_axis on, then scales "
                        "and shifts it.")
      .Input("input", "tensor of rank 2 or more")
      .Field("scale", &O::scale, "whether to scale")
      .Field("shift", &O::shift, "whether to shift")
      .Field("begin_norm_axis", &O::begin_norm_axis, "first dim that is normalised over")
      .Field("epsilon", &O::epsilon, "added to the variance")
      .Param("param", &O::param_attr, "scale; default: 1")
      .Param("bias", &O::bias_attr, "shift; default: 0")
      .Build(&Builder::LayerNorm);
}

LayerDef InstanceNormLayer() {
  using O = InstanceNormOptions;
  return LayerFields<O>("instance_norm",
                        "Normalises each channel of each sample over its other dims, then scales "
                        "and shifts it.")
      .Input("input", "tensor [N, C, ...]")
      .Field("epsilon", &O::epsilon, "added to the variance; at most 0.001")
      .Param("param", &O::param_attr, "scale; default: 1")
      .Param("bias", &O::bias_attr, "shift; default: 0")
      .Build(&Builder::InstanceNorm);
}

// The number of channels, which determines the size of the parameters.
int64_t RequireChannels(const char* layer, const Variable& x, bool channels_last = false) {
  const int rank = x.shape().rank();
  const int axis = channels_last ? rank - 1 : 1;
  if (rank < 2) {
    ThrowInvalid(fmt::format("{}: its input must have 2 dims or more, got {} of shape {}", layer,
                             x.name(), x.shape().ToString()));
  }
  RequireKnown(layer, x, axis, axis + 1);
  return x.shape()[axis];
}

// Statistics and parameters stay float32 for 16-bit data.
DType ParameterDType(const Variable& x) {
  return SizeOf(x.dtype()) < 4 ? DType::kFloat32 : x.dtype();
}

}  // namespace

Variable Builder::BatchNorm(const Variable& x, const BatchNormOptions& options) {
  const EditGuard guard(*main_, *startup_);
  const Shape shape = {RequireChannels("batch_norm", x, options.data_layout == "NHWC")};
  LayerScope layer(*this, "batch_norm", OutputOf(options));
  const DType dtype = ParameterDType(x);
  const std::string w = layer.name() + ".w";
  Variable scale = Parameter(w, shape, dtype, options.param_attr, ConstantInitializer(1));
  Variable bias =
      Parameter(layer.name() + ".b", shape, dtype, options.bias_attr, ConstantInitializer(0));
  Variable mean = Statistic(w, options.moving_mean_name, shape, dtype, ConstantInitializer(0));
  Variable var = Statistic(w, options.moving_variance_name, shape, dtype, ConstantInitializer(1));
  const std::string out = layer.Out(), saved_mean = layer.Temp(), saved_var = layer.Temp();
  Append("batch_norm",
         {{"X", {NameIn(*this, x)}},
          {"Scale", {scale.name()}},
          {"Bias", {bias.name()}},
          {"Mean", {mean.name()}},
          {"Variance", {var.name()}}},
         {{"Y", {out}},
          {"MeanOut", {mean.name()}},
          {"VarianceOut", {var.name()}},
          {"SavedMean", {saved_mean}},
          {"SavedVariance", {saved_var}}},
         {{"momentum", options.momentum},
          {"epsilon", options.epsilon},
          {"is_test", options.is_test},
          {"data_layout", options.data_layout},
          {"use_global_stats", options.use_global_stats}});
  for (const std::string& name : {saved_mean, saved_var}) Var(name).desc().SetStopGradient(true);
  return layer.Finish(out);
}

Variable Builder::LayerNorm(const Variable& x, const LayerNormOptions& options) {
  const EditGuard guard(*main_, *startup_);
  const int begin = options.begin_norm_axis;
  if (begin < 1 || begin >= x.shape().rank()) {
    ThrowInvalid(fmt::format(
        "layer_norm: begin_norm_axis must lie in [1, rank of the input), got {} for {} of shape {}",
        begin, x.name(), x.shape().ToString()));
  }
  LayerScope layer(*this, "layer_norm", OutputOf(options));
  SlotList inputs = {{"X", {NameIn(*this, x)}}};
  if (options.scale || options.shift) RequireKnown("layer_norm", x, begin, x.shape().rank());
  const DType dtype = ParameterDType(x);
  if (options.scale) {
    Variable scale = Parameter(layer.name() + ".w", {ProductFrom(x.shape(), begin)}, dtype,
                               options.param_attr, ConstantInitializer(1));
    inputs.push_back({"Scale", {scale.name()}});
  }
  if (options.shift) {
    Variable shift = Parameter(layer.name() + ".b", {ProductFrom(x.shape(), begin)}, dtype,
                               options.bias_attr, ConstantInitializer(0));
    inputs.push_back({"Bias", {shift.name()}});
  }
  const std::string out = layer.Out(), mean = layer.Temp(), variance = layer.Temp();
  Append("layer_norm", std::move(inputs),
         {{"Y", {out}}, {"Mean", {mean}}, {"Variance", {variance}}},
         {{"begin_norm_axis", int32_t{begin}}, {"epsilon", options.epsilon}});
  for (const std::string& name : {mean, variance}) Var(name).desc().SetStopGradient(true);
  return layer.Finish(out);
}

Variable Builder::InstanceNorm(const Variable& x, const InstanceNormOptions& options) {
  const EditGuard guard(*main_, *startup_);
  const Shape shape = {RequireChannels("instance_norm", x)};
  LayerScope layer(*this, "instance_norm", OutputOf(options));
  const Variable scale = Parameter(layer.name() + ".w", shape, ParameterDType(x),
                                   options.param_attr, ConstantInitializer(1));
  const Variable bias = Parameter(layer.name() + ".b", shape, ParameterDType(x), options.bias_attr,
                                  ConstantInitializer(0));
  const std::string out = layer.Out(), mean = layer.Temp(), variance = layer.Temp();
  Append("instance_norm",
         {{"X", {NameIn(*this, x)}}, {"Scale", {scale.name()}}, {"Bias", {bias.name()}}},
         {{"Y", {out}}, {"SavedMean", {mean}}, {"SavedVariance", {variance}}},
         {{"epsilon", options.epsilon}});
  for (const std::string& name : {mean, variance}) Var(name).desc().SetStopGradient(true);
  return layer.Finish(out);
}

std::vector<LayerDef> internal::NormLayers() {
  return {BatchNormLayer(), LayerNormLayer(), InstanceNormLayer()};
}

}  // namespace coracle
