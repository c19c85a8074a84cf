#include <coracle/backward/backward.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/test/fuzz/draw_op.h>
#include <coracle/test/fuzz/op_case.h>
#include <coracle/test/fuzz/random_program.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace coracle {
namespace {

constexpr int64_t kMaxNumel = 32768;  // of an input
constexpr int kAttempts = 8;

// --- classes of values ---

enum class Numbers {
  kOrdinary,
  kModerate,  // up to 1000: past the ends of exponentials and gates
  kHuge,
  kLarge,
  kSmall,
  kTiny,
  kSubnormal,
  kZero,
  kInfinite,
  kNan,
  kEqual,  // one value everywhere: ties, variances of 0
  kMixed,
};
constexpr const char* kNames[] = {"ordinary",  "moderate", "huge",     "large", "small", "tiny",
                                  "subnormal", "zero",     "infinite", "nan",   "equal", "mixed"};

Numbers AnyNumbers(Choices& choose) {
  if (choose.OneIn(4)) return Numbers::kOrdinary;
  return static_cast<Numbers>(choose.Below(std::size(kNames)));
}

double Uniform(Choices& choose) { return static_cast<double>(choose.Below(1 << 20)) / (1 << 20); }

// 2^e for e between the two, with a sign unless it is to be positive.
double Power(Choices& choose, double from, double to, bool positive) {
  const double size = std::exp2(from + (to - from) * Uniform(choose));
  return positive || choose.OneIn(2) ? size : -size;
}

class Values {
 public:
  Values(Choices& choose, const FloatRange& range, bool positive)
      : choose_(choose), range_(range), positive_(positive) {}

  double Of(Numbers numbers, double ordinary) {
    const double top = std::log2(range_.largest), bottom = std::log2(range_.normal);
    switch (numbers) {
      case Numbers::kModerate:
        return Power(choose_, 0, 10, positive_);
      case Numbers::kHuge:
        return Power(choose_, top * 0.8, top, positive_);
      case Numbers::kLarge:
        return Power(choose_, top * 0.3, top * 0.8, positive_);
      case Numbers::kSmall:
        return Power(choose_, bottom * 0.8, bottom * 0.2, positive_);
      case Numbers::kTiny:
        return Power(choose_, bottom, bottom * 0.8, positive_);
      case Numbers::kSubnormal:
        return Power(choose_, std::log2(range_.smallest), bottom, positive_);
      case Numbers::kZero:
        return choose_.OneIn(2) ? 0.0 : -0.0;
      case Numbers::kInfinite:
        return positive_ || choose_.OneIn(2) ? HUGE_VAL : -HUGE_VAL;
      case Numbers::kNan:
        return std::numeric_limits<double>::quiet_NaN();
      case Numbers::kMixed:
        return Of(static_cast<Numbers>(choose_.Below(static_cast<size_t>(Numbers::kEqual))),
                  ordinary);
      default:
        return ordinary;
    }
  }

  // All elements, or one in four of them.
  void Fill(Tensor& tensor, Numbers numbers) {
    const bool sparse = choose_.OneIn(2);
    for (double& x : tensor.span<double>()) {
      if (!sparse || choose_.OneIn(4)) x = Of(numbers, x);
    }
  }
  void FillEqual(Tensor& tensor) {
    if (tensor.empty()) return;
    const double all = Of(AnyNumbers(choose_), tensor.data<double>()[0]);
    for (double& x : tensor.span<double>()) x = all;
  }

 private:
  Choices& choose_;
  const FloatRange& range_;
  bool positive_;
};

void FillFloats(Tensor& tensor, Numbers numbers, bool positive, Choices& choose) {
  if (numbers == Numbers::kOrdinary) return;
  const DType dtype = tensor.dtype();
  const FloatRange range = RangeOf(dtype);
  Tensor wide = tensor.Cast(DType::kFloat64);
  Values values(choose, range, positive && !choose.OneIn(4));
  numbers == Numbers::kEqual ? values.FillEqual(wide) : values.Fill(wide, numbers);
  const LoD lod = tensor.lod();
  tensor = wide.Cast(dtype);
  tensor.lod() = lod;
}

template <class T>
void FillIntegers(Tensor& tensor, Choices& choose) {
  constexpr T kEnds[] = {std::numeric_limits<T>::max(),
                         std::numeric_limits<T>::lowest(),
                         std::numeric_limits<T>::max() - 1,
                         std::numeric_limits<T>::lowest() + 1,
                         std::numeric_limits<T>::max() / 2,
                         0,
                         1,
                         static_cast<T>(-1)};
  for (T& x : tensor.span<T>()) {
    if (choose.OneIn(2)) x = choose.Of(kEnds);
  }
}

void FillTensor(Tensor& tensor, Numbers numbers, const ProgramInput& input, Choices& choose) {
  const DType dtype = tensor.dtype();
  if (IsFloating(dtype)) return FillFloats(tensor, numbers, input.positive, choose);
  if (IsComplex(dtype)) {
    Tensor parts = PartsOf(tensor), filled = parts;
    FillFloats(filled, numbers, false, choose);
    return parts.CopyFrom(filled);
  }
  if (numbers == Numbers::kOrdinary || input.limit > 0 || !IsInteger(dtype)) return;
  switch (dtype) {
    case DType::kInt8:
      return FillIntegers<int8_t>(tensor, choose);
    case DType::kUInt8:
      return FillIntegers<uint8_t>(tensor, choose);
    case DType::kInt16:
      return FillIntegers<int16_t>(tensor, choose);
    case DType::kInt32:
      return FillIntegers<int32_t>(tensor, choose);
    case DType::kInt64:
      return FillIntegers<int64_t>(tensor, choose);
    default:
      return;
  }
}

// --- the program ---

DType AnyOperands(Choices& choose) {
  constexpr DType kTypes[] = {DType::kFloat32,  DType::kFloat32, DType::kFloat32, DType::kFloat32,
                              DType::kFloat32,  DType::kFloat32, DType::kFloat64, DType::kFloat16,
                              DType::kBFloat16, DType::kInt64};
  constexpr DType kIntegers[] = {DType::kInt64, DType::kInt32, DType::kInt16, DType::kInt8,
                                 DType::kUInt8};
  const DType drawn = choose.Of(kTypes);
  return drawn == DType::kInt64 ? choose.Of(kIntegers) : drawn;
}

bool Has(const BlockDesc& block, const std::string& type) {
  for (size_t i = 0; i < block.NumOps(); ++i) {
    if (block.op(i).type() == type) return true;
  }
  return false;
}

bool IsSmall(const RandomProgram& made) {
  return std::all_of(made.inputs.begin(), made.inputs.end(), [](const ProgramInput& input) {
    return input.meta.shape.numel() <= kMaxNumel;
  });
}

std::optional<RandomProgram> DrawProgram(const std::string& type, DType* dtype, Choices& choose) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (attempt > kAttempts / 2) *dtype = DType::kFloat32;
    RandomProgramOptions options;
    options.max_ops = 1;
    options.types = {type};
    options.loss = false;
    options.large_dims = choose.OneIn(2);
    options.dtype = *dtype;
    RandomProgram made = MakeRandomProgram(choose, options);
    if (Has(made.program.Root(), type) && IsSmall(made)) return made;
  }
  return std::nullopt;
}

bool IsStatistic(const BlockDesc& block, const std::string& name) {
  for (const OpDesc* op : block.Uses(name).writers) {
    const OpSpec& def = DefaultOps().Get(op->type());
    bool constant = false;
    ForEachPosition(op->outputs(), [&](const std::string& output, const std::string& slot) {
      constant = constant || (output == name && OpDrawer::IsConstant(def, slot));
    });
    if (constant) return true;
  }
  return false;
}

// Appends the gradient ops. The gradients that arrive are inputs of the program.
void AppendGradients(RandomProgram& made, std::vector<ProgramInput>* arriving) {
  ProgramDesc program = made.program;
  BlockDesc& block = program.Root();
  GradientsOptions options;
  std::vector<Variable> xs, ys;
  for (const ProgramInput& input : made.inputs) {
    if (!IsFloating(input.meta.dtype) || input.constant) continue;
    block.FindVar(input.name)->SetStopGradient(false);
    xs.push_back(Variable::Of(block, input.name));
  }
  for (const std::string& name : made.computed) {
    const VarMeta meta = block.FindVar(name)->meta();
    if (IsStatistic(block, name)) continue;
    ys.push_back(Variable::Of(block, name));
    options.target_gradients.emplace_back();
    if (!meta.shape.IsKnown()) continue;
    ProgramInput gradient;
    gradient.name = name + "@ARRIVES";
    gradient.meta = meta;
    block.Var(gradient.name).SetMeta(meta);
    options.target_gradients.back() = gradient.name;
    arriving->push_back(gradient);
  }
  if (xs.empty() || ys.empty()) return;
  try {
    Gradients(ys, xs, options);
    made.program = std::move(program);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) throw;
    arriving->clear();
  }
}

}  // namespace

FloatRange RangeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return {0x1p-52, 0x1p-1074, 0x1p-1022, std::numeric_limits<double>::max()};
    case DType::kFloat16:
      return {0x1p-10, 0x1p-24, 0x1p-14, 65504};
    case DType::kBFloat16:
      return {0x1p-7, 0x1p-133, 0x1p-126, 0x1.fep127};
    default:
      return {0x1p-23, 0x1p-149, 0x1p-126, std::numeric_limits<float>::max()};
  }
}

std::string ToOptions(const OpCaseId& id) {
  const std::string shape = fmt::format("--types={} --seed={}", id.type, id.seed);
  return id.filling == 0 ? shape : fmt::format("{} --filling={}", shape, id.filling);
}

std::optional<OpCase> DrawOpCase(const OpCaseId& id) {
  const std::string& type = id.type;
  const uint64_t first = HashName(type) + id.seed * 0x9e3779b97f4a7c15;
  Choices choose(first);
  OpCase drawn;
  drawn.dtype = AnyOperands(choose);
  std::optional<RandomProgram> made = DrawProgram(type, &drawn.dtype, choose);
  if (!made) return std::nullopt;
  std::vector<ProgramInput> arriving;
  AppendGradients(*made, &arriving);
  drawn.program = std::move(made->program);
  if (id.filling > 0) choose = Choices(first ^ id.filling * 0xd1342543de82ef95);
  const bool each = choose.OneIn(3);  // each input has a class of its own
  const Numbers all = AnyNumbers(choose);
  drawn.numbers = each ? "several classes" : kNames[static_cast<size_t>(all)];
  for (const std::vector<ProgramInput>* inputs :
       {&std::as_const(made->inputs), &std::as_const(arriving)}) {
    for (const ProgramInput& input : *inputs) {
      VarValue value = DrawValue(input, 1 + choose.Below(1 << 20));
      auto* rows = std::get_if<SelectedRows>(&value);
      FillTensor(rows ? rows->value : std::get<Tensor>(value), each ? AnyNumbers(choose) : all,
                 input, choose);
      drawn.values.emplace(input.name, std::move(value));
    }
  }
  return drawn;
}

}  // namespace coracle
