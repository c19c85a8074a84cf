// InferInIntegers: makes an inference program of integers from one that was trained with rounding.

#include <coracle/edit/edit.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/op/writer.h>
#include <coracle/optimizer/mixed_precision.h>
#include <coracle/quantize/fake_ops.h>
#include <coracle/quantize/float_model.h>
#include <coracle/quantize/op_kinds.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>

namespace coracle {
namespace {

// If no value of training had another value than 0, the program computes 0.
constexpr float kScaleOfZeros = 1e20f;

struct Rounding {
  float scale = 1;
  int64_t least = -128, most = 127;
};

double ValueOf(const Tensor& tensor, int64_t i) {
  return static_cast<double>(tensor.span<float>()[static_cast<size_t>(i)]);
}

void RequireFinite(double value, const std::string& name) {
  if (std::isfinite(value)) return;
  throw Error(ErrorCode::kOutOfRange,
              fmt::format("{} is {:g}: only finite numbers can be quantised", Quote(name), value));
}

// The largest integer of an op that rounds.
int64_t MostOf(const OpDesc& op) {
  const auto bits = op.GetAttr<int32_t>("bit_length", 8);
  if (bits < 2 || bits > 8) {
    ThrowInvalid(fmt::format("{} is rounded to {} bits: integers have 2 to 8 bits here",
                             Quote(op.Input("X")[0]), bits));
  }
  return (int64_t{1} << (bits - 1)) - 1;
}

// The trained values of parameters, ranges and steps.
class TrainedValues {
 public:
  TrainedValues(const BlockDesc& root, const Scope& values) : root_(root), values_(values) {}

  // In float32, also if the parameter has 16 bits; nullopt for a variable that is no parameter.
  std::optional<Tensor> Find(const std::string& name) const {
    const VarDesc* var = root_.FindVar(name);
    const VarValue* value = var && var->persistable() ? values_.Find(name) : nullptr;
    const Tensor* tensor = value ? std::get_if<Tensor>(value) : nullptr;
    if (!tensor || !IsFloating(tensor->dtype())) return std::nullopt;
    return tensor->dtype() == DType::kFloat32 ? *tensor : tensor->Cast(DType::kFloat32);
  }
  // Throws kNotFound for a missing one.
  Tensor Get(const std::string& name) const {
    if (std::optional<Tensor> value = Find(name)) return *value;
    throw Error(
        ErrorCode::kNotFound,
        fmt::format("the trained values lack {}, a range or a step of quantisation", Quote(name)));
  }
  // The same, with that many elements.
  Tensor Get(const std::string& name, int64_t count) const {
    Tensor value = Get(name);
    if (value.numel() == count) return value;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}, a range or a step of quantisation, must have {} elements, got {}",
                            Quote(name), count, value.numel()));
  }
  // Throws kOutOfRange unless it is finite.
  double Number(const std::string& name) const {
    const double value = ValueOf(Get(name, 1), 0);
    RequireFinite(value, name);
    return value;
  }

 private:
  const BlockDesc& root_;
  const Scope& values_;
};

// How the op rounds an activation.
Rounding RoundingOf(const OpDesc& op, const TrainedValues& values) {
  const int64_t most = MostOf(op);
  if (FakeKindOf(op) == FakeKind::kLearned) {
    const double step = values.Number(op.Input("Step")[0]);
    return {static_cast<float>(std::max(step, 1e-8)), -most - 1, most};
  }
  const double range = values.Number(op.Input("InScale")[0]);
  const auto scale = static_cast<float>(range / static_cast<double>(most));
  return {range > 1e-30 ? scale : kScaleOfZeros, -most, most};
}

struct RoundedWeight {
  Tensor integers, scales;
  int axis;  // -1: one scale
};

// For each channel: the learned step, or the largest absolute value.
std::vector<double> SizesOf(const OpDesc& op, const TrainedValues& values, const Tensor& weight,
                            int64_t inner, int64_t channels) {
  std::vector<double> sizes(static_cast<size_t>(channels));
  if (FakeKindOf(op) == FakeKind::kLearned) {
    const std::string& name = op.Input("Step")[0];
    const Tensor steps = values.Get(name, channels);
    for (int64_t c = 0; c < channels; ++c) {
      RequireFinite(ValueOf(steps, c), name);
      sizes[static_cast<size_t>(c)] = std::max(ValueOf(steps, c), 1e-8);
    }
    return sizes;
  }
  const std::span<const float> w = weight.span<float>();
  for (size_t i = 0; i < w.size(); ++i) {
    double& largest = sizes[i / static_cast<size_t>(inner) % sizes.size()];
    largest = std::max(largest, static_cast<double>(std::abs(w[i])));
  }
  return sizes;
}

// As the kernels round: learned steps have one more integer, and halves to even.
RoundedWeight RoundWeightOf(const OpDesc& op, const TrainedValues& values, const Tensor& weight) {
  const auto most = static_cast<double>(MostOf(op));
  const FakeKind kind = FakeKindOf(op);
  const bool learned = kind == FakeKind::kLearned;
  const int axis =
      kind == FakeKind::kTensor ? -1 : op.GetAttr<int32_t>("quant_axis", learned ? -1 : 0);
  const Shape& shape = weight.shape();
  if (axis >= shape.rank()) {
    ThrowInvalid(fmt::format("{} has {} axes: it cannot be rounded along axis {}",
                             Quote(op.Input("X")[0]), shape.rank(), axis));
  }
  const int64_t channels = axis < 0 ? 1 : shape[axis];
  const int64_t inner = axis < 0 ? weight.numel() : shape.Product(axis + 1, shape.rank());
  for (const float value : weight.span<float>())
    RequireFinite(static_cast<double>(value), op.Input("X")[0]);
  const std::vector<double> sizes = SizesOf(op, values, weight, inner, channels);
  RoundedWeight made{Tensor(DType::kInt8, shape), Tensor(DType::kFloat32, {channels}), axis};
  const std::span<const float> w = weight.span<float>();
  int8_t* to = made.integers.data<int8_t>();
  for (size_t i = 0; i < w.size(); ++i) {
    const double size = sizes[i / static_cast<size_t>(inner) % sizes.size()];
    const auto value = static_cast<double>(w[i]);
    double q = 0;
    if (learned)
      q = std::clamp(std::nearbyint(value / size), -most - 1, most);
    else if (size > 1e-30)
      q = std::round(most * value / size);
    to[i] = static_cast<int8_t>(q);
  }
  float* scales = made.scales.data<float>();
  for (size_t c = 0; c < sizes.size(); ++c)
    scales[c] = sizes[c] <= 1e-30 ? 1 : static_cast<float>(sizes[c] / (learned ? 1 : most));
  return made;
}

class IntegerWriter {
 public:
  IntegerWriter(ProgramDesc& program, Scope& values, const OpRegistry& ops)
      : program_(program),
        root_(program.Root()),
        values_(values),
        trained_(root_, values),
        writer_(root_, ops) {}

  // Returns the number of ops that rounded.
  int Run() {
    std::vector<std::unique_ptr<OpDesc>> old = root_.ReleaseOps();
    for (std::unique_ptr<OpDesc>& op : old) {
      op->RenameInputs([&](const std::string& name) {
        const auto found = renamed_.find(name);
        return found == renamed_.end() ? name : found->second;
      });
      if (Write(*op)) {
        ++count_;
        continue;
      }
      const OpDesc& appended = root_.AppendOp(std::move(op));
      PassOn(appended);
    }
    return count_;
  }

 private:
  // Writes integers in place of an op that rounds. Returns false for other ops, and for those with
  // a scale that each run computes.
  bool Write(const OpDesc& op) {
    const FakeKind kind = FakeKindOf(op);
    if (kind == FakeKind::kNone) return false;
    const std::string &x = op.Input("X")[0], &out = op.Output("Out")[0];
    if (const std::optional<Tensor> weight = trained_.Find(x)) {
      if (kind == FakeKind::kAverage) return false;
      WriteWeight(op, x, out, *weight);
      return true;
    }
    const bool learned = kind == FakeKind::kLearned && op.GetAttr<int32_t>("quant_axis", -1) < 0;
    if (!learned && kind != FakeKind::kAverage) return false;
    WritePair(x, out, RoundingOf(op, trained_));
    return true;
  }

  void WritePair(const std::string& x, const std::string& out, const Rounding& rounding) {
    const std::string scale = AddConstant(program_, values_, x + "@QUANT_SCALE",
                                          Tensor::Of<float>({1}, {rounding.scale}));
    WritePairWith(scale, x, out, rounding);
  }
  void WritePairWith(const std::string& scale, const std::string& x, const std::string& out,
                     const Rounding& rounding) {
    AttrList attrs = {{"out_dtype", static_cast<int32_t>(DType::kInt8)}};
    if (rounding.least != -128 || rounding.most != 127) {
      attrs.push_back({"qmin", rounding.least});
      attrs.push_back({"qmax", rounding.most});
    }
    const Variable q = writer_.Into(program_.FreeName(x + "@QUANTIZED"), "affine_quantize",
                                    {{"X", {x}}, {"Scale", {scale}}}, attrs);
    writer_.Into(out, "affine_dequantize", {{"X", {q.name()}}, {"Scale", {scale}}});
    pairs_[out] = scale;
  }

  // An op that only moves rounded numbers writes integers, too: a pair with the same scale after it
  // changes no number, but lets passes find it.
  void PassOn(const OpDesc& op) {
    if (KindOf(op) != QuantKind::kMove) return;
    const std::vector<std::string> data = DataInputs(op), moved = DataOutputs(op);
    if (data.size() != 1 || moved.size() != 1) return;
    const auto pair = pairs_.find(data[0]);
    if (pair == pairs_.end() || renamed_.count(moved[0])) return;
    const std::string out = program_.FreeName(moved[0] + "@DEQUANTIZED");
    const std::string scale = pair->second, from = moved[0];
    // No number is beyond the first pair's range, so this one needs no range of its own.
    WritePairWith(scale, from, out, {});
    renamed_[from] = out;
  }

  void WriteWeight(const OpDesc& op, const std::string& name, const std::string& out,
                   const Tensor& weight) {
    RoundedWeight made = RoundWeightOf(op, trained_, weight);
    const std::string suffix = MostOf(op) <= 7 ? "@INT4" : "@INT8";
    const std::string q = AddConstant(program_, values_, name + suffix, std::move(made.integers));
    const std::string scale =
        AddConstant(program_, values_, name + suffix + "@SCALE", std::move(made.scales));
    AttrList attrs;
    if (made.axis >= 0) attrs.push_back({"axis", made.axis});
    writer_.Into(out, "affine_dequantize", {{"X", {q}}, {"Scale", {scale}}}, attrs);
  }

  ProgramDesc& program_;
  BlockDesc& root_;
  Scope& values_;
  TrainedValues trained_;
  Writer writer_;
  int count_ = 0;
  std::map<std::string, std::string> pairs_;  // its scale, by the result of a pair
  std::map<std::string, std::string> renamed_;
};

}  // namespace

QuantizedInference InferInIntegers(const ProgramDesc& program, const Scope& parameters,
                                   const std::vector<std::string>& feeds,
                                   const std::vector<std::string>& fetches, const OpRegistry& ops) {
  ProgramDesc pruned = program.CloneForTest();
  pruned.Prune(fetches, feeds);
  Scope values = SharedCopy(parameters);
  if (IntegerWriter(pruned, values, ops).Run() == 0) {
    ThrowInvalid(
        "no op of the program rounds for integers: give a program that was trained with "
        "quantisation");
  }
  OptimizeOptions options;
  options.passes = {"dead_code", "remove_identities", "fold_constants", "fold_batch_norm"};
  OptimizedProgram optimized = OptimizeProgram(pruned, values, feeds, fetches, options, {}, ops);
  return {std::move(optimized.program), std::move(optimized.parameters)};
}

}  // namespace coracle
