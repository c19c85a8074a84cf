#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/layers/builder.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

#include <cmath>

namespace coracle::initializer_test {

constexpr int64_t kRows = 200, kColumns = 300;

struct Moments {
  double mean = 0, std = 0, min = 0, max = 0;
};

// Runs the startup program of one parameter.
Tensor Start(const Setting& initializer, const Shape& shape = {kRows, kColumns},
             DType dtype = DType::kFloat32) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  net.Parameter("p", shape, dtype, {.initializer = initializer});
  VarValues env;
  Interpret(startup.Root(), DefaultOps(), env, {.seed = 3});
  return std::get<Tensor>(env.at("p_0"));
}

Moments MomentsOf(const Tensor& tensor) {
  auto values = tensor.span<float>();
  Moments m{0, 0, values[0], values[0]};
  for (float v : values) {
    m.mean += v;
    m.min = std::min<double>(m.min, v);
    m.max = std::max<double>(m.max, v);
  }
  m.mean /= static_cast<double>(values.size());
  for (float v : values) m.std += (v - m.mean) * (v - m.mean);
  m.std = std::sqrt(m.std / static_cast<double>(values.size()));
  return m;
}

// 60,000 draws: a mean is off by std / 245, a std by 1 in 350 or less.
void ExpectUniform(const Setting& initializer, double low, double high) {
  Moments m = MomentsOf(Start(initializer));
  double width = high - low;
  EXPECT_GE(m.min, low - 1e-6);
  EXPECT_LE(m.max, high + 1e-6);
  EXPECT_LT(m.min, low + width * 0.001);
  EXPECT_GT(m.max, high - width * 0.001);
  EXPECT_NEAR(m.mean, (low + high) / 2, width * 0.01);
  EXPECT_NEAR(m.std, width / std::sqrt(12.0), width * 0.005);
}

void ExpectNormal(const Setting& initializer, double mean, double std) {
  Moments m = MomentsOf(Start(initializer));
  EXPECT_NEAR(m.mean, mean, std * 0.03);
  EXPECT_NEAR(m.std, std, std * 0.02);
  EXPECT_GT(m.max, mean + 3 * std);
}

std::string ErrorOf(const Setting& initializer, const Shape& shape, DType dtype = DType::kFloat32) {
  return coracle::ErrorOf([&] { InitializerOp(initializer, "p", shape, dtype); });
}

TEST(Initializer, Constant) {
  Tensor t = Start(ConstantInitializer(1.5), {2, 2});
  for (float v : t.span<float>()) EXPECT_EQ(v, 1.5f);
  // A double that no float holds arrives whole.
  EXPECT_EQ(Start(ConstantInitializer(0.1), {1}, DType::kFloat64).Item<double>(), 0.1);
}

TEST(Initializer, Uniform) { ExpectUniform(UniformInitializer(-2, 3), -2, 3); }
TEST(Initializer, Normal) { ExpectNormal(NormalInitializer(1, 0.5), 1, 0.5); }

// A share of the elements is drawn, the same in each run; the others are 0.
TEST(Initializer, NormalOfAShare) {
  const auto sparse = [](double share) {
    return Setting{"normal", {{"mean", 2.0}, {"std", 0.5}, {"share", share}, {"seed", 0}}};
  };
  const Tensor some = Start(sparse(0.25)), all = Start(sparse(1));
  double drawn = 0;
  for (int64_t i = 0; i < some.numel(); ++i) {
    const float v = some.data<float>()[i];
    EXPECT_TRUE(v == 0 || v == all.data<float>()[i]) << i;
    drawn += v != 0;
  }
  EXPECT_NEAR(drawn / static_cast<double>(kRows * kColumns), 0.25, 0.008);
  EXPECT_EQ(MomentsOf(Start(sparse(0))).max, 0);
  EXPECT_EQ(Start(sparse(0.25), {100, 100}, DType::kFloat64).numel(), 10000);
  for (const double share : {-0.1, 1.5}) EXPECT_NE(ErrorOf(sparse(share), {2}), "no error");
}

TEST(Initializer, TruncatedNormal) {
  Moments m = MomentsOf(Start(TruncatedNormalInitializer(1, 0.5)));
  EXPECT_GE(m.min, 0);
  EXPECT_LE(m.max, 2);
  EXPECT_GT(m.max, 1.95);
  // Std of a standard normal within +-2: sqrt(1 - 4 phi(2) / (2 Phi(2) - 1)) = 0.87962.
  EXPECT_NEAR(m.std, 0.5 * 0.87962, 0.01);
}

TEST(Initializer, Xavier) {
  double limit = std::sqrt(6.0 / (kRows + kColumns));
  ExpectUniform(XavierInitializer(), -limit, limit);
  ExpectNormal(XavierInitializer({.uniform = false}), 0, std::sqrt(2.0 / (kRows + kColumns)));
  limit = std::sqrt(6.0 / (10 + 20));
  ExpectUniform(XavierInitializer({.fan_in = 10, .fan_out = 20}), -limit, limit);
}

TEST(Initializer, Msra) {
  double limit = std::sqrt(6.0 / kRows);
  ExpectUniform(MsraInitializer(), -limit, limit);
  ExpectNormal(MsraInitializer({.uniform = false}), 0, std::sqrt(2.0 / kRows));
  limit = std::sqrt(6.0 / 50);
  ExpectUniform(MsraInitializer({.fan_in = 50}), -limit, limit);
}

TEST(Initializer, FansByRank) {
  auto expect = [](const Shape& shape, double in, double out) {
    FanCounts fans = FansOf(shape);
    EXPECT_EQ(fans.in, in) << shape.ToString();
    EXPECT_EQ(fans.out, out) << shape.ToString();
  };
  expect({}, 1, 1);
  expect({7}, 7, 7);
  expect({3, 5}, 3, 5);
  expect({20, 4, 5, 3}, 4 * 15, 20 * 15);  // [filters, channels / groups, kh, kw]
}

TEST(Initializer, Array) {
  Tensor values = Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_TRUE(BitEqual(Start(ArrayInitializer(values), {2, 3}), values));
  EXPECT_TRUE(BitEqual(Start(ArrayInitializer(values.Reshaped({6})), {2, 3}), values));
  EXPECT_EQ(ErrorOf(ArrayInitializer(values), {3, 2}),
            "initializer array: the parameter has shape [3, 2], the array [2, 3]");
  Tensor ids = Tensor::Of<int64_t>({2}, {int64_t{1} << 40, -1});
  EXPECT_TRUE(BitEqual(Start(ArrayInitializer(ids), {2}, DType::kInt64), ids));
}

TEST(Initializer, EveryParameterDrawsItsOwnNumbers) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  net.Parameter("p", {16}, DType::kFloat32);
  net.Parameter("p", {16}, DType::kFloat32);
  VarValues env;
  Interpret(startup.Root(), DefaultOps(), env);
  EXPECT_FALSE(BitEqual(std::get<Tensor>(env.at("p_0")), std::get<Tensor>(env.at("p_1"))));
}

TEST(Initializer, ArrayIsNotKeptTwice) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  net.Parameter("p", {1}, DType::kFloat32,
                {.initializer = ArrayInitializer(Tensor::Of<float>({1}, {2}))});
  const auto& setting = main.Root().FindVar("p_0")->training().initializer;
  EXPECT_EQ(setting->kind, "array");
  EXPECT_FALSE(setting->Find("values"));
}

TEST(Initializer, Errors) {
  EXPECT_EQ(ErrorOf({"xavierr", {}}, {1}), "unknown initializer 'xavierr'; did you mean xavier?");
  EXPECT_EQ(ErrorOf(ConstantInitializer(std::nan("")), {1}),
            "initializer constant: value must be finite, got nan");
  EXPECT_EQ(ErrorOf(NormalInitializer(0, 1e300), {1}),
            "initializer normal: std must be finite, got 1e+300");
  EXPECT_EQ(ErrorOf(MsraInitializer({.fan_in = -1}), {1}),
            "initializer msra: fan_in must be finite and not negative, got -1");
  EXPECT_EQ(ErrorOf(ArrayInitializer(Tensor::Of<float>({1}, {2})), {1}, DType::kFloat16),
            "initializer array: a parameter must be float32, int32, int64 or bool, got float16");
}

TEST(Initializer, HugeShapesAreRefused) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  EXPECT_THROW(net.Parameter("p", {int64_t{1} << 40, int64_t{1} << 40}, DType::kFloat32), Error);
  EXPECT_THROW(net.Parameter("p", {-1}, DType::kFloat32), Error);
}
}  // namespace coracle::initializer_test
