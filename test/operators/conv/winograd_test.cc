// Winograd's convolutions against sums in double.
#include <coracle/operators/conv/winograd_conv.h>
#include <coracle/operators/conv/winograd_filter.h>
#include <coracle/test/op_test.h>
#include <coracle/test/threads.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#ifdef __SSE2__
#include <xmmintrin.h>
#endif

namespace coracle::winograd_test {

using winograd::Convolution;
using winograd::Epilogue;
using winograd::FilterGradient;
using winograd::Tiling;

// A convolution of 3 x 3 kernels on [N, H, W, C] with zeros around.
struct Case {
  int64_t batch, height, width, channels, filters;
  int64_t top = 1, bottom = 1, left = 1, right = 1;

  int64_t OutHeight() const { return height + top + bottom - 2; }
  int64_t OutWidth() const { return width + left + right - 2; }
  std::string Name() const {
    std::string name;
    for (int64_t n : {batch, height, width, channels, filters, top, bottom, left, right})
      name += std::to_string(n) + " ";
    return name;
  }
  // Calls f(input, output, kernel, tap) for every pair of pixels; the last two of channels c = m
  // = 0.
  template <class F>
  void ForPairs(F&& f) const {
    for (int64_t n = 0; n < batch; ++n) {
      for (int64_t y = 0; y < OutHeight(); ++y) {
        for (int64_t x = 0; x < OutWidth(); ++x) {
          for (int64_t tap = 0; tap < 9; ++tap) {
            const int64_t row = y - top + tap / 3, column = x - left + tap % 3;
            if (row < 0 || row >= height || column < 0 || column >= width) continue;
            f((n * height + row) * width + column, (n * OutHeight() + y) * OutWidth() + x, tap);
          }
        }
      }
    }
  }
};

// Operands and what they give in double.
struct Sums {
  std::vector<float> input, filter, dout;
  std::vector<double> output, dinput, dfilter;

  explicit Sums(const Case& c) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const auto draw = [&](std::vector<float>& to, int64_t n) {
      to.resize(static_cast<size_t>(n));
      for (float& v : to) v = normal(random);
    };
    draw(input, c.batch * c.height * c.width * c.channels);
    draw(filter, c.filters * c.channels * 9);
    draw(dout, c.batch * c.OutHeight() * c.OutWidth() * c.filters);
    output.resize(dout.size());
    dinput.resize(input.size());
    dfilter.resize(filter.size());
    // Filters as [tap][channel][filter], for speed.
    const auto index = [&](int64_t tap, int64_t k, int64_t m) {
      return static_cast<size_t>((m * c.channels + k) * 9 + tap);
    };
    std::vector<double> w(filter.size()), dw(filter.size());
    const auto at = [&](int64_t tap, int64_t k) {
      return static_cast<size_t>((tap * c.channels + k) * c.filters);
    };
    const auto filters = static_cast<size_t>(c.filters);
    for (int64_t tap = 0; tap < 9; ++tap) {
      for (int64_t k = 0; k < c.channels; ++k) {
        for (size_t m = 0; m < filters; ++m)
          w[at(tap, k) + m] = filter[index(tap, k, static_cast<int64_t>(m))];
      }
    }
    c.ForPairs([&](int64_t in, int64_t out, int64_t tap) {
      const auto o = static_cast<size_t>(out * c.filters);
      for (int64_t k = 0; k < c.channels; ++k) {
        const auto i = static_cast<size_t>(in * c.channels + k);
        const double x = input[i];
        const double* row = &w[at(tap, k)];
        double* drow = &dw[at(tap, k)];
        double sum = 0;
        for (size_t m = 0; m < filters; ++m) {
          output[o + m] += x * row[m];
          sum += static_cast<double>(dout[o + m]) * row[m];
          drow[m] += static_cast<double>(dout[o + m]) * x;
        }
        dinput[i] += sum;
      }
    });
    for (int64_t tap = 0; tap < 9; ++tap) {
      for (int64_t k = 0; k < c.channels; ++k) {
        for (size_t m = 0; m < filters; ++m)
          dfilter[index(tap, k, static_cast<int64_t>(m))] = dw[at(tap, k) + m];
      }
    }
  }
};

// The largest difference relative to the largest element.
double ErrorOf(const std::vector<float>& actual, const std::vector<double>& expected) {
  double largest = 0, difference = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    const double error = std::abs(static_cast<double>(actual[i]) - expected[i]);
    if (!(error <= difference)) difference = error;  // nan too
  }
  return difference / largest;
}

Tiling TilesOf(int m, int64_t height, int64_t width, int64_t channels, int64_t out_height,
               int64_t out_width, int64_t top, int64_t left) {
  return {height, width, channels, (out_height + m - 1) / m, (out_width + m - 1) / m, m, top, left};
}

Convolution Forward(const Case& c, int m) {
  Convolution work;
  work.m = m;
  work.from = TilesOf(m, c.height, c.width, c.channels, c.OutHeight(), c.OutWidth(), c.top, c.left);
  work.to = TilesOf(m, c.OutHeight(), c.OutWidth(), c.filters, c.OutHeight(), c.OutWidth(), 0, 0);
  work.batch = c.batch;
  work.filter = {c.channels, c.filters, 9, c.channels * 9, false};
  return work;
}

Convolution Data(const Case& c, int m) {
  Convolution work;
  work.m = m;
  work.from =
      TilesOf(m, c.OutHeight(), c.OutWidth(), c.filters, c.height, c.width, 2 - c.top, 2 - c.left);
  work.to = TilesOf(m, c.height, c.width, c.channels, c.height, c.width, 0, 0);
  work.batch = c.batch;
  work.filter = {c.filters, c.channels, c.channels * 9, 9, true};
  return work;
}

// The output that all parts write; the memory around it stays nan.
std::vector<float> OutputsOf(const Convolution& work, const std::vector<float>& input,
                             const std::vector<float>& filter, bool packs, size_t outputs,
                             const Epilogue& epilogue = {}) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> packed, out(outputs, nan);
  if (!packs) {
    packed.assign(static_cast<size_t>(work.FilterFloats()), nan);
    TransformFilter(work.m, work.filter, filter.data(), 0, winograd::Panels(work.filter.columns),
                    packed.data());
  }
  for (int64_t part = 0; part < work.Parts(); ++part) {
    std::vector<float> scratch(static_cast<size_t>(work.ScratchFloats(packs)), nan);
    work.RunPart(part, input.data(), filter.data(), packs ? nullptr : packed.data(), epilogue,
                 out.data(), scratch.data());
  }
  return out;
}

std::vector<float> GradientOf(const FilterGradient& work, const Sums& sums) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> total, out(sums.filter.size(), nan);
  if (!work.FinishesPanels())
    total.assign(static_cast<size_t>(work.tile_parts * work.SumFloats()), nan);
  float* all = total.empty() ? nullptr : total.data();
  for (int64_t part = 0; part < work.Parts(); ++part) {
    std::vector<float> scratch(static_cast<size_t>(work.ScratchFloats()), nan);
    work.RunPart(part, sums.input.data(), sums.dout.data(), all, out.data(), scratch.data());
  }
  for (int64_t p = 0; all && p < winograd::Panels(work.filter.columns); ++p)
    work.FinishPanel(p, all, out.data());
  return out;
}

FilterGradient Gradient(const Case& c, int m) {
  const Convolution forward = Forward(c, m);
  FilterGradient work;
  work.m = m;
  work.from = forward.from;
  work.to = forward.to;
  work.batch = c.batch;
  work.filter = forward.filter;
  return work;
}

// Channels of the layers of residual nets and detectors, on images of their sizes.
const Case kClasses[] = {{1, 56, 56, 64, 64}, {1, 28, 28, 128, 128}, {1, 14, 14, 256, 256},
                         {1, 7, 7, 512, 512}, {2, 32, 32, 64, 64},   {4, 32, 32, 16, 16},
                         {2, 16, 16, 32, 32}, {2, 8, 8, 64, 64},     {1, 40, 40, 96, 24},
                         {8, 4, 4, 512, 512}};

// The errors that the documentation of conv2d states.
TEST(Winograd, Error) {
  for (const Case& c : kClasses) {
    SCOPED_TRACE(c.Name());
    const Sums sums(c);
    for (const int m : {2, 4}) {
      SCOPED_TRACE(m);
      const double bound = m == 2 ? 5e-6 : 1e-5;
      Convolution forward = Forward(c, m), data = Data(c, m);
      FilterGradient filter = Gradient(c, m);
      forward.block = data.block = filter.block = 48;
      const double errors[] = {
          ErrorOf(OutputsOf(forward, sums.input, sums.filter, false, sums.output.size()),
                  sums.output),
          ErrorOf(OutputsOf(data, sums.dout, sums.filter, false, sums.dinput.size()), sums.dinput),
          ErrorOf(GradientOf(filter, sums), sums.dfilter)};
      for (const double error : errors) EXPECT_LE(error, bound);
    }
  }
}

// Sizes that tiles, vectors and parts do not divide, and any zeros around.
TEST(Winograd, AnyGeometryAndParts) {
  std::mt19937 random(3);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int i = 0; i < 60; ++i) {
    const Case c{pick(1, 3), pick(3, 13), pick(3, 13), pick(1, 50), pick(1, 70),
                 pick(0, 4), pick(0, 4),  pick(0, 4),  pick(0, 4)};
    SCOPED_TRACE(c.Name());
    const Sums sums(c);
    const int m = pick(0, 1) ? 2 : 4;
    Convolution forward = Forward(c, m), data = Data(c, m);
    FilterGradient filter = Gradient(c, m);
    for (Convolution* work : {&forward, &data}) {
      work->tile_parts = std::min(pick(1, 3), work->Tiles());
      work->panel_parts = std::min(pick(1, 3), winograd::Panels(work->filter.columns));
      work->block = pick(1, 60);
    }
    filter.tile_parts = std::min(pick(1, 3), filter.Tiles());
    filter.panel_parts = std::min(pick(1, 3), winograd::Panels(filter.filter.columns));
    filter.block = pick(1, 60);
    const bool packs = pick(0, 1) != 0;
    EXPECT_LE(ErrorOf(OutputsOf(forward, sums.input, sums.filter, packs, sums.output.size()),
                      sums.output),
              1e-5);
    EXPECT_LE(
        ErrorOf(OutputsOf(data, sums.dout, sums.filter, packs, sums.dinput.size()), sums.dinput),
        1e-5);
    EXPECT_LE(ErrorOf(GradientOf(filter, sums), sums.dfilter), 1e-5);
  }
}

// act(sum + bias + residual), in registers or by a function.
TEST(Winograd, Epilogue) {
  for (const int64_t channels : {16, 19, 70}) {
    const Case c{2, 7, 9, 20, channels};
    Sums sums(c);
    std::vector<float> bias(static_cast<size_t>(channels));
    for (size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(i) - 8;
    for (size_t i = 0; i < sums.output.size(); ++i)
      sums.output[i] += bias[i % bias.size()] + static_cast<double>(sums.dout[i]);
    std::vector<double> positive = sums.output, halved = sums.output;
    for (double& v : positive) v = std::max(v, 0.0);
    for (double& v : halved) v *= 0.5;
    for (const int m : {2, 4}) {
      const Convolution work = Forward(c, m);
      const auto run = [&](const Epilogue& epilogue) {
        return OutputsOf(work, sums.input, sums.filter, true, sums.output.size(), epilogue);
      };
      Epilogue epilogue;
      epilogue.bias = bias.data();
      epilogue.residual = sums.dout.data();
      EXPECT_LE(ErrorOf(run(epilogue), sums.output), 1e-5);
      epilogue.relu = true;
      EXPECT_LE(ErrorOf(run(epilogue), positive), 1e-5);
      epilogue.relu = false;
      const float half = 0.5f;
      epilogue.context = &half;
      epilogue.activation = [](const void* factor, float* x, int64_t n) {
        for (int64_t i = 0; i < n; ++i) x[i] *= *static_cast<const float*>(factor);
      };
      EXPECT_LE(ErrorOf(run(epilogue), halved), 1e-5);
    }
  }
}

// A residual may be the memory of the outputs.
TEST(Winograd, ResidualInPlace) {
  const Case c{1, 6, 6, 16, 32};
  const Sums sums(c);
  Convolution work = Forward(c, 4);
  Epilogue epilogue;
  epilogue.residual = sums.dout.data();
  const std::vector<float> apart =
      OutputsOf(work, sums.input, sums.filter, true, sums.output.size(), epilogue);
  std::vector<float> same = sums.dout, scratch(static_cast<size_t>(work.ScratchFloats(true)));
  epilogue.residual = same.data();
  work.RunPart(0, sums.input.data(), sums.filter.data(), nullptr, epilogue, same.data(),
               scratch.data());
  EXPECT_EQ(apart, same);
}

// --- filters that are restored from their transforms ---

// A transformed filter and what restores it.
struct Restorable {
  std::vector<float> transformed;
  winograd::FilterRestorer restorer;

  Restorable(const Convolution& work, const std::vector<float>& filter)
      : transformed(static_cast<size_t>(work.FilterFloats()),
                    std::numeric_limits<float>::quiet_NaN()),
        restorer(work.m, work.filter, filter.data(), transformed.data()) {}
  std::vector<float> Restored(size_t numel) const {
    std::vector<float> filter(numel, -7);
    restorer.Restore(transformed.data(), filter.data());
    return filter;
  }
};

const Case kFilters[] = {{1, 6, 6, 1, 1},   {1, 6, 6, 3, 5},   {1, 6, 6, 16, 32},
                         {1, 6, 6, 20, 47}, {1, 6, 6, 33, 70}, {1, 6, 6, 64, 96}};

TEST(Winograd, RestoresFilters) {
  using Limits = std::numeric_limits<float>;
  const float specials[] = {0.0f,
                            -0.0f,
                            Limits::infinity(),
                            -Limits::infinity(),
                            Limits::quiet_NaN(),
                            -Limits::quiet_NaN(),
                            Limits::denorm_min(),
                            -Limits::denorm_min(),
                            1e-40f,
                            Limits::min(),
                            Limits::max(),
                            -Limits::max(),
                            Limits::lowest() / 3,
                            0x1p-80f,
                            -0x1p-81f,
                            std::bit_cast<float>(0x7fa12345u),   // a signalling nan
                            std::bit_cast<float>(0xffc54321u)};  // a nan with a payload
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  const auto pick = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
  const auto special = [&] { return specials[pick(static_cast<int>(std::size(specials)))]; };
  const std::pair<const char*, std::function<float()>> draws[] = {
      {"normal", [&] { return normal(random); }},
      {"denormal", [&] { return normal(random) * 1e-39f; }},
      {"sizes a little different", [&] { return std::ldexp(normal(random), pick(20)); }},
      {"sizes very different", [&] { return std::ldexp(normal(random), pick(270) - 140); }},
      {"any bits", [&] { return std::bit_cast<float>(static_cast<uint32_t>(random())); }},
      {"zeros", [] { return 0.0f; }},
      {"negative zeros", [] { return -0.0f; }},
      {"many zeros", [&] { return pick(3) == 0 ? normal(random) : 0.0f; }},
      {"special", special},
      {"some special", [&] { return pick(9) == 0 ? special() : normal(random); }}};
  for (const auto& [name, draw] : draws) {
    SCOPED_TRACE(name);
    for (const Case& c : kFilters) {
      SCOPED_TRACE(c.Name());
      std::vector<float> filter(static_cast<size_t>(c.channels * c.filters * 9));
      for (float& w : filter) w = draw();
      for (const int m : {2, 4}) {
        const std::vector<float> got = Restorable(Forward(c, m), filter).Restored(filter.size());
        EXPECT_EQ(std::memcmp(got.data(), filter.data(), filter.size() * sizeof(float)), 0) << m;
      }
    }
  }
}

#ifdef __SSE2__
// Who packs, or who restores, may have set its thread to flush denormals to zero.
TEST(Winograd, RestoresFiltersWhateverIsDoneWithDenormals) {
  constexpr unsigned kFlush = 0x8040;
  const Threads one(1);
  std::mt19937 random(12);
  std::normal_distribution<float> normal;
  for (const int lowest : {-150, -130, -100}) {
    const Case c{1, 6, 6, 40, 33};
    std::vector<float> filter(static_cast<size_t>(c.channels * c.filters * 9));
    for (float& w : filter)
      w = std::ldexp(normal(random), lowest + static_cast<int>(random() % 64));
    for (const int m : {2, 4}) {
      const unsigned before = _mm_getcsr();
      _mm_setcsr(before | kFlush);
      const Restorable restorable(Forward(c, m), filter);
      _mm_setcsr(before);
      const std::vector<float> got = restorable.Restored(filter.size());
      EXPECT_EQ(std::memcmp(got.data(), filter.data(), filter.size() * sizeof(float)), 0) << m;
    }
  }
  // A sum of these is halfway between two numbers, up to a denormal.
  const float kernel[] = {0x1p-79f,  0x1p-102f,  0x1p-126f, -0x1p-79f, -0x1p-79f,
                          0x1p-102f, -0x1p-128f, 0x1p-79f,  -0x1p-124f};
  const Case single{1, 6, 6, 1, 1};
  const std::vector<float> filter(std::begin(kernel), std::end(kernel));
  for (const int m : {2, 4}) {
    const unsigned before = _mm_getcsr();
    const Restorable restorable(Forward(single, m), filter);
    _mm_setcsr(before | kFlush);
    const std::vector<float> got = restorable.Restored(filter.size());
    _mm_setcsr(before);
    EXPECT_EQ(std::memcmp(got.data(), filter.data(), filter.size() * sizeof(float)), 0) << m;
  }
}
#endif

// It transforms as TransformFilter does, with any number of threads.
TEST(Winograd, TransformsWhatItRestores) {
  for (const Case& c : kFilters) {
    const Sums sums(c);
    for (const int m : {2, 4}) {
      const Convolution work = Forward(c, m);
      std::vector<float> expected(static_cast<size_t>(work.FilterFloats()),
                                  std::numeric_limits<float>::quiet_NaN());
      winograd::TransformFilter(m, work.filter, sums.filter.data(), 0, winograd::Panels(c.filters),
                                expected.data());
      for (const int threads : {1, 2}) {
        const Threads set(threads);
        const std::vector<float> got = Restorable(work, sums.filter).transformed;
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_EQ(std::isnan(got[i]), std::isnan(expected[i])) << i;  // neither writes padding
          if (!std::isnan(expected[i])) {
            ASSERT_NEAR(got[i], expected[i], 1e-5);
          }
        }
      }
    }
  }
}

// A byte for each element, and a list of few.
TEST(Winograd, MemoryToRestoreFilters) {
  for (const Case& c : {Case{1, 6, 6, 64, 64}, Case{1, 6, 6, 128, 96}}) {
    const Sums sums(c);
    const double plain = static_cast<double>(sums.filter.size() * sizeof(float));
    for (const int m : {2, 4}) {
      const Restorable restorable(Forward(c, m), sums.filter);
      EXPECT_LT(static_cast<double>(restorable.restorer.nbytes()), 0.3 * plain) << m;
    }
  }
}

// The op, where these kernels are chosen: against the reference kernels, for any number of threads;
// twice the same bits.
TEST(Winograd, OfTheOp) {
  struct Shapes {
    int64_t batch, size, channels, filters;
  };
  for (const Shapes s : {Shapes{1, 28, 64, 64}, Shapes{2, 19, 64, 80}, Shapes{2, 24, 40, 47},
                         Shapes{8, 8, 128, 64}}) {
    for (const int threads : {1, 2}) {
      const Threads set(threads);
      OpTest test("conv2d");
      test.Attr("paddings", std::vector<int32_t>{1, 1}).Attr("data_format", std::string("NHWC"));
      test.RandomInput("Input", {s.batch, s.size, s.size, s.channels});
      test.RandomInput("Filter", {s.filters, s.channels, 3, 3}).RandomInput("Bias", {s.filters});
      if (threads == 2) test.RandomInput("ResidualData", {s.batch, s.size, s.size, s.filters});
      test.CheckFast(1e-4);
      const Tensor once = test.Output("Output"), twice = test.Output("Output");
      EXPECT_EQ(std::memcmp(once.raw(), twice.raw(), once.nbytes()), 0);
    }
  }
}

TEST(Winograd, FusedActivation) {
  for (const char* activation : {"", "relu", "leaky_relu", "hard_swish", "sigmoid"}) {
    SCOPED_TRACE(activation);
    OpTest test("conv2d");
    test.Attr("paddings", std::vector<int32_t>{1, 1}).Attr("data_format", std::string("NHWC"));
    test.Attr("fuse_activation", std::string(activation)).Attr("fuse_alpha", 0.1f);
    test.RandomInput("Input", {1, 28, 28, 64}).RandomInput("Filter", {80, 64, 3, 3});
    test.RandomInput("Bias", {80}).RandomInput("ResidualData", {1, 28, 28, 80});
    const Tensor fast = test.Output("Output");
    const Tensor reference = test.Output("Output", KernelMode::kReference);
    for (int64_t i = 0; i < fast.numel(); ++i)
      ASSERT_NEAR(fast.data<float>()[i], reference.data<float>()[i], 1e-4);
  }
}

}  // namespace coracle::winograd_test
