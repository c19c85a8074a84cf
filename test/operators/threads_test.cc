// Kernels that hand oneDNN parts of their work, with any number of threads.
#include <coracle/framework/base/resource_limits.h>
#include <coracle/operators/conv/conv_parts.h>
#include <coracle/operators/kernels/bfloat16_products.h>
#include <coracle/operators/kernels/gemm.h>
#include <coracle/test/op_test.h>
#include <coracle/test/threads.h>
#include <signal.h>
#include <sys/time.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

namespace coracle::threads_test {

std::vector<float> RandomFloats(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = uniform(random);
  return values;
}

std::vector<float> Multiply(const GemmSpec& s, KernelMode mode) {
  const std::vector<float> a = RandomFloats(s.m * s.k, 1), b = RandomFloats(s.k * s.n, 2);
  std::vector<float> c = RandomFloats(s.m * s.n, 3);
  MakeGemm<float>(s, mode)(a.data(), b.data(), c.data());
  return c;
}

OpTest Conv(const std::string& format, const Shape& input, const Shape& filter,
            const std::vector<int32_t>& strides, const std::vector<int32_t>& paddings,
            const std::vector<int32_t>& dilations, int32_t groups = 1) {
  OpTest test("conv2d");
  test.Attr("data_format", format).Attr("strides", strides).Attr("paddings", paddings);
  test.Attr("dilations", dilations).Attr("groups", groups);
  test.RandomInput("Input", input).RandomInput("Filter", filter);
  return test.RandomInput("Bias", {filter[0]});
}

// The stack of this thread, as the handler of a signal that comes in the middle of
// products sees it.
std::atomic<const char*> stack_top{nullptr};
std::atomic<int> signals_on_the_stack{0}, signals_elsewhere{0};

void NoteStack(int) {
  const char here = 0;
  const ptrdiff_t below = stack_top.load() - &here;
  ++(below > 0 && below < (8 << 20) ? signals_on_the_stack : signals_elsewhere);
}

// oneDNN's kernels point the stack into their own buffers: a handler that ran there would overwrite
// what lies before them.
TEST(KernelThreads, NoSignalComesInTheMiddleOfAProduct) {
  const char top = 0;
  stack_top = &top;
  struct sigaction action {
  }, before{};
  action.sa_handler = NoteStack;
  action.sa_flags = SA_RESTART;
  ASSERT_EQ(sigaction(SIGALRM, &action, &before), 0);
  constexpr int64_t kM = 50, kN = 10, kK = 784;
  const Gemm<float> gemm = MakeGemm<float>({.m = kM, .n = kN, .k = kK}, KernelMode::kAuto);
  const std::vector<float> a(kM * kK, 1), b(kK * kN, 1);
  std::vector<float> c(kM * kN);
  const itimerval often = {{0, 200}, {0, 200}}, never = {};
  ASSERT_EQ(setitimer(ITIMER_REAL, &often, nullptr), 0);
  const auto begin = std::chrono::steady_clock::now();
  while (signals_on_the_stack < 200 && signals_elsewhere == 0 &&
         std::chrono::steady_clock::now() - begin < std::chrono::seconds(60))
    gemm(a.data(), b.data(), c.data());
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &before, nullptr);
  EXPECT_GE(signals_on_the_stack, 200);
  EXPECT_EQ(signals_elsewhere, 0);
  EXPECT_EQ(c[0], kK);
}

TEST(KernelThreads, GemmOfEveryShape) {
  // Each is worth several threads; one has fewer rows or columns than a block.
  const std::vector<GemmSpec> specs = {
      {.m = 37, .n = 201, .k = 301},  {.m = 1, .n = 2003, .k = 700},
      {.m = 2003, .n = 1, .k = 700},  {.m = 5, .n = 47, .k = 9001},
      {.m = 64, .n = 10, .k = 3000},  {.m = 9, .n = 97, .k = 3000},
      {.m = 128, .n = 512, .k = 100}, {.m = 1, .n = 1, .k = 2000000},
      {.m = 512, .n = 130, .k = 301}, {.m = 203, .n = 256, .k = 517}};
  for (int threads : {1, 2, 3, 7}) {
    const Threads set(threads);
    for (GemmSpec s : specs) {
      for (int variant = 0; variant < 4; ++variant) {
        s.transpose_a = variant & 1;
        s.transpose_b = variant & 2;
        s.alpha = variant ? 1 : 0.5f;
        s.beta = variant == 3 ? 1 : 0;
        SCOPED_TRACE(testing::Message() << threads << " threads, " << s.m << " x " << s.n << " x "
                                        << s.k << ", variant " << variant);
        const std::vector<float> expected = Multiply(s, KernelMode::kReference);
        const std::vector<float> actual = Multiply(s, KernelMode::kAuto);
        float worst = 0;
        for (size_t i = 0; i < actual.size(); ++i)
          worst = std::max(worst, std::fabs(actual[i] - expected[i]));
        EXPECT_LT(worst, 1e-5f * static_cast<float>(s.k) / 10 + 1e-4f);
      }
    }
  }
}

TEST(KernelThreads, Bfloat16GemmOfEveryNumberOfThreads) {
  const ScopedBFloat16Products products(true);
  for (bool transpose : {false, true}) {
    const GemmSpec s{.m = 75, .n = 130, .k = 300, .transpose_a = transpose};
    std::vector<bfloat16> a, b, alone;
    for (float v : RandomFloats(s.m * s.k, 1)) a.push_back(static_cast<bfloat16>(v));
    for (float v : RandomFloats(s.k * s.n, 2)) b.push_back(static_cast<bfloat16>(v));
    for (int threads : {1, 2, 3, 7}) {
      const Threads set(threads);
      const Gemm<bfloat16> gemm = MakeGemm<bfloat16>(s, KernelMode::kAuto);
      if (!gemm) GTEST_SKIP() << "no instructions for bfloat16 here";
      std::vector<bfloat16> c(static_cast<size_t>(s.m * s.n));
      gemm(a.data(), b.data(), c.data());
      if (alone.empty()) alone = c;
      // Each element is one sum, whoever computes it.
      EXPECT_EQ(0, std::memcmp(c.data(), alone.data(), c.size() * sizeof(bfloat16))) << threads;
    }
  }
}

TEST(KernelThreads, ConvolutionsOfEveryShape) {
  for (int threads : {2, 5}) {
    const Threads set(threads);
    for (const char* format : {"NHWC", "NCHW"}) {
      for (int64_t batch : {1, 3}) {
        SCOPED_TRACE(testing::Message() << threads << " threads, " << format << ", " << batch);
        auto image = [&](int64_t channels, int64_t height, int64_t width) {
          return *format == 'N' && format[1] == 'H' ? Shape{batch, height, width, channels}
                                                    : Shape{batch, channels, height, width};
        };
        Conv(format, image(32, 18, 19), {33, 32, 3, 3}, {1, 1}, {1, 1}, {1, 1}).CheckFast();
        Conv(format, image(16, 23, 20), {48, 16, 5, 3}, {2, 1}, {2, 0, 3, 1}, {1, 1}).CheckFast();
        Conv(format, image(32, 17, 20), {16, 32, 3, 3}, {3, 2}, {2, 2}, {2, 1}).CheckFast();
        Conv(format, image(64, 20, 20), {40, 64, 1, 1}, {1, 1}, {0, 0}, {1, 1}).CheckFast();
        Conv(format, image(32, 16, 16), {64, 8, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 4).CheckFast();
        // A part has fewer rows than the padding.
        Conv(format, image(64, 5, 30), {32, 64, 3, 3}, {1, 1}, {4, 1}, {1, 1}).CheckFast();
      }
    }
  }
}

// The filter is so large that threads copy parts of it into oneDNN's layout.
TEST(KernelThreads, LargeFilters) {
  for (int threads : {2, 3}) {
    const Threads set(threads);
    Conv("NHWC", {2, 6, 6, 128}, {136, 128, 3, 3}, {1, 1}, {1, 1}, {1, 1}).CheckFast();
    Conv("NHWC", {2, 6, 6, 192}, {96, 64, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 3).CheckFast();
  }
}

TEST(KernelThreads, PartsOfConvolutionsCoverIt) {
  ConvGeometry g;
  g.channels_last = true;
  g.in_channels = 2;
  g.out_channels = 3;
  g.w = {.in = 1, .kernel = 1, .out = 1};
  const auto covers = [&](int64_t wanted) {
    int64_t next = 0;
    for (const ConvPart& part : SplitOutputs(g, wanted)) {
      EXPECT_EQ(part.output, next);
      next += part.g.OutputNumel();
      const WindowAxis& h = part.g.axis(0);  // the axis that is cut
      EXPECT_EQ((h.in + h.before + h.after - 5) / 2 + 1, h.out);
      EXPECT_GT(h.in, 0);
      EXPECT_GE(h.before, 0);
      EXPECT_GE(part.input, 0);
      EXPECT_LE(part.input + part.g.InputNumel(), g.InputNumel());
    }
    EXPECT_EQ(next, g.OutputNumel());
    next = 0;
    for (const ConvPart& part : SplitInputs(g, wanted)) {
      EXPECT_EQ(part.input, next);
      next += part.g.InputNumel();
      const WindowAxis& h = part.g.axis(0);  // the axis that is cut
      EXPECT_EQ((h.in + h.before + h.after - 5) / 2 + 1, h.out);
      EXPECT_GE(h.before, 0);
      EXPECT_LE(part.output + part.g.OutputNumel(), g.OutputNumel());
    }
    EXPECT_EQ(next, g.InputNumel());
  };
  for (int axes : {2, 3}) {
    for (int64_t batch : {1, 2, 5}) {
      for (int64_t before : {0, 3}) {
        g.axes = axes;
        g.batch = batch;
        g.h = {.in = 4, .kernel = 1, .out = 4};
        WindowAxis& cut = g.axis(0);
        cut = {.in = 11, .kernel = 3, .out = 0, .stride = 2, .dilation = 2, .before = before};
        cut.after = 1;
        cut.out = (cut.in + cut.before + cut.after - 5) / 2 + 1;
        for (int64_t wanted : {1, 2, 3, 4, 100}) covers(wanted);
      }
    }
  }
}

// Slices of one volume, and whole volumes.
TEST(KernelThreads, ConvolutionsOfVolumes) {
  for (int threads : {2, 5}) {
    const Threads set(threads);
    for (const std::string format : {"NDHWC", "NCDHW"}) {
      for (int64_t batch : {1, 3}) {
        SCOPED_TRACE(testing::Message() << threads << " threads, " << format << ", " << batch);
        const auto conv = [&](int64_t channels, int64_t depth, int64_t side, const Shape& filter,
                              int32_t stride, int32_t padding, int32_t groups = 1) {
          OpTest test("conv3d");
          test.Attr("data_format", format).Attr("groups", groups);
          test.Attr("strides", std::vector<int32_t>{stride, 1, stride});
          test.Attr("paddings", std::vector<int32_t>{padding, 1, 0});
          test.RandomInput("Input", format == "NDHWC" ? Shape{batch, depth, side, side, channels}
                                                      : Shape{batch, channels, depth, side, side});
          test.RandomInput("Filter", filter).RandomInput("Bias", {filter[0]});
          test.CheckFast();
        };
        conv(8, 9, 8, {16, 8, 3, 3, 3}, 1, 1);
        conv(8, 10, 9, {16, 8, 3, 3, 2}, 2, 1);
        conv(16, 6, 8, {16, 4, 1, 3, 3}, 1, 0, 4);
        conv(16, 3, 10, {8, 16, 3, 3, 3}, 1, 3);  // a part has fewer slices than the padding
        conv(3, 6, 10, {16, 3, 3, 3, 3}, 1, 1);   // few channels
      }
    }
  }
}

// While the pool's thread is busy elsewhere, the caller runs all parts: the split and
// the bits stay.
TEST(KernelThreads, BitsDoNotDependOnWhoRunsAPart) {
  const Threads set(2);
  const GemmSpec gemm{.m = 70, .n = 300, .k = 257};
  auto compute = [&] {
    OpTest conv = Conv("NHWC", {3, 14, 14, 32}, {40, 32, 3, 3}, {1, 1}, {1, 1}, {1, 1});
    return std::make_pair(Multiply(gemm, KernelMode::kAuto), conv.Output("Output"));
  };
  const auto together = compute();
  std::atomic<int> waiting{0};
  std::atomic<bool> over{false};
  std::thread other([&] {
    ParallelFor(2, 1, [&](int64_t, int64_t) {
      ++waiting;
      while (!over) std::this_thread::yield();
    });
  });
  // On a busy machine the pool may be using no second thread just now; the bits are the same.
  const auto begin = std::chrono::steady_clock::now();
  while (waiting == 0 ||
         (waiting < 2 && std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(500)))
    std::this_thread::yield();
  const auto alone = compute();
  over = true;
  other.join();
  EXPECT_EQ(together.first, alone.first);
  EXPECT_TRUE(BitEqual(together.second, alone.second));
}

}  // namespace coracle::threads_test
