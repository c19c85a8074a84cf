#include <coracle/framework/base/error.h>
#include <coracle/operators/activation/activation_formulas.h>
#include <coracle/operators/conv/conv_activation.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace coracle::inline internal {
namespace {

using activation::P;

template <class T>
using Loop = void (*)(T* x, int64_t n, const P<T>& p);

template <class F, class T>
void RunLoop(T* x, int64_t n, const P<T>& p) {
  for (int64_t i = 0; i < n; ++i) x[i] = F::template Value<T>(x[i], p);
}

// A value of fuse_activation: the op, and its attrs in the order of the formula's parameters. The
// first `taken` attrs come from fuse_alpha and fuse_beta; the others are fixed.
struct ActivationRow {
  const char* name;
  const char* type;
  std::array<const char*, 3> attrs;
  std::array<float, 3> values;  // defaults of the op, for attrs absent in the program
  int taken;                    // number of attrs that come from fuse_alpha and fuse_beta
  const char* flag;             // an attr of the op that must be set; nullptr: none
  const char* unset_flag;       // an attr of the op that must not be set; nullptr: none
  bool reads_out;
  Loop<float> in_float;
  Loop<double> in_double;
  std::optional<simd::Unary> simd;
};

template <class F>
ActivationRow RowOf(const char* name, int taken, const char* flag = nullptr) {
  ActivationRow row = {name,    "",      {},          {F::kFirstParam, 0, 0}, taken,
                       flag,    nullptr, F::kFromOut, RunLoop<F, float>,      RunLoop<F, double>,
                       F::kSimd};
  if constexpr (requires { F::kType; }) row.type = F::kType;
  for (size_t i = 0; i < F::kAttrs.size(); ++i) {
    row.attrs[i] = F::kAttrs[i].name;
    row.values[i] = F::kAttrs[i].value;
  }
  return row;
}

// clip has its bounds as attrs, or as tensors, which no convolution accepts.
struct Clip : activation::Brelu {
  static constexpr const char* kType = "clip";
  static constexpr std::array<activation::AttrRow, 2> kAttrs = {
      {{"min", 0, "lowest value"}, {"max", 0, "highest value"}}};
};
struct GeluTanh : activation::GeluTanh {
  static constexpr const char* kType = "gelu";
};

const std::vector<ActivationRow>& Rows() {
  namespace act = activation;
  static const std::vector<ActivationRow> rows = [] {
    std::vector<ActivationRow> all = {RowOf<act::Relu>("relu", 0),
                                      RowOf<act::Relu6>("relu6", 1),
                                      RowOf<act::LeakyRelu>("leaky_relu", 1),
                                      RowOf<act::HardSwish>("hard_swish", 0),
                                      RowOf<act::HardSigmoid>("hard_sigmoid", 2),
                                      RowOf<act::Swish>("swish", 1),
                                      RowOf<act::Sigmoid>("sigmoid", 0),
                                      RowOf<act::Tanh>("tanh", 0),
                                      RowOf<act::Gelu>("gelu", 0),
                                      RowOf<GeluTanh>("gelu_tanh", 0, "approximate"),
                                      RowOf<Clip>("clip", 2)};
    for (ActivationRow& row : all) {
      if (row.name == std::string_view("gelu")) row.unset_flag = "approximate";
    }
    return all;
  }();
  return rows;
}

const ActivationRow& Find(const std::string& name) {
  for (const ActivationRow& row : Rows()) {
    if (row.name == name) return row;
  }
  throw InternalError("fuse_activation: " + name);
}

// The activation's parameters.
std::array<float, 3> Params(const ActivationRow& row, float alpha, float beta) {
  std::array<float, 3> p = row.values;
  if (row.taken > 0) p[0] = alpha;
  if (row.taken > 1) p[1] = beta;
  return p;
}

// A clip from 0 on is relu6, which has a loop of vector instructions.
std::optional<AttrList> Relu6AttrsOf(const OpDesc& clip) {
  const auto least = clip.GetAttr<float>("min", 0);
  if (clip.type() != "clip" || least != 0 || std::signbit(least)) return std::nullopt;
  return AttrList{{"fuse_activation", std::string("relu6")},
                  {"fuse_alpha", clip.GetAttr<float>("max", 0)}};
}

}  // namespace

FusedActivation ActivationOpOf(const std::string& name, float alpha, float beta) {
  const ActivationRow& row = Find(name);
  const std::array<float, 3> p = Params(row, alpha, beta);
  FusedActivation op{row.type, {}, row.reads_out};
  for (size_t i = 0; i < p.size(); ++i) {
    if (row.attrs[i]) op.attrs.push_back({row.attrs[i], p[i]});
  }
  if (row.flag) op.attrs.push_back({row.flag, true});
  return op;
}

std::optional<AttrList> FusedAttrsOf(const OpDesc& activation) {
  if (auto relu6 = Relu6AttrsOf(activation)) return relu6;
  for (const ActivationRow& row : Rows()) {
    if (row.type != activation.type()) continue;
    if (row.flag && !activation.GetAttr<bool>(row.flag, false)) continue;
    if (row.unset_flag && activation.GetAttr<bool>(row.unset_flag, false)) continue;
    AttrList attrs = {{"fuse_activation", std::string(row.name)}};
    bool fits = true;
    for (int i = 0; i < 3; ++i) {
      const auto k = static_cast<size_t>(i);
      if (!row.attrs[k]) continue;
      const float value = activation.GetAttr<float>(row.attrs[k], row.values[k]);
      if (i < row.taken) {
        attrs.push_back({i == 0 ? "fuse_alpha" : "fuse_beta", value});
      } else {
        fits = fits && value == row.values[k];
      }
    }
    if (fits) return attrs;
  }
  return std::nullopt;
}

void DeclareFusedActivation(OpDef& def) {
  std::vector<std::string> names = {""};
  for (const ActivationRow& row : Rows()) names.emplace_back(row.name);
  def.Attr<std::string>(
         "fuse_activation", "",
         "the activation act; \"\": none; relu6(x) = min(max(x, 0), fuse_alpha); leaky_relu: "
         "fuse_alpha x below 0; swish: x / (1 + e^(-fuse_alpha x)); hard_sigmoid: fuse_alpha x + "
         "fuse_beta in [0, 1]; clip to [fuse_alpha, fuse_beta]; hard_swish, gelu: as the ops with "
         "their default attrs; gelu_tanh: gelu's approximation")
      .OneOf(names)
      .Attr<float>("fuse_alpha", 0.0f, "first parameter of the activation")
      .Attr<float>("fuse_beta", 0.0f, "second parameter of the activation");
}

Variable GradOfSums(GradientContext& g, const SlotList& inputs, const AttrList& attrs) {
  const auto name = g.Attr<std::string>("fuse_activation");
  const Variable dout = g.Grad("Output");
  if (name.empty()) return dout;
  const FusedActivation act =
      ActivationOpOf(name, g.Attr<float>("fuse_alpha"), g.Attr<float>("fuse_beta"));
  const std::string read =
      act.reads_out ? g.Output("Output") : g.Make(g.op().type(), inputs, attrs, "Output").name();
  return g.Make(act.type + "_grad",
                {{act.reads_out ? "Out" : "X", {read}}, {"Out@GRAD", {dout.name()}}}, act.attrs,
                "X@GRAD");
}

ConvActivation::ConvActivation(const PrepareContext& ctx) {
  const auto name = ctx.Attr<std::string>("fuse_activation");
  if (name.empty()) return;
  const ActivationRow& row = Find(name);
  row_ = static_cast<int>(&row - Rows().data());
  const std::array<float, 3> p =
      Params(row, ctx.Attr<float>("fuse_alpha"), ctx.Attr<float>("fuse_beta"));
  std::copy(p.begin(), p.end(), params_);
  if (row.simd) loop_ = simd::FindUnary(*row.simd);
}

void ConvActivation::Apply(float* x, int64_t n) const {
  if (row_ >= 0)
    Rows()[static_cast<size_t>(row_)].in_float(x, n, {params_[0], params_[1], params_[2]});
}
void ConvActivation::Apply(double* x, int64_t n) const {
  if (row_ >= 0)
    Rows()[static_cast<size_t>(row_)].in_double(x, n, {params_[0], params_[1], params_[2]});
}
void ConvActivation::ApplyFast(float* x, int64_t n) const {
  if (loop_)
    loop_(x, x, n, {params_[0], params_[1], params_[2]});
  else
    Apply(x, n);
}

const char* ConvActivation::name() const {
  return row_ < 0 ? "" : Rows()[static_cast<size_t>(row_)].name;
}

}  // namespace coracle::inline internal
