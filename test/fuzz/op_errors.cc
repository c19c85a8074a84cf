#include <coracle/backward/backward.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/test/fuzz/op_errors.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>

namespace coracle {
namespace {

constexpr int kNeighbours = 4;
constexpr double kFar = 1000;       // an error that is more than rounding
constexpr double kNextTo0 = 2e-36;  // fast kernels may give 0 for a smaller number

struct Outcome {
  VarValues values;
  std::string error;  // "": none
};

VarValues InputsOf(const OpDesc& op, const VarValues& env) {
  VarValues inputs;
  const auto add = [&](const std::string& name) {
    const auto found = env.find(name);
    if (found != env.end()) inputs[name] = CloneValue(found->second);
  };
  if (op.HasSubBlock()) {
    for (const auto& [name, value] : env) add(name);
  } else {
    op.ForEachInput(add);
    op.ForEachOutput(add);  // some ops keep a part of it
  }
  return inputs;
}

Outcome RunOp(const OpDesc& op, VarValues inputs, KernelMode kernels) {
  Outcome outcome{std::move(inputs), {}};
  InterpretOptions options;
  options.kernels = kernels;
  options.seed = 7;
  try {
    InterpretOp(op, DefaultOps(), outcome.values, options);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) throw;
    outcome.error = error.message();
  }
  return outcome;
}

// --- values in double ---

Tensor* ElementsOf(VarValue& value) {
  auto* rows = std::get_if<SelectedRows>(&value);
  return rows ? &rows->value : std::get_if<Tensor>(&value);
}
const Tensor* ElementsOf(const VarValue& value) { return ElementsOf(const_cast<VarValue&>(value)); }

bool IsReal(const Tensor& tensor) {
  return IsFloating(tensor.dtype()) || IsComplex(tensor.dtype());
}

// False: a kind of value that this test does not convert.
bool Widen(VarValues& values) {
  for (auto& [name, value] : values) {
    Tensor* tensor = ElementsOf(value);
    if (!tensor && std::holds_alternative<TensorArray>(value)) return false;
    if (!tensor || !IsReal(*tensor)) continue;
    const LoD lod = tensor->lod();
    *tensor = tensor->Cast(IsComplex(tensor->dtype()) ? DType::kComplex128 : DType::kFloat64);
    tensor->lod() = lod;
  }
  return true;
}

// Moves each number to a neighbour among those of the narrow type.
void Move(VarValues& values, double epsilon, Choices& choose) {
  for (auto& [name, value] : values) {
    Tensor* tensor = ElementsOf(value);
    if (!tensor || !IsReal(*tensor)) continue;
    Tensor parts = PartsOf(*tensor);
    for (double& x : parts.span<double>()) x *= 1 + (choose.OneIn(2) ? epsilon : -epsilon);
  }
}

std::vector<double> NumbersIn(const Tensor& tensor) {
  const Tensor wide = PartsOf(tensor).Cast(DType::kFloat64);
  return {wide.data<double>(), wide.data<double>() + wide.numel()};
}

// What the op computes in double, and by how much that changes when each number that it reads moves
// to a neighbour.
struct Truth {
  std::vector<double> values, changes;
  double noise = 0;  // what the rounding of doubles may leave of large numbers that cancel
};
using Truths = std::map<std::string, Truth>;

void AddChanges(const VarValues& moved, Truths& truths) {
  for (auto& [name, truth] : truths) {
    const auto found = moved.find(name);
    const Tensor* tensor = found == moved.end() ? nullptr : ElementsOf(found->second);
    const std::vector<double> values = tensor ? NumbersIn(*tensor) : std::vector<double>();
    for (size_t i = 0; i < truth.values.size(); ++i) {
      const double x = i < values.size() ? values[i] : HUGE_VAL, t = truth.values[i];
      if (x == t || (std::isnan(x) && std::isnan(t))) continue;
      const double change = std::abs(x - t);
      truth.changes[i] = std::isnan(change) ? HUGE_VAL : std::max(truth.changes[i], change);
    }
  }
}

void StartTruths(const OpDesc& op, const VarValues& values, Truths& truths) {
  op.ForEachOutput([&](const std::string& name) {
    const auto found = values.find(name);
    const Tensor* tensor = found == values.end() ? nullptr : ElementsOf(found->second);
    if (!tensor || tensor->dtype() == DType::kString) return;
    Truth& truth = truths[name];
    truth.values = NumbersIn(*tensor);
    truth.changes.assign(truth.values.size(), 0);
    for (const double x : truth.values)
      if (std::isfinite(x)) truth.noise = std::max(truth.noise, 1e-14 * std::abs(x));
  });
}

VarValues CopyOf(const VarValues& values) {
  VarValues copy;
  for (const auto& [name, value] : values) copy[name] = CloneValue(value);
  return copy;
}

Truths TruthsOf(const OpDesc& wide_op, const VarValues& inputs, double epsilon, Choices& choose) {
  Truths truths;
  VarValues wide = CopyOf(inputs);
  if (DefaultOps().Get(wide_op.type()).random || !Widen(wide)) return truths;
  const Outcome outcome = RunOp(wide_op, CopyOf(wide), KernelMode::kReference);
  if (!outcome.error.empty()) return truths;
  StartTruths(wide_op, outcome.values, truths);
  for (int k = 0; k < kNeighbours; ++k) {
    VarValues moved = CopyOf(wide);
    Move(moved, epsilon, choose);
    AddChanges(RunOp(wide_op, std::move(moved), KernelMode::kReference).values, truths);
  }
  return truths;
}

// The same for all variables that a program writes, each op of which reads what the ops before it
// computed in double.
Truths TruthsOfProgram(const ProgramDesc& wide_program, const VarValues& inputs, double epsilon,
                       Choices& choose) {
  Truths truths;
  VarValues wide = CopyOf(inputs);
  if (!Widen(wide)) return truths;
  const BlockDesc& block = wide_program.Root();
  for (int k = 0; k <= kNeighbours; ++k) {
    VarValues values = CopyOf(wide);
    if (k > 0) Move(values, epsilon, choose);
    for (size_t i = 0; i < block.NumOps(); ++i) {
      const OpDesc& op = block.op(i);
      if (DefaultOps().Get(op.type()).random) return {};
      Outcome outcome = RunOp(op, InputsOf(op, values), KernelMode::kReference);
      if (!outcome.error.empty()) return {};
      for (auto& [name, value] : outcome.values) values[name] = std::move(value);
      if (k == 0) StartTruths(op, values, truths);
    }
    if (k > 0) AddChanges(values, truths);
  }
  return truths;
}

// --- comparison ---

enum class Kind { kFinite, kInfinite, kMinusInfinite, kNan };
Kind KindOf(double x) {
  if (std::isnan(x)) return Kind::kNan;
  return std::isfinite(x) ? Kind::kFinite : x > 0 ? Kind::kInfinite : Kind::kMinusInfinite;
}
// As a number of the type with that range: beyond the largest one is infinite.
Kind KindIn(const FloatRange& range, double x) {
  return std::abs(x) > range.largest * (1 + range.epsilon / 4) && std::isfinite(x)
             ? KindOf(x * HUGE_VAL)
             : KindOf(x);
}

// Whether a result is of the kind that the truth has. Where the truth `t` is too large for the
// type, a sum may give a nan too.
bool Agree(Kind kind, Kind wanted, double t) {
  return kind == wanted || (std::isfinite(t) && wanted != Kind::kFinite && kind != Kind::kFinite);
}

class OpComparison {
 public:
  OpComparison(const OpDesc& op, const OpCase& drawn, const OpCaseId& id, OpErrors& errors)
      : op_(op), drawn_(drawn), id_(id), errors_(errors) {}

  void Compare(const Outcome& fast, const Outcome& plain, const Truths& truths) {
    ++errors_.cases;
    if (fast.error.empty() != plain.error.empty()) {
      Note("only one kernel throws",
           fmt::format("fast: {}, reference: {}", fast.error, plain.error));
    } else if (plain.error.empty()) {
      op_.ForEachOutput([&](const std::string& name) { CompareOutput(name, fast, plain, truths); });
    }
    AddNotes();
  }

  // The op read results of reference kernels.
  void CompareInProgram(const Outcome& plain, const Truths& truths) {
    op_.ForEachOutput([&](const std::string& name) {
      const auto r = plain.values.find(name);
      const Tensor* tensor = r == plain.values.end() ? nullptr : ElementsOf(r->second);
      const auto truth = truths.find(name);
      if (!tensor || truth == truths.end() || !IsReal(*tensor)) return;
      const std::vector<double> numbers = NumbersIn(*tensor);
      if (numbers.size() == truth->second.values.size())
        CompareInProgram(name, numbers, truth->second, RangeOf(RealOf(tensor->dtype())));
    });
    AddNotes();
  }

 private:
  // Whether each is a number, and whether all have vanished.
  void CompareInProgram(const std::string& name, const std::vector<double>& numbers,
                        const Truth& truth, const FloatRange& range) {
    bool all_zero = true;
    size_t largest = 0;
    for (size_t i = 0; i < numbers.size(); ++i) {
      const double r = numbers[i], t = truth.values[i], change = truth.changes[i];
      const Kind wanted = KindIn(range, t);
      all_zero = all_zero && r == 0;
      if (std::abs(t) > std::abs(truth.values[largest])) largest = i;
      if (IsAtEnd(t, change, range) || Agree(KindOf(r), wanted, t)) continue;
      Note(fmt::format("in a program: reference {}, double {}", NameOf(KindOf(r)), NameOf(wanted)),
           fmt::format("{}[{}]: reference {:.9g}, in double {:.9g} +- {:.2g}", name, i, r, t,
                       change));
    }
    if (numbers.empty() || !all_zero) return;
    const double t = truth.values[largest];
    if (KindIn(range, t) == Kind::kFinite && std::abs(t) > range.normal / range.epsilon &&
        std::abs(t) > 1000 * truth.changes[largest])
      Note("in a program: reference vanishes",
           fmt::format("{}: up to {:.9g} +- {:.2g} in double", name, t, truth.changes[largest]));
  }

  void AddNotes() {
    for (const auto& [kind, text] : noted_) AddCase(errors_.defects[kind], text);
    noted_.clear();
  }

  // So close to the end of the type, or to a pole, that rounding decides.
  static bool IsAtEnd(double t, double change, const FloatRange& range) {
    const double distance = std::abs(std::abs(t) - range.largest);
    return std::isinf(change) || distance <= 64 * (range.epsilon * std::abs(t) + change);
  }
  static double Unit(double t, double change, const FloatRange& range) {
    return range.epsilon * std::abs(t) + change + range.smallest;
  }

  void CompareOutput(const std::string& name, const Outcome& fast, const Outcome& plain,
                     const Truths& truths) {
    const auto f = fast.values.find(name), r = plain.values.find(name);
    if (f == fast.values.end() || r == plain.values.end()) return;
    const Tensor *a = ElementsOf(f->second), *b = ElementsOf(r->second);
    if (!a || !b) return;
    if (a->dtype() != b->dtype() || !(a->shape() == b->shape())) {
      Note("types differ", fmt::format("{}: {} and {}", name, a->ToString(), b->ToString()));
      return;
    }
    if (b->dtype() == DType::kString || b->empty()) return;
    const auto truth = truths.find(name);
    const bool usable = truth != truths.end() &&
                        static_cast<int64_t>(truth->second.values.size()) == PartsOf(*b).numel();
    CompareTensors(name, *a, *b, usable ? &truth->second : nullptr);
  }

  void CompareTensors(const std::string& name, const Tensor& fast, const Tensor& plain,
                      const Truth* truth) {
    const std::vector<double> f = NumbersIn(fast), r = NumbersIn(plain);
    const bool real = IsReal(plain);
    const FloatRange range = RangeOf(RealOf(plain.dtype()));
    errors_.elements += f.size();
    for (size_t i = 0; i < f.size(); ++i) {
      const auto where = [&] {
        return fmt::format("{}[{}]: fast {:.9g}, reference {:.9g}, in double {:.9g} +- {:.2g}",
                           name, i, f[i], r[i], truth ? truth->values[i] : std::nan(""),
                           truth ? truth->changes[i] : std::nan(""));
      };
      if (!real) {
        CompareIntegers(f[i], r[i], truth ? truth->values[i] : r[i], truth ? truth->changes[i] : 0,
                        where);
      } else {
        errors_.measured = true;
        CompareReals(f[i], r[i], truth ? truth->values[i] : r[i],
                     truth ? truth->changes[i] + truth->noise : 0, range, where);
      }
    }
  }

  template <class Where>
  void CompareIntegers(double f, double r, double t, double change, const Where& where) {
    if (change > 0) return;
    if (f != r) Note("integers differ", where());
    if (r != t) Note("integers differ in double", where());
  }

  template <class Where>
  void CompareReals(double f, double r, double t, double change, const FloatRange& range,
                    const Where& where) {
    if (IsAtEnd(t, change, range)) return;
    const Kind fast = KindOf(f), plain = KindOf(r), wanted = KindIn(range, t);
    if (fast != plain && !(Agree(fast, wanted, t) && Agree(plain, wanted, t)))
      Note(fmt::format("fast {}, reference {}", NameOf(fast), NameOf(plain)), where());
    if (!Agree(plain, wanted, t))
      Note(fmt::format("reference {}, double {}", NameOf(plain), NameOf(wanted)), where());
    if (wanted != Kind::kFinite) return;
    const double unit = Unit(t, change, range);
    if (fast == Kind::kFinite) {
      if (f == 0 && std::abs(t) < kNextTo0 && std::abs(f - t) > 4 * unit)
        ++errors_.flushed;
      else
        NoteError(std::abs(f - t) / unit, errors_.fast, errors_.worst_fast, "fast is far off",
                  where);
    }
    if (plain == Kind::kFinite)
      NoteError(std::abs(r - t) / unit, errors_.plain, errors_.worst_plain, "reference is far off",
                where);
  }

  template <class Where>
  void NoteError(double error, double& worst, OpDefect& record, const char* kind,
                 const Where& where) {
    if (error > worst) {
      worst = error;
      record = {1, id_, Describe(where())};
    }
    if (error > kFar) Note(kind, where());
  }

  static const char* NameOf(Kind kind) {
    constexpr const char* kNames[] = {"finite", "inf", "-inf", "nan"};
    return kNames[static_cast<int>(kind)];
  }

  std::string Describe(const std::string& where) const {
    return fmt::format("{} of {}, {}", drawn_.numbers, ToString(drawn_.dtype), where);
  }
  void Note(const std::string& kind, const std::string& where) { noted_.emplace(kind, where); }
  void AddCase(OpDefect& defect, const std::string& where) const {
    if (defect.cases++ > 0) return;
    defect.first = id_;
    defect.text = Describe(where);
  }

  const OpDesc& op_;
  const OpCase& drawn_;
  const OpCaseId& id_;
  OpErrors& errors_;
  std::map<std::string, std::string> noted_;
};

bool IsCompared(const OpSpec& def) { return def.kind == OpKind::kCompute && !def.side_effect; }

void Add(const OpErrors& from, OpErrors& to) {
  to.cases += from.cases;
  to.elements += from.elements;
  to.flushed += from.flushed;
  to.measured = to.measured || from.measured;
  if (from.fast > to.fast) to.fast = from.fast, to.worst_fast = from.worst_fast;
  if (from.plain > to.plain) to.plain = from.plain, to.worst_plain = from.worst_plain;
  for (const auto& [kind, defect] : from.defects) {
    OpDefect& into = to.defects[kind];
    const uint64_t cases = into.cases + defect.cases;
    if (into.cases == 0) into = defect;
    into.cases = cases;
  }
}

}  // namespace

bool OpErrorTable::Run(const OpCaseId& id) {
  const auto limits =
      std::make_shared<ResourceLimits>(ResourceOptions{uint64_t{256} << 20, 10, {}});
  const ScopedLimits scoped(limits);
  std::optional<OpCase> drawn = DrawOpCase(id);
  if (!drawn) return false;
  const ProgramDesc wide = InDouble(drawn->program);
  const bool is_float = IsFloating(drawn->dtype), has_truth = drawn->dtype != DType::kFloat64;
  const double epsilon = is_float ? RangeOf(drawn->dtype).epsilon : 0x1p-23;
  Choices choose(id.seed + id.filling);
  const BlockDesc& block = drawn->program.Root();
  const Truths of_program = has_truth && is_float && block.NumOps() > 1
                                ? TruthsOfProgram(wide, drawn->values, epsilon, choose)
                                : Truths();
  std::map<Key, OpErrors> found;
  for (size_t i = 0; i < block.NumOps(); ++i) {
    const OpDesc& op = block.op(i);
    const VarValues inputs = InputsOf(op, drawn->values);
    const Outcome plain = RunOp(op, CopyOf(inputs), KernelMode::kReference);
    if (IsCompared(DefaultOps().Get(op.type()))) {
      const Outcome fast = RunOp(op, CopyOf(inputs), KernelMode::kAuto);
      const Truths truths = has_truth && plain.error.empty()
                                ? TruthsOf(wide.Root().op(i), inputs, epsilon, choose)
                                : Truths();
      OpComparison comparison(op, *drawn, id, found[{op.type(), drawn->dtype}]);
      comparison.Compare(fast, plain, truths);
      if (i > 0) comparison.CompareInProgram(plain, of_program);
    }
    if (!plain.error.empty()) break;
    for (const auto& [name, value] : plain.values) drawn->values[name] = value;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  ++cases_;
  for (const auto& [key, errors] : found) Add(errors, rows_[key]);
  return true;
}

std::map<OpErrorTable::Key, OpErrors> OpErrorTable::rows() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return rows_;
}

uint64_t OpErrorTable::cases() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return cases_;
}

}  // namespace coracle
