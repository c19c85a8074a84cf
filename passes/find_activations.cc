// Activations that are written out as several ops become one op, which a convolution or product
// can apply to its sums:
//
//   x min(max(x + 3, 0), 6) / 6         hard_swish(x)
//   x hard_sigmoid(x), slope 1/6        hard_swish(x)
//   x sigmoid(beta x)                   swish(x)
//   x (1 + erf(x / sqrt 2)) / 2         gelu(x)
//
// The factors of hard_swish may be distributed in any way over the ops, and the operands of sums
// and products may have either order. The one op has the limits at infinite x where the single ops
// compute nan, and does not overflow where x times 6 would.

#include <coracle/passes/affine_step.h>
#include <coracle/passes/match.h>
#include <coracle/passes/passes.h>
#include <coracle/passes/remarks.h>
#include <coracle/passes/value_flow.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_set>
#include <utility>

namespace coracle::inline internal {
namespace {

// factor * f(...) + shift, with the ops that compute it.
struct Gate {
  AffineStep after;  // from the result of the function to the gate
  const OpDesc* function = nullptr;
  AffineStep before;  // from x to the argument of the function
  double low = 0, high = 0;
  std::vector<const OpDesc*> ops;  // in their order
};

AffineStep Unchanged(const std::string& x) { return {nullptr, x, x, {1}, {0}}; }

bool IsNear(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); }

// Reads the ops that compute a gate.
class GateReader {
 public:
  GateReader(const BlockDesc& block, const PassContext& context, const ValueFlow& flow,
             const Matcher& matcher)
      : block_(block), context_(context), flow_(flow), matcher_(matcher) {}

  std::optional<AffineStep> ScalarStep(const OpDesc& op, const std::string& x) const {
    const AffineRules rules{-1, flow_.CertainRank(x)};
    return AffineStepOf(op, x, rules, block_, context_);
  }

  // Goes back from `var` over scalar steps, and puts their ops before `ops`.
  AffineStep StepsBefore(std::string var, const std::string& end,
                         std::vector<const OpDesc*>* ops) const {
    AffineStep all = Unchanged(var);
    while (var != end) {
      const OpDesc* op = InnerWriter(var);
      const std::string x = op ? VariableInput(*op) : "";
      const std::optional<AffineStep> step = x.empty() ? std::nullopt : ScalarStep(*op, x);
      if (!step) break;
      AffineStep longer = *step;
      Append(all, &longer);
      all = std::move(longer);
      ops->insert(ops->begin(), op);
      var = x;
    }
    all.x = var;
    return all;
  }

  // The gate by which x is multiplied.
  std::optional<Gate> GateOf(const std::string& name, const std::string& x) const {
    Gate gate;
    gate.after = StepsBefore(name, x, &gate.ops);
    const OpDesc* f = InnerWriter(gate.after.x);
    if (!f) return std::nullopt;
    gate.function = f;
    std::string argument;
    if (f->type() == "sigmoid" || f->type() == "erf" || f->type() == "hard_sigmoid") {
      gate.ops.insert(gate.ops.begin(), f);
      argument = f->Input("X")[0];
    } else {
      argument = Clipped(*f, &gate.low, &gate.high, &gate.ops);
      if (argument.empty()) return std::nullopt;
    }
    gate.before = StepsBefore(argument, x, &gate.ops);
    if (gate.before.x != x) return std::nullopt;
    return gate;
  }

 private:
  const OpDesc* OnlyWriter(const std::string& var) const {
    if (!flow_.IsTemporary(var)) return nullptr;
    const OpDesc* op = flow_.WriterOf(var);
    return op && !flow_.IsRecomputed(*op) && flow_.IsOnlyOutput(*op, var) ? op : nullptr;
  }
  // The op that writes a variable which only one op reads.
  const OpDesc* InnerWriter(const std::string& var) const {
    return matcher_.HasOneReader(var) ? OnlyWriter(var) : nullptr;
  }

  // The input of an op that is not constant.
  std::string VariableInput(const OpDesc& op) const {
    const auto &x = op.Input("X"), &y = op.Input("Y");
    if (x.size() == 1 && !context_.FrozenValue(x[0])) return x[0];
    return y.size() == 1 ? y[0] : "";
  }

  // The bounds of clip, relu6, or a maximum and a minimum with constants; "" for other ops.
  std::string Clipped(const OpDesc& op, double* low, double* high,
                      std::vector<const OpDesc*>* ops) const {
    ops->insert(ops->begin(), &op);
    if (op.type() == "clip" && !HasOtherInput(op, "X")) {
      *low = static_cast<double>(op.GetAttr<float>("min", 0));
      *high = static_cast<double>(op.GetAttr<float>("max", 0));
      return op.Input("X")[0];
    }
    if (op.type() == "relu6") {
      *low = 0;
      *high = static_cast<double>(op.GetAttr<float>("threshold", 6));
      return op.Input("X")[0];
    }
    if (op.type() != "elementwise_min" || !ConstantOf(op, high)) return "";
    const std::string inner = VariableInput(op);
    const OpDesc* most = InnerWriter(inner);
    if (!most || most->type() != "elementwise_max" || !ConstantOf(*most, low)) return "";
    ops->insert(ops->begin(), most);
    return VariableInput(*most);
  }
  // The number that an extremum compares with.
  bool ConstantOf(const OpDesc& op, double* number) const {
    const std::string x = VariableInput(op);
    if (x.empty() || op.Input("X").size() != 1 || op.Input("Y").size() != 1) return false;
    const Tensor* value = context_.FrozenValue(op.Input(op.Input("X")[0] == x ? "Y" : "X")[0]);
    if (!value || value->numel() != 1 || value->shape().rank() > flow_.CertainRank(x)) return false;
    *number = value->Cast(DType::kFloat64).span<double>()[0];
    return true;
  }

  const BlockDesc& block_;
  const PassContext& context_;
  const ValueFlow& flow_;
  const Matcher& matcher_;
};

// The op without its variables.
struct Activation {
  std::string type;
  AttrList attrs;
};
// The activation x * gate * factor; nullopt if it is none.
std::optional<Activation> ActivationOf(const Gate& gate, double factor) {
  const std::string& f = gate.function->type();
  const double a = gate.after.factors[0], b = gate.after.shifts[0];
  const double c = gate.before.factors[0], d = gate.before.shifts[0];
  if (f == "sigmoid") {
    if (b != 0 || d != 0 || a * factor != 1) return std::nullopt;
    return Activation{"swish", {{"beta", static_cast<float>(c)}}};
  }
  if (f == "erf") {
    const bool half = IsNear(a * factor, 0.5) && IsNear(b * factor, 0.5);
    if (!half || d != 0 || !IsNear(c, std::sqrt(0.5))) return std::nullopt;
    return Activation{"gelu", {}};
  }
  double low = gate.low, high = gate.high, slope = c, offset = d;
  if (f == "hard_sigmoid") {
    const auto own = static_cast<double>(gate.function->GetAttr<float>("slope", 0.2f));
    slope = c * own;
    offset = d * own + static_cast<double>(gate.function->GetAttr<float>("offset", 0.5f));
    low = 0;
    high = 1;
  }
  // x clip(slope x + offset, 0, high) a factor = x clip(x + offset / slope, 0, high / slope) ...
  const bool hard = b == 0 && low == 0 && slope > 0 && IsNear(high / slope, 6) &&
                    IsNear(offset / slope, 3) && IsNear(slope * a * factor, 1.0 / 6);
  return hard ? std::optional(Activation{"hard_swish", {}}) : std::nullopt;
}

// Whether these ops pass the LoD of x on to y. Each of them passes on the LoD of its input X.
bool PassesLod(const std::string& y, const std::string& x, const std::vector<const OpDesc*>& ops) {
  std::string at = y;
  while (at != x) {
    const auto writer = std::find_if(ops.begin(), ops.end(), [&](const OpDesc* op) {
      return op->Output("Out") == std::vector<std::string>{at};
    });
    if (writer == ops.end()) return false;
    at = (*writer)->Input("X")[0];
  }
  return true;
}

class ActivationFinder {
 public:
  ActivationFinder(ProgramDesc& program, const PassContext& context)
      : block_(program.Root()),
        context_(context),
        flow_(program, context),
        matcher_(block_, context),
        lod_(block_, context),
        gates_(block_, context, flow_, matcher_),
        rewrites_(block_) {}

  void Run() {
    std::vector<const OpDesc*> products;
    std::as_const(block_).ForEachOp([&](const OpDesc& op) {
      if (op.type() == "elementwise_mul") products.push_back(&op);
    });
    for (const OpDesc* product : products) {
      const auto &x = product->Input("X"), &y = product->Input("Y");
      if (x.size() != 1 || y.size() != 1 || product->Output("Out").size() != 1) continue;
      if (!Try(*product, x[0], y[0])) Try(*product, y[0], x[0]);
    }
    rewrites_.Apply();
  }

 private:
  bool IsReal(const std::string& name) const {
    const std::optional<DType> dtype = DTypeOfTensor(block_, name);
    return dtype == DType::kFloat32 || dtype == DType::kFloat64;
  }

  // The step that only multiplies and alone reads `y`.
  std::optional<AffineStep> FactorAfter(const std::string& y) const {
    const OpDesc* next = flow_.ReaderOf(y);
    std::optional<AffineStep> step = next ? gates_.ScalarStep(*next, y) : std::nullopt;
    return step && !step->HasShift() ? step : std::nullopt;
  }

  bool Try(const OpDesc& product, const std::string& left, const std::string& right) {
    if (flow_.IsRecomputed(product) || !IsReal(left) || !IsReal(right)) return false;
    // gelu: x / 2 may be one of the operands.
    for (const bool direct : {true, false}) {
      std::vector<const OpDesc*> ops;
      const AffineStep outer = direct ? Unchanged(left) : gates_.StepsBefore(left, "", &ops);
      if ((!direct && ops.empty()) || outer.HasShift()) continue;
      if (Replace(product, outer, right, std::move(ops))) return true;
    }
    return false;
  }

  bool Replace(const OpDesc& product, const AffineStep& outer, const std::string& gate_name,
               std::vector<const OpDesc*> ops) {
    const std::string& x = outer.x;
    const std::optional<Gate> gate = gates_.GateOf(gate_name, x);
    if (!gate) return false;
    ops.insert(ops.end(), gate->ops.begin(), gate->ops.end());
    ops.push_back(&product);
    std::string y = product.Output("Out")[0];
    double factor = outer.factors[0];
    std::optional<Activation> activation = ActivationOf(*gate, factor);
    // A division by 6 may follow, but later factors belong to something else.
    while (!activation) {
      const std::optional<AffineStep> step = FactorAfter(y);
      if (!step) return false;
      factor *= step->factors[0];
      ops.push_back(step->op);
      y = step->y;
      activation = ActivationOf(*gate, factor);
    }
    if (!PassesLod(y, x, ops) && lod_.MayHaveLod(x)) return false;
    if (!matcher_.IsWrittenOnce(y) || !matcher_.MayRunAt(ops, *ops.back())) return false;
    for (const OpDesc* op : ops)
      if (!done_.insert(op).second) return false;
    const OpDesc made(activation->type, {{"X", {x}}}, {{"Out", {y}}}, activation->attrs);
    rewrites_.Replace(ops, *ops.back(), {made});
    return true;
  }

  BlockDesc& block_;
  const PassContext& context_;
  const ValueFlow flow_;
  const Matcher matcher_;
  const LodFlow lod_;
  const GateReader gates_;
  Rewrites rewrites_;
  std::unordered_set<const OpDesc*> done_;
};

}  // namespace

void FindActivations(ProgramDesc& program, const PassContext& context) {
  if (context.frozen) ActivationFinder(program, context).Run();
}

}  // namespace coracle::inline internal
