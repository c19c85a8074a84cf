// Layers with parameters, pooling and dropout.

#include <coracle/layers/builder.h>
#include <coracle/layers/internal/layer_scope.h>
#include <fmt/format.h>

#include <cmath>

namespace coracle {
namespace {

// Dims of x that size a parameter must be known while the network is built.
void RequireKnown(const char* layer, const Variable& x, int begin, int end) {
  for (int axis = begin; axis < end; ++axis) {
    if (x.shape()[axis] >= 0) continue;
    ThrowInvalid(fmt::format(
        "{}: dim {} of its input must be known to size the parameters, got {} of shape {}", layer,
        axis, x.name(), x.shape().ToString()));
  }
}

int64_t ProductFrom(const Shape& shape, int begin) {
  Shape rest;
  for (int axis = begin; axis < shape.rank(); ++axis) rest.Append(shape[axis]);
  return rest.numel();
}

void RequirePositive(const char* layer, const char* field, int64_t value) {
  if (value <= 0) ThrowInvalid(fmt::format("{}: {} must be positive, got {}", layer, field, value));
}

void RequireRank4(const char* layer, const Variable& x) {
  if (x.shape().rank() == 4) return;
  ThrowInvalid(fmt::format("{}: its input must have 4 dims (NCHW), got {} of shape {}", layer,
                           x.name(), x.shape().ToString()));
}

ParamAttr OfInput(const ParamAttr& attr, size_t k) {
  ParamAttr own = attr;
  if (k > 0 && !own.name.empty()) own.name += fmt::format("_{}", k);
  return own;
}

}  // namespace

Variable Builder::Fc(const Variable& x, const FcOptions& options) {
  return Fc(std::vector<Variable>{x}, options);
}

Variable Builder::Fc(const std::vector<Variable>& x, const FcOptions& options) {
  RequirePositive("fc", "size", options.size);
  if (x.empty()) ThrowInvalid("fc: at least one input is required");
  std::vector<int> rows;
  for (const Variable& input : x) {
    const int rank = input.shape().rank();
    rows.push_back(options.num_flatten_dims == -1 ? rank - 1 : options.num_flatten_dims);
    if (rows.back() < 1 || rows.back() >= rank) {
      ThrowInvalid(fmt::format(
          "fc: num_flatten_dims must lie in [1, rank of the input), got {} for {} of shape {}",
          options.num_flatten_dims, input.name(), input.shape().ToString()));
    }
    RequireKnown("fc", input, rows.back(), rank);
  }
  LayerScope layer(*this, "fc", OutputOf(options));
  const bool bias = options.bias_attr.has_value();
  std::vector<std::string> products;
  for (size_t k = 0; k < x.size(); ++k) {
    Variable w = Parameter(layer.name() + ".w", {ProductFrom(x[k].shape(), rows[k]), options.size},
                           x[k].dtype(), OfInput(options.param_attr, k));
    products.push_back(x.size() > 1 ? layer.Temp() : layer.Out(bias));
    Append("mul", {{"X", {x[k].name()}}, {"Y", {w.name()}}}, {{"Out", {products.back()}}},
           {{"x_num_col_dims", int32_t{rows[k]}}, {"y_num_col_dims", int32_t{1}}});
  }
  std::string out = products.front();
  if (x.size() > 1) {
    out = layer.Out(bias);
    Append("sum", {{"X", products}}, {{"Out", {out}}});
  }
  return layer.Finish(layer.AddBias(out, options.bias_attr, rows.front()));
}

Variable Builder::Conv2d(const Variable& x, const Conv2dOptions& options) {
  RequireRank4("conv2d", x);
  RequireKnown("conv2d", x, 1, 2);
  RequirePositive("conv2d", "num_filters", options.num_filters);
  RequirePositive("conv2d", "groups", options.groups);
  RequirePositive("conv2d", "filter_size", options.filter_size.height);
  RequirePositive("conv2d", "filter_size", options.filter_size.width);
  const int64_t channels = x.shape()[1];
  const int64_t groups = options.groups;
  if (channels % groups != 0) {
    ThrowInvalid(fmt::format("conv2d: groups must divide the {} channels of {}, got {}", channels,
                             x.name(), groups));
  }
  const bool depthwise = groups > 1 && groups == channels && options.num_filters % channels == 0;
  const char* type = depthwise ? "depthwise_conv2d" : "conv2d";
  LayerScope layer(*this, type, OutputOf(options));
  const auto [kh, kw] = options.filter_size;
  const double elements = static_cast<double>(kh) * kw * static_cast<double>(channels);
  Variable w = Parameter(
      layer.name() + ".w",
      {int64_t{options.num_filters}, channels / groups, int64_t{kh}, int64_t{kw}}, x.dtype(),
      options.param_attr, NormalInitializer(0, elements > 0 ? std::sqrt(2 / elements) : 0));
  const std::string out = layer.Out(options.bias_attr.has_value());
  Append(type, {{"Input", {x.name()}}, {"Filter", {w.name()}}}, {{"Output", {out}}},
         {{"strides", options.stride.ToVector()},
          {"paddings", options.padding.values},
          {"padding_algorithm", options.padding.algorithm},
          {"dilations", options.dilation.ToVector()},
          {"groups", options.groups},
          {"data_format", std::string("NCHW")}});
  return layer.Finish(layer.AddBias(out, options.bias_attr, 1));
}

Variable Builder::Pool2d(const Variable& x, const Pool2dOptions& options) {
  if (!options.global_pooling) {
    RequirePositive("pool2d", "pool_size", options.pool_size.height);
    RequirePositive("pool2d", "pool_size", options.pool_size.width);
  }
  LayerScope layer(*this, "pool2d", OutputOf(options));
  const std::string out = layer.Out();
  const Size2 size = options.global_pooling ? Size2(1) : options.pool_size;
  Append("pool2d", {{"X", {x.name()}}}, {{"Out", {out}}},
         {{"pooling_type", options.pool_type},
          {"ksize", size.ToVector()},
          {"global_pooling", options.global_pooling},
          {"strides", options.pool_stride.ToVector()},
          {"paddings", options.pool_padding.values},
          {"padding_algorithm", options.pool_padding.algorithm},
          {"ceil_mode", options.ceil_mode},
          {"exclusive", options.exclusive},
          {"adaptive", options.adaptive},
          {"data_format", std::string("NCHW")}});
  return layer.Finish(out);
}

Variable Builder::BatchNorm(const Variable& x, const BatchNormOptions& options) {
  const int rank = x.shape().rank();
  const int axis = options.data_layout == "NHWC" ? rank - 1 : 1;
  if (rank < 2) {
    ThrowInvalid(fmt::format("batch_norm: its input must have 2 dims or more, got {} of shape {}",
                             x.name(), x.shape().ToString()));
  }
  RequireKnown("batch_norm", x, axis, axis + 1);
  LayerScope layer(*this, "batch_norm", OutputOf(options));
  const Shape shape = {x.shape()[axis]};
  // Statistics and parameters stay float32 where the data is of half precision.
  const DType dtype = SizeOf(x.dtype()) < 4 ? DType::kFloat32 : x.dtype();
  const std::string w = layer.name() + ".w";
  Variable scale = Parameter(w, shape, dtype, options.param_attr, ConstantInitializer(1));
  Variable bias =
      Parameter(layer.name() + ".b", shape, dtype, options.bias_attr, ConstantInitializer(0));
  Variable mean = Statistic(w, options.moving_mean_name, shape, dtype, ConstantInitializer(0));
  Variable var = Statistic(w, options.moving_variance_name, shape, dtype, ConstantInitializer(1));
  const std::string out = layer.Out(), saved_mean = layer.Temp(), saved_var = layer.Temp();
  Append("batch_norm",
         {{"X", {x.name()}},
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
  const int begin = options.begin_norm_axis;
  if (begin < 1 || begin >= x.shape().rank()) {
    ThrowInvalid(fmt::format(
        "layer_norm: begin_norm_axis must lie in [1, rank of the input), got {} for {} of shape {}",
        begin, x.name(), x.shape().ToString()));
  }
  LayerScope layer(*this, "layer_norm", OutputOf(options));
  SlotList inputs = {{"X", {x.name()}}};
  if (options.scale || options.shift) RequireKnown("layer_norm", x, begin, x.shape().rank());
  const DType dtype = SizeOf(x.dtype()) < 4 ? DType::kFloat32 : x.dtype();
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

Variable Builder::Embedding(const Variable& ids, const EmbeddingOptions& options) {
  RequirePositive("embedding", "num_embeddings", options.num_embeddings);
  RequirePositive("embedding", "embedding_dim", options.embedding_dim);
  int64_t padding = -1;
  if (options.padding_idx) {
    padding = *options.padding_idx < 0 ? options.num_embeddings + *options.padding_idx
                                       : *options.padding_idx;
    if (padding < 0 || padding >= options.num_embeddings) {
      ThrowInvalid(fmt::format("embedding: padding_idx must lie in [-{0}, {0}), got {1}",
                               options.num_embeddings, *options.padding_idx));
    }
  }
  LayerScope layer(*this, "embedding", OutputOf(options));
  Variable w = Parameter(layer.name() + ".w", {options.num_embeddings, options.embedding_dim},
                         options.dtype, options.param_attr);
  const std::string out = layer.Out();
  Append("lookup_table_v2", {{"W", {w.name()}}, {"Ids", {ids.name()}}}, {{"Out", {out}}},
         {{"padding_idx", padding}, {"is_sparse", options.is_sparse}});
  return layer.Finish(out);
}

Variable Builder::Dropout(const Variable& x, const DropoutOptions& options) {
  LayerScope layer(*this, "dropout", OutputOf(options));
  const std::string out = layer.Out(), mask = layer.Temp();
  Append("dropout", {{"X", {x.name()}}}, {{"Out", {out}}, {"Mask", {mask}}},
         {{"dropout_prob", options.dropout_prob},
          {"is_test", options.is_test},
          {"fix_seed", options.seed.has_value()},
          {"seed", options.seed.value_or(0)},
          {"dropout_implementation", options.dropout_implementation}});
  Var(mask).desc().SetStopGradient(true);
  return layer.Finish(out);
}

}  // namespace coracle
