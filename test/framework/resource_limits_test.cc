#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/operators/operators.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace coracle::resource_limits_test {

template <class F>
Error ErrorOf(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  return Error(ErrorCode::kInternal, "no error");
}

std::shared_ptr<ResourceLimits> Bytes(uint64_t bytes) {
  return std::make_shared<ResourceLimits>(ResourceOptions{.memory = bytes});
}

TEST(Checked, ThrowsWhereArithmeticWouldWrap) {
  EXPECT_EQ(CheckedMul(int64_t{1} << 31, int64_t{1} << 31), int64_t{1} << 62);
  EXPECT_EQ(CheckedMul(2, 3, 4), 24);
  EXPECT_EQ(CheckedAdd(INT64_MAX, -1), INT64_MAX - 1);
  EXPECT_EQ(ErrorOf([] { CheckedMul(int64_t{1} << 32, int64_t{1} << 32); }).message(),
            "out of memory: 4294967296 * 4294967296 passes the range of 64-bit integers");
  EXPECT_EQ(ErrorOf([] { CheckedMul(int64_t{1} << 40, 4, int64_t{1} << 40); }).code(),
            ErrorCode::kResourceExhausted);
  EXPECT_EQ(ErrorOf([] { CheckedAdd(INT64_MAX, 1); }).code(), ErrorCode::kResourceExhausted);
}

// Whatever dims a file gives: bytes are right or refused.
TEST(Checked, BytesOfNoShapeWrap) {
  const int64_t dims[] = {0, 1, 3, int64_t{1} << 31, int64_t{1} << 48, int64_t{1} << 62, INT64_MAX};
  int refused = 0;
  for (int64_t a : dims) {
    for (int64_t b : dims) {
      for (int64_t c : dims) {
        const Shape shape{a, b, c};
        const double numel =
            static_cast<double>(a) * static_cast<double>(b) * static_cast<double>(c);
        uint64_t bytes = 0;
        try {
          bytes = ByteSize(DType::kInt64, shape);
        } catch (const Error&) {
          ++refused;
          EXPECT_TRUE(shape.HasTooManyElements());
          continue;
        }
        EXPECT_EQ(static_cast<double>(bytes), 8 * numel) << shape.ToString();
      }
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(ResourceLimits, TensorsAskBeforeTheyAllocate) {
  const auto limits = Bytes(100'000);
  const ScopedLimits scoped(limits);
  {
    const Tensor kept(DType::kFloat32, {10'000});
    EXPECT_GE(limits->bytes_in_use(), 40'000u);
    const Error error = ErrorOf([] { Tensor(DType::kFloat32, {20'000}); });
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_NE(error.message().find("out of memory: float32[20000] takes 78.4 KiB"),
              std::string::npos)
        << error.message();
    EXPECT_NE(error.message().find("passes the memory limit of 97.7 KiB"), std::string::npos);
  }
  EXPECT_EQ(limits->bytes_in_use(), 0u);
}

TEST(ResourceLimits, OuterOnesHoldToo) {
  const auto outer = Bytes(1000);
  Tensor outlives;
  {
    const ScopedLimits scoped(outer);
    const auto inner = Bytes(1'000'000);
    const ScopedLimits scoped_inside(inner);
    EXPECT_EQ(ErrorOf([] { Tensor(DType::kInt8, {2000}); }).code(), ErrorCode::kResourceExhausted);
    EXPECT_EQ(inner->bytes_in_use(), 0u);
    outlives = Tensor(DType::kInt8, {500});
  }
  EXPECT_EQ(ResourceLimits::Current(), nullptr);
  EXPECT_GE(outer->bytes_in_use(), 500u);
  std::thread([&] { outlives = Tensor(); }).join();
  EXPECT_EQ(outer->bytes_in_use(), 0u);
}

TEST(ResourceLimits, ManySmallTensorsCount) {
  const ScopedLimits scoped(Bytes(1'000'000));
  EXPECT_EQ(ErrorOf([] {
              TensorArray array;
              for (int i = 0; i < 100'000; ++i) array.push_back(Tensor(DType::kInt8, {1}));
            }).code(),
            ErrorCode::kResourceExhausted);
}

TEST(ResourceLimits, Time) {
  ResourceLimits endless({.seconds = 1e6});
  const auto timed = std::make_shared<ResourceLimits>(ResourceOptions{.seconds = 0.02});
  endless.CheckTime([] { return std::string("at once"); });
  EXPECT_EQ(endless.SecondsOverdue(), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  EXPECT_GT(timed->SecondsOverdue(), 0.02);
  const Error error = ErrorOf([&] { timed->CheckTime([] { return std::string("in a test"); }); });
  EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(error.message(), "passed the time limit of 0.02 s in a test");
  // A busy machine may let 20 ms pass between the two, but not each time.
  bool begins_anew = false;
  for (int i = 0; i < 1000 && !begins_anew; ++i) {
    const ScopedRun run(timed);
    try {
      timed->CheckTime([] { return std::string("again"); });
      begins_anew = true;
    } catch (const Error&) {
    }
  }
  EXPECT_TRUE(begins_anew);
}

TEST(ResourceLimits, ARunThatIsOverdueIsSeenFromAround) {
  const auto around = std::make_shared<ResourceLimits>(ResourceOptions{});
  const ScopedLimits scoped(around);
  {
    const ScopedRun run(std::make_shared<ResourceLimits>(ResourceOptions{.seconds = 0.01}));
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    EXPECT_GT(around->SecondsOverdue(), 0.02);
  }
  EXPECT_EQ(around->SecondsOverdue(), 0);
}

// The parts of a loop run on threads of the pool.
TEST(ResourceLimits, HoldInEveryPartOfALoop) {
  const ScopedLimits scoped(Bytes(1'000'000));
  const int before = NumThreads();
  SetNumThreads(4);
  std::atomic<int> refused = 0;
  for (int repeat = 0; repeat < 100; ++repeat) {
    ParallelFor(4, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (ErrorOf([] { Tensor(DType::kInt8, {2'000'000}); }).code() ==
            ErrorCode::kResourceExhausted)
          ++refused;
      }
    });
  }
  SetNumThreads(before);
  EXPECT_EQ(refused, 400);
}

TEST(ResourceLimits, CopiesOfArraysWithGapsCount) {
  const auto limits = Bytes(uint64_t{64} << 20);
  const ScopedLimits scoped(limits);
  TensorArray array;
  array.Write(50'000, DType::kInt8, {1});
  const uint64_t one = limits->bytes_in_use();
  EXPECT_GE(one, 50'000 * sizeof(Tensor));
  const TensorArray copy(array);
  EXPECT_GE(limits->bytes_in_use(), 2 * one - 2'000);
  EXPECT_EQ(ErrorOf([&] {
              std::vector<TensorArray> copies;
              for (int i = 0; i < 1000; ++i) copies.push_back(array);
            }).code(),
            ErrorCode::kResourceExhausted);
}

TEST(ResourceLimits, Stop) {
  bool stop = false;
  const auto asked =
      std::make_shared<ResourceLimits>(ResourceOptions{.stop = [&] { return stop; }});
  const ScopedLimits scoped(asked);
  CheckTimeLimit("testing");
  stop = true;
  EXPECT_EQ(ErrorOf([] { CheckTimeLimit("testing"); }).message(),
            "the run was stopped while testing");
}

TEST(ResourceLimits, TheInterpreterNamesTheOp) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  block.AppendOp("fill_constant", {}, {{"Out", {"x"}}},
                 {{"shape", std::vector<int64_t>{1 << 20}}, {"dtype", int32_t{5}}});
  const ScopedLimits scoped(Bytes(1'000'000));
  VarValues env;
  const Error error = ErrorOf([&] { Interpret(block, DefaultOps(), env); });
  EXPECT_EQ(error.message().find("fill_constant: out of memory: float32[1048576] takes 4.0 MiB"),
            0u)
      << error.message();
  EXPECT_NE(error.message().find("(output var 'x')"), std::string::npos);
}

TEST(ResourceLimits, NegativeTimesAndNullLimitsAreRefused) {
  for (const double seconds : {-1.0, std::nan("")}) {
    const Error error = ErrorOf([&] { ResourceLimits({.seconds = seconds}); });
    EXPECT_NE(error.message().find("a time limit must not be negative"), std::string::npos);
  }
  EXPECT_EQ(ErrorOf([] { ScopedRun(nullptr); }).message(),
            "a ScopedRun was given no limits: the pointer is null");
}

}  // namespace coracle::resource_limits_test
