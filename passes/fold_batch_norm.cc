// With fixed statistics, batch_norm is a scale and a shift of each channel:
//   y = scale * (conv(x, w) + bias - mean) / sqrt(variance + epsilon) + shift
//     = conv(x, w * factor) + (bias - mean) * factor + shift,
// factor = scale / sqrt(variance + epsilon). Factors and the new bias are computed in double. If w
// consists of integers of 8 bits with scales (affine_dequantize), the factors go into the scales.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/kernels/simd.h>
#include <coracle/passes/freeze.h>
#include <coracle/passes/match.h>
#include <coracle/passes/passes.h>
#include <coracle/passes/quantized_form.h>
#include <coracle/passes/value_flow.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <type_traits>
#include <utility>

namespace coracle::inline internal {
namespace {

const std::vector<Pattern>& Patterns() {
  static const std::string conv = R"(
    linear: Output=product = conv2d|depthwise_conv2d|conv2d_transpose|depthwise_conv2d_transpose(
            Input=x, Filter=w, Bias=own_bias?))";
  static const std::string mul = R"(
    linear: Out=product = mul(X=x, Y=w))";
  static const std::string norm_of_product = R"(
    norm: Y=y = batch_norm(X=product, Scale=scale, Bias=shift, Mean=mean, Variance=variance))";
  static const std::string norm_of_sum = R"(
    add:  Out=sum = elementwise_add(X=product, Y=bias)
    norm: Y=y = batch_norm(X=sum, Scale=scale, Bias=shift, Mean=mean, Variance=variance))";
  static const std::vector<Pattern> patterns = {
      Pattern(conv + norm_of_product), Pattern(conv + norm_of_sum), Pattern(mul + norm_of_product),
      Pattern(mul + norm_of_sum)};
  return patterns;
}

bool IsMul(const Match& m) { return m.op("linear").type() == "mul"; }
bool IsTransposed(const Match& m) {
  return m.op("linear").type().find("transpose") != std::string::npos;
}
bool IsNhwc(const OpDesc& op, const char* attr) {
  return op.GetAttr<std::string>(attr, "NCHW") == "NHWC";
}
int64_t GroupsOf(const Match& m) { return m.op("linear").GetAttr<int32_t>("groups", 1); }
int ProductRank(const Match& m) { return IsMul(m) ? 2 : 4; }
int ChannelAxis(const Match& m) {
  return IsNhwc(m.op("norm"), "data_layout") ? ProductRank(m) - 1 : 1;
}

// Views the weight as [groups, rows, channels of a group, inner] and maps each element to the
// channel of the product to which it contributes.
class WeightChannels {
 public:
  WeightChannels(const Match& m, const Shape& w) {
    const int64_t groups = IsTransposed(m) ? GroupsOf(m) : 1;
    if (IsMul(m)) {
      per_group_ = w[1];
      rows_per_group_ = w[0];
    } else if (IsTransposed(m)) {  // [C, M / groups, kh, kw]
      inner_ = w[2] * w[3];
      per_group_ = w[1];
      rows_per_group_ = w[0] / groups;
    } else {  // [M, C / groups, kh, kw]
      inner_ = w.Product(1, 4);
      per_group_ = w[0];
    }
    count_ = per_group_ * groups;
  }

  int64_t count() const { return count_; }
  int64_t inner() const { return inner_; }  // number of consecutive elements of one channel
  size_t Of(int64_t i) const {
    const int64_t group = i / (inner_ * per_group_ * rows_per_group_);
    return static_cast<size_t>(group * per_group_ + i / inner_ % per_group_);
  }

 private:
  int64_t inner_ = 1, per_group_ = 1, rows_per_group_ = 1, count_ = 0;
};

// Whether the bias has one number per channel and is added along the channel axis.
bool IsChannelBias(const Match& m, const Shape& bias, int64_t channels) {
  const int rank = ProductRank(m), axis = m.op("add").GetAttr<int32_t>("axis", -1);
  const int begin = axis < 0 ? rank - bias.rank() : axis;
  if (begin < 0 || begin + bias.rank() > rank || bias.numel() != channels) return false;
  for (int i = 0; i < bias.rank(); ++i) {
    if (bias[i] != (begin + i == ChannelAxis(m) ? channels : 1)) return false;
  }
  return true;
}

// What is left of batch_norm: a factor for each channel, and the new bias.
struct Affine {
  std::vector<double> factors;
  Tensor bias;
};
Affine AffineOf(const Matcher& matcher, const Match& m, int64_t channels) {
  const double epsilon = static_cast<double>(m.op("norm").GetAttr<float>("epsilon", 1e-5f));
  const std::vector<double> none(static_cast<size_t>(channels));
  const auto values = [&](const char* name) {
    if (!m.Has(name)) return none;
    const Tensor given = matcher.Constant(m[name])->Cast(DType::kFloat64);
    const std::span<const double> numbers = given.span<double>();
    return std::vector<double>(numbers.begin(), numbers.end());
  };
  const std::vector<double> scale = values("scale"), variance = values("variance");
  const std::vector<double> mean = values("mean"), shift = values("shift");
  const std::vector<double> own_bias = values("own_bias"), added = values("bias");
  Affine affine = {none, Tensor(DType::kFloat64, {channels})};
  double* new_bias = affine.bias.data<double>();
  for (size_t c = 0; c < none.size(); ++c) {
    affine.factors[c] = scale[c] / std::sqrt(variance[c] + epsilon);
    new_bias[c] = (own_bias[c] + added[c] - mean[c]) * affine.factors[c] + shift[c];
  }
  return affine;
}

void Scale(const bfloat16* from, double factor, int64_t n, bfloat16* to) {
  const auto rounded = static_cast<float>(factor);
  for (int64_t i = 0; i < n; ++i) to[i] = bfloat16(static_cast<float>(from[i]) * rounded);
}
// Exact except for the last bit, because the factor is rounded too.
template <class T>
void Scale(const T* from, double factor, int64_t n, T* to) {
  const T rounded = static_cast<T>(factor);
  if constexpr (std::is_same_v<T, float>) {
    static const simd::BinaryLoop multiply =
        simd::FindBinary(simd::Binary::kMul, simd::Form::kVectorScalar);
    constexpr int64_t kLong = 16;
    if (n >= kLong) return multiply(from, &rounded, to, n);
  }
  for (int64_t i = 0; i < n; ++i) to[i] = from[i] * rounded;
}

// The weight with each element multiplied by the factor of its channel, in place if nothing else
// uses its memory.
template <class T>
Tensor Scaled(const PassContext& context, const std::string& name, const WeightChannels& channels,
              const std::vector<double>& factors) {
  const Tensor& w = *context.FrozenValue(name);
  void* place = context.fetches.count(name) ? nullptr : PlaceOfFrozen(w);
  Tensor scaled = place ? w : Tensor(w.dtype(), w.shape());
  if (w.empty()) return scaled;
  const T* from = w.data<T>();
  T* to = place ? static_cast<T*>(place) : scaled.data<T>();
  const int64_t run = channels.inner(), grain = std::max<int64_t>(1, 65536 / run);
  ParallelFor(w.numel() / run, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * run; i < end * run; i += run)
      Scale(from + i, factors[channels.Of(i)], run, to + i);
  });
  return scaled;
}

bool IsFoldable(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kBFloat16;
}

// Whether batch_norm normalises the axis with the channels of the product.
bool HasPlainProduct(const Match& m, const Shape& w) {
  const OpDesc& linear = m.op("linear");
  if (!IsMul(m)) {
    return w.rank() == 4 && GroupsOf(m) > 0 && w[0] % GroupsOf(m) == 0 &&
           IsNhwc(linear, "data_format") == IsNhwc(m.op("norm"), "data_layout");
  }
  return w.rank() == 2 && linear.GetAttr<int32_t>("x_num_col_dims", 1) == 1;
}

class BatchNormFolder {
 public:
  BatchNormFolder(ProgramDesc& program, const PassContext& context)
      : program_(program),
        context_(context),
        matcher_(program.Root(), context),
        flow_(program, context),
        quantized_(program.Root(), context, flow_),
        rewrites_(program.Root()) {}

  void Run() {
    for (const Pattern& pattern : Patterns()) {
      for (const Match& m : matcher_.FindAll(pattern)) {
        if (CanFold(m)) Fold(m);
      }
    }
    rewrites_.Apply();
  }

 private:
  const Tensor& Value(const Match& m, const char* name) const {
    return *matcher_.Constant(m[name]);
  }

  bool CanFold(const Match& m) const {
    if (!HasFixedStatistics(m.op("norm")) || !matcher_.HasOneReader(m["w"])) return false;
    if (!m.op("linear").GetAttr<std::string>("fuse_activation", "").empty()) return false;
    const QuantizedValue* integers = quantized_.Find(m["w"]);
    const Tensor* w = integers ? matcher_.Constant(integers->integers) : matcher_.Constant(m["w"]);
    if (!w || !HasPlainProduct(m, w->shape())) return false;
    if (integers ? !FitsTo(m, *integers) : !FitsTo(m, *w)) return false;
    const int64_t channels = WeightChannels(m, w->shape()).count();
    for (const char* name : {"scale", "shift", "mean", "variance", "own_bias", "bias"}) {
      const Tensor* value = m.Has(name) ? matcher_.Constant(m[name]) : nullptr;
      if (m.Has(name) && (!value || !FitsTo(DTypeOfSums(m), *value) || value->numel() != channels))
        return false;
    }
    return !m.Has("bias") || IsChannelBias(m, Value(m, "bias").shape(), channels);
  }

  bool FitsTo(const Match& m, const Tensor& w) const {
    return IsFoldable(w.dtype()) &&
           (DTypeOfSums(m) == w.dtype() ||
            (DTypeOfSums(m) == DType::kBFloat16 && w.dtype() == DType::kFloat32));
  }
  // Whether each scale belongs to one channel, or to all.
  bool FitsTo(const Match& m, const QuantizedValue& w) const {
    const int axis = IsMul(m) || IsTransposed(m) ? 1 : 0;
    return flow_.IsTemporary(m["w"]) && DTypeOfSums(m) == DType::kFloat32 &&
           (w.form.HasOneScale() || w.form.axis == axis) && (!IsTransposed(m) || GroupsOf(m) == 1);
  }
  // The dtype of the product and of a bias. The weight may be float32 with bfloat16 sums.
  DType DTypeOfSums(const Match& m) const {
    return program_.Root().FindVarRecursive(m["product"])->dtype();
  }
  // Statistics, scale and shift may also be float32.
  static bool FitsTo(DType sums, const Tensor& value) {
    return value.dtype() == sums || (sums == DType::kBFloat16 && value.dtype() == DType::kFloat32);
  }

  void Fold(const Match& m) {
    if (const QuantizedValue* w = quantized_.Find(m["w"])) return FoldIntoScales(m, *w);
    const DType dtype = Value(m, "w").dtype();
    if (dtype == DType::kBFloat16) return FoldAs<bfloat16>(m);
    dtype == DType::kFloat64 ? FoldAs<double>(m) : FoldAs<float>(m);
  }

  std::string Add(const std::string& of, Tensor value) {
    return context_.AddFrozenForm(program_, of, "@FOLDED", std::move(value));
  }

  template <class T>
  void FoldAs(const Match& m) {
    const WeightChannels channels(m, Value(m, "w").shape());
    const Affine affine = AffineOf(matcher_, m, channels.count());
    const std::string weight = Add(m["w"], Scaled<T>(context_, m["w"], channels, affine.factors));
    Replace(m, weight, Add(m["shift"], affine.bias.Cast(DTypeOfSums(m))), {});
    context_.ReleaseFrozen(m["w"]);
  }

  // Dequantizes the weight with the scales of batch_norm in its own.
  void FoldIntoScales(const Match& m, const QuantizedValue& w) {
    const int64_t channels = WeightChannels(m, matcher_.Constant(w.integers)->shape()).count();
    const Affine affine = AffineOf(matcher_, m, channels);
    const bool one = w.form.HasOneScale();
    Tensor scales(DType::kFloat32, {channels}), zeros(w.form.dtype, {channels});
    for (int64_t c = 0; c < channels; ++c) {
      const auto at = static_cast<size_t>(c), of = one ? 0 : at;
      scales.data<float>()[c] =
          static_cast<float>(static_cast<double>(w.form.scales[of]) * affine.factors[at]);
      if (w.form.zero_points.empty()) continue;
      // Both types have the same bytes.
      static_cast<uint8_t*>(zeros.raw())[c] = static_cast<uint8_t>(w.form.zero_points[of]);
    }
    OpDesc dequantize(*w.dequantize);
    const std::string weight = context_.AddForm(program_, m["w"], "@FOLDED", DType::kFloat32);
    dequantize.SetInput("Scale", {Add(w.form.scale, std::move(scales))});
    dequantize.RemoveInput("ZeroPoint");
    if (!w.form.zero_points.empty())
      dequantize.SetInput("ZeroPoint", {Add(w.form.zero_point, std::move(zeros))});
    dequantize.SetAttr("axis", static_cast<int32_t>(IsMul(m) || IsTransposed(m) ? 1 : 0));
    dequantize.SetOutput("Out", {weight});
    Replace(m, weight, Add(m["shift"], affine.bias.Cast(DType::kFloat32)),
            {w.dequantize, &dequantize});
  }

  // An affine_dequantize of the weight, and what replaces it; none for a constant.
  struct Dequantization {
    const OpDesc* before = nullptr;
    const OpDesc* after = nullptr;
  };

  void Replace(const Match& m, const std::string& weight, const std::string& bias,
               const Dequantization& dequantization) {
    OpDesc linear = m.op("linear");
    std::vector<const OpDesc*> ops = {&m.op("linear"), &m.op("norm")};
    if (m.Has("bias")) ops.push_back(&m.op("add"));
    std::vector<OpDesc> with;
    if (dequantization.before) {
      ops.push_back(dequantization.before);
      with.push_back(*dequantization.after);
    }
    if (IsMul(m)) {
      linear.SetInput("Y", {weight});
      with.push_back(linear);
      with.emplace_back("elementwise_add", SlotList{{"X", {m["product"]}}, {"Y", {bias}}},
                        SlotList{{"Out", {m["y"]}}}, AttrList{{"axis", int32_t{1}}});
    } else {
      linear.SetInput("Filter", {weight});
      linear.SetInput("Bias", {bias});
      linear.SetOutput("Output", {m["y"]});
      with.push_back(linear);
    }
    rewrites_.Replace(ops, m.op("norm"), with);
  }

  ProgramDesc& program_;
  const PassContext& context_;
  Matcher matcher_;
  const ValueFlow flow_;
  const QuantizedValues quantized_;
  Rewrites rewrites_;
};

}  // namespace

void FoldBatchNorm(ProgramDesc& program, const PassContext& context) {
  if (context.frozen) BatchNormFolder(program, context).Run();
}

}  // namespace coracle::inline internal
