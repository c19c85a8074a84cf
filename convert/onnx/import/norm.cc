// Normalisation of channels, groups of channels, rows, and along an axis.

#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/indices.h>
#include <coracle/convert/onnx/import/node_context.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>

namespace coracle::onnx {
namespace {

using Dims = std::vector<int32_t>;

Variable MeanOver(NodeContext& node, const Variable& x, const Dims& dims) {
  return node.Unary("reduce_mean", x, {{"dim", dims}, {"keep_dim", true}});
}

// 16-bit floats are computed in float32.
DType WideOf(DType dtype) { return SizeOf(dtype) == 2 ? DType::kFloat32 : dtype; }

// A parameter for x: the ops accept x's dtype, or float32 with a 16-bit x.
Variable ParameterFor(NodeContext& node, size_t i, const Variable& x) {
  const Variable parameter = node.In(i);
  if (parameter.dtype() == x.dtype()) return parameter;
  return node.Cast(parameter, WideOf(x.dtype()));
}

// One number for each channel (axis 1), reshaped to broadcast to a tensor of that rank.
Variable PerChannel(NodeContext& node, const Variable& parameter, int rank) {
  std::vector<int64_t> shape(static_cast<size_t>(rank) - 1, 1);
  shape[0] = -1;
  return node.Reshape(parameter, shape);
}

// --- BatchNormalization ---

struct BatchNorm {
  Variable x = {};                                           // [N, C, ...] of rank 2 to 5
  Variable scale = {}, bias = {}, mean = {}, variance = {};  // [C]
  float epsilon = 0, momentum = 0;
};

Variable Flat(NodeContext& node, const Variable& parameter) {
  return parameter.shape().rank() == 1 ? parameter : node.Reshape(parameter, {-1});
}

// Up to operator set 8, spatial = 0 means that each element of a sample is a channel.
BatchNorm BatchNormOf(NodeContext& node) {
  BatchNorm norm = {.x = node.In(0),
                    .epsilon = node.Float("epsilon", 1e-5f),
                    .momentum = node.Float("momentum", 0.9f)};
  const bool spatial = node.opset() >= 9 || node.Flag("spatial", true);
  const Shape shape = node.shape(0);
  node.Require(shape.rank() >= 1, "the input must have at least one dimension");
  if (shape.rank() == 1)
    norm.x = node.Reshape(norm.x, {-1, 1});
  else if (!spatial && shape.rank() > 2)
    norm.x = Reshaped(node, norm.x, Shape({shape[0], shape.Product(1, shape.rank())}));
  else if (shape.rank() > 5)
    norm.x = Reshaped(node, norm.x, Shape({shape[0], shape[1], -1}));
  norm.scale = Flat(node, ParameterFor(node, 1, norm.x));
  norm.bias = Flat(node, ParameterFor(node, 2, norm.x));
  norm.mean = Flat(node, ParameterFor(node, 3, norm.x));
  norm.variance = Flat(node, ParameterFor(node, 4, norm.x));
  return norm;
}

// Whether the batch may have a single element for each channel, for which batch_norm returns X
// in Paddle.
bool MayBeOneElement(const Shape& shape) {
  int64_t known = 1;
  for (int i = 0; i < shape.rank(); ++i)
    if (i != 1 && shape[i] > 1) known *= shape[i];
  return known == 1;
}

struct NormResult {
  Variable y, mean, variance;
};

NormResult ByFormula(NodeContext& node, const BatchNorm& norm) {
  const DType own = norm.x.dtype(), wide = WideOf(own);
  const int rank = norm.x.shape().rank();
  Dims dims = {0};
  for (int i = 2; i < rank; ++i) dims.push_back(i);
  const Variable x = node.Cast(norm.x, wide);
  const Variable mean = MeanOver(node, x, dims);
  const Variable variance = MeanOver(node, Square(x - mean), dims);
  const auto channels = [&](const Variable& p) {
    return PerChannel(node, node.Cast(p, wide), rank);
  };
  const Variable factor = channels(norm.scale) / Sqrt(variance + norm.epsilon);
  const auto running = [&](const Variable& old, const Variable& now) {
    const double share = norm.momentum;
    return node.Cast(node.Cast(old, wide) * share + node.Reshape(now, {-1}) * (1.0 - share),
                     old.dtype());
  };
  return {node.Cast((x - mean) * factor + channels(norm.bias), own), running(norm.mean, mean),
          running(norm.variance, variance)};
}

NormResult ByOp(NodeContext& node, const BatchNorm& norm, bool training) {
  NormResult result;
  const std::string y = node.NewName("batch_norm");
  const auto name = [&](const char* what) { return y + "." + what; };
  // In a test, the statistics are outputs too: the same variables.
  const std::string mean = training ? name("mean_out") : norm.mean.name();
  const std::string variance = training ? name("variance_out") : norm.variance.name();
  node.writer().Append("batch_norm",
                       {{"X", {norm.x.name()}},
                        {"Scale", {norm.scale.name()}},
                        {"Bias", {norm.bias.name()}},
                        {"Mean", {norm.mean.name()}},
                        {"Variance", {norm.variance.name()}}},
                       {{"Y", {y}},
                        {"MeanOut", {mean}},
                        {"VarianceOut", {variance}},
                        {"SavedMean", {name("saved_mean")}},
                        {"SavedVariance", {name("saved_variance")}}},
                       {{"epsilon", norm.epsilon},
                        {"momentum", norm.momentum},
                        {"is_test", !training},
                        {"use_global_stats", !training}});
  return {node.writer().Var(y), node.writer().Var(mean), node.writer().Var(variance)};
}

// Whether the batch's statistics are used: given by an attribute, but in operator sets 7 to 13 by
// the number of outputs.
bool UsesBatchStatistics(NodeContext& node) {
  if (node.opset() < 7) return !node.Flag("is_test", false);
  if (node.opset() < 14) return node.Wants(1) || node.Wants(2);
  return node.Flag("training_mode", false);
}

void ImportBatchNormalization(NodeContext& node) {
  const bool training = UsesBatchStatistics(node);
  const BatchNorm norm = BatchNormOf(node);
  node.Require(training || !(node.Wants(1) || node.Wants(2)),
               "running statistics are outputs of training_mode = 1 only");
  const NormResult result = training && MayBeOneElement(norm.x.shape())
                                ? ByFormula(node, norm)
                                : ByOp(node, norm, training);
  const Shape shape = node.shape(0);
  const bool same = shape.rank() == norm.x.shape().rank();
  node.Set(0, same ? result.y : Reshaped(node, result.y, shape));
  if (!training) return;
  for (size_t i : {size_t{1}, size_t{2}}) {
    const Variable statistic = node.Cast(i == 1 ? result.mean : result.variance, node.dtype(i + 2));
    const bool flat = node.rank(i + 2) == 1;
    node.Set(i, flat ? statistic : Reshaped(node, statistic, node.shape(i + 2)));
  }
}

// --- InstanceNormalization, GroupNormalization ---

// x [N, C, ...] with groups of its channels normalised, times a factor plus a bias for
// each channel.
Variable GroupsNormalised(NodeContext& node, const Variable& x, int64_t groups,
                          const Variable& scale, const Variable& bias, float epsilon) {
  const int rank = x.shape().rank();
  if (epsilon >= 0 && epsilon <= 1) {
    return node.Make(
        "group_norm", {{"X", {x.name()}}, {"Scale", {scale.name()}}, {"Bias", {bias.name()}}},
        {{"groups", ToInt32(groups, "attribute num_groups")}, {"epsilon", epsilon}}, "Y");
  }
  const Variable rows = Reshaped(node, x, Shape({x.shape()[0], groups, -1}));
  const Variable normal = node.Make("layer_norm", {{"X", {rows.name()}}},
                                    {{"begin_norm_axis", int32_t{2}}, {"epsilon", epsilon}}, "Y");
  return Reshaped(node, normal, x.shape()) * PerChannel(node, node.Cast(scale, x.dtype()), rank) +
         PerChannel(node, node.Cast(bias, x.dtype()), rank);
}

int64_t ChannelsOf(NodeContext& node) {
  node.Require(node.rank(0) >= 2, "the input must have a batch and channels");
  const int64_t channels = node.shape(0)[1];
  if (channels < 0) node.Refuse("channels of unknown number");
  return channels;
}

void ImportInstanceNormalization(NodeContext& node) {
  const float epsilon = node.Float("epsilon", 1e-5f);
  const int64_t channels = ChannelsOf(node);
  const bool by_formula = epsilon < 0 || epsilon > 1e-3f;
  if (by_formula) node.RoundOnce();
  Variable x = node.In(0);
  const Shape shape = x.shape();
  const Variable scale = ParameterFor(node, 1, x), bias = ParameterFor(node, 2, x);
  if (by_formula) return node.Set(0, GroupsNormalised(node, x, channels, scale, bias, epsilon));
  if (shape.rank() > 5) x = Reshaped(node, x, Shape({shape[0], shape[1], -1}));
  const Variable y = node.Make(
      "instance_norm", {{"X", {x.name()}}, {"Scale", {scale.name()}}, {"Bias", {bias.name()}}},
      {{"epsilon", epsilon}}, "Y");
  node.Set(0, shape.rank() > 5 ? Reshaped(node, y, shape) : y);
}

// Scale and bias belonged to groups up to operator set 20, later to channels.
void ImportGroupNormalization(NodeContext& node) {
  const float epsilon = node.Float("epsilon", 1e-5f);
  const int64_t groups = node.Int("num_groups"), channels = ChannelsOf(node);
  // 16-bit floats are computed in float32.
  node.attributes().Ignore("stash_type");
  node.Require(
      groups >= 1 && channels % groups == 0,
      fmt::format("attribute num_groups must divide the channels ({}), got {}", channels, groups));
  if (epsilon < 0 || epsilon > 1) node.RoundOnce();
  const Variable x = node.In(0);
  Variable scale = ParameterFor(node, 1, x), bias = ParameterFor(node, 2, x);
  if (node.opset() < 21) {
    RequireSmallConstant(node, {channels}, "channels");
    std::vector<int64_t> group;
    for (int64_t i = 0; i < channels; ++i) group.push_back(i / (channels / groups));
    const Variable index = node.ConstantVar(group);
    for (Variable* parameter : {&scale, &bias})
      *parameter = node.Make("gather", {{"X", {parameter->name()}}, {"Index", {index.name()}}});
  }
  node.Set(0, GroupsNormalised(node, x, groups, scale, bias, epsilon));
}

// --- LayerNormalization, RMSNormalization ---

// The dtype given by attribute stash_type.
DType StashOf(NodeContext& node) {
  const int data_type = node.Int32("stash_type", 1);
  const auto dtype = FromDataType(data_type);
  if (!dtype || !IsFloating(*dtype)) node.Refuse("attribute stash_type " + DataTypeName(data_type));
  return *dtype;
}

Dims DimsFrom(int32_t axis, int rank) {
  Dims dims(static_cast<size_t>(rank - axis));
  std::iota(dims.begin(), dims.end(), axis);
  return dims;
}

// The shape of x from `axis` on.
Shape RowOf(const Shape& x, int32_t axis) {
  Shape row;
  for (int i = axis; i < x.rank(); ++i) row.Append(x[i]);
  return row;
}

// Whether the op accepts this scale or bias: the elements of a row. Others are applied after it.
bool IsRow(NodeContext& node, size_t i, const Shape& row) {
  return !node.HasInput(i) || (row.IsKnown() && node.shape(i) == row) ||
         (row.rank() == 1 && node.rank(i) == 1 && node.shape(i)[0] != 1);
}

// The mean and 1 / the standard deviation of each row; the op computes them only for its gradient.
void SetStatistics(NodeContext& node, const Dims& dims, float epsilon, DType stash) {
  const Variable x = node.Cast(node.In(0), WideOf(node.dtype(0)));
  const Variable mean = MeanOver(node, x, dims);
  const auto set = [&](size_t i, const Variable& statistic) {
    node.SetValue(i, {.var = node.Cast(statistic, stash), .data_type = ToDataType(stash)});
  };
  if (node.Wants(1)) set(1, mean);
  if (!node.Wants(2)) return;
  const Variable variance = MeanOver(node, Square(x - mean), dims);
  set(2, node.Unary("rsqrt", variance + epsilon));
}

Variable RowsNormalised(NodeContext& node, Variable x, int32_t axis, float epsilon, bool rows) {
  const Dims front = {0};
  if (axis == 0) x = node.WithXShape("unsqueeze2", x, {{"axes", front}});
  SlotList inputs = {{"X", {x.name()}}};
  for (size_t i : {size_t{1}, size_t{2}}) {
    if (rows && node.HasInput(i))
      inputs.push_back({i == 1 ? "Scale" : "Bias", {Flat(node, ParameterFor(node, i, x)).name()}});
  }
  const Variable y = node.Make("layer_norm", std::move(inputs),
                               {{"begin_norm_axis", std::max(axis, 1)}, {"epsilon", epsilon}}, "Y");
  return axis == 0 ? node.WithXShape("squeeze2", y, {{"axes", front}}) : y;
}

// --- com.microsoft: the sum of embeddings or residuals, normalised ---

// Normalises rows along the last axis, with gamma in input `gamma` and optional beta in `beta`.
Variable LastAxisNormalised(NodeContext& node, const Variable& x, size_t gamma, size_t beta) {
  SlotList inputs = {{"X", {x.name()}}, {"Scale", {node.In(gamma).name()}}};
  if (node.HasInput(beta)) inputs.push_back({"Bias", {node.In(beta).name()}});
  return node.Make(
      "layer_norm", std::move(inputs),
      {{"begin_norm_axis", x.shape().rank() - 1}, {"epsilon", node.Float("epsilon", 1e-12f)}}, "Y");
}

// Outputs 1 and 2, which are not computed for inference, have no counterpart; the last one is
// the sum.
void SetSum(NodeContext& node, const Variable& sum) {
  if (node.Wants(3)) node.Set(3, sum);
}

// Inputs: the sum's parts, gamma, beta, a bias of the sum.
void ImportSkipLayerNormalization(NodeContext& node) {
  Variable sum = node.In(0) + node.In(1);
  if (node.HasInput(4)) sum = sum + node.In(4);
  node.Set(0, LastAxisNormalised(node, sum, 2, 3));
  SetSum(node, sum);
}

// Inputs: the sum's parts, gamma, a bias of the sum.
void ImportSkipSimplifiedLayerNormalization(NodeContext& node) {
  Variable sum = node.In(0) + node.In(1);
  if (node.HasInput(3)) sum = sum + node.In(3);
  const Variable square = MeanOver(node, Square(sum), {sum.shape().rank() - 1});
  const Variable root = Sqrt(square + node.Float("epsilon", 1e-12f));
  node.Set(0, sum / root * node.In(2));
  SetSum(node, sum);
}

// The rows of table `i` selected by the ids.
Variable Embedded(NodeContext& node, size_t i, const Variable& ids) {
  const Variable index = node.Cast(ids, DType::kInt64);
  const Variable rows =
      node.Make("lookup_table_v2", {{"W", {node.OwnIn(i).name()}}, {"Ids", {index.name()}}},
                {{"padding_idx", int64_t{-1}}});
  return node.Cast(rows, node.dtype(i));
}

// Inputs: ids, segment ids, tables of words, positions and segments, gamma, beta, mask, positions.
void ImportEmbedLayerNormalization(NodeContext& node) {
  node.attributes().Ignore("mask_index_type");
  const Variable ids = node.In(0);
  node.Require(node.rank(0) == 2, "input_ids must be [batch, length]");
  Variable sum = Embedded(node, 2, ids);
  if (node.HasInput(8)) {
    sum = sum + Embedded(node, 3, node.In(8));
  } else {
    const int64_t length = ids.shape()[1];
    const Variable first = node.ScalarVar(DType::kInt64, 0), table = node.In(3);
    sum = sum + (length < 0 ? SliceBetween(node, table, 0, first, DimOf(node, ids, 1))
                            : SliceOf(node, table, 0, 0, length));
  }
  if (node.HasInput(1)) sum = sum + Embedded(node, 4, node.In(1));
  node.Set(0, LastAxisNormalised(node, sum, 5, 6));
  if (node.Wants(1)) {
    const Variable mask = node.HasInput(7) ? node.In(7) : ZerosLike(ids);
    node.Set(1, node.Cast(Sum(node.Cast(mask, DType::kInt64), {1}), DType::kInt32));
  }
  if (node.Wants(2)) node.Set(2, sum);
}

void ImportLayerNormalization(NodeContext& node) {
  const float epsilon = node.Float("epsilon", 1e-5f);
  const DType stash = StashOf(node);
  const int32_t axis = node.Axis(node.Int("axis", -1), node.rank(0));
  const Shape row = RowOf(node.shape(0), axis);
  const bool rows = IsRow(node, 1, row) && IsRow(node, 2, row);
  if (!rows) node.RoundOnce();
  Variable y = RowsNormalised(node, node.In(0), axis, epsilon, rows);
  if (!rows) {
    y = y * node.Cast(node.In(1), y.dtype());
    if (node.HasInput(2)) y = y + node.Cast(node.In(2), y.dtype());
  }
  node.Set(0, y);
  if (node.Wants(1) || node.Wants(2))
    SetStatistics(node, DimsFrom(axis, node.rank(0)), epsilon, stash);
}

// X / sqrt(mean of X^2 + epsilon), times scale. SimplifiedLayerNormalization, its older name, has
// the type of the scale, and gives 1 / the root, too.
void ImportRMSNormalization(NodeContext& node) {
  const float epsilon = node.Float("epsilon", 1e-5f);
  const DType stash = StashOf(node), own = node.dtype(0);
  const int32_t axis = node.Axis(node.Int("axis", -1), node.rank(0));
  const Variable x = node.Cast(node.In(0), WideOf(own));
  const Variable square = MeanOver(node, Square(x), DimsFrom(axis, node.rank(0)));
  const Variable root = Sqrt(square + epsilon);
  const Variable y = node.Cast(x / root, own) * node.Cast(node.In(1), own);
  const DType scale = node.InValue(1).dtype();
  if (node.op_type() == "RMSNormalization" || node.InValue(0).dtype() == scale)
    node.Set(0, y);
  else
    node.SetValue(0, {.var = node.Cast(y, scale), .data_type = ToDataType(scale)});
  if (node.Wants(1)) {
    const Variable factor = node.Cast(node.Unary("reciprocal", root), stash);
    node.SetValue(1, {.var = factor, .data_type = ToDataType(stash)});
  }
}

// --- LRN, LpNormalization, MeanVarianceNormalization ---

// X / (k + alpha mean of the squares of the channels around)^beta. A window of even size has one
// more channel after the centre; Paddle's op, whose alpha multiplies a sum, supports odd sizes.
void ImportLrn(NodeContext& node) {
  const float alpha = node.Float("alpha", 1e-4f), beta = node.Float("beta", 0.75f);
  const float k = node.Float("bias", 1.0f);
  const int32_t n = node.Int32("size");
  node.Require(n >= 1, "attribute size must be positive");
  const Variable x = node.In(0);
  const Shape shape = x.shape();
  node.Require(shape.rank() >= 2, "the input must have a batch and channels");
  if (n % 2 == 1 && shape.rank() == 4) {
    const std::string out = node.NewName("lrn");
    node.writer().Append(
        "lrn", {{"X", {x.name()}}}, {{"Out", {out}}, {"MidOut", {out + ".mid"}}},
        {{"n", n}, {"k", k}, {"alpha", alpha / static_cast<float>(n)}, {"beta", beta}});
    return node.Set(0, node.writer().Var(out));
  }
  const DType own = x.dtype(), wide = WideOf(own);
  const Variable square =
      Reshaped(node, Square(node.Cast(x, wide)), Shape({shape[0], 1, shape[1], -1}));
  const Variable mean = node.Unary("pool2d", square,
                                   {{"pooling_type", std::string("avg")},
                                    {"ksize", Dims{n, 1}},
                                    {"paddings", Dims{(n - 1) / 2, n / 2, 0, 0}},
                                    {"exclusive", false}});
  const Variable factor = Pow(Reshaped(node, mean * alpha + k, shape), -beta);
  node.Set(0, node.Cast(node.Cast(x, wide) * factor, own));
}

// Zeros where the norm is 0.
void ImportLpNormalization(NodeContext& node) {
  const int64_t p = node.Int("p", 2);
  node.Require(p == 1 || p == 2, fmt::format("attribute p must be 1 or 2, got {}", p));
  const int32_t axis = node.Axis(node.Int("axis", -1), node.rank(0));
  const Variable x = node.In(0);
  const Variable norm = node.Unary(
      "p_norm", x, {{"porder", static_cast<float>(p)}, {"axis", axis}, {"keepdim", true}});
  node.Set(0, x / (norm + node.Cast(Equal(norm, ZerosLike(norm)), x.dtype())));
}

// ONNX defines it as a function that adds 1e-9 to the standard deviation.
void ImportMeanVarianceNormalization(NodeContext& node) {
  const DType own = node.dtype(0);
  Dims dims;
  for (int64_t axis : node.Ints("axes", {0, 2, 3})) dims.push_back(node.Axis(axis, node.rank(0)));
  const Variable x = node.Cast(node.In(0), WideOf(own));
  const Variable distance = x - MeanOver(node, x, dims);
  const Variable deviation = Sqrt(MeanOver(node, Square(distance), dims));
  node.Set(0, node.Cast(distance / (deviation + 1e-9), own));
}

}  // namespace

void AddNormImporters(NodeImporters& importers) {
  using Row = std::tuple<const char*, const char*, int, void (*)(NodeContext&), const char*>;
  const auto is_one_op = [](void (*import)(NodeContext&)) {
    return import == ImportBatchNormalization || import == ImportInstanceNormalization ||
           import == ImportGroupNormalization || import == ImportLayerNormalization;
  };
  for (const auto& [op_type, takes, since, import, maps_to] : {
           Row{"BatchNormalization", "f1+ f f f f", 1, ImportBatchNormalization, "batch_norm"},
           Row{"InstanceNormalization", "f2+ f1 f1", 1, ImportInstanceNormalization,
               "instance_norm"},
           Row{"GroupNormalization", "f2+ f1 f1", 18, ImportGroupNormalization, "group_norm"},
           // ONNX Runtime's fused models use both in operator sets before ONNX had the first one.
           Row{"LayerNormalization", "f1+ f f?", 1, ImportLayerNormalization, "layer_norm"},
           Row{"RMSNormalization", "f1+ f", 23, ImportRMSNormalization,
               "square, reduce_mean, sqrt, elementwise_div, elementwise_mul"},
           Row{"SimplifiedLayerNormalization", "f1+ f", 1, ImportRMSNormalization,
               "square, reduce_mean, sqrt, elementwise_div, elementwise_mul"},
           Row{"LRN", "f2+", 1, ImportLrn, "lrn; pool2d, pow"},
           Row{"LpNormalization", "f1+", 1, ImportLpNormalization, "p_norm, elementwise_div"},
           Row{"MeanVarianceNormalization", "f", 9, ImportMeanVarianceNormalization,
               "reduce_mean, square, sqrt, elementwise_div"},
       })
    importers.Add({.op_type = op_type,
                   .since = since,
                   .takes = takes,
                   .import = import,
                   .maps_to = maps_to,
                   .composed = !is_one_op(import)});
  importers.Add({.op_type = "SkipLayerNormalization",
                 .since = 1,
                 .takes = "f1+ f f1 f1? f1?",
                 .import = ImportSkipLayerNormalization,
                 .maps_to = "elementwise_add, layer_norm",
                 .composed = true,
                 .domain = "com.microsoft"});
  importers.Add({.op_type = "SkipSimplifiedLayerNormalization",
                 .since = 1,
                 .takes = "f1+ f f1 f1?",
                 .import = ImportSkipSimplifiedLayerNormalization,
                 .maps_to = "elementwise_add, square, reduce_mean, sqrt, elementwise_div",
                 .composed = true,
                 .domain = "com.microsoft"});
  importers.Add({.op_type = "SimplifiedLayerNormalization",
                 .since = 1,
                 .takes = "f1+ f",
                 .import = ImportRMSNormalization,
                 .maps_to = "square, reduce_mean, sqrt, elementwise_div, elementwise_mul",
                 .composed = true,
                 .domain = "com.microsoft"});
  importers.Add({.op_type = "EmbedLayerNormalization",
                 .since = 1,
                 .takes = "i2 i2? f2 f2 f2? f1 f1? i2? i2?",
                 .import = ImportEmbedLayerNormalization,
                 .maps_to = "lookup_table_v2, elementwise_add, layer_norm",
                 .composed = true,
                 .domain = "com.microsoft"});
}

}  // namespace coracle::onnx
