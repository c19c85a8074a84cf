// Training steps of standard networks on random data in memory: one JSON line with the median time
// of a step.
//   train_bench --workload=lenet|mlp --threads=1 [--seconds=3] [--warm=1] [--kernels=reference]
//   [--inference] [--profile]
// The loss is read back in every step; eight batches take turns. With --inference a step is the
// forward pass of a batch. Workloads are defined in README.md.
#include <coracle/coracle.h>

#include <array>
#include <cmath>
#include <functional>
#include <random>

#include "measure.h"

namespace coracle {
namespace {

struct Workload {
  Shape input;  // without the batch
  int64_t batch = 0;
  int64_t classes = 10;
  std::function<Variable(Builder&, Variable)> logits;
};

// The peers' initial values: uniform in +-1 / sqrt(fan in).
ParamAttr FanIn(double n) {
  return {.initializer = UniformInitializer(-1 / std::sqrt(n), 1 / std::sqrt(n))};
}

Workload LeNet() {
  return {{1, 28, 28}, 64, 10, [](Builder& net, Variable x) {
            Variable c1 =
                net.Conv2d(x, {.num_filters = 20, .filter_size = 5, .param_attr = FanIn(25)});
            Variable p1 = net.Pool2d(c1, {.pool_size = 2, .pool_stride = 2});
            Variable c2 =
                net.Conv2d(p1, {.num_filters = 50, .filter_size = 5, .param_attr = FanIn(500)});
            Variable p2 = net.Pool2d(c2, {.pool_size = 2, .pool_stride = 2});
            return net.Fc(net.Fc(p2, {.size = 500, .act = "relu"}), {.size = 10});
          }};
}

Workload Mlp() {
  return {{784}, 128, 10, [](Builder& net, Variable x) {
            Variable h =
                net.Fc(net.Fc(x, {.size = 512, .act = "relu"}), {.size = 512, .act = "relu"});
            return net.Fc(h, {.size = 10});
          }};
}

struct Batch {
  Tensor image, label;
};

std::vector<Batch> RandomBatches(const Workload& w) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<Batch> batches(8);
  for (Batch& b : batches) {
    std::vector<int64_t> dims = w.input.ToVector();
    dims.insert(dims.begin(), w.batch);
    b.image = Tensor(DType::kFloat32, Shape(dims));
    b.label = Tensor(DType::kInt64, {w.batch, 1});
    for (float& v : b.image.span<float>()) v = normal(random);
    for (int64_t& v : b.label.span<int64_t>()) v = static_cast<int64_t>(random()) % w.classes;
  }
  return batches;
}

int Main(const Arguments& arguments) {
  const StepBench bench(arguments, "lenet", 1, 3);
  Workload w = bench.workload() == "mlp" ? Mlp() : LeNet();

  ProgramDesc main, startup;
  Builder net(main, startup);
  std::vector<int64_t> dims = w.input.ToVector();
  dims.insert(dims.begin(), -1);
  Variable image = net.Data("image", Shape(dims));
  Variable label = net.Data("label", {-1, 1}, DType::kInt64);
  Variable loss = net.Mean(net.SoftmaxWithCrossEntropy(w.logits(net, image), label));
  if (arguments.Text("inference", "") != "true")
    Momentum({.learning_rate = 0.01, .momentum = 0.9}).Minimize(loss, startup);

  Executor executor(bench.options());
  Scope scope;
  executor.Run(startup, scope);
  PreparedProgram step = executor.Prepare(main, {"image", "label"}, {loss.name()});

  std::vector<Batch> batches = RandomBatches(w);
  std::vector<std::array<Tensor, 2>> feeds;
  feeds.reserve(batches.size());
  for (Batch& b : batches) feeds.push_back({b.image, b.label});
  size_t it = 0;
  float first = 0, last = 0;
  auto run = [&] {
    last = step.Run(scope, std::span<const Tensor>(feeds[it % feeds.size()]))[0].Item<float>();
    if (it++ == 0) first = last;
  };
  const std::vector<double> times = bench.Time(run);
  char extra[120];
  std::snprintf(extra, sizeof extra, ",\"arena_mb\":%.2f,\"loss_first\":%.4f,\"loss_last\":%.4f",
                static_cast<double>(step.WorkspaceBytes()) / 1048576, static_cast<double>(first),
                static_cast<double>(last));
  bench.Print(times, extra);
  bench.PrintProfile(step);
  return 0;
}

}  // namespace
}  // namespace coracle

int main(int argc, char** argv) { return coracle::RunMain(argc, argv, coracle::Main); }
