#include <coracle/framework/ir/program.h>
#include <coracle/operators/operators.h>
#include <coracle/optimizer/optimizer.h>
#include <fmt/format.h>

namespace coracle {
namespace {

constexpr char kMicroSteps[] = "@MICRO_STEPS@";

void AppendFill(const Writer& w, const std::string& state) {
  const Variable like = w.Var(state);
  w.Into(state, "fill_constant", {}, FillAttrs(like.shape(), like.dtype(), 0));
}

// Counts the run; the bool [1] variable that holds whether it is the last of its group.
std::string AppendCount(const Writer& w, const std::string& counter, int64_t steps) {
  const Variable count = w.Into(counter, "increment", {{"X", {counter}}}, {{"step", 1.0f}});
  const Variable all =
      w.Named("micro_steps", FillConstant(w, DType::kInt64, static_cast<double>(steps)));
  return w.Named("last_micro_step", GreaterEqual(count, all)).name();
}

}  // namespace

void AppendGradientAccumulation(BlockDesc& block, ProgramDesc& startup,
                                const std::vector<ParamAndGrad>& pairs, int64_t steps,
                                const UpdateFunction& update) {
  if (steps < 1) {
    ThrowInvalid(
        fmt::format("gradient accumulation: the number of runs must be positive, got {}", steps));
  }
  if (steps == 1) return update(block, pairs);
  ProgramDesc& main = block.program();
  const std::string counter =
      MakeState(main, startup, main.FreeName(kMicroSteps), DType::kInt64, {1}, 0);
  const WriterOptions options = {.role = kOptimize, .stop_gradient = true};
  const Writer w(block, DefaultOps(), options);
  std::vector<ParamAndGrad> sums;
  sums.reserve(pairs.size());
  for (const ParamAndGrad& pair : pairs) {
    const Variable grad = w.Var(pair.grad), param = w.Var(pair.param);
    const std::string sum =
        MakeState(main, startup, main.FreeName(pair.grad + "@SUM"), grad.dtype(), param.shape(), 0);
    sums.push_back({pair.param, sum});
    w.Into(sum, "sum", {{"X", {sum, pair.grad}}},
           {{kOpRoleVarAttr, std::vector<std::string>{pair.param, pair.grad}}});
  }
  AppendGuarded(block, {AppendCount(w, counter, steps)}, [&](BlockDesc& inner) {
    update(inner, sums);
    const Writer in(inner, DefaultOps(), options);
    for (const ParamAndGrad& pair : sums) AppendFill(in, pair.grad);
    AppendFill(in, counter);
  });
}

}  // namespace coracle
