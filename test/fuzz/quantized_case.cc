#include <coracle/executor/executor.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/operators/operators.h>
#include <coracle/test/fuzz/quantized_case.h>
#include <fmt/format.h>

#include <cmath>
#include <set>

namespace coracle {
namespace {

using Ints = std::vector<int32_t>;

// A quantised tensor: scale * (q - zero).
struct Quantized {
  std::string name;
  Shape shape;
  DType dtype = DType::kInt8;
  float scale = 1;
  int32_t zero = 0;
};

// A float variable in the middle of a layer: its shape, and about how large its elements are.
struct Middle {
  std::string name;
  Shape shape;
  double size = 1;
};

// Both programs of a case, op by op.
class TwoPrograms {
 public:
  explicit TwoPrograms(QuantizedCase& made) : made_(made) {}

  std::string NewName(const std::string& prefix) { return prefix + std::to_string(count_++); }

  void Parameter(const std::string& name, const Tensor& value) {
    for (ProgramDesc* program : {&made_.program, &made_.apart})
      Declare(*program, name, value).SetPersistable(true);
    made_.scope.Set(name, value);
  }
  void Feed(const std::string& name, const Tensor& value) {
    for (ProgramDesc* program : {&made_.program, &made_.apart}) Declare(*program, name, value);
    made_.feeds[name] = value;
  }
  void Append(const std::string& type, const SlotList& in, const std::string& out_slot,
              const std::string& out, const AttrList& attrs) {
    AppendTo(made_.program, type, in, out_slot, out, attrs);
    SlotList fed = in;
    for (Slot& slot : fed) {
      for (std::string& name : slot.args) {
        if (results_.count(name)) name += ".fed";
      }
    }
    AppendTo(made_.apart, type, fed, out_slot, out, attrs);
  }
  // Later layers read `name`, or in the program with the layers apart, a feed.
  void AddResult(const std::string& name, const Shape& shape, DType dtype) {
    Declare(made_.apart, name + ".fed", Tensor(dtype, shape));
    results_.insert(name);
    made_.results.push_back(name);
  }

 private:
  static VarDesc& Declare(ProgramDesc& program, const std::string& name, const Tensor& value) {
    VarDesc& var = program.Root().Var(name);
    var.SetDType(value.dtype());
    var.SetShape(value.shape());
    return var;
  }
  static void AppendTo(ProgramDesc& program, const std::string& type, const SlotList& in,
                       const std::string& out_slot, const std::string& out, const AttrList& attrs) {
    OpDesc& op = program.Root().AppendOp(type, in, {{out_slot, {out}}}, attrs);
    InferOp(program.Root(), op, DefaultOps());
  }

  QuantizedCase& made_;
  std::set<std::string> results_;
  int count_ = 0;
};

class QuantizedMaker {
 public:
  QuantizedMaker(Choices& choose, QuantizedCase& made) : choose_(choose), to_(made) {}

  void Make() {
    if (choose_.OneIn(3))
      AddFeed({Size(3), Size(choose_.OneIn(2) ? 8 : 70)});
    else
      AddFeed({Size(2), Size(choose_.OneIn(2) ? 6 : 40), Size(9), Size(9)});
    for (size_t n = 1 + choose_.Below(5); n > 0; --n) AddLayer();
  }

 private:
  int64_t Size(size_t most) { return 1 + static_cast<int64_t>(choose_.Below(most)); }
  // In [1, 2) times a power of two; sometimes a power of two, so that ties are exact.
  float NewScale(double size) {
    const double factor =
        choose_.OneIn(4) ? 1 : 1 + static_cast<double>(choose_.Below(1000)) / 1000;
    return static_cast<float>(std::exp2(std::floor(std::log2(size))) * factor);
  }
  // Mostly 1. All scales of a tensor have the same one: a float32 sum of terms of different sizes
  // would have no exact digits.
  double Extreme() { return !choose_.OneIn(40) ? 1 : choose_.OneIn(2) ? 1e18 : 1e-18; }
  DType NewDType() { return choose_.OneIn(2) ? DType::kInt8 : DType::kUInt8; }
  int32_t NewZero(DType dtype) {
    const int32_t least = dtype == DType::kInt8 ? -128 : 0;
    if (choose_.OneIn(3)) return 0;
    if (choose_.OneIn(4)) return least + 255 * static_cast<int32_t>(choose_.Below(2));
    return least + static_cast<int32_t>(choose_.Below(256));
  }
  Tensor Bytes(const Shape& shape, DType dtype) {
    Tensor value(dtype, shape);
    const bool extreme = choose_.OneIn(6);
    for (int64_t i = 0; i < value.numel(); ++i)
      static_cast<uint8_t*>(value.raw())[i] = static_cast<uint8_t>(
          extreme ? (dtype == DType::kInt8 ? 127 : 255) + choose_.Below(2) : choose_.Below(256));
    return value;
  }
  std::string Floats(const Shape& shape, double size, bool positive) {
    Tensor value(DType::kFloat32, shape);
    for (float& x : value.span<float>()) {
      x = NewScale(size);
      if (!positive && choose_.OneIn(2)) x = -x;
    }
    const std::string name = to_.NewName("f");
    to_.Parameter(name, value);
    return name;
  }
  std::string Zeros(int64_t count, DType dtype, int32_t zero) {
    Tensor value(dtype, {count});
    for (int64_t i = 0; i < count; ++i)
      static_cast<uint8_t*>(value.raw())[i] = static_cast<uint8_t>(zero);
    const std::string name = to_.NewName("z");
    to_.Parameter(name, value);
    return name;
  }
  std::string OneScale(float scale) {
    Tensor value(DType::kFloat32, {1});
    value.data<float>()[0] = scale;
    const std::string name = to_.NewName("s");
    to_.Parameter(name, value);
    return name;
  }

  void AddFeed(const Shape& shape) {
    Quantized q{to_.NewName("q"), shape, NewDType()};
    q.scale = NewScale(0.02 * Extreme());
    q.zero = NewZero(q.dtype);
    to_.Feed(q.name, Bytes(shape, q.dtype));
    live_.push_back(q);
  }
  SlotList QuantizationOf(const std::string& x, const Quantized& q) {
    SlotList in = {{"X", {x}}, {"Scale", {OneScale(q.scale)}}};
    if (q.zero != 0 || choose_.OneIn(2)) in.push_back({"ZeroPoint", {Zeros(1, q.dtype, q.zero)}});
    return in;
  }
  Middle Dequantize(const Quantized& q) {
    const std::string out = to_.NewName("x");
    to_.Append("affine_dequantize", QuantizationOf(q.name, q), "Out", out, {{"axis", int32_t{0}}});
    return {out, q.shape, q.scale * 74.0};
  }
  // A frozen weight, per channel of `axis` or with one scale.
  std::string Weight(const Shape& shape, int32_t axis, double* size) {
    const DType dtype = choose_.OneIn(3) ? DType::kUInt8 : DType::kInt8;
    const std::string q = to_.NewName("w"), out = to_.NewName("f");
    to_.Parameter(q, Bytes(shape, dtype));
    const int64_t scales = choose_.OneIn(3) ? 1 : shape[axis];
    const double scale = 0.01 * Extreme();
    SlotList in = {{"X", {q}}, {"Scale", {Floats({scales}, scale, !choose_.OneIn(8))}}};
    if (dtype == DType::kUInt8 || choose_.OneIn(4))
      in.push_back({"ZeroPoint", {Zeros(scales, dtype, dtype == DType::kUInt8 ? 131 : 3)}});
    to_.Append("affine_dequantize", in, "Out", out, {{"axis", axis}});
    *size = 1.5 * scale * 74;
    return out;
  }

  void AddLayer() {
    const Quantized from = choose_.OneIn(4) ? choose_.Of(live_) : live_.back();
    Middle x = Dequantize(from);
    switch (choose_.Below(8)) {
      case 0:
      case 1:
      case 2:
        x = from.shape.rank() == 4 ? Convolution(x) : Product(x);
        break;
      case 3:
        x = from.shape.rank() == 2 ? Product(x) : Pool(x);
        break;
      case 4:
        x = Pair(from, x, choose_.OneIn(2) ? "elementwise_add" : "elementwise_mul");
        break;
      case 5:
        x = Joined(x);
        break;
      case 6:
        x = Moved(x);
        break;
      default:
        x = Function(x);
        break;
    }
    if (choose_.OneIn(2)) x = Function(x);
    if (choose_.OneIn(5)) x = Pair(from, x, "elementwise_add");
    Finish(x);
  }
  void Finish(const Middle& x) {
    if (choose_.OneIn(8)) {  // it stays a float, and ends here
      const std::string out = to_.NewName("y");
      to_.Append("scale", {{"X", {x.name}}}, "Out", out, {{"scale", 1.0f}});
      to_.AddResult(out, x.shape, DType::kFloat32);
      return;
    }
    Quantized q{to_.NewName("q"), x.shape, NewDType()};
    // Larger scales, multiplied by each other, would exceed float32 in the ops of the pairs.
    constexpr double kLargest = 1e14;
    const double size = std::max(x.size, 1e-30) / 40 * std::max(Extreme(), 1.0);
    q.scale = NewScale(std::min(size, kLargest));
    q.zero = NewZero(q.dtype);
    AttrList attrs = {{"axis", int32_t{0}}, {"out_dtype", static_cast<int32_t>(q.dtype)}};
    to_.Append("affine_quantize", QuantizationOf(x.name, q), "Out", q.name, attrs);
    to_.AddResult(q.name, q.shape, q.dtype);
    live_.push_back(q);
  }

  Middle Convolution(const Middle& x);
  Middle Product(const Middle& x);
  Middle Pool(const Middle& x);
  Middle Pair(const Quantized& from, const Middle& x, const std::string& type);
  Middle Joined(const Middle& x);
  Middle Moved(const Middle& x);
  Middle Function(const Middle& x);
  Middle WithBias(const Middle& x, int64_t channels, int32_t axis);

  Choices& choose_;
  TwoPrograms to_;
  std::vector<Quantized> live_;
};

Middle QuantizedMaker::Convolution(const Middle& x) {
  const int64_t channels = x.shape[1];
  const bool depthwise = choose_.OneIn(4);
  int64_t groups = depthwise ? channels : 1;
  if (!depthwise && channels % 2 == 0 && choose_.OneIn(4)) groups = 2;
  const int64_t filters = groups * Size(depthwise ? 2 : choose_.OneIn(2) ? 6 : 40);
  const auto spread = [&](int64_t kernel, int32_t dilation) { return (kernel - 1) * dilation + 1; };
  const Ints strides(2, choose_.OneIn(3) ? 2 : 1), dilations(2, choose_.OneIn(5) ? 2 : 1);
  const Ints pads = {static_cast<int32_t>(choose_.Below(3)),
                     static_cast<int32_t>(choose_.Below(3))};
  int64_t kernel[2];
  Shape shape = {x.shape[0], filters, 0, 0};
  for (int i = 0; i < 2; ++i) {
    kernel[i] = choose_.OneIn(2) ? 1 : 1 + 2 * Size(2);
    const int64_t around = x.shape[2 + i] + 2 * pads[i];
    if (spread(kernel[i], dilations[0]) > around) kernel[i] = 1;
    shape[2 + i] = (around - spread(kernel[i], dilations[0])) / strides[0] + 1;
  }
  double size = 0;
  const std::string filter = Weight({filters, channels / groups, kernel[0], kernel[1]}, 0, &size);
  Middle y{to_.NewName("c"), shape};
  y.size = x.size * size * std::sqrt(channels / groups * kernel[0] * kernel[1]);
  to_.Append(depthwise && choose_.OneIn(2) ? "depthwise_conv2d" : "conv2d",
             {{"Input", {x.name}}, {"Filter", {filter}}}, "Output", y.name,
             {{"strides", strides},
              {"paddings", pads},
              {"dilations", dilations},
              {"groups", static_cast<int32_t>(groups)}});
  return choose_.OneIn(3) ? y : WithBias(y, filters, 1);
}

Middle QuantizedMaker::WithBias(const Middle& x, int64_t channels, int32_t axis) {
  const std::string bias = Floats({channels}, x.size / 2, false);
  const Middle y{to_.NewName("b"), x.shape, 1.2 * x.size};
  to_.Append("elementwise_add", {{"X", {x.name}}, {"Y", {bias}}}, "Out", y.name, {{"axis", axis}});
  return y;
}

Middle QuantizedMaker::Product(const Middle& x) {
  const bool transposed = choose_.OneIn(2);
  const int64_t depth = x.shape[1], width = Size(choose_.OneIn(2) ? 6 : 90);
  double size = 0;
  const std::string weight =
      transposed ? Weight({width, depth}, 0, &size) : Weight({depth, width}, 1, &size);
  Middle y{to_.NewName("m"), {x.shape[0], width}, x.size * size * std::sqrt(depth)};
  if (transposed || choose_.OneIn(2)) {
    to_.Append("matmul_v2", {{"X", {x.name}}, {"Y", {weight}}}, "Out", y.name,
               {{"trans_y", transposed}});
  } else {
    to_.Append("mul", {{"X", {x.name}}, {"Y", {weight}}}, "Out", y.name, {});
  }
  return choose_.OneIn(3) ? y : WithBias(y, width, -1);
}

Middle QuantizedMaker::Pool(const Middle& x) {
  Middle y{to_.NewName("p"), x.shape, x.size};
  const bool global = choose_.OneIn(3), average = !choose_.OneIn(3);
  const int32_t kernel = 2 + static_cast<int32_t>(choose_.Below(2));
  const int32_t stride = 1 + static_cast<int32_t>(choose_.Below(2));
  const bool fits = x.shape[2] >= kernel && x.shape[3] >= kernel;
  for (int i = 2; i < 4; ++i)
    y.shape[i] = global || !fits ? 1 : (x.shape[i] + 2 - kernel) / stride + 1;
  to_.Append("pool2d", {{"X", {x.name}}}, "Out", y.name,
             {{"pooling_type", std::string(average ? "avg" : "max")},
              {"ksize", Ints{kernel, kernel}},
              {"strides", Ints{stride, stride}},
              {"paddings", Ints{1, 1}},
              {"exclusive", choose_.OneIn(2)},
              {"global_pooling", global || !fits}});
  return y;
}

// With a quantised tensor of the same shape, or of one that it repeats.
Middle QuantizedMaker::Pair(const Quantized& from, const Middle& x, const std::string& type) {
  Quantized other = from;
  if (other.shape != x.shape || choose_.OneIn(2)) {
    Shape shape = x.shape;
    for (int i = 0; i < shape.rank(); ++i) shape[i] = choose_.OneIn(6) ? 1 : shape[i];
    AddFeed(shape);
    other = live_.back();
  }
  const Middle y = Dequantize(other);
  const Middle z{to_.NewName("e"), x.shape,
                 type == "elementwise_add" ? x.size + y.size : x.size * y.size};
  to_.Append(type, {{"X", {x.name}}, {"Y", {y.name}}}, "Out", z.name, {{"axis", int32_t{-1}}});
  return z;
}

Middle QuantizedMaker::Joined(const Middle& x) {
  Shape shape = x.shape;
  shape[1] = Size(9);
  AddFeed(shape);
  const Middle other = Dequantize(live_.back());
  shape[1] += x.shape[1];
  const Middle y{to_.NewName("j"), shape, std::max(x.size, other.size)};
  to_.Append("concat", {{"X", {x.name, other.name}}}, "Out", y.name, {{"axis", int32_t{1}}});
  return y;
}

Middle QuantizedMaker::Moved(const Middle& x) {
  Middle y{to_.NewName("v"), x.shape, x.size};
  if (x.shape.rank() == 4 && choose_.OneIn(3)) {
    y.shape = {x.shape[0], x.shape[1] * x.shape[2] * x.shape[3]};
    const std::vector<int32_t> shape = {static_cast<int32_t>(y.shape[0]),
                                        static_cast<int32_t>(y.shape[1])};
    to_.Append("reshape", {{"X", {x.name}}}, "Out", y.name, {{"shape", shape}});
  } else if (choose_.OneIn(2)) {
    const Ints order = x.shape.rank() == 4 ? Ints{0, 1, 3, 2} : Ints{1, 0};
    for (int i = 0; i < x.shape.rank(); ++i) y.shape[i] = x.shape[order[static_cast<size_t>(i)]];
    to_.Append("transpose", {{"X", {x.name}}}, "Out", y.name, {{"axis", order}});
  } else {
    y.shape[1] = Size(static_cast<size_t>(x.shape[1]));
    to_.Append(
        "slice", {{"Input", {x.name}}}, "Out", y.name,
        {{"axes", Ints{1}}, {"starts", Ints{0}}, {"ends", Ints{static_cast<int32_t>(y.shape[1])}}});
  }
  return y;
}

Middle QuantizedMaker::Function(const Middle& x) {
  static const char* const kTypes[] = {"relu", "relu6",      "hard_swish",   "swish", "sigmoid",
                                       "tanh", "leaky_relu", "hard_sigmoid", "relu",  "relu"};
  const std::string type = choose_.Of(kTypes);
  static const std::set<std::string> kNarrow = {"sigmoid", "tanh", "hard_sigmoid"};
  const Middle y{to_.NewName("a"), x.shape, kNarrow.count(type) ? 1 : x.size};
  to_.Append(type, {{"X", {x.name}}}, "Out", y.name, {});
  return y;
}

// --- the check ---

using Values = std::map<std::string, Tensor>;

Values RunFrozen(const QuantizedCase& made, KernelMode kernels,
                 const std::vector<std::string>& fetches,
                 std::map<std::string, uint64_t>* integer_ops) {
  std::vector<std::string> names;
  std::vector<Tensor> fed;
  for (const auto& [name, value] : made.feeds) names.push_back(name), fed.push_back(value);
  Executor executor(CompileOptions{.kernels = kernels, .flush_subnormals = false});
  Scope scope = made.scope.Clone();
  PreparedProgram prepared = executor.PrepareFrozen(made.program, scope, names, fetches);
  if (integer_ops) {
    const BlockDesc& root = prepared.program().Root();
    for (size_t i = 0; i < root.NumOps(); ++i) {
      if (root.op(i).type().starts_with("quantized_")) ++(*integer_ops)[root.op(i).type()];
    }
  }
  const std::vector<Tensor>& results = prepared.Run(scope, fed);
  Values values;
  for (size_t i = 0; i < fetches.size(); ++i) values[fetches[i]] = results[i].Clone();
  return values;
}

// Each layer on what the layers before it gave in `got`.
Values RunApart(const QuantizedCase& made, const std::vector<std::string>& fetches,
                const Values& got) {
  std::map<std::string, Tensor> feeds = made.feeds;
  for (const auto& [name, value] : got) feeds[name + ".fed"] = value;
  Executor executor(CompileOptions{.kernels = KernelMode::kReference, .optimize = false});
  Scope scope = made.scope.Clone();
  const std::vector<Tensor> results = executor.Run(made.apart, scope, feeds, fetches);
  Values values;
  for (size_t i = 0; i < fetches.size(); ++i) values[fetches[i]] = results[i];
  return values;
}

// "": they are near enough.
std::string Difference(const Tensor& want, const Tensor& got) {
  if (want.shape() != got.shape() || want.dtype() != got.dtype())
    return fmt::format("{} instead of {}", got.shape().ToString(), want.shape().ToString());
  const Tensor a = want.Cast(DType::kFloat64), b = got.Cast(DType::kFloat64);
  double largest = 0;
  for (double x : a.span<double>()) largest = std::max(largest, std::abs(x));
  const double most = IsInteger(want.dtype()) ? 1 : 1e-4 * largest;
  int64_t differ = 0;
  std::set<double> values;  // that differ: relu6 may make one tie of many elements
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double x = a.data<double>()[i], y = b.data<double>()[i];
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    ++differ;
    values.insert(x);
    if (!(std::abs(x - y) <= most)) return fmt::format("{} instead of {} at {}", y, x, i);
  }
  if (IsInteger(want.dtype()) && values.size() > 4 && differ > 3 + 2 * a.numel() / 5)
    return fmt::format("{} of {} integers differ by one", differ, a.numel());
  return "";
}

// The scales, zero points and biases, which the listing of a program does not show.
std::string SmallParameters(const QuantizedCase& made) {
  std::string text;
  for (const std::string& name : made.scope.LocalNames()) {
    const Tensor value = made.scope.Get(name);
    if (value.numel() > 8) continue;
    text += "\n  " + name + " =";
    const Tensor doubles = value.Cast(DType::kFloat64);
    for (double x : doubles.span<double>()) text += fmt::format(" {}", x);
  }
  return text;
}

Finding Difference(const QuantizedCase& made, const std::string& kind, const std::string& what) {
  return {kind, what + SmallParameters(made)};
}

}  // namespace

QuantizedCase MakeQuantizedCase(Choices& choose) {
  QuantizedCase made;
  QuantizedMaker(choose, made).Make();
  return made;
}

std::optional<Finding> CheckQuantizedCase(const QuantizedCase& made, Choices& choose,
                                          std::map<std::string, uint64_t>* integer_ops) {
  // All results are read, so that each layer can be computed by itself; or of a single layer, its
  // result only.
  const bool all = made.results.size() > 1;
  for (const KernelMode kernels : {KernelMode::kAuto, KernelMode::kReference}) {
    const char* const mode = kernels == KernelMode::kAuto ? "fast" : "reference";
    try {
      const Values got = RunFrozen(made, kernels, made.results,
                                   kernels == KernelMode::kAuto ? integer_ops : nullptr);
      const Values want = RunApart(made, made.results, got);
      for (const std::string& name : made.results) {
        const std::string text = Difference(want.at(name), got.at(name));
        if (!text.empty())
          return Difference(made, fmt::format("{} kernels differ", mode), name + ": " + text);
      }
      if (!all || !choose.OneIn(2)) continue;
      // Without the values in between.
      const std::string& last = made.results.back();
      const Values alone = RunFrozen(made, kernels, {last}, nullptr);
      if (kernels == KernelMode::kReference) continue;
      const std::string text = Difference(got.at(last), alone.at(last));
      if (!text.empty())
        return Difference(made, "other results without the values between", last + ": " + text);
    } catch (const Error& error) {
      return Finding{fmt::format("an error with {} kernels", mode), error.what()};
    }
  }
  return std::nullopt;
}

}  // namespace coracle
