// Fully connected layers, embedding and dropout; parameters for ops.

#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/edit_guard.h>
#include <coracle/layers/internal/layer_checks.h>
#include <coracle/layers/internal/layer_defs.h>
#include <coracle/layers/internal/layer_scope.h>

namespace coracle {
namespace {

const LayerFields<FcOptions>& FcLayer() {
  using O = FcOptions;
  static const auto layer =
      LayerFields<O>("fc",
                     "Fully connected: act(sum of input W + b); the input's dims from "
                     "num_flatten_dims on are flattened, and each input has a weight W of its own.")
          .Inputs("input", "one or more tensors of rank 2 or more")
          .Field("size", &O::size, "columns of the result", kRequired, PositiveRange())
          .Field("num_flatten_dims", &O::num_flatten_dims,
                 "leading dims of the input that are kept; -1: all but the last")
          .Param("param", &O::param_attr, "weight; default: Xavier uniform")
          .Bias("bias", &O::bias_attr, "bias; default: 0")
          .BiasTerm();
  return layer;
}

const LayerFields<EmbeddingOptions>& EmbeddingLayer() {
  using O = EmbeddingOptions;
  static const auto layer =
      LayerFields<O>("embedding",
                     "Rows of a table W [num_embeddings, embedding_dim] by integer ids.")
          .Input("input", "integer tensor of any shape")
          .Field("num_embeddings", &O::num_embeddings, "rows of the table", kRequired,
                 PositiveRange())
          .Field("embedding_dim", &O::embedding_dim, "columns of the table", kRequired,
                 PositiveRange())
          .Field("padding_idx", &O::padding_idx,
                 "id whose row reads as zeros; counts from the end if < 0")
          .Field("is_sparse", &O::is_sparse,
                 "the table's gradient holds only the rows that were read")
          .Field("dtype", &O::dtype, "of the table")
          .Param("param", &O::param_attr, "table; default: Xavier uniform");
  return layer;
}

const LayerFields<DropoutOptions>& DropoutLayer() {
  using O = DropoutOptions;
  static const auto layer =
      LayerFields<O>("dropout", "Sets elements to 0 with probability dropout_prob while training.")
          .Input("input", "tensor of any shape")
          .Field("dropout_prob", &O::dropout_prob, "in [0, 1]")
          .Field("is_test", &O::is_test, "drop nothing")
          .Field("seed", &O::seed, "fixes the seed of the mask")
          .Field("dropout_implementation", &O::dropout_implementation,
                 "scale by 1 - dropout_prob in evaluation; or upscale_in_train: divide by it in "
                 "training");
  return layer;
}

struct ParameterOptions {
  std::vector<int32_t> shape = {};
  DType dtype = DType::kFloat32;
  ParamAttr param_attr = {};
};

// The counterpart of Builder::Parameter in model text.
Variable AppendParameter(Builder& net, const LayerArgs& args, const ParameterOptions& options) {
  LayerScope layer(net, "parameter", args.output);
  Shape shape;
  for (const int32_t dim : options.shape) {
    if (dim < 1) ThrowInvalid(fmt::format("parameter: its dims must be positive, got {}", dim));
    shape.Append(dim);
  }
  ParamAttr attr = options.param_attr;
  if (!args.output.output.empty()) {
    if (!attr.name.empty() && attr.name != args.output.output) {
      ThrowInvalid(fmt::format("parameter: output and param give different names, {} and {}",
                               Quote(args.output.output), Quote(attr.name)));
    }
    attr.name = args.output.output;
  }
  return net.Parameter(layer.name() + ".w", shape, options.dtype, attr);
}

LayerDef ParameterLayer() {
  using O = ParameterOptions;
  return LayerFields<O>("parameter",
                        "A parameter for ops that read one, such as the Weight of op { gru { ... } "
                        "}. `output` is its name.")
      .Field("shape", &O::shape, "dims", kRequired)
      .Field("dtype", &O::dtype, "of the elements")
      .Param("param", &O::param_attr, "default: Xavier uniform")
      .Result(LayerDef::Result::kMetric)
      .Build([](Builder& net, const LayerArgs& args, const O& options) {
        return std::vector<Variable>{AppendParameter(net, args, options)};
      });
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
  const EditGuard guard(*main_, *startup_);
  FcLayer().Check(options);
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
    Append("mul", {{"X", {NameIn(*this, x[k])}}, {"Y", {w.name()}}}, {{"Out", {products.back()}}},
           {{"x_num_col_dims", int32_t{rows[k]}}, {"y_num_col_dims", int32_t{1}}});
  }
  std::string out = products.front();
  if (x.size() > 1) {
    out = layer.Out(bias);
    Append("sum", {{"X", products}}, {{"Out", {out}}});
  }
  return layer.Finish(layer.AddBias(out, options.bias_attr, rows.front()));
}

Variable Builder::Embedding(const Variable& ids, const EmbeddingOptions& options) {
  const EditGuard guard(*main_, *startup_);
  EmbeddingLayer().Check(options);
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
  Append("lookup_table_v2", {{"W", {w.name()}}, {"Ids", {NameIn(*this, ids)}}}, {{"Out", {out}}},
         {{"padding_idx", padding}, {"is_sparse", options.is_sparse}});
  return layer.Finish(out);
}

Variable Builder::Dropout(const Variable& x, const DropoutOptions& options) {
  const EditGuard guard(*main_, *startup_);
  LayerScope layer(*this, "dropout", OutputOf(options));
  const std::string out = layer.Out(), mask = layer.Temp();
  Append("dropout", {{"X", {NameIn(*this, x)}}}, {{"Out", {out}}, {"Mask", {mask}}},
         {{"dropout_prob", options.dropout_prob},
          {"is_test", options.is_test},
          {"fix_seed", options.seed.has_value()},
          {"seed", options.seed.value_or(0)},
          {"dropout_implementation", options.dropout_implementation}});
  Var(mask).desc().SetStopGradient(true);
  return layer.Finish(out);
}

std::vector<LayerDef> internal::DenseLayers() {
  return {FcLayer().BuildOfMany(&Builder::Fc), EmbeddingLayer().Build(&Builder::Embedding),
          DropoutLayer().Build(&Builder::Dropout), ParameterLayer()};
}

}  // namespace coracle
