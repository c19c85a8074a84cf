// A model with its queue and workers: limits of time, rows and memory.

#include <coracle/test/serve/small_models.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

namespace coracle::served_model_test {

using serve::Clock;
using serve::RequestEnd;

class ServedModels : public ::testing::Test {
 protected:
  std::unique_ptr<serve::ServedModel> Open(const std::string& name,
                                           const serve::ServeOptions& options = {}) {
    metrics_ = std::make_shared<serve::ModelMetrics>();
    return std::make_unique<serve::ServedModel>(Path(name), name, "1", options, metrics_);
  }
  std::string Path(const std::string& name) const { return folder_.path + "/" + name; }
  static Tensor Rows(int64_t rows, int64_t width, float value) {
    return Tensor::Full<float>({rows, width}, value);
  }
  static Tensor One(float value) { return Tensor::Of<float>({1}, {value}); }
  static Clock::time_point In(double seconds) { return serve::After(Clock::now(), seconds); }

  ScratchFolder folder_;
  std::shared_ptr<serve::ModelMetrics> metrics_;
};

TEST_F(ServedModels, Times) {
  const Clock::time_point now = Clock::now();
  EXPECT_EQ(serve::After(now, 2), now + std::chrono::seconds(2));
  EXPECT_EQ(serve::After(now, 1e300), Clock::time_point::max());
  EXPECT_EQ(serve::After(now, std::nan("")), Clock::time_point::max());
  EXPECT_EQ(serve::After(now, -1), now);
}

// A run that nobody waits for ends; the model goes on.
TEST_F(ServedModels, DeadlinesEndRuns) {
  SaveLoop(Path("loop"), 0);
  const auto model = Open("loop");
  for (int i = 0; i < 3; ++i) {
    const Ended late = EndOf([&] { model->Infer({One(1)}, In(0.05)); });
    EXPECT_EQ(late.status, 503);
    EXPECT_EQ(late.end, RequestEnd::kTimeout);
    EXPECT_TRUE(Becomes([&] { return metrics_->running == 0; }));
    EXPECT_EQ(model->Infer({One(-2)}, In(60))[0].Item<float>(), -2);
  }
  EXPECT_EQ(EndOf([&] { model->Infer({One(-2)}, In(-1)); }).end, RequestEnd::kTimeout);
}

// The limit of the model counts, too, and the earlier one ends the request.
TEST_F(ServedModels, TimeLimits) {
  SaveLoop(Path("loop"), 0);
  const auto model = Open("loop", {.time_limit = 0.05});
  EXPECT_EQ(EndOf([&] { model->Infer({One(1)}); }).end, RequestEnd::kTimeout);
  EXPECT_EQ(EndOf([&] { model->Infer({One(1)}, In(1e9)); }).end, RequestEnd::kTimeout);
  EXPECT_TRUE(Becomes([&] { return metrics_->running == 0; }));
}

// A request that is late leaves the queue at once, also while every worker is busy.
TEST_F(ServedModels, LateRequestsLeaveTheQueue) {
  SaveLoop(Path("loop"), 0);
  const auto model = Open("loop", {.max_queue = 1});
  std::thread first(
      [&] { EXPECT_EQ(EndOf([&] { model->Infer({One(1)}, In(2)); }).end, RequestEnd::kTimeout); });
  ASSERT_TRUE(Becomes([&] { return metrics_->running == 1; }));
  for (int i = 0; i < 3; ++i) {  // each finds the queue empty
    const Ended late = EndOf([&] { model->Infer({One(-1)}, In(0.02)); });
    EXPECT_EQ(late.end, RequestEnd::kTimeout) << late.text;
    EXPECT_EQ(metrics_->queued, 0);
  }
  first.join();
  EXPECT_EQ(model->Infer({One(-1)})[0].Item<float>(), -1);
}

// Joined requests leave at their own deadlines; the others get their answers.
TEST_F(ServedModels, DeadlinesOfJoinedRequests) {
  SaveScale(Path("scale"), 2, 2);
  const auto model = Open("scale", {.max_batch = 8, .max_delay = 0.2});
  std::vector<std::thread> clients;
  std::atomic<int> good{0}, late{0}, other{0};
  for (int c = 0; c < 8; ++c) {
    clients.emplace_back([&, c] {
      for (int i = 0; i < 20; ++i) {
        const bool hurried = (c + i) % 4 == 0;
        const Ended ended = EndOf([&] {
          const auto results = model->Infer({Rows(1, 2, static_cast<float>(c))},
                                            hurried ? In(0.0005) : Clock::time_point::max());
          if (!BitEqual(results[0], Rows(1, 2, static_cast<float>(2 * c)))) ++other;
        });
        if (ended.status == 200)
          ++good;
        else if (hurried && ended.end == RequestEnd::kTimeout)
          ++late;
        else
          ++other;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(other, 0);
  EXPECT_EQ(good + late, 160);
  EXPECT_GE(good, 120);
}

TEST_F(ServedModels, MaxBatchLimitsRows) {
  SaveScale(Path("scale"), 2, 3);
  auto model = Open("scale", {.max_batch = 1});
  EXPECT_TRUE(model->has_rows());
  EXPECT_FALSE(model->joins_rows());
  const Ended many = EndOf([&] { model->Infer({Rows(2, 3, 1)}); });
  EXPECT_EQ(many.end, RequestEnd::kBadRequest);
  EXPECT_EQ(many.text, "a request may have 1 rows, got 2");
  EXPECT_TRUE(BitEqual(model->Infer({Rows(1, 3, 1)})[0], Rows(1, 3, 2)));
  model = Open("scale", {.max_batch = 4});
  EXPECT_TRUE(BitEqual(model->Infer({Rows(4, 3, 1)})[0], Rows(4, 3, 2)));
  EXPECT_EQ(EndOf([&] { model->Infer({Rows(5, 3, 1)}); }).status, 400);
}

// Alone, and together with requests that have rows.
TEST_F(ServedModels, ZeroRows) {
  SaveScale(Path("scale"), 2, 3);
  const auto model = Open("scale", {.max_batch = 4, .max_delay = 0.05});
  EXPECT_TRUE(BitEqual(model->Infer({Rows(0, 3, 1)})[0], Rows(0, 3, 2)));
  std::vector<std::thread> clients;
  std::atomic<int> wrong{0};
  for (int64_t rows : {0, 1, 0, 2, 0}) {
    clients.emplace_back([&, rows] {
      for (int i = 0; i < 10; ++i)
        wrong += !BitEqual(model->Infer({Rows(rows, 3, 1)})[0], Rows(rows, 3, 2));
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(wrong, 0);
}

// The first run, on zeros, ends by itself and is not a request.
TEST_F(ServedModels, WarmingUp) {
  SaveLoop(Path("endless"), -1);  // for zeros
  auto model = Open("endless", {.time_limit = 0.05});
  EXPECT_EQ(model->Infer({One(-2)})[0].Item<float>(), -2);
  EXPECT_EQ(metrics_->batches, 1u);
  std::atomic<int> asked{0};
  model = Open("endless", {.stop_loading = [&] { return ++asked > 10; }});
  EXPECT_EQ(metrics_->batches, 0u);
  SaveScale(Path("scale"), 2);
  model = Open("scale");
  EXPECT_EQ(metrics_->batches, 0u);
  EXPECT_EQ(metrics_->rows, 0u);
}

// Memory for the state of a run, of a worker and so on is refused, until there is enough.
TEST_F(ServedModels, ModelsThatCannotStart) {
  SaveState(Path("state"), 1 << 18);  // 1 MB
  int refused = 0;
  for (uint64_t memory = 1 << 18; memory < 64 << 20; memory += 1 << 18) {
    const auto limits = std::make_shared<ResourceLimits>(ResourceOptions{.memory = memory});
    bool opened = false;
    try {
      const ScopedLimits scoped(limits);
      Open("state");
      opened = true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted) << error.what();
    }
    EXPECT_EQ(limits->bytes_in_use(), 0u);
    if (opened) break;
    ++refused;
  }
  EXPECT_GE(refused, 4);
  EXPECT_EQ(Open("state")->Infer({One(2)})[0].Item<float>(), 2);
}

// Several workers would each have a state of their own.
TEST_F(ServedModels, OneWorkerKeepsTheState) {
  SaveState(Path("state"), 4);
  const auto model = Open("state", {.workers = 4});
  std::vector<std::thread> clients;
  std::atomic<int> sum{0};
  for (int c = 0; c < 4; ++c) {
    clients.emplace_back([&] {
      for (int i = 0; i < 25; ++i) sum += static_cast<int>(model->Infer({One(1)})[0].Item<float>());
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(sum, 100 * 101 / 2);  // 1, 2, ..., 100
  EXPECT_EQ(model->Infer({One(1)})[0].Item<float>(), 101);
}

// After each kind of error, the same worker answers the next request.
TEST_F(ServedModels, ServesAfterErrors) {
  SaveScale(Path("scale"), 2);
  serve::ServeOptions options;
  options.compile.memory_limit = 1 << 20;
  const auto model = Open("scale", options);
  const auto expect_good = [&] {
    EXPECT_TRUE(BitEqual(model->Infer({Rows(2, 3, 1)})[0], Rows(2, 3, 2)));
  };
  expect_good();
  EXPECT_EQ(EndOf([&] { model->Infer({Tensor::Of<int64_t>({1, 1}, {1})}); }).status, 400);
  expect_good();
  const Ended memory = EndOf([&] { model->Infer({Rows(1, 1 << 20, 1)}); });
  EXPECT_EQ(memory.status, 503);
  EXPECT_EQ(memory.end, RequestEnd::kFailure);
  expect_good();
  EXPECT_EQ(EndOf([&] { model->Infer({Rows(1, 1, 1)}, In(-1)); }).status, 503);
  expect_good();
  model->Drain();
  EXPECT_EQ(EndOf([&] { model->Infer({Rows(1, 1, 1)}); }).status, 503);
}

uint64_t ResidentBytes() {
  uint64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// Parameters are in memory once, whatever the number of workers.
TEST_F(ServedModels, WorkersShareParameters) {
  constexpr int64_t kSize = 2048;
  constexpr uint64_t kParameters = kSize * kSize * sizeof(float);
  SaveProduct(Path("product"), kSize);
  const auto use = [&](int workers) {
    const uint64_t before = ResidentBytes();
    const auto model = Open("product", {.workers = workers, .max_batch = 1});
    std::vector<std::thread> clients;
    for (int c = 0; c < 8; ++c) {
      clients.emplace_back([&] {
        for (int i = 0; i < 20; ++i) {
          const Tensor y = model->Infer({Rows(1, kSize, 1)})[0];
          EXPECT_NEAR(y.data<float>()[0], 1, 1e-4f);
        }
      });
    }
    for (std::thread& client : clients) client.join();
    return ResidentBytes() - std::min(before, ResidentBytes());
  };
  use(1);  // what is allocated once in a process
  EXPECT_LT(use(8), 3 * kParameters);
}

serve::Batch OneJob(int64_t width) {
  auto job = std::make_shared<serve::Job>();
  job->inputs = {Tensor::Zeros(DType::kFloat32, {1, width})};
  job->rows = 1;
  return {job};
}

// A worker that collects a batch may get the notice of a job that does not fit. It passes it on.
TEST(RequestQueues, NoticesAreNotLost) {
  for (int round = 0; round < 50; ++round) {
    std::atomic<int64_t> waiting{0};
    serve::RequestQueue queue({.max_rows = 8, .max_delay = 1000, .joins = true}, &waiting);
    queue.Push(OneJob(2)[0]);
    std::atomic<int> taken{0};
    const auto take = [&] { taken += static_cast<int>(queue.Next().size()); };
    std::thread first(take);
    ASSERT_TRUE(Becomes([&] { return waiting == 0; }));
    std::thread second(take);
    queue.Push(OneJob(3)[0]);
    ASSERT_TRUE(Becomes([&] { return waiting == 0; }));
    queue.Drain();
    first.join();
    second.join();
    EXPECT_EQ(taken, 2);
  }
}

TEST(RequestQueues, Bounds) {
  std::atomic<int64_t> waiting{0};
  serve::RequestQueue queue({.max_jobs = 2, .max_rows = 8, .joins = true}, &waiting);
  const auto a = OneJob(2)[0], b = OneJob(2)[0], c = OneJob(2)[0];
  EXPECT_EQ(queue.Push(a), serve::RequestQueue::Pushed::kYes);
  EXPECT_EQ(queue.Push(b), serve::RequestQueue::Pushed::kYes);
  EXPECT_EQ(queue.Push(c), serve::RequestQueue::Pushed::kFull);
  EXPECT_TRUE(queue.Remove(a));
  EXPECT_FALSE(queue.Remove(a));
  EXPECT_EQ(queue.Push(c), serve::RequestQueue::Pushed::kYes);
  EXPECT_EQ(queue.Next(), (serve::Batch{b, c}));
  EXPECT_EQ(waiting, 0);
  queue.Drain();
  EXPECT_EQ(queue.Push(a), serve::RequestQueue::Pushed::kDraining);
  EXPECT_TRUE(queue.Next().empty());
}

}  // namespace coracle::served_model_test
