// Paddle's quantized programs hold integers in float32: fake_quantize ops round to them, products
// multiply them, and fake_dequantize ops multiply by the scales afterwards. With frozen scales,
//
//   q = fake_quantize_moving_average_abs_max(x), y = conv2d(q, w), z = fake_dequantize_max_abs(y)
//
// is replaced by
//
//   i = affine_quantize(x), q = affine_dequantize(i, 1), v = affine_dequantize(bytes of w, factor),
//   z = conv2d(q, v)
//
// The range s of 8 bits is the step s / 127 here. Paddle computes the quotient in double, and
// affine_quantize in float32, so that an integer may differ by one where the quotient is about
// halfway between two integers. A nan becomes the least integer.

#include <coracle/operators/quantize/quantize.h>
#include <coracle/passes/match.h>
#include <coracle/passes/quantized_form.h>
#include <coracle/passes/unify_quantization.h>
#include <coracle/passes/value_flow.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <optional>
#include <utility>

namespace coracle::inline internal {
namespace {

constexpr int32_t kBits = 8;
constexpr double kLargest = 127;  // LargestInteger(kBits)

const char* ScaleSlot(const OpDesc& op) {
  return op.type() == "quantize_linear" || op.type() == "dequantize_linear" ? "Scale" : "InScale";
}
const char* ResultSlot(const OpDesc& op) {
  return op.type() == "quantize_linear" || op.type() == "dequantize_linear" ? "Y" : "Out";
}

bool IsOneOf(const OpDesc& op, std::initializer_list<const char*> types) {
  return std::any_of(types.begin(), types.end(), [&](const char* t) { return op.type() == t; });
}
bool RoundsToFloats(const OpDesc& op) {
  return IsOneOf(op, {"fake_quantize_range_abs_max", "fake_quantize_moving_average_abs_max",
                      "quantize_linear"});
}
bool RoundsAndReturns(const OpDesc& op) {
  return IsOneOf(op, {"fake_quantize_dequantize_moving_average_abs_max"});
}
bool Dequantizes(const OpDesc& op) {
  return IsOneOf(op, {"fake_dequantize_max_abs", "dequantize_abs_max", "dequantize_linear",
                      "fake_channel_wise_dequantize_max_abs"});
}
bool RoundsWeights(const OpDesc& op) {
  return IsOneOf(
      op, {"fake_quantize_dequantize_abs_max", "fake_channel_wise_quantize_dequantize_abs_max"});
}

// A scale that every number of the rules can be divided by.
bool IsUsual(double scale) { return scale > 1e-30 && scale < static_cast<double>(FLT_MAX); }

const Tensor* FloatsIn(const OpDesc& op, const char* slot, const PassContext& context,
                       size_t i = 0) {
  const Tensor* value =
      op.Input(slot).size() > i ? context.FrozenValue(op.Input(slot)[i]) : nullptr;
  return value && value->dtype() == DType::kFloat32 && value->numel() > 0 ? value : nullptr;
}

// Why the op that quantizes activations stays; "" if its range is fixed.
std::string CheckRange(const OpDesc& op, const OpSpec& spec, const PassContext& context) {
  if (spec.AttrOf<int32_t>(op, "bit_length") != kBits) return "its integers do not have 8 bits";
  if (!spec.AttrOf<bool>(op, "is_test")) return "each run changes its scale (is_test is false)";
  if (spec.FindAttr("only_observer") && spec.AttrOf<bool>(op, "only_observer"))
    return "it only observes the range";
  const Tensor* scale = FloatsIn(op, ScaleSlot(op), context);
  if (!scale) return "its scale is not frozen";
  if (scale->numel() != 1) return "it has several scales";
  return IsUsual(static_cast<double>(scale->data<float>()[0])) ? "" : "its scale is not positive";
}

// Factors of dequantized numbers: one, or one for each position of an axis.
struct StepFactors {
  std::vector<double> values;
  int axis = 0;
};

// What an op that dequantizes multiplies by; nullopt if that is not known.
std::optional<StepFactors> FactorsOf(const OpDesc& op, const OpSpec& spec,
                                     const PassContext& context) {
  StepFactors made;
  const bool channels = op.type() == "fake_channel_wise_dequantize_max_abs";
  const Tensor* scales = FloatsIn(op, channels ? "Scales" : "Scale", context);
  if (!scales) return std::nullopt;
  double divisor = kLargest;
  if (op.type() == "dequantize_linear") {
    if (spec.AttrOf<int32_t>(op, "bit_length") != kBits || spec.AttrOf<bool>(op, "only_observer"))
      return std::nullopt;
    made.axis = std::max(0, spec.AttrOf<int32_t>(op, "quant_axis"));
  } else if (channels) {
    const auto bits = spec.AttrOf<std::vector<int32_t>>(op, "quant_bits");
    const bool two = op.Input("Scales").size() == 2;
    made.axis = two ? 1 : spec.AttrOf<int32_t>(op, "quant_axis");
    if (bits.size() < op.Input("Scales").size()) return std::nullopt;
    divisor = LargestInteger(bits[0]);
    const Tensor* whole = two ? FloatsIn(op, "Scales", context, 1) : nullptr;
    if (two && (!whole || whole->numel() != 1)) return std::nullopt;
    if (two) divisor *= LargestInteger(bits[1]) / static_cast<double>(whole->data<float>()[0]);
  } else {
    divisor = static_cast<double>(spec.AttrOf<float>(op, "max_range"));
  }
  for (int64_t i = 0; i < scales->numel(); ++i)
    made.values.push_back(static_cast<double>(scales->data<float>()[i]) / divisor);
  const bool finite = std::all_of(made.values.begin(), made.values.end(), [](double f) {
    return f == 0 || (std::abs(f) > static_cast<double>(FLT_MIN) && std::abs(f) < 1e30);
  });
  return finite ? std::optional(made) : std::nullopt;
}

// The integers of a constant in float32 or int8; nullopt if an element is no integer of int8.
std::optional<Tensor> BytesOf(const Tensor& value) {
  if (value.dtype() == DType::kInt8) return value;
  if (value.dtype() != DType::kFloat32) return std::nullopt;
  Tensor bytes(DType::kInt8, value.shape());
  for (int64_t i = 0; i < value.numel(); ++i) {
    const float v = value.data<float>()[i];
    if (!(v >= -128 && v <= 127) || v != std::nearbyint(v)) return std::nullopt;
    bytes.data<int8_t>()[i] = static_cast<int8_t>(v);
  }
  return bytes;
}

// The weight in steps of the largest elements / 127: of all of it, or for each index of the axis.
// nullopt if such an element is not usual. Sets the factors.
std::optional<Tensor> RoundedByLargest(const Tensor& value, bool channels, StepFactors* factors) {
  const Shape& shape = value.shape();
  if (channels && factors->axis >= shape.rank()) return std::nullopt;
  const Channels parts =
      channels ? Channels(shape, factors->axis) : Channels(Shape{1, shape.numel()}, 0);
  std::vector<double> ranges(static_cast<size_t>(parts.count), 0.0);
  const auto* in = value.data<float>();
  parts.ForEachRun([&](int64_t c, int64_t i) {
    double& range = ranges[static_cast<size_t>(c)];
    range = LargestOf(in + i, parts.inner, range);
  });
  if (!std::all_of(ranges.begin(), ranges.end(), IsUsual)) return std::nullopt;
  Tensor rounded(DType::kFloat32, shape);
  parts.ForEachRun([&](int64_t c, int64_t i) {
    Quantizer{kLargest, false}(in + i, parts.inner, ranges[static_cast<size_t>(c)],
                               rounded.data<float>() + i);
  });
  for (const double range : ranges) factors->values.push_back(range / kLargest);
  return BytesOf(rounded);
}

// Adds the variables and ops of dequantized numbers.
class StepWriter {
 public:
  StepWriter(ProgramDesc& program, const PassContext& context)
      : program_(program), context_(context) {}

  std::string AddLike(const std::string& like, DType dtype) {
    return context_.AddForm(program_, like, "@QUANTIZED", dtype);
  }
  std::string AddConstant(const std::string& like, const std::vector<double>& values) {
    Tensor made(DType::kFloat32, {static_cast<int64_t>(values.size())});
    std::transform(values.begin(), values.end(), made.data<float>(),
                   [](double v) { return static_cast<float>(v); });
    return context_.AddFrozen(program_, like + "@STEP", std::move(made));
  }
  const std::string& One() {
    if (one_.empty()) one_ = AddConstant("one", {1.0});
    return one_;
  }
  // The constant as int8; "" if it has other numbers.
  std::string BytesIn(const std::string& name) {
    const Tensor& value = *context_.FrozenValue(name);
    if (value.dtype() == DType::kInt8) return name;
    auto [found, added] = bytes_.try_emplace(name);
    if (!added) return found->second;
    if (auto bytes = BytesOf(value))
      found->second = context_.AddFrozenForm(program_, name, "@BYTES", std::move(*bytes));
    return found->second;
  }
  OpDesc Dequantize(const std::string& integers, const StepFactors& factors,
                    const std::string& out) {
    const std::string step = AddConstant(out, factors.values);
    return OpDesc("affine_dequantize", {{"X", {integers}}, {"Scale", {step}}}, {{"Out", {out}}},
                  {{"axis", static_cast<int32_t>(factors.axis)}});
  }

 private:
  ProgramDesc& program_;
  const PassContext& context_;
  std::string one_;
  std::unordered_map<std::string, std::string> bytes_;  // by constant
};

class PaddleRaiser {
 public:
  PaddleRaiser(ProgramDesc& program, const PassContext& context)
      : program_(program),
        context_(context),
        block_(program.Root()),
        flow_(program, context),
        matcher_(block_, context),
        writer_(program, context),
        rewrites_(block_) {}

  void Run() {
    std::as_const(block_).ForEachOp([&](const OpDesc& op) {
      if (flow_.IsRecomputed(op)) return;
      if (RoundsToFloats(op) || RoundsAndReturns(op)) RaiseRange(op);
    });
    std::as_const(block_).ForEachOp([&](const OpDesc& op) {
      if (flow_.IsRecomputed(op)) return;
      if (Dequantizes(op)) RaiseDequantization(op);
      if (RoundsWeights(op)) RaiseWeight(op);
    });
    rewrites_.Apply();
  }

 private:
  const OpSpec& SpecOf(const OpDesc& op) const { return context_.ops.Get(op.type()); }

  // --- activations ---

  void RaiseRange(const OpDesc& op) {
    const std::string &x = op.Input("X")[0], &out = op.Output(ResultSlot(op))[0];
    if (!CheckRange(op, SpecOf(op), context_).empty() ||
        DTypeOfTensor(block_, x) != DType::kFloat32 || IsEmptyName(out) ||
        !flow_.IsOnlyOutput(op, out) || op.Reads(out))
      return;
    const auto range = static_cast<double>(FloatsIn(op, ScaleSlot(op), context_)->data<float>()[0]);
    const bool away =
        op.type() != "quantize_linear" || SpecOf(op).AttrOf<int32_t>(op, "round_type") == 1;
    const std::string step = writer_.AddConstant(op.Input(ScaleSlot(op))[0], {range / kLargest});
    const std::string integers = writer_.AddLike(x, DType::kInt8);
    OpDesc quantize("affine_quantize", {{"X", {x}}, {"Scale", {step}}}, {{"Out", {integers}}},
                    {{"out_dtype", static_cast<int32_t>(DType::kInt8)}});
    if (away) {
      quantize.SetAttr("round_mode", std::string("away"));
      quantize.SetAttr("qmin", int64_t{-127});
      quantize.SetAttr("qmax", int64_t{127});
    }
    const std::string unit = RoundsAndReturns(op) ? step : writer_.One();
    const OpDesc dequantize("affine_dequantize", {{"X", {integers}}, {"Scale", {unit}}},
                            {{"Out", {out}}});
    rewrites_.Replace({&op}, op, {quantize, dequantize});
    if (flow_.IsConstantInARun(out)) integers_of_[out] = integers;
  }

  // --- dequantizations ---

  void RaiseDequantization(const OpDesc& op) {
    const std::string &x = op.Input("X")[0], &out = op.Output(ResultSlot(op))[0];
    const auto factors = FactorsOf(op, SpecOf(op), context_);
    if (!factors || IsEmptyName(out) || !flow_.IsOnlyOutput(op, out) || op.Reads(out)) return;
    const auto found = integers_of_.find(x);
    const bool one = factors->values.size() == 1;
    if (found != integers_of_.end()) {
      if (one) rewrites_.Replace({&op}, op, {writer_.Dequantize(found->second, *factors, out)});
    } else if (const Tensor* value = context_.FrozenValue(x)) {
      if (!one && (factors->axis >= value->shape().rank() ||
                   value->shape()[factors->axis] != static_cast<int64_t>(factors->values.size())))
        return;
      if (const std::string bytes = writer_.BytesIn(x); !bytes.empty())
        rewrites_.Replace({&op}, op, {writer_.Dequantize(bytes, *factors, out)});
    } else {
      RaiseProduct(op, x, *factors, out);
    }
  }

  // Multiplies the factors into the weight of the product whose result is dequantized.
  void RaiseProduct(const OpDesc& dequantize, const std::string& sums, const StepFactors& factors,
                    const std::string& out) {
    const OpDesc* op = flow_.ReaderOf(sums) ? flow_.WriterOf(sums) : nullptr;
    if (!op || flow_.IsRecomputed(*op) || rewritten_.count(op) > 0) return;
    const bool conv = IsOneOf(*op, {"conv2d", "depthwise_conv2d"});
    if (!conv && !IsOneOf(*op, {"mul", "matmul", "matmul_v2"})) return;
    const char *slot = conv ? "Filter" : "Y", *result = conv ? "Output" : "Out";
    if (op->Input(slot).size() != 1 || op->HasInput("Bias") || op->HasInput("ResidualData") ||
        op->Output(result) != std::vector<std::string>{sums} ||
        !op->GetAttr<std::string>("fuse_activation", "").empty())
      return;
    const Tensor* weight = context_.FrozenValue(op->Input(slot)[0]);
    const std::string bytes = weight ? writer_.BytesIn(op->Input(slot)[0]) : "";
    if (bytes.empty()) return;
    StepFactors of_weight = factors;
    if (factors.values.size() > 1) {
      const int axis = WeightAxis(*op, conv, weight->shape());
      if (factors.axis != 1 || axis < 0 ||
          weight->shape()[axis] != static_cast<int64_t>(factors.values.size()))
        return;
      of_weight.axis = axis;
    }
    if (!matcher_.MayRunAt({op, &dequantize}, dequantize)) return;
    const std::string real = writer_.AddLike(op->Input(slot)[0], DType::kFloat32);
    OpDesc product(*op);
    product.SetInput(slot, {real});
    product.SetOutput(result, {out});
    rewrites_.Replace({op, &dequantize}, dequantize,
                      {writer_.Dequantize(bytes, of_weight, real), product});
    rewritten_.insert(op);
  }
  // The axis of a weight that becomes axis 1 of the result; -1 if there is none.
  int WeightAxis(const OpDesc& op, bool conv, const Shape& weight) const {
    if (conv) return op.GetAttr<std::string>("data_format", "NCHW") == "NHWC" ? -1 : 0;
    const OpSpec& spec = SpecOf(op);
    if (weight.rank() != 2) return -1;
    if (op.type() == "mul")
      return spec.AttrOf<int32_t>(op, "x_num_col_dims") == 1 &&
                     spec.AttrOf<int32_t>(op, "y_num_col_dims") == 1
                 ? 1
                 : -1;
    if (flow_.CertainRank(op.Input("X")[0]) != 2) return -1;
    return spec.AttrOf<bool>(op, op.type() == "matmul" ? "transpose_Y" : "trans_y") ? 0 : 1;
  }

  // --- weights that are rounded in each run ---

  void RaiseWeight(const OpDesc& op) {
    const std::string &x = op.Input("X")[0], &out = op.Output("Out")[0];
    const OpSpec& spec = SpecOf(op);
    const Tensor* value = FloatsIn(op, "X", context_);
    if (!value || !flow_.IsOnlyOutput(op, out) || op.Reads(out) ||
        spec.AttrOf<int32_t>(op, "bit_length") != kBits)
      return;
    const bool channels = op.type() == "fake_channel_wise_quantize_dequantize_abs_max";
    StepFactors factors;
    factors.axis = channels ? spec.AttrOf<int32_t>(op, "quant_axis") : 0;
    auto bytes = RoundedByLargest(*value, channels, &factors);
    if (!bytes) return;
    const std::string integers = context_.AddFrozenForm(program_, x, "@BYTES", std::move(*bytes));
    rewrites_.Replace({&op}, op, {writer_.Dequantize(integers, factors, out)});
  }

  ProgramDesc& program_;
  const PassContext& context_;
  BlockDesc& block_;
  const ValueFlow flow_;
  const Matcher matcher_;
  StepWriter writer_;
  Rewrites rewrites_;
  std::unordered_map<std::string, std::string> integers_of_;  // by float32 variable of integers
  std::unordered_set<const OpDesc*> rewritten_;
};

bool IsOfPaddle(const OpDesc& op) {
  return RoundsToFloats(op) || RoundsAndReturns(op) || Dequantizes(op) || RoundsWeights(op);
}

}  // namespace

void RaisePaddleQuantization(ProgramDesc& program, const PassContext& context) {
  if (AnyOp(program.Root(), IsOfPaddle)) PaddleRaiser(program, context).Run();
}

std::string WhyNotUnified(const OpDesc& op, const PassContext& context) {
  if (!IsOfPaddle(op)) return "";
  const OpSpec& spec = context.ops.Get(op.type());
  if (RoundsToFloats(op) || RoundsAndReturns(op)) {
    const std::string reason = CheckRange(op, spec, context);
    return reason.empty() ? "another output than its result is read" : reason;
  }
  if (RoundsWeights(op)) return "what it quantizes is not frozen, or does not get 8 bits";
  if (!FactorsOf(op, spec, context)) return "its scale is not frozen, or not of 8 bits";
  return "what it dequantizes is no quantized value, or product with a frozen weight of bytes";
}

}  // namespace coracle::inline internal
