#include <coracle/bench/timing.h>
#include <coracle/bench/workloads/limit.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/inspect/multiply_adds.h>
#include <coracle/train/run/layer_map.h>
#include <unistd.h>

#include <algorithm>
#include <unordered_map>

namespace coracle {
namespace {

// Returns the block of the group of ops that `op` runs, or nullptr. Calls argument and result with
// (name in the group, name outside) for each argument and each result.
template <class F, class G>
BlockDesc* GroupOf(ProgramDesc& program, const OpDesc& op, F&& argument, G&& result) {
  const OpSpec& spec = DefaultOps().Get(op.type());
  if (spec.block.runs != BlockRuns::kOnce || spec.block.results.empty()) return nullptr;
  const auto each = [&](const BlockTrait::Pairs& pairs, const auto& names, auto& f) {
    for (const auto& [slot, attr] : pairs) {
      const auto inner = spec.AttrOf<std::vector<std::string>>(op, attr);
      for (size_t i = 0; i < inner.size(); ++i) f(inner[i], names(slot)[i]);
    }
  };
  each(
      spec.block.arguments, [&](const std::string& slot) { return op.Input(slot); }, argument);
  each(
      spec.block.results, [&](const std::string& slot) { return op.Output(slot); }, result);
  return &program.Block(op.SubBlocks().at(0));
}

// Infers the shapes of all variables from the shapes of the feeds.
void SetShapes(ProgramDesc& program, const Workload& workload) {
  BlockDesc& root = program.Root();
  for (size_t i = 0; i < workload.feeds.size(); ++i)
    root.FindVar(workload.feeds[i])->SetShape(workload.batches[0][i].shape());
  for (size_t i = 0; i < root.NumOps(); ++i) {
    const OpDesc& op = root.op(i);
    if (DefaultOps().Get(op.type()).kind != OpKind::kCompute) continue;
    InferOp(root, op, DefaultOps());
    const auto pass_in = [&](const std::string& inner, const std::string& around) {
      program.Block(op.SubBlocks().at(0)).Var(inner).SetMeta(root.FindVar(around)->meta());
    };
    BlockDesc* group = GroupOf(program, op, pass_in, [](const std::string&, const std::string&) {});
    for (size_t k = 0; group && k < group->NumOps(); ++k)
      InferOp(*group, group->op(k), DefaultOps());
  }
}

double Bytes(const VarDesc& var) {
  if (var.type() != VarType::kLoDTensor) return 0;
  return Elements(var.shape()) * static_cast<double>(SizeOf(var.dtype()));
}

double BytesOf(const OpDesc& op) {
  double bytes = 0;
  const auto add = [&](const std::string& name) {
    if (const VarDesc* var = op.block()->FindVarRecursive(name)) bytes += Bytes(*var);
  };
  op.ForEachInput(add);
  op.ForEachOutput(add);
  return bytes;
}

double ProductsOf(const ProgramDesc& program) {
  double sum = 0;
  program.ForEachOp([&](const OpDesc& op) { sum += MultiplyAdds(op); });
  return sum;
}

// Counts the bytes of persistable variables that must be read and written.
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
  // The bytes of its table that a look-up, or an update by a sparse gradient, moves; 0 for
  // other ops.
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

// The median duration of several runs.
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

std::map<std::pair<std::string, std::string>, OpCost> CostsOfOps(const ProgramDesc& compiled,
                                                                 const Workload& workload) {
  ProgramDesc program = compiled;
  SetShapes(program, workload);
  std::map<std::pair<std::string, std::string>, OpCost> costs;
  const BlockDesc& root = program.Root();
  for (size_t i = 0; i < root.NumOps(); ++i) {
    const OpDesc& op = root.op(i);
    OpCost cost{MultiplyAdds(op), BytesOf(op)};
    std::unordered_map<std::string, std::string> around;
    const BlockDesc* group = GroupOf(
        program, op, [](const std::string&, const std::string&) {},
        [&](const std::string& inner, const std::string& name) { around[inner] = name; });
    if (group) {
      group->ForEachOp([&](const OpDesc& inner) {
        const double multiply_adds = MultiplyAdds(inner);
        cost.multiply_adds += multiply_adds;
        const std::string first = inner.FirstOutput();
        const auto named = around.find(first);
        costs[{inner.type(), named == around.end() ? first : named->second}] = {multiply_adds,
                                                                                BytesOf(inner)};
      });
    }
    costs[{op.type(), op.FirstOutput()}] = cost;
  }
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
