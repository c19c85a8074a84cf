#include <coracle/backward/backward.h>
#include <coracle/executor/compiled_program.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/layers/builder.h>
#include <coracle/test/fuzz/program_check.h>
#include <coracle/test/origins.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace coracle {
namespace {

constexpr double kLargest = 1e4;  // beyond, nobody can say what rounding does

struct Failure {
  Finding finding;
};
[[noreturn]] void Fail(std::string kind, std::string text) {
  throw Failure{{std::move(kind), std::move(text)}};
}

// An error's first line without what differs from program to program.
std::string Shorten(const std::string& message) {
  std::string text;
  bool quoted = false;
  for (char c : message) {
    if (c == '\'' || c == '"') quoted = !quoted;
    if (quoted || (c >= '0' && c <= '9')) continue;
    text += c;
  }
  return text.substr(0, 120);
}

void CheckFirstLine(const Error& error) {
  if (error.code() == ErrorCode::kInternal)
    Fail("internal: " + Shorten(error.message()), error.what());
  if (error.message().empty() || error.message().find('\n') != std::string::npos)
    Fail("an error's first line must stand alone", error.what());
}

// edit(), which leaves the program as it was where it is refused.
template <class F>
auto Editing(const ProgramDesc& program, const F& edit) {
  const std::string before = SerializeProgram(program);
  try {
    return edit();
  } catch (const Error& error) {
    if (SerializeProgram(program) != before)
      Fail("a refused edit changed the program", error.what());
    throw;
  }
}

struct Outcome {
  std::optional<Error> error;
  std::vector<Tensor> values;
};

class Check {
 public:
  Check(const RandomProgram& program, const CheckPlan& plan, CheckCounts& counts)
      : made_(program), plan_(plan), counts_(counts) {}

  void Run() {
    RoundTrip(made_.program);
    if (!Verified(made_.program, "forward")) {
      ++counts_.refused;
      DifferentiateRefused();
      return;
    }
    const Outcome forward = RunBoth(made_.program, Existing(plan_.fetches), "forward");
    ++(forward.error ? counts_.stopped : counts_.ran);
    Differentiate();
    if (!made_.smooth || plan_.spoiled || forward.error) return;
    for (const GradientInBlock& inner : made_.inner) CheckInner(inner);
    if (!plan_.of_loss || !made_.program.Root().FindVar(made_.loss)) return;
    if (CheckGradients(made_.program, made_.loss, "gradients")) ++counts_.gradients;
    if (plan_.second) CheckSecond();
  }

 private:
  void RoundTrip(const ProgramDesc& program) {
    const std::string written = SerializeProgram(program);
    const ProgramDesc read = ParseProgram(written);
    // (A spoiled one may hold a nan, which differs from itself.)
    if (!plan_.spoiled && !(read == program)) Fail("round trip", FirstDifference(program, read));
    if (SerializeProgram(read) != written) Fail("round trip", "a second writing differs");
    if (!plan_.text) return;
    const std::string text = ProgramToText(program);
    if (ProgramToText(ParseProgramText(text)) != text)
      Fail("round trip as text", "a program that was written as text and read differs");
    PrintProgram(program);
  }

  static std::string FirstDifference(const ProgramDesc& a, const ProgramDesc& b) {
    for (int k = 0; k < std::min(a.NumBlocks(), b.NumBlocks()); ++k) {
      const BlockDesc &x = a.Block(k), &y = b.Block(k);
      for (size_t i = 0; i < std::min(x.NumVars(), y.NumVars()); ++i) {
        if (!(x.var(i) == y.var(i)))
          return fmt::format("var {} {} is read as {} {}", x.var(i).name(),
                             x.var(i).meta().ToString(), y.var(i).name(),
                             y.var(i).meta().ToString());
      }
      for (size_t i = 0; i < std::min(x.NumOps(), y.NumOps()); ++i) {
        if (!(x.op(i) == y.op(i))) return PrintOp(x.op(i)) + " is read as " + PrintOp(y.op(i));
      }
    }
    return "a program that was written and read differs";
  }

  bool Verified(const ProgramDesc& program, const char* what) {
    for (const VerifyProblem& problem : Verify(program, DefaultOps())) {
      if (problem.rule == "internal")
        Fail("internal: " + Shorten(problem.message), problem.ToString());
      if (problem.severity != VerifyProblem::Severity::kError) continue;
      if (!plan_.spoiled && problem.rule != "inner_gradient")
        Fail(fmt::format("verify {}: {}", what, Shorten(problem.message)),
             problem.ToString() + "\n" + problem.details);
      Note(problem.message);
      return false;
    }
    return true;
  }

  void Note(const std::string& message) { ++counts_.errors[Shorten(message)]; }

  std::vector<std::string> Existing(const std::vector<std::string>& names) const {
    std::vector<std::string> found;
    for (const std::string& name : names) {
      if (made_.program.Root().FindVar(name)) found.push_back(name);
    }
    return found;
  }

  // One run. With `in_double`, of the program in double.
  Outcome RunOnce(const ProgramDesc& program, const std::vector<std::string>& fetches,
                  KernelMode kernels, uint64_t seed, bool in_double = false) {
    CompileOptions options;
    options.kernels = kernels;
    options.optimize = kernels == KernelMode::kAuto;
    options.memory_limit = uint64_t{256} << 20;
    options.time_limit = plan_.spoiled ? 1 : 10;  // a spoiled one may loop for ever
    Outcome outcome;
    try {
      Scope scope;
      std::vector<std::string> names;
      std::vector<Tensor> feeds;
      for (const ProgramInput& input : made_.inputs) {
        if (!program.Root().FindVar(input.name)) continue;
        VarValue value = DrawValue(input, seed);
        if (in_double) Widen(value);
        if (input.persistable) {
          scope.Var(input.name) = std::move(value);
        } else {
          names.push_back(input.name);
          feeds.push_back(std::get<Tensor>(value));
        }
      }
      const ProgramDesc run = in_double ? InDouble(program) : program;
      const bool frozen = options.optimize && seed % 2 == 1;
      PreparedProgram prepared = frozen
                                     ? Executor(options).PrepareFrozen(run, scope, names, fetches)
                                     : Executor(options).Prepare(run, names, fetches);
      const std::string defect = OriginDefect(run, prepared.compiled()->program());
      if (!defect.empty()) Fail("an op of the compiled program has no valid origin", defect);
      for (const Tensor& value : prepared.Run(scope, feeds))
        outcome.values.push_back(value.Clone());
    } catch (const Error& error) {
      CheckFirstLine(error);
      outcome.error = error;
    }
    return outcome;
  }

  static void Widen(VarValue& value) {
    auto* rows = std::get_if<SelectedRows>(&value);
    Tensor& tensor = rows ? rows->value : std::get<Tensor>(value);
    if (!IsFloating(tensor.dtype())) return;
    const LoD lod = tensor.lod();
    tensor = tensor.Cast(DType::kFloat64);
    tensor.lod() = lod;
  }

  // Runs with fast kernels and all passes, and with reference kernels and none.
  Outcome RunBoth(const ProgramDesc& program, const std::vector<std::string>& fetches,
                  const char* what) {
    Outcome fast = RunOnce(program, fetches, KernelMode::kAuto, plan_.seed);
    if (fast.error) {
      Note(fast.error->message());
      if (made_.smooth && !plan_.spoiled)
        Fail(fmt::format("{} of smooth ops: {}", what, Shorten(fast.error->message())),
             fast.error->what());
    } else {
      NoteTypes(program);
    }
    const Outcome plain = RunOnce(program, fetches, KernelMode::kReference, plan_.seed);
    if (plain.error) return fast;
    if (fast.error)
      Fail(fmt::format("{} fails with fast kernels only: {}", what, Shorten(fast.error->message())),
           fast.error->what());
    for (size_t i = 0; i < fetches.size(); ++i) {
      const Tensor &a = fast.values[i], &b = plain.values[i];
      if (a.dtype() == b.dtype() && a.shape() == b.shape()) continue;
      Fail(std::string(what) + ": kernels differ in type",
           fmt::format("{}: {} by fast kernels, {} by reference kernels", fetches[i], a.ToString(),
                       b.ToString()));
    }
    if (IsComparable()) Compare(program, fetches, fast, plain, what);
    return fast;
  }

  // Rounding cannot be amplified at will: no jumps, or one op (and its gradient).
  bool IsComparable() const { return !plan_.spoiled && made_.smooth; }

  static double LargestOf(const Tensor& tensor) {
    if (!IsFloating(tensor.dtype())) return 0;
    const Tensor wide = tensor.Cast(DType::kFloat64);
    double largest = 0;
    for (double x : wide.span<double>()) {
      if (!std::isfinite(x)) return HUGE_VAL;
      largest = std::max(largest, std::abs(x));
    }
    return largest;
  }
  static double DifferenceOf(const Tensor& a, const Tensor& b) {
    const Tensor x = a.Cast(DType::kFloat64), y = b.Cast(DType::kFloat64);
    double largest = 0;
    for (int64_t i = 0; i < x.numel(); ++i)
      largest = std::max(largest, std::abs(x.data<double>()[i] - y.data<double>()[i]));
    return largest;
  }

  // Where the two differ by more than rounding, the reference kernels in double say how much of it
  // is the program's; what is left must show with other values too.
  void Compare(const ProgramDesc& program, const std::vector<std::string>& fetches,
               const Outcome& fast, const Outcome& plain, const char* what) {
    ++counts_.compared;
    std::string text = Differs(program, fetches, fast, plain, plan_.seed);
    for (uint64_t seed = plan_.seed + 1; !text.empty() && seed < plan_.seed + 3; ++seed) {
      const Outcome a = RunOnce(program, fetches, KernelMode::kAuto, seed);
      const Outcome b = RunOnce(program, fetches, KernelMode::kReference, seed);
      if (a.error || b.error) return;
      text = Differs(program, fetches, a, b, seed);
    }
    if (!text.empty()) Fail(std::string(what) + ": kernels differ", text);
  }

  std::string Differs(const ProgramDesc& program, const std::vector<std::string>& fetches,
                      const Outcome& fast, const Outcome& plain, uint64_t seed) {
    for (size_t i = 0; i < fetches.size(); ++i) {
      const Tensor &a = fast.values[i], &b = plain.values[i];
      const double scale = LargestOf(b);
      if (scale > kLargest) continue;
      const double difference = DifferenceOf(a, b);
      if (difference <= 1e-4 * (1 + scale)) continue;
      const Outcome truth = RunOnce(program, fetches, KernelMode::kReference, seed, true);
      if (truth.error) return "";
      const double by_fast = DifferenceOf(a, truth.values[i]);
      const double by_plain = DifferenceOf(b, truth.values[i]);
      if (by_fast <= 50 * by_plain + 1e-3 * (1 + scale)) continue;
      return fmt::format(
          "{}: fast kernels are off by {}, reference kernels by {}, at values up to {}", fetches[i],
          by_fast, by_plain, scale);
    }
    return "";
  }

  void NoteTypes(const ProgramDesc& program) {
    program.ForEachOp([&](const OpDesc& op) { ++counts_.ran_types[op.type()]; });
  }

  void Differentiate() {
    ProgramDesc program = made_.program;
    const std::vector<std::string> inputs = Existing(plan_.inputs);
    if (plan_.of_loss && !program.Root().FindVar(made_.loss)) return;
    std::vector<std::string> fetches;
    try {
      const auto variable = [&](const std::string& name) {
        return Variable::Of(program.Root(), name);
      };
      if (plan_.of_loss) {
        BackwardOptions options = plan_.backward;
        options.parameter_list = inputs;
        for (const std::string& name : inputs) variable(name).desc().SetStopGradient(false);
        for (const ParamAndGrad& pair :
             Editing(program, [&] { return AppendBackward(variable(made_.loss), options); }))
          fetches.push_back(pair.grad);
      } else {
        std::vector<Variable> xs, ys;
        for (const std::string& name : inputs) xs.push_back(variable(name));
        for (const std::string& name : Existing(plan_.targets)) ys.push_back(variable(name));
        if (xs.empty() || ys.empty()) return;
        fetches = Editing(program, [&] { return Gradients(ys, xs, plan_.backward); });
      }
    } catch (const Error& error) {
      CheckFirstLine(error);
      Note(error.message());
      if (made_.smooth && !plan_.spoiled)
        Fail("backward of smooth ops: " + Shorten(error.message()), error.what());
      return;
    }
    ++counts_.differentiated;
    RoundTrip(program);
    if (!Verified(program, "backward")) {
      // A spoiled program that no rule refuses is still not a program that backward made.
      return;
    }
    std::erase(fetches, "");
    fetches = DenseNames(program.Root(), fetches);
    std::erase_if(fetches, [&](const std::string& name) {
      return program.Root().FindVar(name)->type() != VarType::kLoDTensor;
    });
    counts_.saved += HasSavedValue(program);
    if (RunBoth(program, fetches, "gradients").error) return;
    ++counts_.ran_backward;
    if (plan_.second) DifferentiateAgain(program, fetches);
  }

  // Backward accepts programs that were not verified.
  void DifferentiateRefused() {
    const std::vector<std::string> inputs = Existing(plan_.inputs);
    std::vector<std::string> targets = Existing(plan_.targets);
    if (made_.program.Root().FindVar(made_.loss)) targets.push_back(made_.loss);
    if (inputs.empty() || targets.empty()) return;
    const std::string& target = targets.back();
    const auto attempt = [&](const auto& f) {
      try {
        ProgramDesc copy = made_.program;
        Editing(copy, [&] { return f(copy), 0; });
      } catch (const Error& error) {
        CheckFirstLine(error);
      }
    };
    attempt([&](ProgramDesc& copy) { AppendBackward(Variable::Of(copy.Root(), target)); });
    attempt([&](ProgramDesc& copy) {
      Gradients({Variable::Of(copy.Root(), target)}, {Variable::Of(copy.Root(), inputs[0])},
                plan_.backward);
    });
    attempt([&](ProgramDesc& copy) { ExplainGradient(copy, target, inputs[0]); });
    attempt([&](ProgramDesc& copy) { CheckGradient(copy, {.loss = target, .wrt = inputs}); });
  }

  static bool HasSavedValue(const ProgramDesc& program) {
    for (size_t i = 0; i < program.Root().NumVars(); ++i) {
      if (program.Root().var(i).name().find("@SAVED") != std::string::npos) return true;
    }
    return false;
  }

  // Some ops have first derivatives only and say so.
  void DifferentiateAgain(ProgramDesc& program, const std::vector<std::string>& gradients) {
    std::vector<Variable> xs, ys;
    for (const std::string& name : Existing(plan_.inputs))
      xs.push_back(Variable::Of(program.Root(), name));
    for (const std::string& name : gradients) ys.push_back(Variable::Of(program.Root(), name));
    if (xs.empty() || ys.empty()) return;
    std::vector<std::string> fetches;
    try {
      fetches = Editing(program, [&] { return Gradients(ys, xs); });
    } catch (const Error& error) {
      CheckFirstLine(error);
      Note(error.message());
      return;
    }
    if (!Verified(program, "backward of backward")) return;
    std::erase(fetches, "");
    fetches = DenseNames(program.Root(), fetches);
    if (!RunBoth(program, fetches, "gradients of gradients").error) ++counts_.second_order;
  }

  // False: nothing could be said.
  bool CheckGradients(const ProgramDesc& program, const std::string& loss, const char* what) {
    CheckGradientOptions options;
    options.loss = loss;
    options.tolerance = 1e-4;
    for (const std::string& name : Existing(plan_.inputs)) options.wrt.push_back(name);
    if (options.wrt.empty()) return false;
    std::string text;
    for (uint64_t seed = plan_.seed; seed < plan_.seed + 3; ++seed) {
      options.seed = seed;
      for (const ProgramInput& input : made_.inputs) {
        const VarValue value = DrawValue(input, seed);
        if (const auto* tensor = std::get_if<Tensor>(&value)) options.feeds[input.name] = *tensor;
      }
      const CheckGradientReport report = CheckGradient(program, options);
      if (!std::isfinite(report.loss) || std::abs(report.loss) > kLargest) return false;
      const double noise = 1e-8 * (1 + std::abs(report.loss));
      const bool passed =
          std::all_of(report.checks.begin(), report.checks.end(), [&](const GradientCheck& check) {
            return check.passed || std::abs(check.by_gradient - check.by_difference) < noise;
          });
      if (passed) return true;
      text = report.ToString();
    }
    Fail(std::string(what) + " are not what differences say", text);
  }

  // The gradients of the sum of the means of the squares of the gradients.
  void CheckSecond() {
    ProgramDesc program = made_.program, unused;
    BackwardOptions options;
    options.parameter_list = Existing(plan_.inputs);
    if (options.parameter_list.empty()) return;
    for (const std::string& name : options.parameter_list)
      program.Root().FindVar(name)->SetStopGradient(false);
    Builder net(program, unused);
    try {
      std::vector<Variable> terms;
      for (const ParamAndGrad& pair :
           AppendBackward(Variable::Of(program.Root(), made_.loss), options)) {
        const VarDesc* grad = pair.grad.empty() ? nullptr : program.Root().FindVar(pair.grad);
        if (!grad || grad->type() != VarType::kLoDTensor || grad->dtype() != DType::kFloat32)
          continue;
        terms.push_back(net.Mean(net.Unary("square", net.Var(pair.grad))));
      }
      if (terms.empty()) return;
      // CheckGradient takes out what has the role of backward.
      program.ForEachOp([](OpDesc& op) { op.SetAttr(kOpRoleAttr, int32_t{kForward}); });
      if (CheckGradients(program, net.Sum(terms).name(), "second gradients"))
        ++counts_.second_gradients;
    } catch (const Error& error) {
      CheckFirstLine(error);  // some ops have first derivatives only and say so
      Note(error.message());
    }
  }

  // {value, gradient} in double, with the input moved by `step` along the direction.
  std::optional<std::vector<Tensor>> RunInner(const GradientInBlock& inner, uint64_t seed,
                                              double step, const Tensor& direction) {
    CompileOptions options;
    options.kernels = KernelMode::kReference;
    options.time_limit = 10;
    try {
      Scope scope;
      std::vector<std::string> names;
      std::vector<Tensor> feeds;
      for (const ProgramInput& input : made_.inputs) {
        VarValue value = DrawValue(input, seed);
        Widen(value);
        if (input.name == inner.input) {
          Tensor& tensor = std::get<Tensor>(value);
          for (int64_t i = 0; i < tensor.numel(); ++i)
            tensor.data<double>()[i] += step * direction.data<double>()[i];
        }
        if (input.persistable) {
          scope.Var(input.name) = std::move(value);
        } else {
          names.push_back(input.name);
          feeds.push_back(std::get<Tensor>(value));
        }
      }
      PreparedProgram prepared =
          Executor(options).Prepare(InDouble(made_.program), names, {inner.value, inner.gradient});
      std::vector<Tensor> values;
      for (const Tensor& value : prepared.Run(scope, feeds)) values.push_back(value.Clone());
      return values;
    } catch (const Error& error) {
      CheckFirstLine(error);
      Note(error.message());
      return std::nullopt;
    }
  }

  void CheckInner(const GradientInBlock& inner) {
    const BlockDesc& root = made_.program.Root();
    for (const std::string& name : {inner.value, inner.gradient, inner.input}) {
      if (!root.FindVar(name)) return;  // reduced
    }
    if (!root.Uses(inner.input).writers.empty()) return;  // what is given is not what is read
    for (const std::string& name : {inner.value, inner.gradient}) {
      if (root.Uses(name).writers.size() < 2) return;
    }
    std::string text;
    for (uint64_t seed = plan_.seed; seed < plan_.seed + 3; ++seed) {
      const std::string wrong = InnerDifference(inner, seed);
      if (wrong.empty()) return;
      text = wrong;
    }
    Fail("a gradient taken inside a block is not what differences say", text);
  }

  // "" where the gradient agrees, and where nothing can be said.
  std::string InnerDifference(const GradientInBlock& inner, uint64_t seed) {
    const auto input = std::find_if(made_.inputs.begin(), made_.inputs.end(),
                                    [&](const ProgramInput& i) { return i.name == inner.input; });
    if (input == made_.inputs.end()) return "";
    Tensor direction(DType::kFloat64, input->meta.shape);
    for (int64_t i = 0; i < direction.numel(); ++i)
      direction.data<double>()[i] = 1 + 0.3 * std::sin(static_cast<double>(i) + 1);
    const auto at = RunInner(inner, seed, 0, direction);
    if (!at || !(LargestOf((*at)[0]) < kLargest) || !(LargestOf((*at)[1]) < kLargest)) return "";
    double by_gradient = 0, by_difference = 0;
    for (int64_t i = 0; i < direction.numel(); ++i)
      by_gradient += (*at)[1].data<double>()[i] * direction.data<double>()[i];
    for (double step : {1e-5, 1e-4, 1e-6}) {
      const auto plus = RunInner(inner, seed, step, direction);
      const auto minus = RunInner(inner, seed, -step, direction);
      if (!plus || !minus) return "";
      by_difference = ((*plus)[0].data<double>()[0] - (*minus)[0].data<double>()[0]) / (2 * step);
      const double scale = std::max({1e-4, std::abs(by_gradient), std::abs(by_difference)});
      if (!std::isfinite(by_difference) || std::abs(by_gradient - by_difference) < 1e-4 * scale) {
        ++counts_.inner_gradients;
        return "";
      }
    }
    return fmt::format("{} by {}: {} by gradient, {} by difference", inner.value, inner.input,
                       by_gradient, by_difference);
  }

  const RandomProgram& made_;
  const CheckPlan& plan_;
  CheckCounts& counts_;
};

}  // namespace

void CheckCounts::Add(const CheckCounts& other) {
  programs += other.programs;
  refused += other.refused;
  stopped += other.stopped;
  ran += other.ran;
  differentiated += other.differentiated;
  ran_backward += other.ran_backward;
  second_order += other.second_order;
  saved += other.saved;
  compared += other.compared;
  gradients += other.gradients;
  second_gradients += other.second_gradients;
  inner_gradients += other.inner_gradients;
  for (const auto& [message, count] : other.errors) errors[message] += count;
  for (const auto& [type, count] : other.ran_types) ran_types[type] += count;
}

std::optional<Finding> CheckProgram(const RandomProgram& program, const CheckPlan& plan,
                                    CheckCounts* counts) {
  ++counts->programs;
  try {
    Check(program, plan, *counts).Run();
  } catch (const Failure& failure) {
    return failure.finding;
  } catch (const Error& error) {
    return Finding{"an error where none belongs: " + Shorten(error.message()), error.what()};
  } catch (const std::exception& error) {
    return Finding{"exception: " + Shorten(error.what()), error.what()};
  }
  return std::nullopt;
}

}  // namespace coracle
