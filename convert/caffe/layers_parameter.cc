// Layers with parameters other than convolutions.

#include <coracle/convert/caffe/net_writer.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <limits>

namespace coracle::caffe {
namespace {

using Wish = NetWriter::ParamWish;
using proto::caffe::FillerParameter;

constexpr float kRandom = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max();

template <class P>
const FillerParameter* WeightFiller(const P& param) {
  return param.has_weight_filler() ? &param.weight_filler() : nullptr;
}
template <class P>
const FillerParameter* BiasFiller(const P& param) {
  return param.has_bias_filler() ? &param.bias_filler() : nullptr;
}

// A product with the transposed weight of another layer, as in tied autoencoders.
void WriteTransposedProduct(const Layer& layer, NetWriter& net, const Blob& in,
                            const std::string& weight, int64_t inputs, const Dims& out) {
  const auto& p = layer.def.inner_product_param();
  std::string x = in.var;
  if (in.dims.size() != 2) {
    Entry flat("reshape");
    x = net.Step(layer, flat.Text("input", x).Field("shape", ListText({-1, inputs})), "flat");
  }
  Entry last = Entry("matmul").Text("x", x).Text("y", weight).Bool("transpose_y", true);
  if (p.bias_term()) {
    const std::string product = net.Step(layer, last, "product");
    const std::string bias = net.Parameter(layer, {.blob = 1,
                                                   .dims = {out.back()},
                                                   .var = layer.def.name() + ".b_0",
                                                   .filler = BiasFiller(p),
                                                   .constant = 0});
    last = Entry("elementwise_add").Text("x", product).Text("y", bias);
  }
  if (out.size() != 2) {
    Dims shape = out;
    shape[0] = -1;
    const std::string rows = net.Step(layer, last, "rows");
    last = Entry("reshape").Text("input", rows).Field("shape", ListText(shape));
  }
  net.AddResult(layer, last, out);
}

void WriteInnerProduct(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.inner_product_param();
  net.RequireBottoms(layer, 1, 1);
  const Blob in = net.KnownIn(layer);
  const int64_t axis = AxisOf(layer, p.axis(), in.dims.size());
  if (axis < 1)
    layer.Fail({"inner_product_param", "axis"}, "an axis of 0 would make one row of the batch");
  const int64_t outputs = p.num_output();
  if (outputs < 1 || outputs > kMaxSize) {
    layer.Fail({"inner_product_param", "num_output"},
               fmt::format("num_output must be positive, got {}", outputs));
  }
  const int64_t inputs = NumelOf(in.dims, static_cast<size_t>(axis));
  Dims out(in.dims.begin(), in.dims.begin() + axis);
  out.push_back(outputs);
  const std::string& name = layer.def.name();
  Entry entry("fc");
  entry.Text("input", in.var).Int("size", outputs);
  if (axis != 1) entry.Int("num_flatten_dims", axis);
  entry.Text("name", name);
  const Wish weight{
      .blob = 0,
      .dims = p.transpose() ? Dims{inputs, outputs} : Dims{outputs, inputs},
      .var = name + ".w_0",
      .layout = p.transpose() ? ParamSource::Layout::kSame : ParamSource::Layout::kTransposed,
      .filler = WeightFiller(p),
      .model_default = kRandom};
  const std::string shared = net.ClaimTransposed(layer, weight);
  if (!shared.empty()) return WriteTransposedProduct(layer, net, in, shared, inputs, out);
  entry.Message("param", net.Param(layer, weight));
  if (p.bias_term()) {
    entry.Message(
        "bias",
        net.Param(layer,
                  {.blob = 1, .dims = {outputs}, .var = name + ".b_0", .filler = BiasFiller(p)}));
  } else {
    entry.Bool("bias_term", false);
  }
  net.AddResult(layer, entry, out);
}

void WriteEmbed(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.embed_param();
  net.RequireBottoms(layer, 1, 1);
  const Blob in = net.In(layer);
  if (p.input_dim() < 1 || p.num_output() < 1)
    layer.Fail({"embed_param"}, "input_dim and num_output must be positive");
  const std::string& name = layer.def.name();
  std::string ids = in.var;
  if (!in.is_label) {  // Caffe's numbers are floats
    Entry cast("cast");
    ids = net.Step(layer, cast.Text("input", in.var).Field("dtype", "INT64"), "ids");
  } else if (in.dims.size() == 1) {
    Entry flat("reshape");
    ids = net.Step(layer, flat.Text("input", in.var).Field("shape", "[-1]"), "ids");
  }
  Dims out = in.dims;
  out.push_back(p.num_output());
  Entry entry("embedding");
  entry.Text("input", ids).Int("num_embeddings", p.input_dim());
  entry.Int("embedding_dim", p.num_output()).Text("name", name);
  entry.Message("param", net.Param(layer, {.blob = 0,
                                           .dims = {p.input_dim(), p.num_output()},
                                           .var = name + ".w_0",
                                           .filler = WeightFiller(p),
                                           .model_default = kRandom}));
  if (!p.bias_term()) return net.AddResult(layer, entry, out);
  const std::string rows = net.Step(layer, entry, "rows");
  const std::string bias = net.Parameter(layer, {.blob = 1,
                                                 .dims = {p.num_output()},
                                                 .var = name + ".b_0",
                                                 .filler = BiasFiller(p),
                                                 .constant = 0});
  net.AddResult(layer, Entry("elementwise_add").Text("x", rows).Text("y", bias), out);
}

// The dims covered by a parameter of a Scale or Bias layer; a batch among them is the declared one.
Dims Covered(const Layer& layer, NetWriter& net, const Blob& in, int64_t axis, int64_t num_axes) {
  if (num_axes < -1) layer.Fail(fmt::format("num_axes must be at least -1, got {}", num_axes));
  const int64_t rank = static_cast<int64_t>(in.dims.size());
  const int64_t end = num_axes == -1 ? rank : axis + num_axes;
  if (end > rank) layer.Fail(fmt::format("num_axes {} reaches past the {} dims", num_axes, rank));
  Dims dims(in.dims.begin() + axis, in.dims.begin() + end);
  if (axis == 0 && end > 0 && dims[0] < 0 && net.declared_batch() > 0) {
    dims[0] = net.declared_batch();
    net.net().notes.push_back(
        fmt::format("{}: its parameter covers the batch, which must be {}", layer.where, dims[0]));
  }
  if (NumelOf(dims) < 0)
    layer.Fail(fmt::format("its parameter has unknown dims: {}", ToText(dims)));
  return dims;
}

// x op y, with the dims of y aligned to the dims of x from `axis` on.
Entry Elementwise(const char* kind, const std::string& x, const std::string& y, int64_t axis,
                  size_t x_rank, size_t y_rank) {
  Entry entry(kind);
  entry.Text("x", x).Text("y", y);
  if (y_rank > 0 && static_cast<size_t>(axis) + y_rank != x_rank) entry.Int("axis", axis);
  return entry;
}

// The second factor or summand: the second bottom, or a parameter.
struct Operand {
  std::string var;
  Dims dims;
};

Operand SecondOperand(const Layer& layer, NetWriter& net, const Blob& in, int64_t axis,
                      int64_t num_axes, const FillerParameter* filler, float constant) {
  if (layer.def.bottom_size() == 2) {
    const Blob& second = net.In(layer, 1);
    return {second.var, second.dims};
  }
  const Dims dims = Covered(layer, net, in, axis, num_axes);
  return {net.Parameter(layer, {.blob = 0,
                                .dims = dims,
                                .var = layer.def.name() + ".w_0",
                                .filler = filler,
                                .constant = constant}),
          dims};
}

void WriteScale(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.scale_param();
  net.RequireBottoms(layer, 1, 2);
  const Blob in = net.In(layer);
  const int64_t axis = AxisOf(layer, p.axis(), in.dims.size());
  const Operand factor =
      SecondOperand(layer, net, in, axis, p.num_axes(), p.has_filler() ? &p.filler() : nullptr, 1);
  Entry product =
      Elementwise("elementwise_mul", in.var, factor.var, axis, in.dims.size(), factor.dims.size());
  if (!p.bias_term()) return net.AddResult(layer, product, in.dims);
  const std::string scaled = net.Step(layer, product, "scaled");
  const std::string bias = net.Parameter(layer, {.blob = layer.def.bottom_size() == 2 ? 0 : 1,
                                                 .dims = factor.dims,
                                                 .var = layer.def.name() + ".b_0",
                                                 .filler = BiasFiller(p),
                                                 .constant = 0});
  net.AddResult(
      layer, Elementwise("elementwise_add", scaled, bias, axis, in.dims.size(), factor.dims.size()),
      in.dims);
}

void WriteBias(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.bias_param();
  net.RequireBottoms(layer, 1, 2);
  const Blob in = net.In(layer);
  const int64_t axis = AxisOf(layer, p.axis(), in.dims.size());
  const Operand bias =
      SecondOperand(layer, net, in, axis, p.num_axes(), p.has_filler() ? &p.filler() : nullptr, 0);
  net.AddResult(
      layer,
      Elementwise("elementwise_add", in.var, bias.var, axis, in.dims.size(), bias.dims.size()),
      in.dims);
}

void WritePrelu(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.prelu_param();
  net.RequireBottoms(layer, 1, 1);
  const Blob in = net.In(layer);
  if (in.dims.size() < 2 || in.dims[1] < 1) layer.Fail("its bottom needs known channels");
  const Dims dims = p.channel_shared() ? Dims{} : Dims{in.dims[1]};
  const std::string alpha = net.Parameter(layer, {.blob = 0,
                                                  .dims = dims,
                                                  .var = layer.def.name() + ".w_0",
                                                  .filler = p.has_filler() ? &p.filler() : nullptr,
                                                  .constant = 0.25f});
  Entry op("prelu");
  op.Text("X", in.var).Text("Alpha", alpha);
  if (!p.channel_shared()) op.Text("mode", "channel");
  net.AddOp(op.Text("Out", net.Out(layer, 0, in.dims)));
}

void WriteParameter(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.parameter_param();
  net.RequireBottoms(layer, 0, 0);
  const Dims dims(p.shape().dim().begin(), p.shape().dim().end());
  if (dims.empty() || dims.size() > 8)
    layer.Fail({"parameter_param"}, "its shape must have 1 to 8 dims");
  for (const int64_t dim : dims)
    if (dim < 1 || dim > kMaxSize) layer.Fail({"parameter_param"}, fmt::format("a dim of {}", dim));
  const std::string var =
      net.Parameter(layer, {.blob = 0, .dims = dims, .var = layer.def.name() + ".w_0"});
  net.AddResult(layer, Entry("assign").Text("input", var), dims);
}

}  // namespace

LayerTable ParameterLayers() {
  return {{"Bias", WriteBias, "`elementwise_add` with a `parameter`"},
          {"Embed", WriteEmbed, "`embedding`, with a bias `elementwise_add`"},
          {"InnerProduct", WriteInnerProduct, "`fc`"},
          {"PReLU", WritePrelu, "`prelu` with a `parameter`"},
          {"Parameter", WriteParameter, "`parameter`"},
          {"Scale", WriteScale,
           "`elementwise_mul`, `elementwise_add` with `parameter`s, or of two bottoms"}};
}

}  // namespace coracle::caffe
