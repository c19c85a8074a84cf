// Times only the end of a training step, on 25,002,272 float32 parameters, or the memory's own
// speed (triad), and prints one JSON line.
//   update_bench --workload=adam25m_1|adam25m_160|momentum25m_160|clip25m_160|triad --threads=1
//   [--seconds=2] [--warm=0.5] [--kernels=reference] [--passes=off[,NAME...]] [--profile]
// _160: 160 tensors (54 of 462,000 elements, 106 of 512), _1: one tensor. GB/s counts the streams
// that must move: 7 for Adam (reads parameter, gradient and two moments; writes all but the
// gradient), 5 for momentum, 3 for the clip by global norm (reads the gradient for the norm, then
// reads and writes it for scaling), 3 for the triad a = b + s c.
#include <coracle/bench/measure.h>
#include <coracle/coracle.h>

namespace coracle {
namespace {

std::vector<int64_t> Sizes(const std::string& workload) {
  if (workload == "adam25m_1") return {25002272};
  std::vector<int64_t> sizes;
  for (int i = 0; i < 160; ++i) sizes.push_back(i % 3 == 0 ? 462000 : 512);
  return sizes;
}

// Adds a persistable variable that `startup` draws.
std::string Drawn(ProgramDesc& main, ProgramDesc& startup, const std::string& name, int64_t size,
                  float scale) {
  for (ProgramDesc* program : {&main, &startup}) {
    VarDesc& var = program->Root().Var(name);
    var.SetDType(DType::kFloat32);
    var.SetShape({size});
    var.SetPersistable(true);
  }
  startup.Root().AppendOp("gaussian_random", {}, {{"Out", {name}}},
                          {{"shape", std::vector<int64_t>{size}},
                           {"mean", 0.0f},
                           {"std", scale},
                           {"seed", int32_t{0}},
                           {"dtype", static_cast<int32_t>(DType::kFloat32)}});
  return name;
}

// Appends ops on all parameters and returns the number of streams.
int AppendStep(const std::string& workload, ProgramDesc& main, ProgramDesc& startup) {
  std::vector<ParamAndGrad> pairs;
  const std::vector<int64_t> sizes = Sizes(workload);
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::string name = "p" + std::to_string(i);
    pairs.push_back({Drawn(main, startup, name, sizes[i], 1),
                     Drawn(main, startup, GradName(name), sizes[i], 1)});
  }
  if (workload == "clip25m_160") {
    std::vector<ClipMember> members;
    for (const ParamAndGrad& pair : pairs) members.push_back({pair, ClipGradByGlobalNorm(1)});
    AppendGradientClips(main.Root(), startup, members);
    // Updates in place, as the planner does for gradients that are not persistable.
    for (size_t i = 0; i < main.Root().NumOps(); ++i) {
      OpDesc& op = main.Root().op(i);
      if (op.type() == "scale" && op.Input("X")[0].ends_with(kGradSuffix))
        op.SetOutput("Out", op.Input("X"));
    }
    return 3;
  }
  if (workload == "momentum25m_160") {
    Momentum({.learning_rate = 1e-3}).ApplyGradients(main.Root(), startup, pairs);
    return 5;
  }
  if (workload != "adam25m_1" && workload != "adam25m_160")
    ThrowInvalid("no such workload: " + workload);
  Adam({.learning_rate = 1e-3}).ApplyGradients(main.Root(), startup, pairs);
  return 7;
}

void Print(const StepBench& bench, const std::vector<double>& times, double bytes) {
  char extra[80];
  std::snprintf(extra, sizeof extra, ",\"gbytes_s\":%.4g", bytes / times[times.size() / 2] * 1e-9);
  bench.Print(times, extra);
}

int Main(const Arguments& arguments) {
  const StepBench bench(arguments, "adam25m_160", 0.5, 2);
  constexpr int64_t kCount = 25002272;
  if (bench.workload() == "triad") {
    Tensor a(DType::kFloat32, {kCount}), b(DType::kFloat32, {kCount}), c(DType::kFloat32, {kCount});
    float *to = a.data<float>(), *x = b.data<float>(), *y = c.data<float>();
    const auto triad = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = x[i] + 3.0f * y[i];
    };
    ParallelFor(kCount, 1, [&](int64_t begin, int64_t end) {
      std::fill(x + begin, x + end, 1.0f);
      std::fill(y + begin, y + end, 2.0f);
    });
    Print(bench, bench.Time([&] { ParallelFor(kCount, 1, triad); }), 3.0 * 4 * kCount);
    return 0;
  }
  ProgramDesc main, startup;
  const int streams = AppendStep(bench.workload(), main, startup);
  Executor executor(bench.options());
  Scope scope;
  executor.Run(startup, scope);
  PreparedProgram step = executor.Prepare(main, {}, {});
  float* gradient = scope.GetMutable(GradName("p0")).data<float>();
  const std::vector<double> times = bench.Time([&] {
    gradient[0] += 1e-3f;  // keeps the norm over the limit in every step, so that the clip acts
    step.Run(scope, std::span<const Tensor>());
  });
  Print(bench, times, 4.0 * streams * kCount);
  bench.PrintProfile(step);
  return 0;
}

}  // namespace
}  // namespace coracle

int main(int argc, char** argv) { return coracle::RunMain(argc, argv, coracle::Main); }
