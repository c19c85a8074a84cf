// Normalisations.
#include "images.h"
#include "program_exporter.h"
#include "rows.h"

namespace coracle::onnx {
namespace {

// Scales and statistics may be float32 beside 16-bit elements.
Value Like(OpContext& op, const char* slot, const char* like) {
  return op.Cast(op.In(slot), op.InType(slot), op.InType(like));
}

// A vector with an element for each channel, to be stretched over a tensor of that rank.
Value PerChannel(OpContext& op, const Value& vector, int rank, bool channels_last) {
  if (channels_last) return vector;
  Ints dims(static_cast<size_t>(rank) - 1, 1);
  dims[0] = -1;
  return op.Reshape(vector, dims);
}

// Y from statistics that stay; those that the op would write are the ones that it read.
void ExportBatchNorm(OpContext& op) {
  const bool trained = op.Attr<bool>("trainable_statistics");
  op.Require(op.Attr<bool>("use_global_stats") || (op.Attr<bool>("is_test") && !trained),
             std::string("it uses the statistics of the batch, as in training. ") + kInferenceOnly);
  const int rank = op.Rank("X");
  const bool last = ChannelsLast(op.Attr<std::string>("data_layout")) && rank > 2;
  const Value x = ToChannelsFirst(op, op.In("X"), rank, last);
  const Value y = op.Node("BatchNormalization",
                          {x, Like(op, "Scale", "X"), Like(op, "Bias", "X"), Like(op, "Mean", "X"),
                           Like(op, "Variance", "X")},
                          {{"epsilon", op.Attr<float>("epsilon")}});
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

// The dims of a row where they are known, else those that X has.
Value RowDims(OpContext& op, int begin) {
  const Shape& x = op.InShape("X");
  Ints dims(x.begin() + begin, x.end());
  for (int64_t dim : dims) {
    if (dim < 0) return op.DimsOf(op.In("X"), begin, x.rank());
  }
  return op.IntList(dims);
}

void ExportLayerNorm(OpContext& op) {
  const int begin = op.Attr<int32_t>("begin_norm_axis"), rank = op.Rank("X");
  const float epsilon = op.Attr<float>("epsilon");
  const auto row = [&](const char* slot) {
    if (!op.Has(slot)) return Value();
    const Value vector = Like(op, slot, "X");
    return rank - begin == 1 ? vector : op.Node("Reshape", {vector, RowDims(op, begin)});
  };
  const Value scale = row("Scale"), bias = row("Bias");
  if (op.opset() >= 17 && !scale.empty()) {
    op.Out("Y", op.Node("LayerNormalization", {op.In("X"), scale, bias},
                        {{"axis", begin}, {"epsilon", epsilon}}));
    return;
  }
  Ints axes;
  for (int i = begin; i < rank; ++i) axes.push_back(i);
  Value y = Normalized(op, op.In("X"), op.InType("X"), axes, epsilon);
  if (!scale.empty()) y = op.Node("Mul", {y, scale});
  if (!bias.empty()) y = op.Node("Add", {y, bias});
  op.Out("Y", y);
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

// A group as one row of a matrix.
void ExportGroupNorm(OpContext& op) {
  const bool last = ChannelsLast(op.Attr<std::string>("data_layout"));
  const int rank = op.Rank("X");
  const int64_t groups = op.Attr<int32_t>("groups");
  const Shape shape = ChannelsFirst(op.InShape("X"), last);
  op.Require(shape[1] > 0 && shape[1] % groups == 0,
             "groups that do not divide the channels, or an unknown number of these, have no "
             "counterpart");
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
    {"group_norm", ExportGroupNorm, "Reshape, ReduceMean, Sub, Mul, Sqrt, Div, Add"},
    {"instance_norm", ExportInstanceNorm, "InstanceNormalization"},
    {"layer_norm", ExportLayerNorm,
     "LayerNormalization; before opset 17 ReduceMean, Sub, Div, ..."},
    {"lrn", ExportLrn, "LRN"},
    {"norm", ExportNorm, "ReduceSumSquare, Add, Sqrt, Div"},
    {"sync_batch_norm", ExportBatchNorm, "BatchNormalization"},
};

}  // namespace

ExportRows NormRows() { return kRows; }

}  // namespace coracle::onnx
