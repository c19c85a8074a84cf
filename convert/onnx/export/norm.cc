// Normalisation ops.
#include <coracle/convert/onnx/export/images.h>
#include <coracle/convert/onnx/export/program_exporter.h>
#include <coracle/convert/onnx/export/rows.h>
#include <fmt/format.h>

namespace coracle::onnx {
namespace {

// Scales and statistics may be float32 with 16-bit elements.
Value Like(OpContext& op, const char* slot, const char* like) {
  return op.Cast(op.In(slot), op.InType(slot), op.InType(like));
}

// A vector with an element for each channel, reshaped to broadcast to a tensor of that rank.
Value PerChannel(OpContext& op, const Value& vector, int rank, bool channels_last) {
  if (channels_last) return vector;
  Ints dims(static_cast<size_t>(rank) - 1, 1);
  dims[0] = -1;
  return op.Reshape(vector, dims);
}

// The product of the known dims other than the channels'.
int64_t KnownElementsOfChannel(const Shape& shape, bool channels_last) {
  const int channels = channels_last ? shape.rank() - 1 : 1;
  int64_t product = 1;
  for (int i = 0; i < shape.rank(); ++i)
    if (i != channels && shape[i] > 1) product *= shape[i];
  return product;
}

// Y from the statistics of the batch, and new running statistics. A training program keeps these in
// the variables that it reads.
void ExportNormByBatch(OpContext& op) {
  op.Require(op.op().Output("MeanOut") != op.op().Input("Mean") &&
                 op.op().Output("VarianceOut") != op.op().Input("Variance"),
             std::string("it updates its statistics, as in training. ") + kInferenceOnly);
  const int rank = op.Rank("X");
  const bool last = ChannelsLast(op.Attr<std::string>("data_layout")) && rank > 2;
  op.Require(
      KnownElementsOfChannel(op.InShape("X"), last) > 1,
      "it returns a batch as it is that has one element for each channel, and ONNX does not; "
      "coracle set-shape gives a larger size");
  op.RequireOpset(14, "BatchNormalization with the statistics of the batch");
  const Values results =
      op.Nodes("BatchNormalization",
               {ToChannelsFirst(op, op.In("X"), rank, last), Like(op, "Scale", "X"),
                Like(op, "Bias", "X"), op.In("Mean"), op.In("Variance")},
               3,
               {{"epsilon", op.Attr<float>("epsilon")},
                {"momentum", op.Attr<float>("momentum")},
                {"training_mode", 1}});
  op.exporter().graph().SetType(results[1], op.InType("Mean"));
  op.exporter().graph().SetType(results[2], op.InType("Variance"));
  op.Out("MeanOut", results[1]);
  op.Out("VarianceOut", results[2]);
  op.Out("Y", FromChannelsFirst(op, results[0], rank, last));
}

// Y from fixed statistics; the statistics that the op would write are the ones that it reads.
void ExportBatchNorm(OpContext& op) {
  const bool trained = op.Attr<bool>("trainable_statistics");
  if (!op.Attr<bool>("use_global_stats") && (!op.Attr<bool>("is_test") || trained))
    return ExportNormByBatch(op);
  op.Ignore("MomentumTensor");  // for running statistics, which inference does not update
  op.Ignore("Share");
  const int rank = op.Rank("X");
  const bool last = ChannelsLast(op.Attr<std::string>("data_layout")) && rank > 2;
  const Value x = ToChannelsFirst(op, op.In("X"), rank, last);
  const Value y =
      op.Node("BatchNormalization",
              {x, Like(op, "Scale", "X"), Like(op, "Bias", "X"), Like(op, "Mean", "X"),
               Like(op, "Variance", "X")},
              {{"epsilon", op.Attr<float>("epsilon")}, {"momentum", op.Attr<float>("momentum")}});
  op.Out("MeanOut", op.In("Mean"));
  op.Out("VarianceOut", op.In("Variance"));
  op.Out("Y", FromChannelsFirst(op, y, rank, last));
}

// (x - mean) / sqrt(variance + epsilon), both over `axes`.
Value Normalized(OpContext& op, const Value& x, DType dtype, const Ints& axes, float epsilon) {
  const Value mean = op.Reduce("ReduceMean", x, axes, true);
  const Value centred = op.Node("Sub", {x, mean});
  const Value variance = op.Reduce("ReduceMean", op.Node("Mul", {centred, centred}), axes, true);
  const Value deviation = op.Node("Sqrt", {op.Node("Add", {variance, op.Scalar(epsilon, dtype)})});
  return op.Node("Div", {centred, deviation});
}

// Normalises rows of x, the dims from `begin` on; scale and bias have an element for each element
// of a row.
struct RowNorm {
  OpContext& op;
  DType dtype;
  Shape shape;  // of x
  int begin;
  const char *scale, *bias;  // slots

  Value RowDims(const Value& x) const {
    const Ints dims(shape.begin() + begin, shape.end());
    for (int64_t dim : dims) {
      if (dim < 0) return op.DimsOf(x, begin, shape.rank());
    }
    return op.IntList(dims);
  }
  Value Row(const char* slot, const Value& x) const {
    if (!op.Has(slot)) return "";
    const Value vector = op.Cast(op.In(slot), op.InType(slot), dtype);
    return shape.rank() - begin == 1 ? vector : op.Node("Reshape", {vector, RowDims(x)});
  }
  Value operator()(const Value& x) const {
    const float epsilon = op.Attr<float>("epsilon");
    const Value factor = Row(scale, x), summand = Row(bias, x);
    if (op.opset() >= 17 && !factor.empty()) {
      return op.Node("LayerNormalization", {x, factor, summand},
                     {{"axis", begin}, {"epsilon", epsilon}});
    }
    Ints axes;
    for (int i = begin; i < shape.rank(); ++i) axes.push_back(i);
    Value y = Normalized(op, x, dtype, axes, epsilon);
    if (!factor.empty()) y = op.Node("Mul", {y, factor});
    return summand.empty() ? y : op.Node("Add", {y, summand});
  }
};

void ExportLayerNorm(OpContext& op) {
  const RowNorm norm{op,      op.InType("X"), op.InShape("X"), op.Attr<int32_t>("begin_norm_axis"),
                     "Scale", "Bias"};
  op.Out("Y", norm(op.In("X")));
}

void ExportSkipLayerNorm(OpContext& op) {
  const RowNorm norm{op,      op.InType("X"), op.InShape("X"), op.Attr<int32_t>("begin_norm_axis"),
                     "Scale", "Bias"};
  op.Out("Out", norm(op.Node("Add", {op.In("X"), op.In("Y")})));
}

void ExportFcLayerNorm(OpContext& op) {
  const DType dtype = op.InType("X");
  op.Require(op.Attr<int32_t>("x_num_col_dims") == op.Rank("X") - 1,
             "a product of several dims of X has no counterpart");
  Value sums = op.Node("MatMul", {op.In("X"), op.In("W")});
  if (op.Has("Bias0")) sums = op.Node("Add", {sums, op.In("Bias0")});
  if (op.Attr<std::string>("activation_type") == "relu") sums = op.Node("Relu", {sums});
  const RowNorm norm{op,      dtype,  op.OutShape("Out"), op.Attr<int32_t>("begin_norm_axis"),
                     "Scale", "Bias1"};
  op.Out("Out", norm(op.Node("Add", {sums, op.In("Y")})));
}

void ExportEmbeddingLayerNorm(OpContext& op) {
  Value sum;
  for (size_t i = 0; i < op.NumInputs("Ids"); ++i) {
    const Value ids = op.Rank("Ids", i) == 3 ? op.Squeeze(op.In("Ids", i), {2}) : op.In("Ids", i);
    const Value rows = op.Node("Gather", {op.In("Embs", i), ids});
    sum = sum.empty() ? rows : op.Node("Add", {sum, rows});
  }
  const RowNorm norm{op, op.InType("Embs"), op.OutShape("Out"), 2, "Scale", "Bias"};
  op.Out("Out", norm(sum));
}

void ScaleChannels(OpContext& op, Value y, bool channels_last) {
  const int rank = op.Rank("X");
  if (op.Has("Scale"))
    y = op.Node("Mul", {y, PerChannel(op, Like(op, "Scale", "X"), rank, channels_last)});
  if (op.Has("Bias"))
    y = op.Node("Add", {y, PerChannel(op, Like(op, "Bias", "X"), rank, channels_last)});
  op.Out("Y", y);
}

void ExportInstanceNorm(OpContext& op) {
  const float epsilon = op.Attr<float>("epsilon");
  const int rank = op.Rank("X");
  if (op.Has("Scale") && op.Has("Bias") && rank > 2) {
    op.Out("Y", op.Node("InstanceNormalization",
                        {op.In("X"), Like(op, "Scale", "X"), Like(op, "Bias", "X")},
                        {{"epsilon", epsilon}}));
    return;
  }
  op.Require(rank > 2, "an X of rank 2 has no counterpart");
  Ints axes;
  for (int i = 2; i < rank; ++i) axes.push_back(i);
  ScaleChannels(op, Normalized(op, op.In("X"), op.InType("X"), axes, epsilon), false);
}

// Each group becomes a row of a matrix.
void ExportGroupNorm(OpContext& op) {
  const bool last = ChannelsLast(op.Attr<std::string>("data_layout"));
  const int rank = op.Rank("X");
  const int64_t groups = op.Attr<int32_t>("groups");
  const Shape shape = ChannelsFirst(op.InShape("X"), last);
  op.Require(shape[1] > 0 && shape[1] % groups == 0,
             fmt::format("groups must divide the channels, got {} groups and {} channels (-1: "
                         "unknown); coracle set-shape gives the channels",
                         groups, shape[1]));
  const Value x = ToChannelsFirst(op, op.In("X"), rank, last);
  const Value rows = op.Reshape(x, {0, groups, -1});
  const Value y = Normalized(op, rows, op.InType("X"), {2}, op.Attr<float>("epsilon"));
  const Value shaped = op.Node("Reshape", {y, op.ShapeOf(x)});
  ScaleChannels(op, FromChannelsFirst(op, shaped, rank, last), last);
}

// ONNX divides alpha by the number of channels.
void ExportLrn(OpContext& op) {
  const bool last = ChannelsLast(op.Attr<std::string>("data_format"));
  const int n = op.Attr<int32_t>("n");
  const Value x = ToChannelsFirst(op, op.In("X"), 4, last);
  const Value y = op.Node("LRN", {x},
                          {{"size", n},
                           {"alpha", op.Attr<float>("alpha") * static_cast<float>(n)},
                           {"beta", op.Attr<float>("beta")},
                           {"bias", op.Attr<float>("k")}});
  op.Out("Out", FromChannelsFirst(op, y, 4, last));
}

void ExportAffineChannel(OpContext& op) {
  const bool last = ChannelsLast(op.Attr<std::string>("data_layout"));
  const int rank = op.Rank("X");
  const Value scaled = op.Node("Mul", {op.In("X"), PerChannel(op, op.In("Scale"), rank, last)});
  op.Out("Out", op.Node("Add", {scaled, PerChannel(op, op.In("Bias"), rank, last)}));
}

// X / sqrt(sum of X^2 + epsilon).
void ExportNorm(OpContext& op) {
  const int64_t axis = op.Axis(op.Attr<int32_t>("axis"), op.Rank("X"));
  const Value sum = op.Reduce("ReduceSumSquare", op.In("X"), {axis}, true);
  const Value epsilon = op.Scalar(op.Attr<float>("epsilon"), op.InType("X"));
  const Value norm = op.Node("Sqrt", {op.Node("Add", {sum, epsilon})});
  op.Out("Norm", norm);
  op.Out("Out", op.Node("Div", {op.In("X"), norm}));
}

constexpr ExportRow kRows[] = {
    {"affine_channel", ExportAffineChannel, "Mul, Add"},
    {"batch_norm", ExportBatchNorm, "BatchNormalization"},
    {"fused_embedding_eltwise_layernorm", ExportEmbeddingLayerNorm,
     "Gather, Add, LayerNormalization"},
    {"fused_fc_elementwise_layernorm", ExportFcLayerNorm, "MatMul, Add, Relu, LayerNormalization"},
    {"group_norm", ExportGroupNorm, "Reshape, ReduceMean, Sub, Mul, Sqrt, Div, Add"},
    {"instance_norm", ExportInstanceNorm, "InstanceNormalization"},
    {"layer_norm", ExportLayerNorm,
     "LayerNormalization; before opset 17 ReduceMean, Sub, Div, ..."},
    {"lrn", ExportLrn, "LRN"},
    {"norm", ExportNorm, "ReduceSumSquare, Add, Sqrt, Div"},
    {"skip_layernorm", ExportSkipLayerNorm, "Add, LayerNormalization"},
    {"sync_batch_norm", ExportBatchNorm, "BatchNormalization"},
};

}  // namespace

ExportRows NormRows() { return kRows; }

}  // namespace coracle::onnx
