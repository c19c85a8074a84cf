#include "limit.h"

#include <coracle/framework/op/infer_context.h>
#include <coracle/tools/multiply_adds.h>
#include <unistd.h>

#include <algorithm>
#include <unordered_map>

#include "../timing.h"

namespace coracle {
namespace {

// Gives all variables the shapes that follow from the feeds'.
void SetShapes(ProgramDesc& program, const Workload& workload) {
  BlockDesc& root = program.Root();
  for (size_t i = 0; i < workload.feeds.size(); ++i)
    root.FindVar(workload.feeds[i])->SetShape(workload.batches[0][i].shape());
  for (size_t i = 0; i < root.NumOps(); ++i) {
    if (DefaultOps().Get(root.op(i).type()).kind == OpKind::kCompute)
      InferOp(root, root.op(i), DefaultOps());
  }
}

double Bytes(const VarDesc& var) {
  if (var.type() != VarType::kLoDTensor) return 0;
  return tools::Elements(var.shape()) * static_cast<double>(SizeOf(var.dtype()));
}

double ProductsOf(const ProgramDesc& program) {
  double sum = 0;
  program.ForEachOp([&](const OpDesc& op) { sum += tools::MultiplyAdds(op); });
  return sum;
}

// The bytes of persistable variables that must be read and written.
class Traffic {
 public:
  explicit Traffic(const ProgramDesc& program) : program_(program) {
    program.ForEachOp([&](const OpDesc& op) { Add(op); });
  }
  double Sum() const {
    double sum = 0;
    for (const auto* side : {&read_, &written_})
      for (const auto& [name, bytes] : *side) sum += bytes;
    return sum;
  }

 private:
  void Add(const OpDesc& op) {
    const double rows = Rows(op);
    op.ForEachInput([&](const std::string& name) { Add(name, rows, &read_); });
    op.ForEachOutput([&](const std::string& name) { Add(name, rows, &written_); });
  }
  // The bytes that a look-up, or an update by a sparse gradient, takes of its table; 0 for others.
  double Rows(const OpDesc& op) {
    if (op.HasInput("Ids") && op.HasInput("W")) {
      double& rows = looked_up_[op.Input("W")[0]];
      if (op.HasOutput("Out")) rows += Bytes(*Find(op.Output("Out")[0]));
      return rows;
    }
    if (!op.HasInput("Grad") || !op.HasInput("Param")) return 0;
    const VarDesc* gradient = Find(op.Input("Grad")[0]);
    return gradient->type() == VarType::kSelectedRows ? looked_up_[op.Input("Param")[0]] : 0;
  }
  void Add(const std::string& name, double rows, std::unordered_map<std::string, double>* side) {
    const VarDesc* var = Find(name);
    if (!var || !var->persistable()) return;
    const double bytes = rows > 0 ? std::min(rows, Bytes(*var)) : Bytes(*var);
    double& most = (*side)[name];
    most = std::max(most, bytes);
  }
  const VarDesc* Find(const std::string& name) const { return program_.Root().FindVar(name); }

  const ProgramDesc& program_;
  std::unordered_map<std::string, double> looked_up_, read_, written_;
};

// The median of some runs.
double MedianSeconds(double seconds, const std::function<void()>& run) {
  const std::vector<double> times = TimeSteps(seconds / 4, seconds, run);
  return times[times.size() / 2];
}

double MatrixProductRate(double seconds) {
  constexpr int64_t kSize = 2048;
  ProgramDesc main, startup;
  Builder net(main, startup);
  const Variable x = net.Data("x", {kSize, kSize}), y = net.Data("y", {kSize, kSize});
  const Variable z = net.Matmul(x, y);
  PreparedProgram product = Executor().Prepare(main, {"x", "y"}, {z.name()});
  Tensor values(DType::kFloat32, {kSize, kSize});
  for (int64_t i = 0; i < values.numel(); ++i)
    values.data<float>()[i] = static_cast<float>(i % 64) * 0.01f;
  Scope scope;
  const std::vector<Tensor> feeds = {values, values};
  const double flops = 2.0 * kSize * kSize * kSize;
  return flops / MedianSeconds(seconds, [&] { product.Run(scope, feeds); }) * 1e-9;
}

double TriadRate(double seconds) {
  constexpr int64_t kCount = int64_t{1} << 24;
  Tensor a(DType::kFloat32, {kCount}), b(DType::kFloat32, {kCount}), c(DType::kFloat32, {kCount});
  float *to = a.data<float>(), *x = b.data<float>(), *y = c.data<float>();
  ParallelFor(kCount, 1, [&](int64_t begin, int64_t end) {
    std::fill(to + begin, to + end, 0.0f);
    std::fill(x + begin, x + end, 1.0f);
    std::fill(y + begin, y + end, 2.0f);
  });
  const auto triad = [&] {
    ParallelFor(kCount, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = x[i] + 3.0f * y[i];
    });
  };
  return 12.0 * kCount / MedianSeconds(seconds, triad) * 1e-9;
}

}  // namespace

Cost CostOf(const Workload& workload) {
  ProgramDesc program = workload.main;
  SetShapes(program, workload);
  Cost cost;
  for (const std::string& name : program.Parameters())
    cost.parameters += program.Root().FindVar(name)->shape().numel();
  cost.multiply_adds = ProductsOf(program);
  cost.bytes = Traffic(program).Sum();
  for (const auto* names : {&workload.feeds, &workload.fetches})
    for (const std::string& name : *names) cost.bytes += Bytes(*program.Root().FindVar(name));
  return cost;
}

std::map<std::string, OpCost> CostsOfOps(const ProgramDesc& compiled, const Workload& workload) {
  ProgramDesc program = compiled;
  SetShapes(program, workload);
  std::map<std::string, OpCost> costs;
  program.Root().ForEachOp([&](const OpDesc& op) {
    OpCost cost{tools::MultiplyAdds(op), 0};
    const auto add = [&](const std::string& name) {
      if (const VarDesc* var = program.Root().FindVar(name)) cost.bytes += Bytes(*var);
    };
    op.ForEachInput(add);
    op.ForEachOutput(add);
    std::string first;
    op.ForEachOutput([&](const std::string& name) {
      if (first.empty()) first = name;
    });
    costs[first] = cost;
  });
  return costs;
}

Rates MeasureRates(double seconds) { return {MatrixProductRate(seconds), TriadRate(seconds)}; }

double MemoryBytes(const Cost& cost) {
  const auto cache = static_cast<double>(sysconf(_SC_LEVEL2_CACHE_SIZE));  // 0 or -1: unknown
  return cost.bytes > cache ? cost.bytes : 0;
}

double LimitSeconds(const Cost& cost, const Rates& rates) {
  const double arithmetic = 2 * cost.multiply_adds / rates.gflops;
  return std::max(arithmetic, MemoryBytes(cost) / rates.gbytes_s) * 1e-9;
}

}  // namespace coracle
