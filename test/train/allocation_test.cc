// The training loop allocates next to nothing: this binary counts every operator new.

#include <coracle/test/train/train_test_util.h>
#include <coracle/train/run/trainer.h>

#include <atomic>
#include <cstdlib>
#include <new>

std::atomic<int64_t> allocations{0};

void* Allocate(size_t size) {
  ++allocations;
  if (void* p = std::malloc(size ? size : 1)) return p;
  throw std::bad_alloc();
}
void* operator new(size_t size) { return Allocate(size); }
void* operator new[](size_t size) { return Allocate(size); }
// Sanitizers' own forms without exceptions would not call the ones above.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size ? size : 1);
}
void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size ? size : 1);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }

namespace coracle::allocation_test {

// Reference kernels leave no library in between: what is counted is the loop, the batches
// and the executor.
TEST(Allocations, NonePerStep) {
  JobConfig job;
  job.model_text = R"(
data  { name: "image" shape: [-1, 784] }
data  { name: "label" shape: [-1, 1] dtype: INT64 }
layer { fc { input: "image" size: 10 output: "logits" } }
layer { softmax_with_cross_entropy { logits: "logits" label: "label" output: "ce" } }
layer { mean { input: "ce" output: "loss" } }
layer { accuracy { input: "logits" label: "label" output: "acc" } }
)";
  job.train.source = DigitsOptions{.count = 320};
  job.metrics = {{"acc", "accuracy"}};
  job.batch_size = 32;
  job.epochs = 5;
  TrainOptions options;
  options.compile.kernels = KernelMode::kReference;
  std::vector<int64_t> at_step;
  at_step.reserve(50);
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const StepReport&) { at_step.push_back(allocations.load()); };
  RunJob(job, options, callbacks);
  ASSERT_EQ(at_step.size(), 50u);
  EXPECT_GT(at_step[0], 0);  // the counter counts
  // The first steps make the plan and the first batches.
  EXPECT_EQ(at_step[48] - at_step[5], 0);
}
}  // namespace coracle::allocation_test
