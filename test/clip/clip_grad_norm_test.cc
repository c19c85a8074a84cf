// Results of torch.nn.utils.clip_grad_norm_ and clip_grad_value_ on the gradients [3, 4], [12] and
// none (executed with torch 1.13), compared with the clips here. Total and factor are equal except
// for torch's 1e-6 in the divisor, which scales a gradient of exactly the allowed length. Values
// that torch does not validate are refused; non-finite norms follow a policy.

#include <coracle/clip/clip.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/optimizer/optimizer.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace coracle::clip_grad_norm_test {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

// Plain descent from zeros: the parameters become minus rate times the clipped gradients.
class Clipped {
 public:
  Clipped(DType dtype, const Setting& clip, const std::vector<double>& a,
          const std::vector<double>& b, double rate = 1)
      : dtype_(dtype) {
    Declare("a", a.size());
    Declare("b", b.size());
    Declare("c", 2);
    Sgd sgd({.learning_rate = rate});
    sgd.SetGradientClip(clip);
    sgd.ApplyGradients(main_.Root(), startup_, {{"a", "a@GRAD"}, {"b", "b@GRAD"}, {"c", ""}});
    VerifyOrThrow(main_, DefaultOps());
    Interpret(startup_.Root(), DefaultOps(), env_);
    Put("a", std::vector<double>(a.size()));
    Put("b", std::vector<double>(b.size()));
    Put("a@GRAD", a);
    Put("b@GRAD", b);
  }
  void Run() { Interpret(main_.Root(), DefaultOps(), env_); }
  // [a, b] after Run.
  std::vector<double> Gradients() const {
    std::vector<double> all;
    for (const char* name : {"a", "b"})
      for (double value : Values(name)) all.push_back(0 - value);
    return all;
  }
  std::vector<double> Values(const std::string& name) const {
    const Tensor wide = std::get<Tensor>(env_.at(name)).Cast(DType::kFloat64);
    return {wide.span<double>().begin(), wide.span<double>().end()};
  }
  double Total() const { return Values("gradient_clip.default_group.norm").at(0); }
  DType DTypeOf(const std::string& name) const { return std::get<Tensor>(env_.at(name)).dtype(); }

 private:
  void Declare(const std::string& param, size_t n) {
    for (const std::string& name : {param, param + "@GRAD"}) {
      VarDesc& var = main_.Root().Var(name);
      var.SetDType(dtype_);
      var.SetShape({static_cast<int64_t>(n)});
      var.SetPersistable(true);
    }
    main_.Root().FindVar(param)->SetIsParameter(true);
  }
  void Put(const std::string& name, const std::vector<double>& values) {
    env_[name] = Tensor::Of<double>({static_cast<int64_t>(values.size())}, values).Cast(dtype_);
  }
  DType dtype_;
  ProgramDesc main_, startup_;
  VarValues env_;
};

Setting GlobalNorm(double max, double p, NonFinite policy = NonFinite::kPropagate) {
  return ClipGradByGlobalNorm(max, "default_group", {.norm_type = p, .non_finite = policy});
}

struct Row {
  double max, p, total;
  std::vector<double> torch;  // a, then b
};

// In float64 also the formula without the 1e-6. (torch's float32 power is 2e-7 off for p = 3.)
TEST(ClipGradNorm, Table) {
  const std::vector<Row> rows = {
      {5, 2, 13, {1.15384603, 1.53846145, 4.61538410}},
      {20, 2, 13, {3, 4, 12}},
      {6, kInf, 12, {1.49999988, 1.99999988, 5.99999952}},
      {6, 1, 19, {.947368264, 1.26315773, 3.78947306}},
      {6, 3, 12.207057, {1.47455668, 1.96607566, 5.89822674}},
  };
  for (const Row& row : rows) {
    for (DType dtype : {DType::kFloat64, DType::kFloat32}) {
      SCOPED_TRACE(testing::Message()
                   << "max " << row.max << ", p " << row.p << ", " << ToString(dtype));
      Clipped clip(dtype, GlobalNorm(row.max, row.p), {3, 4}, {12});
      clip.Run();
      EXPECT_NEAR(clip.Total(), row.total, 1e-6 * row.total);
      const std::vector<double> got = clip.Gradients(), g = {3, 4, 12};
      double total = 12;
      if (!std::isinf(row.p)) {
        total = 0;
        for (double x : g) total += std::pow(x, row.p);
        total = std::pow(total, 1 / row.p);
      }
      const double tolerance = dtype == DType::kFloat64 ? 1e-12 : 1e-6;
      EXPECT_NEAR(clip.Total(), total, tolerance * total);
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_NEAR(got[i], row.torch[i], 1e-6 * std::max(1.0, row.torch[i])) << i;
        const double expected = g[i] * std::min(1.0, row.max / total);
        EXPECT_NEAR(got[i], expected, tolerance * std::max(1.0, expected)) << i;
      }
    }
  }
}

// Every kind of clip on gradients of every size: factors, squares and norms that the dtype does not
// hold. `norm`: of the gradients, in long double.
TEST(ClipGradNorm, AllFiniteNumbers) {
  struct Sizes {
    DType dtype;
    std::vector<double> values;
  };
  const std::vector<Sizes> all = {
      {DType::kFloat32, {3e-42, 3e-23, 1e-19, 1e19, 1e30, 3e38}},
      {DType::kFloat64, {5e-320, 1e-200, 1e-160, 1e155, 1e200, 1.7e308}},
      {DType::kFloat16, {6e-6, 60000}},
      {DType::kBFloat16, {1e-38, 3e-23, 1e19, 3e38}}};
  for (const Sizes& sizes : all) {
    for (const double size : sizes.values) {
      for (const double p : {1.0, 2.0, 3.0, 40.0, kInf}) {
        SCOPED_TRACE(testing::Message() << ToString(sizes.dtype) << " " << size << " p " << p);
        const double limit = size < 1 ? size / 16 : 1;
        const double times = std::isinf(p) ? 1 : std::pow(5, 1 / p);
        const double own = std::isinf(p) ? 1 : std::pow(4, 1 / p);
        const double digits = sizes.dtype == DType::kFloat64   ? 1e-13
                              : sizes.dtype == DType::kFloat32 ? 1e-6
                              : sizes.dtype == DType::kFloat16 ? 2e-3
                                                               : 1e-2;
        const double least = sizes.dtype == DType::kFloat64    ? 5e-324
                             : sizes.dtype == DType::kFloat16  ? 6e-8
                             : sizes.dtype == DType::kBFloat16 ? 9.2e-41
                                                               : 1.5e-45;
        const auto check = [&](const Setting& setting, double expected) {
          Clipped clip(sizes.dtype, setting, {size, -size, size, -size}, {size});
          clip.Run();
          const std::vector<double> got = clip.Gradients();
          for (size_t i = 0; i < 4; ++i) {
            EXPECT_NEAR(std::abs(got[i]), expected, digits * expected + least) << setting.kind << i;
          }
        };
        check(GlobalNorm(limit, p), limit / times);
        check(ClipGradByNorm(limit, {.norm_type = p}), limit / own);
        if (IsHalf(sizes.dtype) || p != 2) continue;
        // Weights of 0: the limit is epsilon times the factor.
        check(AdaptiveGradientClip({.clip_factor = 0.5, .epsilon = 2 * limit}), limit / own);
      }
    }
  }
}

// Factors that no normal float64 is: limit and norm are 1e400 apart.
TEST(ClipGradNorm, FactorsBelowAllNumbers) {
  struct Case {
    double limit, size;
  };
  for (const Case& c : {Case{1e-200, 1e200},
                        {1e-270, 1.7e308},
                        {1e-10, 1.7e308},
                        {1, 1.7e308},
                        {1e280, 1.7e308},
                        {1.7e308, 1.7e308},
                        {1e-300, 1e270}}) {
    for (const double p : {2.0, 3.0, kInf}) {
      SCOPED_TRACE(testing::Message() << c.limit << " of " << c.size << ", p " << p);
      const std::vector<double> four = {c.size, -c.size, c.size / 2, 0};
      Clipped clip(DType::kFloat64, GlobalNorm(c.limit, p), four, {c.size});
      clip.Run();
      const double norm = std::isinf(p) ? 1 : std::pow(3 + std::pow(0.5, p), 1 / p);
      const double expected = c.limit / norm;
      EXPECT_NEAR(clip.Gradients()[0], expected, 1e-13 * expected);
      EXPECT_NEAR(clip.Gradients()[1], -expected, 1e-13 * expected);
      EXPECT_NEAR(clip.Gradients()[2], expected / 2, 1e-13 * expected);
      EXPECT_EQ(clip.Gradients()[3], 0);
    }
  }
  Clipped clip(DType::kFloat64, GlobalNorm(1e-300, 2), {1e290, 0}, {0});
  EXPECT_THROW(clip.Run(), Error);
}

// A clip makes numbers smaller than float16 has with all digits; the update gets them in float32.
TEST(ClipGradNorm, HalfGradientsKeepTheirDigits) {
  const auto near = [](const Setting& setting, const std::vector<double>& expected) {
    Clipped clip(DType::kFloat16, setting, {3, 4}, {12}, 1024);
    clip.Run();
    for (size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(clip.Gradients()[i], 1024 * expected[i], 0.5 * expected[i]) << setting.kind << i;
  };
  near(GlobalNorm(13e-7, 2), {3e-7, 4e-7, 12e-7});
  near(GlobalNorm(12e-7, kInf), {3e-7, 4e-7, 12e-7});
  near(ClipGradByNorm(5e-7), {3e-7, 4e-7, 5e-7});
  near(ClipGradByNorm(4e-7, {.norm_type = kInf}), {3e-7, 4e-7, 4e-7});
  near(ClipGradByValue(1e-7), {1e-7, 1e-7, 1e-7});
}

// Limits that no float is: a float64 gradient is clipped as exactly as it is stored.
TEST(ClipGradNorm, LimitsOfDoublesAreDoubles) {
  const auto near = [](const Setting& setting, const std::vector<double>& expected) {
    Clipped clip(DType::kFloat64, setting, {3, 4}, {12});
    clip.Run();
    for (size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(clip.Gradients()[i], expected[i], 1e-14) << setting.kind << i;
  };
  near(ClipGradByGlobalNorm(0.1), {0.3 / 13, 0.4 / 13, 1.2 / 13});
  near(ClipGradByNorm(0.1), {0.06, 0.08, 0.1});
  near(ClipGradByNorm(0.1, {.norm_type = 3}), {0.3 / std::cbrt(91), 0.4 / std::cbrt(91), 0.1});
  near(ClipGradByValue(0.1, -0.7), {0.1, 0.1, 0.1});
  near(AdaptiveGradientClip({0.3, 0.1}), {0.03 * 0.6, 0.03 * 0.8, 0.03});  // of weights that are 0
}

// torch: 2.99999976, 3.99999976, 11.999999, though the norm does not exceed the limit.
TEST(ClipGradNorm, EqualToTheLimitIsLeftToTheBit) {
  for (DType dtype : {DType::kFloat64, DType::kFloat32}) {
    Clipped clip(dtype, GlobalNorm(13, 2), {3, 4}, {12});
    clip.Run();
    EXPECT_EQ(clip.Gradients(), (std::vector<double>{3, 4, 12}));
    EXPECT_EQ(clip.Values("gradient_clip.default_group.clipped_steps"), std::vector<double>{0});
  }
}

// torch takes a limit of 0 (all zero) and -1 (signs flipped), p = 0 (1.13 counted the norms that
// are not zero) and p = -inf (3 in 1.13, the smallest element in later ones).
TEST(ClipGradNorm, WhatTorchDoesNotValidateIsRefused) {
  for (double max : {0.0, -1.0, kNan}) EXPECT_THROW(CheckGradientClip(GlobalNorm(max, 2)), Error);
  for (double p : {0.0, -kInf, kNan}) EXPECT_THROW(CheckGradientClip(GlobalNorm(1, p)), Error);
}

TEST(ClipGradNorm, NonFiniteNorms) {
  for (DType dtype : {DType::kFloat64, DType::kFloat32}) {
    for (double bad : {kInf, -kInf, kNan}) {
      SCOPED_TRACE(testing::Message() << bad << " " << ToString(dtype));
      const auto with = [&](NonFinite policy) {
        return Clipped(dtype, GlobalNorm(5, 2, policy), {3, bad}, {12});
      };
      Clipped propagate = with(NonFinite::kPropagate);
      propagate.Run();
      const std::vector<double> got = propagate.Gradients();
      EXPECT_TRUE(std::isnan(got[1]));
      if (std::isnan(bad)) {
        EXPECT_TRUE(std::isnan(propagate.Total()));
        EXPECT_TRUE(std::isnan(got[0]) && std::isnan(got[2]));
      } else {
        EXPECT_EQ(propagate.Total(), kInf);
        EXPECT_EQ(got[0], 0);
        EXPECT_EQ(got[2], 0);
      }
      Clipped error = with(NonFinite::kError);  // torch's error_if_nonfinite
      EXPECT_THROW(error.Run(), Error);
      EXPECT_EQ(error.Gradients(), (std::vector<double>{0, 0, 0}));  // no update
      EXPECT_EQ(error.Values("b@GRAD"), std::vector<double>{12});
      Clipped zero = with(NonFinite::kZero), skip = with(NonFinite::kSkip);
      zero.Run();
      EXPECT_EQ(zero.Gradients(), (std::vector<double>{0, 0, 0}));
      skip.Run();
      EXPECT_EQ(skip.Gradients(), (std::vector<double>{0, 0, 0}));
    }
  }
}

// With a limit too small for large norms, too, non_finite decides what becomes of infinite ones.
TEST(ClipGradNorm, PolicyOfInfiniteNormsUnderTinyLimits) {
  for (const double bad : {kInf, kNan}) {
    for (const NonFinite policy : {NonFinite::kZero, NonFinite::kSkip}) {
      Clipped clip(DType::kFloat64, GlobalNorm(1e-290, 2, policy), {3, bad}, {12});
      clip.Run();
      EXPECT_EQ(clip.Gradients(), (std::vector<double>{0, 0, 0}));
    }
    Clipped propagate(DType::kFloat64, GlobalNorm(1e-290, 2), {3, bad}, {12});
    propagate.Run();
    EXPECT_TRUE(std::isnan(propagate.Gradients()[1]));
  }
}

TEST(ClipGradNorm, ZerosStayZerosAndNoGradientsAreNothing) {
  Clipped clip(DType::kFloat32, GlobalNorm(5, 2), {0, 0}, {0});
  clip.Run();
  EXPECT_EQ(clip.Total(), 0);
  EXPECT_EQ(clip.Gradients(), (std::vector<double>{0, 0, 0}));
  ProgramDesc main, startup;
  VarDesc& param = main.Root().Var("w");
  param.SetShape({1});
  param.SetIsParameter(true);
  Sgd sgd({});
  sgd.SetGradientClip(GlobalNorm(5, 2));
  EXPECT_TRUE(sgd.ApplyGradients(main.Root(), startup, {{"w", ""}}).empty());
  for (size_t i = 0; i < main.Root().NumOps(); ++i)
    EXPECT_EQ(main.Root().op(i).role() & kOptimize, 0) << main.Root().op(i).type();
}

// clip_grad_value_
TEST(ClipGradValue, NanStaysAndInfinityIsTheLimit) {
  for (DType dtype : {DType::kFloat64, DType::kFloat32}) {
    Clipped clip(dtype, ClipGradByValue(2), {kNan, kInf, -kInf, 0.5}, {-2});
    clip.Run();
    const std::vector<double> got = clip.Gradients();
    EXPECT_TRUE(std::isnan(got[0]));
    EXPECT_EQ((std::vector<double>(got.begin() + 1, got.end())),
              (std::vector<double>{2, -2, 0.5, -2}));
  }
}
}  // namespace coracle::clip_grad_norm_test
