// Training steps of a recommender: one embedding table of 16 floats a row with sparse
// gradients, 26 uniform ids a sample, an MLP 416-256-128-1 with ReLU, sigmoid cross-entropy,
// batch 512; one JSON line.
//   recommender_bench --workload=reco_sgd|reco_adagrad|reco_lazy_adam --threads=1 [--rows=1000000]
//   [--seconds=3] [--warm=1] [--steps=0] [--kernels=reference] [--profile]
// 64 batches take turns, the loss is read back in every step. --steps=N runs N more steps and tells
// the memory of the process before and after them.
#include <coracle/coracle.h>

#include <array>
#include <random>

#include "measure.h"

namespace coracle {
namespace {

constexpr int64_t kBatch = 512, kIds = 26, kWidth = 16, kBatches = 64;

std::unique_ptr<Optimizer> MakeOptimizer(const std::string& workload) {
  if (workload == "reco_sgd") return std::make_unique<Sgd>(SgdOptions{.learning_rate = 0.1});
  if (workload == "reco_adagrad")
    return std::make_unique<Adagrad>(AdagradOptions{.learning_rate = 0.01});
  if (workload == "reco_lazy_adam")
    return std::make_unique<Adam>(AdamOptions{.learning_rate = 1e-4, .lazy_mode = true});
  ThrowInvalid("no such workload: " + workload);
}

Variable Loss(Builder& net, int64_t rows) {
  Variable ids = net.Data("ids", {-1, kIds}, DType::kInt64);
  Variable clicked = net.Data("clicked", {-1, 1});
  Variable table = net.Embedding(
      ids, {.num_embeddings = rows,
            .embedding_dim = kWidth,
            .is_sparse = true,
            .param_attr = {.name = "table", .initializer = UniformInitializer(-0.5, 0.5)}});
  Variable x = net.Reshape(table, {-1, kIds * kWidth});
  Variable h = net.Fc(net.Fc(x, {.size = 256, .act = "relu"}), {.size = 128, .act = "relu"});
  return net.Mean(net.SigmoidCrossEntropyWithLogits(net.Fc(h, {.size = 1}), clicked));
}

std::vector<std::array<Tensor, 2>> Batches(int64_t rows) {
  std::mt19937_64 random(1);
  std::vector<std::array<Tensor, 2>> batches(kBatches);
  for (auto& [ids, clicked] : batches) {
    ids = Tensor(DType::kInt64, {kBatch, kIds});
    clicked = Tensor(DType::kFloat32, {kBatch, 1});
    for (int64_t& id : ids.span<int64_t>())
      id = static_cast<int64_t>(random() % static_cast<uint64_t>(rows));
    for (float& c : clicked.span<float>()) c = static_cast<float>(random() % 2);
  }
  return batches;
}

int Main(const Arguments& arguments) {
  const StepBench bench(arguments, "reco_sgd", 1, 3);
  const int64_t rows = arguments.Whole("rows", 1000000);
  const int steps = arguments.Whole("steps", 0);

  ProgramDesc main, startup;
  Builder net(main, startup);
  const Variable loss = Loss(net, rows);
  MakeOptimizer(bench.workload())->Minimize(loss, startup);
  Executor executor(bench.options());
  Scope scope;
  executor.Run(startup, scope);
  PreparedProgram step = executor.Prepare(main, {"ids", "clicked"}, {loss.name()});

  const auto batches = Batches(rows);
  size_t it = 0;
  float first = 0, last = 0;
  const auto run = [&] {
    const auto& feeds = batches[it % batches.size()];
    last = step.Run(scope, std::span<const Tensor>(feeds))[0].Item<float>();
    if (it++ == 0) first = last;
  };
  const auto times = bench.Time(run);
  const double before = ProcessMiB("VmRSS");
  for (int i = 0; i < steps; ++i) run();
  char extra[300];
  std::snprintf(extra, sizeof extra,
                ",\"rows\":%lld,\"workspace_mb\":%.2f,\"steps\":%d,\"rss_before_steps_mb\":%.2f,"
                "\"rss_after_steps_mb\":%.2f,\"loss_first\":%.4f,\"loss_last\":%.4f",
                static_cast<long long>(rows), static_cast<double>(step.WorkspaceBytes()) / 1048576,
                steps, before, ProcessMiB("VmRSS"), static_cast<double>(first),
                static_cast<double>(last));
  bench.Print(times, extra);
  bench.PrintProfile(step);
  return 0;
}

}  // namespace
}  // namespace coracle

int main(int argc, char** argv) { return coracle::RunMain(argc, argv, coracle::Main); }
