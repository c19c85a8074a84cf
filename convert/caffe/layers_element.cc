// Element-wise layers of one or several blobs.

#include <coracle/convert/caffe/net_writer.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <climits>
#include <cmath>

namespace coracle::caffe {
namespace {

using proto::caffe::EltwiseParameter;

void WriteUnary(const Layer& layer, NetWriter& net, Entry entry) {
  net.RequireBottoms(layer, 1, 1);
  const Blob in = net.In(layer);
  net.AddResult(layer, entry, in.dims);
}

template <const char* kKind>
void WriteSame(const Layer& layer, NetWriter& net) {
  WriteUnary(layer, net, Entry(kKind).Text("input", net.In(layer).var));
}

void WriteRelu(const Layer& layer, NetWriter& net) {
  const float slope = layer.def.relu_param().negative_slope();
  Entry entry(slope == 0 ? "relu" : "leaky_relu");
  entry.Text("input", net.In(layer).var);
  if (slope != 0) entry.Float("alpha", slope);
  WriteUnary(layer, net, entry);
}

void WriteElu(const Layer& layer, NetWriter& net) {
  Entry entry("elu");
  entry.Text("input", net.In(layer).var);
  if (layer.def.elu_param().alpha() != 1) entry.Float("alpha", layer.def.elu_param().alpha());
  WriteUnary(layer, net, entry);
}

void WriteSwish(const Layer& layer, NetWriter& net) {
  Entry entry("swish");
  entry.Text("input", net.In(layer).var);
  if (layer.def.swish_param().beta() != 1) entry.Float("beta", layer.def.swish_param().beta());
  WriteUnary(layer, net, entry);
}

void WriteClip(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.clip_param();
  Entry entry("clip");
  entry.Text("input", net.In(layer).var).Float("min", p.min()).Float("max", p.max());
  WriteUnary(layer, net, entry);
}

// scale x + shift as a variable; x itself if it is equal.
std::string Affine(const Layer& layer, NetWriter& net, const std::string& x, double scale,
                   double shift) {
  if (scale == 1 && shift == 0) return x;
  Entry entry("scale");
  entry.Text("input", x);
  if (scale != 1) entry.Float("scale", static_cast<float>(scale));
  if (shift != 0) entry.Float("bias", static_cast<float>(shift));
  return net.Step(layer, entry, "affine");
}

// (shift + scale x)^power
void WritePower(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.power_param();
  const std::string x = net.In(layer).var;
  if (p.power() == 1) {
    Entry entry("scale");
    entry.Text("input", x);
    if (p.scale() != 1) entry.Float("scale", p.scale());
    if (p.shift() != 0) entry.Float("bias", p.shift());
    return WriteUnary(layer, net, entry);
  }
  net.RequireBottoms(layer, 1, 1);
  const std::string base =
      Affine(layer, net, x, static_cast<double>(p.scale()), static_cast<double>(p.shift()));
  WriteUnary(layer, net, Entry("pow").Text("input", base).Float("factor", p.power()));
}

double LogBase(const Layer& layer, const char* param, float base) {
  if (base == -1) return 1;  // e
  if (base > 0) return std::log(static_cast<double>(base));
  layer.Fail({param, "base"}, fmt::format("base must be positive, or -1 for e, got {}", base));
}

// base^(shift + scale x) = e^(ln(base) (shift + scale x))
void WriteExp(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.exp_param();
  net.RequireBottoms(layer, 1, 1);
  const double log = LogBase(layer, "exp_param", p.base());
  const std::string x = Affine(layer, net, net.In(layer).var, log * static_cast<double>(p.scale()),
                               log * static_cast<double>(p.shift()));
  WriteUnary(layer, net, Entry("exp").Text("input", x));
}

// ln(shift + scale x) / ln(base)
void WriteLog(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.log_param();
  net.RequireBottoms(layer, 1, 1);
  const double log = LogBase(layer, "log_param", p.base());
  const std::string x = Affine(layer, net, net.In(layer).var, static_cast<double>(p.scale()),
                               static_cast<double>(p.shift()));
  Entry entry("log");
  entry.Text("input", x);
  if (log == 1) return WriteUnary(layer, net, entry);
  if (log == 0) layer.Fail({"log_param", "base"}, "a logarithm to base 1");
  const std::string natural = net.Step(layer, entry, "ln");
  Entry scale("scale");
  WriteUnary(layer, net, scale.Text("input", natural).Float("scale", static_cast<float>(1 / log)));
}

// 1 where x > threshold, else 0; no gradient.
void WriteThreshold(const Layer& layer, NetWriter& net) {
  net.RequireBottoms(layer, 1, 1);
  Entry level("fill_constant");
  level.Field("shape", "[1]").Float("value", layer.def.threshold_param().threshold());
  const std::string y = net.Step(layer, level, "threshold");
  Entry above("greater_than");
  const std::string is_above =
      net.Step(layer, above.Text("x", net.In(layer).var).Text("y", y), "above");
  WriteUnary(layer, net, Entry("cast").Text("input", is_above).Field("dtype", "FP32"));
}

// a x + y, with a number a for each channel of each image.
void WriteAxpy(const Layer& layer, NetWriter& net) {
  net.RequireBottoms(layer, 3, 3);
  const Blob a = net.In(layer), x = net.In(layer, 1), y = net.In(layer, 2);
  const bool fits = x.dims == y.dims && x.dims.size() >= 2 && a.dims.size() >= 2 &&
                    a.dims[0] == x.dims[0] && a.dims[1] == x.dims[1] && NumelOf(a.dims, 2) == 1 &&
                    (a.dims.size() == 2 || a.dims.size() == x.dims.size());
  if (!fits) {
    layer.Fail({"bottom"}, fmt::format("factors {} for {} and {}", ToText(a.dims), ToText(x.dims),
                                       ToText(y.dims)));
  }
  Entry product("elementwise_mul");
  product.Text("x", x.var).Text("y", a.var);
  if (a.dims.size() != x.dims.size()) product.Int("axis", 0);
  const std::string scaled = net.Step(layer, product, "scaled");
  net.AddResult(layer, Entry("elementwise_add").Text("x", scaled).Text("y", y.var), x.dims);
}

void WriteRelu6(const Layer& layer, NetWriter& net) {
  if (layer.def.relu6_param().negative_slope() != 0)
    layer.Fail({"relu6_param"}, "a ReLU6 with a negative slope");
  net.RequireBottoms(layer, 1, 1);
  const Blob in = net.In(layer);
  Entry op("relu6");
  net.AddOp(op.Text("X", in.var).Text("Out", net.Out(layer, 0, in.dims)));
}

void WriteDropout(const Layer& layer, NetWriter& net) {
  const auto& p = layer.def.dropout_param();
  if (p.sample_weights_test() && net.options().test) {
    layer.Fail({"dropout_param", "sample_weights_test"},
               "dropout in tests is not converted: leave the field out");
  }
  const float ratio = layer.def.dropout_param().dropout_ratio();
  if (!(ratio >= 0 && ratio < 1)) {
    layer.Fail({"dropout_param", "dropout_ratio"},
               fmt::format("dropout_ratio must lie in [0, 1), got {}", ratio));
  }
  Entry entry("dropout");
  entry.Text("input", net.In(layer).var);
  if (ratio != 0.5f) entry.Float("dropout_prob", ratio);
  entry.Text("dropout_implementation", p.scale_train() ? "upscale_in_train" : "downgrade_in_infer");
  WriteUnary(layer, net, entry);
}

void WriteSoftmax(const Layer& layer, NetWriter& net) {
  const Blob in = net.In(layer);
  const int64_t axis = AxisOf(layer, layer.def.softmax_param().axis(), in.dims.size());
  Entry entry("softmax");
  entry.Text("input", in.var);
  if (axis + 1 != static_cast<int64_t>(in.dims.size())) entry.Int("axis", axis);
  WriteUnary(layer, net, entry);
}

void RequireSameDims(const Layer& layer, const NetWriter& net) {
  const Dims& first = net.In(layer, 0).dims;
  for (int i = 1; i < layer.def.bottom_size(); ++i) {
    const Dims& dims = net.In(layer, i).dims;
    if (dims == first) continue;
    layer.Fail({"bottom"}, fmt::format("its bottoms must have the same dims, got {} and {}",
                                       ToText(first), ToText(dims)));
  }
}

void WriteEltwise(const Layer& layer, NetWriter& net) {
  const EltwiseParameter& p = layer.def.eltwise_param();
  net.RequireBottoms(layer, 2, INT_MAX);
  RequireSameDims(layer, net);
  const int count = layer.def.bottom_size();
  if (p.coeff_size() > 0 && p.operation() != EltwiseParameter::SUM)
    layer.Fail({"eltwise_param", "coeff"}, "coeff belongs to SUM");
  if (p.coeff_size() > 0 && p.coeff_size() != count) {
    layer.Fail({"eltwise_param", "coeff"},
               fmt::format("{} coeffs for {} bottoms", p.coeff_size(), count));
  }
  const char* kind = p.operation() == EltwiseParameter::PROD  ? "elementwise_mul"
                     : p.operation() == EltwiseParameter::SUM ? "elementwise_add"
                                                              : "elementwise_max";
  const Dims dims = net.In(layer).dims;
  std::string value;
  for (int i = 0; i < count; ++i) {
    const std::string next = Affine(layer, net, net.In(layer, i).var,
                                    i < p.coeff_size() ? static_cast<double>(p.coeff(i)) : 1, 0);
    Entry entry(kind);
    // If both are equal, the gradient of a maximum goes to y: the second of the first two bottoms,
    // else the earlier one, as in Caffe.
    const bool later_first = i > 1 && p.operation() == EltwiseParameter::MAX;
    entry.Text("x", later_first ? next : value).Text("y", later_first ? value : next);
    if (i == 0) value = next;
    if (i > 0 && i + 1 < count) value = net.Step(layer, entry, "partial");
    if (i > 0 && i + 1 == count) net.AddResult(layer, entry, dims);
  }
}

constexpr char kAbs[] = "abs", kSigmoid[] = "sigmoid", kTanh[] = "tanh", kSoftplus[] = "softplus";

}  // namespace

LayerTable ElementLayers() {
  return {{"AbsVal", WriteSame<kAbs>, "`abs`"},
          {"Axpy", WriteAxpy, "`elementwise_mul` and `elementwise_add`"},
          {"BNLL", WriteSame<kSoftplus>, "`softplus`"},
          {"Clip", WriteClip, "`clip`"},
          {"Dropout", WriteDropout,
           "`dropout` that scales while training; in tests nothing, or with scale_train: false the "
           "other way round"},
          {"ELU", WriteElu, "`elu`"},
          {"Eltwise", WriteEltwise,
           "`elementwise_mul`, `elementwise_add` of scaled bottoms, or `elementwise_max`"},
          {"Exp", WriteExp, "`scale` and `exp`"},
          {"Log", WriteLog, "`scale` and `log`"},
          {"Power", WritePower, "`scale` and `pow`"},
          {"ReLU", WriteRelu, "`relu`, `leaky_relu`; in place the `act` of the layer before it"},
          {"ReLU6", WriteRelu6, "op `relu6`"},
          {"Sigmoid", WriteSame<kSigmoid>, "`sigmoid`; in place the `act` of the layer before it"},
          {"Softmax", WriteSoftmax, "`softmax`"},
          {"Swish", WriteSwish, "`swish`"},
          {"TanH", WriteSame<kTanh>, "`tanh`; in place the `act` of the layer before it"},
          {"Threshold", WriteThreshold, "`greater_than` and `cast`"}};
}

}  // namespace coracle::caffe
