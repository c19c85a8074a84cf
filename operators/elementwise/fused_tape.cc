#include <coracle/operators/elementwise/fused_tape.h>
#include <coracle/operators/kernels/lane_kernel.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

constexpr int kNone = -1;

// The value of a variable: an argument, or the result of a formula. A copy is the same value.
struct Value {
  const LaneFormula* formula = nullptr;  // none for an argument, or a copy of one
  int a = kNone, b = kNone;              // values that the formula reads
  size_t argument = 0;                   // for an argument: its variable
  std::vector<size_t> results;           // variables of Out that get it
  bool wanted = false;
  bool in_memory = false;  // whether it is also read from memory
  size_t pointer = 0;      // its memory
  bool is_argument() const { return !formula && a == kNone; }
};

// The values that the formulas compute, from the arguments to the results.
class ValueList {
 public:
  ValueList(const FusedVars& vars, const std::vector<const LaneKernel*>& kernels)
      : vars_(vars), value_of_(vars.size(), kNone) {
    NumberArguments();
    for (const LaneKernel* kernel : kernels) {
      for (const LaneFormula& formula : kernel->formulas) Number(formula);
    }
    NumberResults();
    MarkWanted();
  }

  std::vector<Value> Release() { return std::move(values_); }

 private:
  static size_t IndexOf(const TensorArg& arg) { return static_cast<size_t>(arg.index); }
  Value& At(int value) { return values_[static_cast<size_t>(value)]; }

  void NumberArguments() {
    for (size_t v = 0; v < vars_.size(); ++v) {
      if (vars_[v].argument < 0) continue;
      Value value;
      value.argument = v;
      value_of_[v] = Add(std::move(value));
    }
  }
  int Add(Value value) {
    values_.push_back(std::move(value));
    return static_cast<int>(values_.size()) - 1;
  }
  void Number(const LaneFormula& formula) {
    const int a = value_of_[IndexOf(formula.a)];
    if (IsCopy(formula)) {
      value_of_[IndexOf(formula.out)] = a;
      return;
    }
    Value value;
    value.formula = &formula;
    value.a = a;
    if (formula.b) value.b = value_of_[IndexOf(formula.b)];
    value_of_[IndexOf(formula.out)] = Add(std::move(value));
  }
  static bool IsCopy(const LaneFormula& formula) {
    return !formula.lanes.one && !formula.lanes.left;
  }
  // A result that is an argument becomes a value of its own, so that only computed values
  // are stored.
  void NumberResults() {
    for (size_t v = 0; v < vars_.size(); ++v) {
      if (vars_[v].result < 0) continue;
      int value = value_of_[v];
      if (At(value).is_argument()) {
        Value copy;
        copy.a = value;
        value = Add(std::move(copy));
      }
      At(value).results.push_back(v);
    }
  }
  void MarkWanted() {
    for (int v = static_cast<int>(values_.size()) - 1; v >= 0; --v) {
      Value& value = At(v);
      value.wanted |= !value.results.empty();
      if (!value.wanted) continue;
      for (int operand : {value.a, value.b}) {
        if (operand != kNone) At(operand).wanted = true;
      }
    }
  }

  const FusedVars& vars_;
  std::vector<Value> values_;
  std::vector<int> value_of_;  // by variable
};

class TapeBuilder {
 public:
  TapeBuilder(const FusedVars& vars, const FusedRuns& runs) : vars_(vars), runs_(runs) {
    tape_.pointers = vars.size();
    last_read_.assign(vars.size(), kNone);
  }

  FusedTape Build(const std::vector<const LaneKernel*>& kernels) {
    values_ = ValueList(vars_, kernels).Release();
    for (Phase phase : {kFindReads, kFindMemory, kWrite}) {
      phase_ = phase;
      if (phase == kWrite) PlaceInMemory();
      Compute();
    }
    Append(moves_.end, 0, false);
    for (size_t v = 0; v < vars_.size(); ++v) {
      if (last_read_[v] != kNone || vars_[v].result >= 0) tape_.tensors.push_back(v);
    }
    return std::move(tape_);
  }

 private:
  // Three passes over the formulas: find the last reads of arguments; find the values that must
  // also be in memory; write the code.
  enum Phase { kFindReads, kFindMemory, kWrite };

  Value& At(int value) { return values_[static_cast<size_t>(value)]; }

  void PlaceInMemory() {
    for (Value& value : values_) {
      if (!value.in_memory) continue;
      value.pointer = tape_.pointers++;
      if (value.is_argument()) tape_.repeated.push_back({value.argument, value.pointer});
    }
  }

  void Compute() {
    accumulator_ = kNone;
    late_.clear();
    for (int v = 0; v < static_cast<int>(values_.size()); ++v) {
      if (At(v).wanted && !At(v).is_argument()) Compute(v);
    }
    for (const auto& [v, result] : late_) {
      Load(v);
      Store(result);
    }
  }

  void Compute(int v) {
    const Value& value = At(v);
    now_ = v;
    if (!value.formula) {
      Load(value.a);
    } else if (value.b == kNone) {
      Load(value.a);
      Append(value.formula->lanes.one, 0, false, value.formula->params);
    } else if (accumulator_ == value.b && accumulator_ != value.a) {
      WithMemory(value.formula->lanes.right, value.a, value.formula->params);
    } else {
      Load(value.a);
      WithMemory(value.formula->lanes.left, value.b, value.formula->params);
    }
    accumulator_ = v;
    if (value.in_memory) Append(moves_.store, value.pointer, false);
    for (size_t result : value.results) {
      if (MayStoreNow(result))
        Store(result);
      else
        late_.push_back({v, result});
    }
  }
  void Load(int v) {
    if (accumulator_ != v) WithMemory(moves_.load, v, {});
    accumulator_ = v;
  }
  // An instruction with an operand in memory.
  void WithMemory(simd::LaneRun run, int v, const simd::Params& params) {
    Value& value = At(v);
    if (value.is_argument() && !IsRepeated(value)) {
      if (phase_ == kFindReads) last_read_[value.argument] = now_;
      Append(run, value.argument, true, params);
    } else {
      value.in_memory |= phase_ == kFindMemory;
      Append(run, value.pointer, false, params);
    }
  }
  bool IsRepeated(const Value& value) const { return runs_.own[value.argument] != runs_.elements; }

  // Out[i] may have the memory of X[i], which must not be read afterwards.
  bool MayStoreNow(size_t result) const {
    const auto i = static_cast<size_t>(vars_[result].result);
    return i >= vars_.inputs.size() || last_read_[i] <= now_;
  }
  void Store(size_t result) {
    if (phase_ == kWrite) tape_.stores.push_back(tape_.code.size());
    Append(moves_.store, result, true);
  }
  void Append(simd::LaneRun run, size_t pointer, bool moves, const simd::Params& params = {}) {
    if (phase_ == kWrite) tape_.code.push_back({run, static_cast<int32_t>(pointer), moves, params});
  }

  const FusedVars& vars_;
  const FusedRuns& runs_;
  const simd::LaneMoves moves_ = simd::FindLaneMoves();
  std::vector<Value> values_;
  std::vector<int> last_read_;  // by variable, of arguments
  std::vector<std::pair<int, size_t>> late_;
  int accumulator_ = kNone, now_ = kNone;
  Phase phase_ = kFindReads;
  FusedTape tape_;
};

}  // namespace

FusedRuns::FusedRuns(const FusedVars& vars, const FusedCut* cut) : steps(vars.size()) {
  const FusedVar& out = vars.list.back();
  elements = cut ? cut->PieceOf(out, 1).numel() : out.meta.shape.numel();
  for (int d = 0; cut && d <= cut->dim; ++d) {
    dims.push_back(cut->shape[d]);
    count *= dims.back();
  }
  for (size_t v = 0; v < vars.size(); ++v) {
    own.push_back(cut ? cut->PieceOf(vars[v], 1).numel() : vars[v].meta.shape.numel());
    for (int d = 0; cut && d <= cut->dim; ++d) steps[v].push_back(cut->StepOf(vars[v], d));
  }
}

std::optional<FusedTape> MakeTape(const FusedVars& vars, const FusedRuns& runs,
                                  const std::vector<Kernel>& ops) {
  for (size_t v = 0; v < vars.size(); ++v) {
    if (runs.own[v] != runs.elements && (runs.own[v] != 1 || vars[v].argument < 0))
      return std::nullopt;
  }
  std::vector<const LaneKernel*> kernels;
  for (const Kernel& op : ops) {
    kernels.push_back(op.target<LaneKernel>());
    if (!kernels.back()) return std::nullopt;
  }
  return TapeBuilder(vars, runs).Build(kernels);
}

}  // namespace coracle::inline internal
