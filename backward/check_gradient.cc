#include <coracle/backward/backward.h>
#include <coracle/backward/in_double.h>
#include <coracle/backward/verify_program.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/role.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/passes/pass.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <unordered_set>

namespace coracle {
namespace {

constexpr double kSteps[] = {1e-5, 1e-6, 1e-4, 1e-7, 1e-3};
// Values below this share of the values they are computed from count as zero.
constexpr double kNoise = 1e-9;

double ErrorOf(double a, double b, double scale) {
  const double larger = std::max({std::abs(a), std::abs(b), kNoise * scale, 1e-300});
  return std::abs(a - b) / larger;
}

struct Difference {
  double value = 0, error = HUGE_VAL;
  double allowed = 0;  // the relative error that the arithmetic explains
  bool agrees = false;
};

// The standard deviation of the rounding errors of f near 0, from the fourth differences of values
// at points so close that a smooth function has none (J. More, S. Wild: Estimating computational
// noise, SIAM J. Sci. Comput. 33, 2011).
double NoiseOf(const std::function<double(double)>& f) {
  constexpr int kPoints = 9, kOrder = 4;
  constexpr double kSpacing = 1e-11, kShareOfNoise = 24.0 * 24.0 / 40320.0;  // (4!)^2 / 8!
  double differences[kPoints];
  for (int i = 0; i < kPoints; ++i) differences[i] = f(kSpacing * (i - kPoints / 2));
  for (int order = 1; order <= kOrder; ++order) {
    for (int i = 0; i < kPoints - order; ++i) differences[i] = differences[i + 1] - differences[i];
  }
  double squares = 0;
  for (int i = 0; i < kPoints - kOrder; ++i) squares += differences[i] * differences[i];
  return std::sqrt(kShareOfNoise * squares / (kPoints - kOrder));
}

// The error of the central difference that rounding and the third derivative explain: ten standard
// deviations of the noise, and the change of the difference if the step is halved.
double ExplainedError(const std::function<double(double)>& f, double slope, double step,
                      double noise) {
  const double half = (f(step / 2) - f(-step / 2)) / step;
  return 10 * noise / step + 4.0 / 3 * std::abs(slope - half);
}

// The central difference of f that best matches the expected slope. It agrees if the relative error
// is within the tolerance. Otherwise the step with the smallest explained error decides: it agrees
// if that error explains the difference and is at most a thousandth of the slope, or if both slopes
// count as zero. A larger error proves nothing: a kink explains any.
Difference BestDifference(double expected, const std::function<double(double)>& f,
                          double tolerance) {
  constexpr double kBelieved = 1e-3;
  Difference best;
  for (double step : kSteps) {
    const double plus = f(step), minus = f(-step), slope = (plus - minus) / (2 * step);
    if (!std::isfinite(slope)) continue;
    const double error = ErrorOf(expected, slope, std::max(std::abs(plus), std::abs(minus)));
    if (error < best.error) best = {slope, error, tolerance, error <= tolerance};
    if (best.agrees) return best;
  }
  const double noise = std::max(NoiseOf(f), 1e-16 * std::abs(f(0)));
  double least = HUGE_VAL;
  for (double step : kSteps) {
    const double plus = f(step), minus = f(-step), slope = (plus - minus) / (2 * step);
    if (!std::isfinite(slope)) continue;
    const double explained = ExplainedError(f, slope, step, noise);
    if (explained >= least) continue;
    least = explained;
    const double larger = std::max(std::abs(expected), std::abs(slope));
    const double size = std::max(std::abs(plus), std::abs(minus));
    const bool decides =
        explained <= kBelieved * larger || larger <= std::max(10 * noise / step, kNoise * size);
    best = {slope, ErrorOf(expected, slope, size),
            std::max(tolerance, explained / std::max(larger, 1e-300)),
            decides && std::abs(expected - slope) <= explained};
  }
  return best;
}

// The gradient of complex elements is dL/dRe + i dL/dIm, so their parts are treated as real
// numbers throughout.
bool IsWide(DType dtype) { return dtype == DType::kFloat64 || dtype == DType::kComplex128; }

double Dot(const Tensor& x, const Tensor& y) {
  const Tensor a = PartsOf(x), b = PartsOf(y);
  double total = 0;
  for (int64_t i = 0; i < a.numel(); ++i) total += a.data<double>()[i] * b.data<double>()[i];
  return total;
}

Tensor Moved(const Tensor& at, const Tensor& direction, double step) {
  Tensor moved = at.Clone();
  Tensor to = PartsOf(moved);
  const Tensor by = PartsOf(direction);
  for (int64_t i = 0; i < to.numel(); ++i) to.data<double>()[i] += step * by.data<double>()[i];
  return moved;
}

Tensor ToDouble(const Tensor& tensor) {
  const DType wide = Widened(tensor.dtype());
  return wide == tensor.dtype() ? tensor : tensor.Cast(wide);
}

std::string FindLoss(const ProgramDesc& program) {
  const BlockDesc& root = program.Root();
  for (size_t i = root.NumOps(); i-- > 0;) {
    if (!HasRole(root.op(i), kLoss) || IsBackward(root.op(i))) continue;
    for (const Slot& slot : root.op(i).outputs()) {
      if (!slot.args.empty()) return slot.args[0];
    }
  }
  ThrowInvalid("no op of the program has the role Loss: name the loss");
}

void RemoveTraining(ProgramDesc& program) {
  for (int b = 0; b < program.NumBlocks(); ++b)
    program.Block(b).RemoveOpsIf([](const OpDesc& op) { return !IsForward(op); });
}

ProgramDesc Checked(ProgramDesc program, const OpRegistry& ops) {
  internal::CheckAndFillTypes(program, ops);
  return program;
}

// Variables of the root block that the op's sub-blocks read, since a function lists none of them.
std::vector<std::string> ReadInside(const OpDesc& op) {
  const ProgramDesc& program = op.block()->program();
  std::vector<std::string> names;
  for (const BlockDesc* block : program.BlocksRunBy(op)) {
    auto add = [&](const std::string& name) {
      const VarDesc* var = block->FindVarRecursive(name);
      if (var && var == program.Root().FindVar(name)) names.push_back(name);
    };
    block->ForEachOp([&](const OpDesc& inner) { inner.ForEachInput(add); });
  }
  return names;
}

Tensor ValueFor(const VarDesc& var, const CheckGradientOptions& options) try {
  auto fed = options.feeds.find(var.name());
  if (fed != options.feeds.end()) return ToDouble(fed->second);
  const VarValue* held = options.scope ? options.scope->Find(var.name()) : nullptr;
  if (const auto* tensor = held ? std::get_if<Tensor>(held) : nullptr) return ToDouble(*tensor);
  return DrawInput(var, options.seed, options.batch_size);
} catch (const OutOfMemory& e) {
  throw e.WithPrefix("the input " + Quote(var.name()));
}

// The values that a program needs before it runs.
struct Inputs {
  std::map<std::string, Tensor> values;
  std::vector<std::string> feeds, persistables;  // their names
};

// Variables that the program reads before any op writes them.
Inputs InputsOf(const ProgramDesc& program, const CheckGradientOptions& options,
                const OpRegistry& ops) {
  Inputs inputs;
  const BlockDesc& root = program.Root();
  std::unordered_set<std::string> written;
  auto need = [&](const std::string& name) {
    if (written.count(name) || inputs.values.count(name)) return;
    const VarDesc* var = root.FindVar(name);
    if (!var || var->type() != VarType::kLoDTensor) return;
    inputs.values[name] = ValueFor(*var, options);
    (var->persistable() ? inputs.persistables : inputs.feeds).push_back(name);
  };
  for (size_t i = 0; i < root.NumOps(); ++i) {
    const OpDesc& op = root.op(i);
    const OpSpec* def = ops.Find(op.type());
    const bool feeds = def && def->kind == OpKind::kFeed;
    if (feeds) {
      op.ForEachOutput(need);
      continue;
    }
    op.ForEachInput(need);
    for (const std::string& name : ReadInside(op)) {
      if (!op.Writes(name)) need(name);
    }
    op.ForEachOutput([&](const std::string& name) { written.insert(name); });
  }
  for (const std::string& name : options.wrt) need(name);
  return inputs;
}

// Runs programs; all runs of one program share a plan, and the values that it does not write.
class Runner {
 public:
  Runner(const CheckGradientOptions& options, const OpRegistry& ops, const Inputs& inputs)
      : options_(options), ops_(ops), inputs_(inputs) {}

  std::vector<Tensor> Run(const ProgramDesc& program, const std::vector<std::string>& fetches,
                          const std::map<std::string, Tensor>& values) {
    auto [it, added] = prepared_.try_emplace(&program);
    if (added) {
      NoteWritten(program);
      it->second = std::make_unique<PreparedProgram>(
          Executor(ExecutorOptions(), ops_)
              .Prepare(WithoutFeedOps(program), inputs_.feeds, fetches));
    }
    Scope scope;
    for (const std::string& name : inputs_.persistables) {
      const Tensor& value = values.at(name);
      scope.Set(name, written_.count(name) ? value.Clone() : value);
    }
    for (size_t i = 0; i < program.Root().NumVars(); ++i) {
      const VarDesc& var = program.Root().var(i);
      if (var.persistable() && !scope.Has(var.name()) && var.shape().IsKnown() &&
          IsValid(var.dtype()) && var.type() == VarType::kLoDTensor)
        scope.Set(var.name(), Tensor(var.dtype(), var.shape()));
    }
    std::vector<Tensor> feeds;
    for (const std::string& name : inputs_.feeds) feeds.push_back(values.at(name));
    it->second->SetStep(0);
    std::vector<Tensor> results;
    for (const Tensor& result : it->second->Run(scope, feeds)) results.push_back(result.Clone());
    return results;
  }

 private:
  void NoteWritten(const ProgramDesc& program) {
    program.ForEachOp([&](const OpDesc& op) {
      op.ForEachOutput([&](const std::string& name) { written_.insert(name); });
    });
  }

  CompileOptions ExecutorOptions() const {
    CompileOptions options;
    options.allow_files = options_.allow_files;
    options.kernels = KernelMode::kReference;
    return options;
  }

  ProgramDesc WithoutFeedOps(const ProgramDesc& program) {
    ProgramDesc copy = program;
    copy.Root().RemoveOpsIf([&](const OpDesc& op) {
      const OpSpec* def = ops_.Find(op.type());
      return def && def->kind != OpKind::kCompute;
    });
    return copy;
  }

  const CheckGradientOptions& options_;
  const OpRegistry& ops_;
  const Inputs& inputs_;
  std::map<const ProgramDesc*, std::unique_ptr<PreparedProgram>> prepared_;
  std::unordered_set<std::string> written_;
};

void RequireNumbers(const Variable& var) {
  const DType dtype = var.desc().dtype();
  if (IsWide(dtype)) return;
  ThrowInvalid(fmt::format(
      "check_gradient: {} holds {}, and only floating-point and complex "
      "variables have a gradient; leave it out of the variables to "
      "differentiate with respect to",
      Quote(var.name()), dtype == DType::kString ? "texts" : std::string(ToString(dtype))));
}

// The program to check, in float64, without and with gradients.
struct Subject {
  const CheckGradientOptions& options;
  const OpRegistry& ops;
  ProgramDesc forward, trained;
  std::string loss;
  std::vector<ParamAndGrad> pairs;
  std::vector<std::string> fetches;  // the loss, and the dense gradients that there are
  Inputs inputs;
};

Subject SubjectOf(const ProgramDesc& program, const CheckGradientOptions& options) {
  const OpRegistry& ops = options.ops ? *options.ops : DefaultOps();
  ProgramDesc forward = InDouble(Checked(program, ops));
  RemoveTraining(forward);
  ExpandOps(forward, ops);  // so that each op is checked by itself
  CastNarrowResults(forward, ops);
  BackwardOptions backward;
  backward.ops = &ops;
  backward.parameter_list = options.wrt;
  const std::string loss = options.loss.empty() ? FindLoss(forward) : options.loss;
  Variable::Of(forward.Root(), loss);  // throws for an unknown name
  for (const std::string& name : options.wrt) RequireNumbers(Variable::Of(forward.Root(), name));
  ProgramDesc trained = forward;
  for (const std::string& name : options.wrt)
    Variable::Of(trained.Root(), name).desc().SetStopGradient(false);
  const std::vector<ParamAndGrad> pairs =
      AppendBackward(Variable::Of(trained.Root(), loss), backward);
  const Inputs inputs = InputsOf(forward, options, ops);
  for (const ParamAndGrad& pair : pairs) {
    if (inputs.values.count(pair.param)) continue;
    ThrowInvalid(
        fmt::format("check_gradient: {} is not a floating-point tensor, so it cannot be perturbed",
                    Quote(pair.param)));
  }
  std::vector<std::string> fetches = {loss};
  for (const ParamAndGrad& pair : pairs) {
    if (!pair.grad.empty()) fetches.push_back(pair.grad);
  }
  fetches = DenseNames(trained.Root(), std::move(fetches), ops);
  return {options, ops, std::move(forward), std::move(trained), loss, pairs, fetches, inputs};
}

GradientCheck CheckOne(Runner& runner, const Subject& subject, const ParamAndGrad& pair,
                       const Tensor& gradient, int d) {
  const CheckGradientOptions& options = subject.options;
  GradientCheck check{pair.param, pair.grad};
  const Tensor& at = subject.inputs.values.at(pair.param);
  const Tensor direction =
      DrawNormal(at.shape(), options.seed + 17 + static_cast<uint64_t>(d), pair.param,
                 1 / std::sqrt(std::max<double>(1, static_cast<double>(at.numel()))), at.dtype());
  check.by_gradient = pair.grad.empty() ? 0 : Dot(gradient, direction);
  std::map<std::string, Tensor> values = subject.inputs.values;
  const Difference best = BestDifference(
      check.by_gradient,
      [&](double step) {
        values[pair.param] = Moved(at, direction, step);
        return runner.Run(subject.forward, {subject.loss}, values)[0].data<double>()[0];
      },
      options.tolerance);
  check.by_difference = best.value;
  check.error = best.error;
  check.allowed = std::max(best.allowed, options.tolerance);
  check.passed = best.agrees;
  return check;
}

// Whether f ends before the time is over.
template <class F>
bool InTime(const F& f) try {
  f();
  return true;
} catch (const Error& error) {
  if (error.code() != ErrorCode::kDeadlineExceeded) throw;
  return false;
}

// An op alone in a block, with the gradients of its outputs ys with respect to its inputs xs.
struct OpAlone {
  const OpDesc& op;
  const BlockDesc& block;
  const VarValues& inputs;
  const std::vector<Variable>& xs;
  const std::vector<Variable>& ys;
  const std::vector<std::string>& grads;
};

// The largest relative error of an op's gradients, and its text if one of them is wrong.
struct OpCheck {
  double error = 0;
  std::string wrong = {};
};

OpCheck CompareAlone(const OpAlone& alone, const CheckGradientOptions& options,
                     const OpRegistry& ops) {
  const OpDesc& op = alone.op;
  const VarValues& inputs = alone.inputs;
  const std::vector<Variable>& xs = alone.xs;
  auto run = [&](const std::string& moved, const Tensor* value, bool all) {
    VarValues env;
    for (const auto& [name, v] : inputs) env[name] = std::get<Tensor>(v).Clone();
    if (value) env[moved] = *value;
    for (size_t i = 0; i < (all ? alone.block.NumOps() : 1); ++i)
      InterpretOp(alone.block.op(i), ops, env, {.allow_files = options.allow_files});
    return env;
  };
  const VarValues at = run("", nullptr, true);
  OpCheck check;
  for (size_t k = 0; k < xs.size(); ++k) {
    if (alone.grads[k].empty()) continue;
    const std::string& name = xs[k].name();
    const auto& x = std::get<Tensor>(inputs.at(name));
    const Tensor direction = DrawNormal(x.shape(), options.seed + 29, name, 1, x.dtype());
    const double expected = Dot(std::get<Tensor>(at.at(alone.grads[k])), direction);
    const double tolerance = std::max(options.tolerance, 1e-5);
    const Difference best = BestDifference(
        expected,
        [&](double step) {
          const Tensor moved = Moved(x, direction, step);
          const VarValues env = run(name, &moved, false);
          double total = 0;
          for (const Variable& y : alone.ys) {
            total += Dot(std::get<Tensor>(env.at(y.name())),
                         std::get<Tensor>(inputs.at(y.name() + "@SEED")));
          }
          return total;
        },
        tolerance);
    check.error = std::max(check.error, best.error);
    if (best.agrees) continue;
    check.wrong = fmt::format("{}, {}, input {}: gradient {:.9g}, difference {:.9g}", op.type(),
                              Locate(op), Quote(name), expected, best.value);
    break;
  }
  return check;
}

// Compares the gradients of one op with differences.
OpCheck CheckOp(const OpDesc& op, const VarValues& env, const CheckGradientOptions& check,
                const OpRegistry& ops) {
  ProgramDesc alone;
  BlockDesc& block = alone.Root();
  VarValues inputs;
  std::vector<Variable> xs;
  auto tensor_of = [&](const std::string& name) {
    auto it = env.find(name);
    return it == env.end() ? nullptr : std::get_if<Tensor>(&it->second);
  };
  if (op.AnyInput([&](const std::string& name) { return !tensor_of(name); })) return {};
  op.ForEachInput([&](const std::string& name) {
    if (block.FindVar(name)) return;
    const Tensor& tensor = *tensor_of(name);
    VarDesc& var = block.Var(name);
    var.SetDType(tensor.dtype());
    var.SetShape(tensor.shape());
    inputs[name] = tensor.Clone();
    if (IsWide(tensor.dtype())) xs.emplace_back(&block, &var);
  });
  OpDesc& copy = block.AppendOp(op);
  // For an in-place op, the input keeps its name, and the output gets another.
  copy.RenameOutputs(
      [&](const std::string& name) { return block.FindVar(name) ? name + "@OUT" : name; });
  InferOp(block, copy, ops);
  std::vector<Variable> ys;
  BackwardOptions options;
  options.ops = &ops;
  copy.ForEachOutput([&](const std::string& name) {
    VarDesc* var = block.FindVar(name);
    if (!var || !IsWide(var->dtype()) || !var->shape().IsKnown()) return;
    ys.emplace_back(&block, var);
  });
  if (xs.empty() || ys.empty()) return {};
  for (Variable& y : ys) {
    VarDesc& seed = block.Var(y.name() + "@SEED");
    seed.SetMeta(y.desc().meta());
    inputs[seed.name()] = DrawNormal(y.shape(), check.seed, y.name(), 1, y.dtype());
    options.target_gradients.push_back(seed.name());
  }
  std::vector<std::string> grads;
  try {
    grads = DenseNames(block, Gradients(ys, xs, options), ops);
  } catch (const Error&) {
    return {};  // not on the path, or backward would have reported it
  }
  return CompareAlone({op, block, inputs, xs, ys, grads}, check, ops);
}

// Runs the forward ops one by one, and checks the gradient of each separately, up to the first
// wrong one. Sets wrong_op, or doubtful_op if none is wrong.
void FindWrongOp(const Subject& subject, CheckGradientReport& report) {
  double worst = 0;
  VarValues env;
  for (const auto& [name, value] : subject.inputs.values) env[name] = value.Clone();
  const BlockDesc& root = subject.forward.Root();
  for (size_t i = 0; i < root.NumOps(); ++i) {
    const OpDesc& op = root.op(i);
    const OpSpec* def = subject.ops.Find(op.type());
    if (!def || def->kind != OpKind::kCompute) continue;
    if (op.HasSubBlock()) {
      report.wrong_op = fmt::format(
          "{}, {}: the ops before it are right; those in its sub-block are not "
          "checked one by one",
          op.type(), Locate(op));
      return;
    }
    const OpCheck check = CheckOp(op, env, subject.options, subject.ops);
    report.wrong_op = check.wrong;
    if (!check.wrong.empty()) return;
    if (check.error > worst) {
      worst = check.error;
      report.doubtful_op =
          fmt::format("{}, {}: relative error {:.1e}", op.type(), Locate(op), worst);
    }
    InterpretOp(op, subject.ops, env, {.allow_files = subject.options.allow_files});
  }
}

}  // namespace

CheckGradientReport CheckGradient(const ProgramDesc& program, const CheckGradientOptions& options) {
  if (!(options.tolerance > 0))
    ThrowInvalid(
        fmt::format("check_gradient: tolerance must be above 0, got {}", options.tolerance));
  const Subject subject = SubjectOf(program, options);
  Runner runner(options, subject.ops, subject.inputs);
  CheckGradientReport report;
  const std::vector<Tensor> results =
      runner.Run(subject.trained, subject.fetches, subject.inputs.values);
  report.loss = results[0].data<double>()[0];
  size_t next = 1;
  bool in_time = true;
  for (const ParamAndGrad& pair : subject.pairs) {
    const Tensor none;
    const Tensor& gradient = pair.grad.empty() ? none : results[next++];
    for (int d = 0; d < options.directions; ++d) {
      GradientCheck check = {pair.param, pair.grad};
      const auto run = [&] { check = CheckOne(runner, subject, pair, gradient, d); };
      if (report.checks.empty())
        run();  // without one result, the error of the time is the answer
      else
        in_time = in_time && InTime(run);
      report.checks.push_back(std::move(check));
    }
  }
  if (in_time && !report.passed() && !InTime([&] { FindWrongOp(subject, report); }))
    report.wrong_op = "not found before the time was over";
  return report;
}

}  // namespace coracle
