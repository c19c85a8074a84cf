// A training step in the steady state: no heap allocation outside oneDNN's own calls, and in them
// the same small number each time. This binary replaces malloc and its kin by counting ones
// (glibc's __libc_ functions do the work).
#include <coracle/executor/executor.h>
#include <coracle/layers/builder.h>
#include <coracle/operators/kernels/onednn_scope.h>
#include <coracle/optimizer/optimizer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <vector>

extern "C" {
void* __libc_malloc(size_t);            // NOLINT: glibc's names
void* __libc_calloc(size_t, size_t);    // NOLINT
void* __libc_realloc(void*, size_t);    // NOLINT
void* __libc_memalign(size_t, size_t);  // NOLINT
}

std::atomic<int64_t> outside{0}, inside{0};

void Count() {
  if (coracle::onednn::calls_under_way > 0)
    ++inside;
  else
    ++outside;
}

extern "C" {
void* malloc(size_t size) noexcept {
  Count();
  return __libc_malloc(size);
}
void* calloc(size_t n, size_t size) noexcept {
  Count();
  return __libc_calloc(n, size);
}
void* realloc(void* p, size_t size) noexcept {
  Count();
  return __libc_realloc(p, size);
}
void* aligned_alloc(size_t alignment, size_t size) noexcept {
  Count();
  return __libc_memalign(alignment, size);
}
void* memalign(size_t alignment, size_t size) noexcept {
  Count();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** p, size_t alignment, size_t size) noexcept {
  Count();
  *p = __libc_memalign(alignment, size);
  return *p ? 0 : ENOMEM;
}
}

namespace coracle::allocation_test {

TEST(Allocation, TheCounterCounts) {
  int64_t before = outside;
  std::vector<int>* v = new std::vector<int>(100);
  EXPECT_GE(outside - before, 2);
  delete v;
}

Variable LeNet(Builder& net) {
  Variable image = net.Data("image", {-1, 1, 28, 28});
  Variable c1 = net.Conv2d(image, {.num_filters = 20, .filter_size = 5});
  Variable p1 = net.Pool2d(c1, {.pool_size = 2, .pool_stride = 2});
  Variable c2 = net.BatchNorm(net.Conv2d(p1, {.num_filters = 32, .filter_size = 3, .padding = 1}),
                              {.act = "relu"});
  Variable p2 = net.Pool2d(c2, {.pool_size = 2, .pool_stride = 2});
  Variable h =
      net.Dropout(net.Fc(p2, {.size = 100, .act = "relu", .error_clip = ErrorClipByValue(1)}));
  return net.Fc(h, {.size = 10});
}

void ExpectNoAllocation(PreparedProgram& step, Scope& scope,
                        const std::vector<std::vector<Tensor>>& batches) {
  for (size_t i = 0; i < 5; ++i) step.Run(scope, batches[i % batches.size()]);
  std::vector<int64_t> outside_by_step(20), inside_by_step(20);
  for (size_t i = 0; i < 20; ++i) {
    int64_t before_outside = outside, before_inside = inside;
    step.Run(scope, batches[i % batches.size()]);
    outside_by_step[i] = outside - before_outside;
    inside_by_step[i] = inside - before_inside;
  }
  // A thread of the pool that runs its first part of a loop makes what belongs to the thread; on a
  // busy machine that may be late. Allocations of a step would show in every step.
  EXPECT_LE(20 - std::count(outside_by_step.begin(), outside_by_step.end(), 0), 1)
      << "steps with allocations: " << testing::PrintToString(outside_by_step);
  for (size_t i = 0; i < 20; ++i) {
    // How many depends on which threads were free for parts of the work.
    EXPECT_LT(inside_by_step[i], 200) << "step " << i;
  }
  ::testing::Test::RecordProperty("inside_onednn_per_step", static_cast<int>(inside_by_step[0]));
}

TEST(Allocation, NonePerStepOutsideOneDnn) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  Variable logits = LeNet(net);
  Variable label = net.Data("label", {-1, 1}, DType::kInt64);
  Variable loss = net.Mean(net.SoftmaxWithCrossEntropy(logits, label));
  Variable accuracy = net.Accuracy(logits, label);
  Adam({.learning_rate = 0.001}).Minimize(loss, startup);
  Scope scope;
  Executor exe;
  exe.Run(startup, scope);
  PreparedProgram step = exe.Prepare(main, {"image", "label"}, {loss.name(), accuracy.name()});
  ExpectNoAllocation(
      step, scope,
      {{Tensor::Zeros(DType::kFloat32, {16, 1, 28, 28}), Tensor::Zeros(DType::kInt64, {16, 1})}});
}

// Batches with other ids and other numbers of duplicates; the table is read twice and its gradient
// clipped, so that rows are concatenated and merged.
TEST(Allocation, NonePerStepWithSparseGradients) {
  std::vector<std::vector<Tensor>> batches;
  for (int64_t b = 0; b < 4; ++b) {
    batches.push_back({Tensor(DType::kInt64, {64, 5})});
    for (int64_t i = 0; i < 64 * 5; ++i)
      batches.back()[0].data<int64_t>()[i] = (i * i * 31 + 7) % (b % 2 ? 3000 : 20 + b);
  }
  const std::unique_ptr<Optimizer> optimizers[] = {
      std::make_unique<Sgd>(SgdOptions{}), std::make_unique<Momentum>(MomentumOptions{}),
      std::make_unique<Adagrad>(AdagradOptions{}), std::make_unique<Adam>(AdamOptions{}),
      std::make_unique<Adam>(AdamOptions{.lazy_mode = true})};
  for (const auto& optimizer : optimizers) {
    ProgramDesc main, startup;
    Builder net(main, startup);
    Variable ids = net.Data("ids", {-1, 5}, DType::kInt64);
    EmbeddingOptions table = {.num_embeddings = 3000, .embedding_dim = 8, .is_sparse = true};
    table.param_attr.name = "table";
    Variable x = net.Embedding(ids, table);
    table.padding_idx = 7;
    Variable loss = net.Mean(net.Fc(net.Mul(x, net.Embedding(ids, table)), {.size = 1}));
    main.Root().FindVar("table")->MutableTraining().gradient_clip =
        Setting{"by_norm", {{"clip_norm", 1.0}}};
    optimizer->Minimize(loss, startup);
    Scope scope;
    Executor exe;
    exe.Run(startup, scope);
    PreparedProgram step = exe.Prepare(main, {"ids"}, {loss.name()});
    ExpectNoAllocation(step, scope, batches);
  }
}

// Updates that a guard skips now and then: no plan is made when it changes.
TEST(Allocation, NonePerStepWithAGuardedUpdate) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  Variable go = net.Data("go", {1}, DType::kBool);
  Variable logits = LeNet(net), label = net.Data("label", {-1, 1}, DType::kInt64);
  Variable loss = net.Mean(net.SoftmaxWithCrossEntropy(logits, label));
  Adam adam({});
  adam.SetGradientClip(ClipGradByGlobalNorm(1));
  adam.SetSchedule(WarmupRate(CosineAnnealingRate({0.001, 1000}), 10, 0, 0.001));
  adam.AddGuard(go.name());
  adam.Minimize(loss, startup);
  Scope scope;
  Executor exe;
  exe.Run(startup, scope);
  PreparedProgram step = exe.Prepare(main, {"image", "label", "go"}, {loss.name()});
  std::vector<std::vector<Tensor>> batches;
  for (bool now : {true, false, false, true}) {
    batches.push_back({Tensor::Zeros(DType::kFloat32, {16, 1, 28, 28}),
                       Tensor::Zeros(DType::kInt64, {16, 1}), Tensor::Of<bool>({1}, {now})});
  }
  ExpectNoAllocation(step, scope, batches);
}

// Every third batch updates, and an average follows.
TEST(Allocation, NonePerStepWithAccumulation) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  Variable logits = LeNet(net), label = net.Data("label", {-1, 1}, DType::kInt64);
  Variable loss = net.Mean(net.SoftmaxWithCrossEntropy(logits, label));
  const auto momentum = std::make_shared<Momentum>(MomentumOptions{.velocity_holds_rate = true});
  momentum->SetGradientClip(ClipGradByGlobalNorm(1));
  momentum->SetRegularizer(L2DecayRegularizer(1e-4));
  momentum->SetGradientDivisor(3);
  const auto average = std::make_shared<ExponentialMovingAverage>();
  AppendTrainingStep({.groups = {{.optimizer = momentum, .average = average}}, .accumulate = 3},
                     loss, startup);
  Scope scope;
  Executor exe;
  exe.Run(startup, scope);
  PreparedProgram step = exe.Prepare(main, {"image", "label"}, {loss.name()});
  ExpectNoAllocation(
      step, scope,
      {{Tensor::Zeros(DType::kFloat32, {16, 1, 28, 28}), Tensor::Zeros(DType::kInt64, {16, 1})}});
}

// A loop with arrays, a carried state and a branch, and its gradient.
TEST(Allocation, NonePerStepWithALoop) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  Variable x = net.Data("x", {4, 8}), n = net.Data("n", {1}, DType::kInt64);
  Variable w = net.Parameter("w", {8, 8}, DType::kFloat32);
  Variable i = FillConstant(net, {1}, DType::kInt64, 0);
  Variable half = FillConstant(net, {1}, DType::kInt64, 3);
  Variable array = CreateArray(net, DType::kFloat32);
  Variable h = net.Scale(x, {.scale = 1.0f}), more = net.Binary("less_than", i, n);
  While(net, more, [&] {
    ArrayWrite(net, net.Tanh(net.Matmul(h, w)), i, array);
    Variable read = ArrayRead(net, array, i);
    If(net, net.Binary("less_than", i, half), [&] { Assign(net, net.Add(read, x), h); });
    Increment(net, i);
    Assign(net, net.Binary("less_than", i, n), more);
  });
  Variable loss = net.Mean(net.Mul(h, h));
  Sgd({.learning_rate = 0.001}).Minimize(loss, startup);
  Scope scope;
  Executor exe;
  exe.Run(startup, scope);
  PreparedProgram step = exe.Prepare(main, {"x", "n"}, {loss.name()});
  const std::vector<Tensor> batch = {Tensor::Full<float>({4, 8}, 0.5f),
                                     Tensor::Full<int64_t>({1}, 7)};
  // Gradients change buffers from iteration to iteration, until each is large enough for all.
  for (int k = 0; k < 10; ++k) step.Run(scope, batch);
  ExpectNoAllocation(step, scope, {batch});
}
}  // namespace coracle::allocation_test
