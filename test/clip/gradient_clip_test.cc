#include <coracle/clip/clip.h>
#include <coracle/clip/internal/text_clip.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/ir/program.h>
#include <coracle/layers/builder.h>
#include <coracle/layers/layer.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

#include <cmath>

namespace coracle::gradient_clip_test {

// loss = mean(x . a) + mean(x . b): with x = (3, 4) and one sample the gradients of a and b are
// (3, 4) both, whatever a and b are.
struct ClipNet {
  Variable Parameter(const std::string& name, DType dtype = DType::kFloat32) {
    return net.Parameter(name, {2, 1}, dtype, {.name = name}, ConstantInitializer(0));
  }
  Variable Loss() {
    Variable x = net.Data("x", {-1, 2});
    Variable a = net.Matmul(x, Parameter("a"));
    Variable sum = net.Add(a, net.Matmul(x, Parameter("b")));
    return net.Mean(sum, {.output = "loss"});
  }
  Setting& ClipOf(const std::string& param, const Setting& clip) {
    return main.Root().FindVar(param)->MutableTraining().gradient_clip.emplace(clip);
  }
  // One step of plain descent with rate 1 from zeros, on samples (3 k, 4 k): minus the gradients.
  std::pair<std::vector<float>, std::vector<float>> Step(Sgd& sgd, float k = 1) {
    sgd.Minimize(Variable::Of(main.Root(), "loss"), startup);
    Scope scope;
    Executor exe;
    exe.Run(startup, scope);
    exe.Run(main, scope, {{"x", Tensor::Of<float>({1, 2}, {3 * k, 4 * k})}});
    auto a = scope.Get("a").span<float>(), b = scope.Get("b").span<float>();
    return {{a.begin(), a.end()}, {b.begin(), b.end()}};
  }
  static void Expect(const std::vector<float>& got, double factor) {
    EXPECT_NEAR(got[0], -3 * factor, 1e-5);
    EXPECT_NEAR(got[1], -4 * factor, 1e-5);
  }
  template <class F>
  std::string ErrorOf(F&& f) {
    try {
      f();
    } catch (const Error& error) {
      return error.message();
    }
    return "no error";
  }

  ProgramDesc main, startup;
  Builder net{main, startup};
  Sgd sgd{{.learning_rate = 1}};
};

class GlobalNormClip : public ::testing::Test, public ClipNet {};

// Both gradients have norm 5, together sqrt(50).
TEST_F(GlobalNormClip, ScalesAllByOneFactor) {
  Loss();
  sgd.SetGradientClip(ClipGradByGlobalNorm(2));
  const auto [a, b] = Step(sgd);
  Expect(a, 2 / std::sqrt(50.0));
  Expect(b, 2 / std::sqrt(50.0));
}

TEST_F(GlobalNormClip, LeavesSmallGradientsAsTheyAre) {
  Loss();
  sgd.SetGradientClip(ClipGradByGlobalNorm(8));
  const auto [a, b] = Step(sgd);
  Expect(a, 1);
  Expect(b, 1);
}

TEST_F(GlobalNormClip, ZeroGradientsStayZero) {
  Loss();
  sgd.SetGradientClip(ClipGradByGlobalNorm(8));
  const auto [a, b] = Step(sgd, 0);
  EXPECT_EQ(0, a[0]);
  EXPECT_EQ(0, b[1]);
}

TEST_F(GlobalNormClip, EachGroupByItself) {
  Loss();
  ClipOf("a", ClipGradByGlobalNorm(2, "one"));
  ClipOf("b", ClipGradByGlobalNorm(10, "two"));
  const auto [a, b] = Step(sgd);
  Expect(a, 2 / 5.0);
  Expect(b, 1);
}

// A parameter's own clip is in place of the optimizer's, and counts in no group of others.
TEST_F(GlobalNormClip, OwnClipComesFirst) {
  Loss();
  ClipOf("b", ClipGradByValue(1, -1));
  sgd.SetGradientClip(ClipGradByGlobalNorm(2));
  const auto [a, b] = Step(sgd);
  Expect(a, 2 / 5.0);
  EXPECT_EQ(b, (std::vector<float>{-1, -1}));
}

TEST_F(GlobalNormClip, OtherKindsFromTheOptimizer) {
  Loss();
  sgd.SetGradientClip(ClipGradByNorm(1));
  const auto [a, b] = Step(sgd);
  Expect(a, 1 / 5.0);
  Expect(b, 1 / 5.0);
}

// Clip, then decay: the decay is not scaled.
TEST_F(GlobalNormClip, DecayFollows) {
  Loss();
  ClipOf("a", ClipGradByGlobalNorm(1, "alone"));
  main.Root().FindVar("a")->MutableTraining().regularizer = L2DecayRegularizer(0.5);
  startup.Root().op(0).SetAttr("value", 2.0f);
  const auto [a, b] = Step(sgd);
  EXPECT_NEAR(a[0], 2 - (0.6 + 0.5 * 2), 1e-5);
  Expect(b, 1);
}

TEST_F(GlobalNormClip, OpsHaveTheRoleOptimize) {
  Loss();
  sgd.SetGradientClip(ClipGradByGlobalNorm(2));
  Step(sgd);
  int products = 0;
  for (size_t i = 0; i < main.Root().NumOps(); ++i) {
    const OpDesc& op = main.Root().op(i);
    if (op.type() == "total_norm") {
      EXPECT_EQ(kOptimize, op.role());
    }
    if (op.type() != "scale") continue;
    ++products;
    EXPECT_EQ(op.GetAttr<std::vector<std::string>>(kOpRoleVarAttr, {})[1], op.Output("Out")[0]);
  }
  EXPECT_EQ(2, products);
  EXPECT_EQ(std::string::npos, PrintProgram(main.CloneForTest()).find("total_norm"));
}

TEST_F(GlobalNormClip, FromModelText) {
  const BuiltModel model = ParseModelText(R"(
    data { name: "x" shape: [-1, 2] }
    layer { fc { input: "x" size: 1 param {
      gradient_clip { by_global_norm { clip_norm: 2 group_name: "g" } } } } })");
  EXPECT_EQ(ClipGradByGlobalNorm(2, "g"),
            model.main.Root().FindVar("fc_0.w_0")->training().gradient_clip);
}

TEST_F(GlobalNormClip, Errors) {
  Loss();
  ClipOf("a", ClipGradByGlobalNorm(2));
  ClipOf("b", ClipGradByGlobalNorm(3));
  auto minimize = [&] {
    Sgd one({});
    one.Minimize(Variable::Of(main.Root(), "loss"), startup);
  };
  EXPECT_EQ(
      "gradient clip: group 'default_group' has clip_norm 3, norm_type 2, non_finite propagate "
      "here "
      "and clip_norm 2, norm_type 2, non_finite propagate for 'a', for the parameter 'b'",
      ErrorOf(minimize));
  const auto refused = [&](const Setting& clip, const std::string& message) {
    ClipOf("a", clip);
    const std::string got = ErrorOf(minimize);
    EXPECT_NE(std::string::npos, got.find(message)) << got;
    EXPECT_NE(std::string::npos, got.find("for the parameter 'a'")) << got;
  };
  for (double bad : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    refused(ClipGradByGlobalNorm(bad), "clip_norm must be positive and finite, got");
    refused(ClipGradByNorm(bad), "clip_norm must be positive and finite, got");
    refused(AdaptiveGradientClip({bad}), "clip_factor must be positive and finite, got");
    refused(AdaptiveGradientClip({1, bad}), "epsilon must be positive and finite, got");
  }
  for (double bad : {0.5, -1.0, std::nan("")})
    refused(ClipGradByNorm(1, {.norm_type = bad}), "norm_type must be at least 1, or infinity");
  refused(ClipGradByNorm(1, {.norm_type = 2.123456789}),
          "norm_type must have no more digits than float32 holds, got 2.123456789; the nearest is "
          "2.1234567");
  refused(ClipGradByGlobalNorm(1, "g", {.norm_type = 1e300}),
          "norm_type must be at most what float32 holds, got 1e+300; the nearest is 3.4028235e+38");
  refused(ClipGradByValue(-1, 1), "max must not be less than min, got max -1 and min 1");
  refused(ClipGradByValue(std::nan(""), 1), "max must not be less than min");
  refused(AdaptiveGradientClip({1, 1, 2}), "axis must lie in [0, 2), got 2");
  refused({"by_norm", {{"clip_norm", 1.0}, {"max_norm", 1.0}}},
          "gradient clip by_norm: clip_norm and its older name max_norm cannot both be given");
  refused({"by_norn", {}}, "unknown kind 'by_norn'; did you mean by_norm?");
  refused({"by_norm", {{"clip_norm", 1.0}, {"non_finite", "sero"}}},
          "unknown non_finite 'sero'; did you mean zero?");
  Parameter("wide", DType::kFloat64);
  for (const auto& [name, dtype] :
       {std::pair("b@GRAD", DType::kFloat32), {"wide@GRAD", DType::kFloat64}}) {
    VarDesc& grad = main.Root().Var(name);
    grad.SetDType(dtype);
    grad.SetShape({2});
  }
  EXPECT_EQ(
      "gradient clip: group 'default_group' holds the float32 'b' and float64 elements here; give "
      "them groups of their own, for the parameter 'wide'",
      ErrorOf([&] {
        AppendGradientClips(main.Root(), startup,
                            {{{"b", "b@GRAD"}, ClipGradByGlobalNorm(1)},
                             {{"wide", "wide@GRAD"}, ClipGradByGlobalNorm(1)}});
      }));
}

// sum |g|^p over both gradients (3, 4), for p = 1, 3, infinity.
TEST(GradientClip, OtherNorms) {
  const std::vector<std::pair<double, double>> norms = {
      {1, 14}, {3, std::cbrt(2 * (27 + 64))}, {INFINITY, 4}};
  for (const auto& [p, norm] : norms) {
    SCOPED_TRACE(p);
    ClipNet one;
    one.Loss();
    one.sgd.SetGradientClip(ClipGradByGlobalNorm(2, "g", {.norm_type = p}));
    const auto [a, b] = one.Step(one.sgd);
    ClipNet::Expect(a, 2 / norm);
    ClipNet::Expect(b, 2 / norm);
  }
}

TEST_F(GlobalNormClip, OtherNormsOfSingleGradients) {
  Loss();
  ClipOf("a", ClipGradByNorm(3.5, {.norm_type = 1}));
  ClipOf("b", ClipGradByNorm(5, {.norm_type = INFINITY}));
  const auto [a, b] = Step(sgd);
  Expect(a, 0.5);
  Expect(b, 1);
}

TEST_F(GlobalNormClip, NoneInPlaceOfTheOptimizers) {
  Loss();
  ClipOf("b", NoGradientClip());
  sgd.SetGradientClip(ClipGradByGlobalNorm(2));
  const auto [a, b] = Step(sgd);
  Expect(a, 2 / 5.0);
  Expect(b, 1);
}

TEST_F(GlobalNormClip, Statistics) {
  Loss();
  sgd.SetGradientClip(ClipGradByGlobalNorm(8, "all"));
  sgd.Minimize(Variable::Of(main.Root(), "loss"), startup);
  Scope scope;
  Executor exe;
  exe.Run(startup, scope);
  for (float k : {1, 2, 1, 3}) {  // norms sqrt(50) k
    const auto norm = exe.Run(main, scope, {{"x", Tensor::Of<float>({1, 2}, {3 * k, 4 * k})}},
                              std::vector<std::string>{"gradient_clip.all.norm"});
    EXPECT_NEAR(norm[0].Item<float>(), k * std::sqrt(50.0), 1e-5);
  }
  EXPECT_EQ(4, scope.Get("gradient_clip.all.steps").Item<int64_t>());
  EXPECT_EQ(2, scope.Get("gradient_clip.all.clipped_steps").Item<int64_t>());
}

// The default passes merge norms and factors; without them, and in reference kernels, the results
// are the same.
TEST(GradientClip, LargeAndSmallInEveryMode) {
  for (const CompileOptions& options :
       {CompileOptions{}, CompileOptions{.kernels = KernelMode::kReference},
        CompileOptions{.optimize = false}}) {
    for (const float k : {1e-25f, 1e-10f, 1e19f, 1e30f, 5e37f}) {
      for (const double p : {2.0, 3.0}) {
        SCOPED_TRACE(testing::Message() << k << " p " << p);
        ClipNet one;
        one.Loss();
        const double limit = k < 1 ? double{k} / 8 : 1;
        one.sgd.SetGradientClip(ClipGradByGlobalNorm(limit, "g", {.norm_type = p}));
        one.sgd.Minimize(Variable::Of(one.main.Root(), "loss"), one.startup);
        Scope scope;
        Executor exe(options);
        exe.Run(one.startup, scope);
        exe.Run(one.main, scope, {{"x", Tensor::Of<float>({1, 2}, {3 * k, 4 * k})}});
        const double norm = p == 2 ? std::sqrt(50.0) : std::cbrt(2 * (27 + 64));
        for (const char* name : {"a", "b"}) {
          for (const int i : {0, 1}) {
            const double expected = -(3 + i) / norm * limit;
            EXPECT_NEAR(scope.Get(name).data<float>()[i], expected, 2e-6 * std::abs(expected));
          }
        }
      }
    }
  }
}

// One vector for the gradients of one limit.
TEST_F(GlobalNormClip, StatisticsOfSingleGradients) {
  Loss();
  sgd.SetGradientClip(ClipGradByNorm(8));
  sgd.Minimize(Variable::Of(main.Root(), "loss"), startup);
  Scope scope;
  Executor exe;
  exe.Run(startup, scope);
  for (float k : {1, 2, 1, 3}) {  // norms 5 k
    const auto norm = exe.Run(main, scope, {{"x", Tensor::Of<float>({1, 2}, {3 * k, 4 * k})}},
                              std::vector<std::string>{"gradient_clip.by_norm.norm"});
    ASSERT_EQ(norm[0].shape(), Shape({2}));
    for (float n : norm[0].span<float>()) EXPECT_NEAR(n, 5 * k, 1e-5);
  }
  EXPECT_EQ(4, scope.Get("gradient_clip.by_norm.steps").Item<int64_t>());
  for (int64_t clipped : scope.Get("gradient_clip.by_norm.clipped_steps").span<int64_t>())
    EXPECT_EQ(clipped, 2);
}

TEST_F(GlobalNormClip, StatisticsOfSeveralLimits) {
  Loss();
  ClipOf("a", ClipGradByNorm(1));
  ClipOf("b", ClipGradByNorm(7));
  Step(sgd);
  for (const char* name : {"gradient_clip.by_norm", "gradient_clip.by_norm_1"}) {
    const VarDesc* norm = main.Root().FindVar(std::string(name) + ".norm");
    ASSERT_TRUE(norm) << name;
    EXPECT_EQ(norm->shape(), Shape({1})) << name;
  }
}

// x (nan, 4), (inf, 4): what each policy leaves of both parameters.
TEST(GradientClip, NonFiniteNorms) {
  for (const char* policy : {"propagate", "error", "zero", "skip"}) {
    for (const float bad : {std::nanf(""), INFINITY}) {
      for (const char* kind : {"by_norm", "by_global_norm"}) {
        SCOPED_TRACE(std::string(policy) + " " + kind + " " + std::to_string(bad));
        ClipNet one;
        one.Loss();
        one.sgd.SetGradientClip(Setting{kind, {{"clip_norm", 1.0}, {"non_finite", policy}}});
        one.sgd.SetRegularizer(L2DecayRegularizer(0.5));
        one.sgd.Minimize(Variable::Of(one.main.Root(), "loss"), one.startup);
        Scope scope;
        Executor exe;
        exe.Run(one.startup, scope);
        for (float& v : std::get<Tensor>(scope.Var("a")).span<float>()) v = 2;
        const auto run = [&] {
          exe.Run(one.main, scope, {{"x", Tensor::Of<float>({1, 2}, {bad, 4})}});
        };
        const auto a = [&](int i) { return scope.Get("a").span<float>()[static_cast<size_t>(i)]; };
        if (std::string(policy) == "error") {
          const std::string message = one.ErrorOf(run);
          EXPECT_NE(std::string::npos, message.find("is not finite")) << message;
          EXPECT_EQ(2, a(1));
        } else {
          run();
          if (std::string(policy) == "propagate") {
            EXPECT_TRUE(std::isnan(a(0)));
          } else {  // of "zero" the decay alone
            EXPECT_EQ(std::string(policy) == "zero" ? 1 : 2, a(0));
            EXPECT_EQ(a(0), a(1));
          }
          if (std::string(policy) == "propagate" && std::isinf(bad)) {
            EXPECT_EQ(1, a(1));
          }
        }
      }
    }
  }
}

// Rows of the gradient against rows of the parameter, by hand.
TEST(AdaptiveClip, ByRowsAndColumns) {
  const std::vector<double> w = {3, 4, 0, 0, 6, 8}, g = {6, 8, 0.3, 0.4, 0.6, 0.8};
  for (int axis : {0, 1}) {
    ProgramDesc main, startup;
    Builder net(main, startup);
    // loss = sum(w * x): the gradient of w is x.
    Variable x = net.Data("x", {3, 2});
    Variable p = net.Parameter("w", {3, 2}, DType::kFloat32, {.name = "w"}, ConstantInitializer(0));
    net.ReduceSum(net.Mul(x, p), {.output = "loss"});
    Sgd sgd({.learning_rate = 1});
    sgd.SetGradientClip(AdaptiveGradientClip({0.5, 0.1, axis}));
    sgd.Minimize(Variable::Of(main.Root(), "loss"), startup);
    Scope scope;
    Executor exe;
    exe.Run(startup, scope);
    std::copy(w.begin(), w.end(), std::get<Tensor>(scope.Var("w")).span<float>().begin());
    Tensor feed(DType::kFloat32, {3, 2});
    std::copy(g.begin(), g.end(), feed.span<float>().begin());
    exe.Run(main, scope, {{"x", feed}});
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 2; ++j) {
        double of_w = 0, of_g = 0;
        for (int k = 0; k < (axis == 0 ? 2 : 3); ++k) {
          const int at = axis == 0 ? i * 2 + k : k * 2 + j;
          of_w += w[at] * w[at];
          of_g += g[at] * g[at];
        }
        const double limit = 0.5 * std::max(std::sqrt(of_w), 0.1);
        const double factor = std::sqrt(of_g) > limit ? limit / std::sqrt(of_g) : 1;
        EXPECT_NEAR(scope.Get("w").span<float>()[i * 2 + j], w[i * 2 + j] - factor * g[i * 2 + j],
                    1e-6)
            << axis << i << j;
      }
    }
  }
}

// A later version may have written attrs that this one does not know; in a text they are mistakes.
TEST(GradientClip, UnknownAttrs) {
  const Setting clip = {"by_norm", {{"max_norm", 1.0}, {"norm_tpye", 1.0}}};
  EXPECT_NO_THROW(CheckGradientClip(clip));
  EXPECT_EQ(ErrorOf([&] { CheckTextGradientClip(clip); }),
            "gradient clip by_norm: there is no 'norm_tpye'; did you mean norm_type?");
  EXPECT_NO_THROW(CheckTextGradientClip({"by_norm", {{"max_norm", 1.0}}}));
  EXPECT_EQ(ErrorOf([] {
              ParseModelText(R"(data { name: "x" shape: [-1, 1] }
layer { fc { input: "x" size: 1 param {
  gradient_clip { custom { kind: "none" attr { name: "by" f: 3 } } } } } })",
                             "m");
            }),
            "m:3:19: gradient clip none: there is no 'by'");
}

// A kind of the user's own, from C++ and from a saved program.
TEST(OwnClip, Registered) {
  RegisterGradientClip(
      "negate", [](BlockDesc& block, ProgramDesc&, const std::vector<ClipMember>& members) {
        ClippedGradients result;
        for (const ClipMember& member : members) {
          result.grads.push_back(member.pair.grad + "@NEGATED");
          VarDesc& var = block.Var(result.grads.back());
          var.SetMeta(Variable::Of(block, member.pair.grad).desc().meta());
          block.AppendOp("scale", {{"X", {member.pair.grad}}}, {{"Out", {var.name()}}},
                         {{"scale", static_cast<float>(-member.clip.Get<double>("by", 1))}});
        }
        return result;
      });
  EXPECT_THROW(RegisterGradientClip("negate", {}), Error);
  const BuiltModel model = ParseModelText(R"(
    data { name: "x" shape: [-1, 1] }
    layer { fc { input: "x" size: 1 bias_term: false output: "y" param { name: "w"
      gradient_clip { custom { kind: "negate" attr { name: "by" f: 3 } } } } } }
    layer { mean { input: "y" output: "loss" } })");
  ProgramDesc main = model.main, startup = model.startup;
  Sgd sgd({.learning_rate = 1});
  sgd.Minimize(Variable::Of(main.Root(), "loss"), startup);
  Scope scope;
  Executor exe;
  exe.Run(startup, scope);
  const float before = scope.Get("w").Item<float>();
  exe.Run(main, scope, {{"x", Tensor::Of<float>({1, 1}, {2})}});
  EXPECT_NEAR(scope.Get("w").Item<float>(), before + 6, 1e-5);
}

}  // namespace coracle::gradient_clip_test
