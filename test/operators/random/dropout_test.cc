#include <coracle/backward/backward.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/operators/random/drop.h>
#include <coracle/test/op_test.h>

#include <cmath>

namespace coracle::dropout_test {

OpTest Dropout(float p, const std::string& implementation, int64_t n = 1000) {
  OpTest test("dropout");
  test.Attr("dropout_prob", p)
      .Attr("dropout_implementation", implementation)
      .Input("X", {n}, std::vector<double>(static_cast<size_t>(n), 3.0));
  return test;
}

std::vector<uint8_t> MaskOf(OpTest& test, KernelMode mode = KernelMode::kAuto) {
  Tensor mask = test.Output("Mask", mode);
  auto span = mask.span<uint8_t>();
  return {span.begin(), span.end()};
}

TEST(Dropout, KeepsByTheDefinedStream) {
  // Element i stays when word i % 4 of block i / 4 of the output's stream is at least p * 2^32.
  OpTest test = Dropout(0.3f, "downgrade_in_infer", 1027);
  test.Seed(5).Step(9);
  const Philox random(5, HashName("Out.0"), 9);
  const double threshold = std::floor(static_cast<double>(0.3f) * 4294967296.0);
  const std::vector<uint8_t> mask = MaskOf(test);
  const Tensor out = test.Output("Out");
  for (size_t i = 0; i < mask.size(); ++i) {
    const bool keep = random.Block(i / 4)[i % 4] >= threshold;
    ASSERT_EQ(mask[i], keep) << i;
    ASSERT_EQ(out.data<float>()[i], keep ? 3.0f : 0.0f) << i;
  }
}

TEST(Dropout, ShareOfDroppedElements) {
  for (float p : {0.1f, 0.5f, 0.8f}) {
    OpTest test = Dropout(p, "upscale_in_train", 40000);
    const std::vector<uint8_t> mask = MaskOf(test);
    double kept = 0;
    for (uint8_t m : mask) kept += m;
    // Four standard deviations of a binomial share.
    EXPECT_NEAR(kept / 40000, 1 - p, 4 * std::sqrt(p * (1 - p) / 40000));
    const Tensor out = test.Output("Out");
    for (size_t i = 0; i < mask.size(); ++i)
      ASSERT_FLOAT_EQ(out.data<float>()[i], mask[i] ? 3.0f / (1 - p) : 0.0f);
  }
}

TEST(Dropout, BothKernelsAndARepeatDrawTheSame) {
  OpTest a = Dropout(0.5f, "upscale_in_train"), b = Dropout(0.5f, "upscale_in_train");
  EXPECT_EQ(MaskOf(a), MaskOf(b, KernelMode::kReference));
  b.Step(1);
  EXPECT_NE(MaskOf(a), MaskOf(b));
  b.Step(0).Seed(8);
  EXPECT_NE(MaskOf(a), MaskOf(b));
}

TEST(Dropout, FixedSeedAndSeedInput) {
  auto fixed = [](int32_t seed, uint64_t step) {
    OpTest test = Dropout(0.5f, "upscale_in_train");
    test.Attr("fix_seed", true).Attr("seed", seed).Step(step);
    return MaskOf(test);
  };
  EXPECT_EQ(fixed(3, 0), fixed(3, 5));
  EXPECT_NE(fixed(3, 0), fixed(4, 0));
  auto given = [](int64_t seed, DType dtype) {
    OpTest test = Dropout(0.5f, "upscale_in_train");
    test.IntInput("Seed", {1}, {seed}, dtype);
    return MaskOf(test);
  };
  EXPECT_EQ(given(3, DType::kInt32), fixed(3, 0));
  EXPECT_EQ(given(3, DType::kInt64), fixed(3, 1));
}

TEST(Dropout, ProbabilityZeroAndOne) {
  for (const char* how : {"upscale_in_train", "downgrade_in_infer"}) {
    OpTest none = Dropout(0, how, 5), all = Dropout(1, how, 5);
    none.Expect("Out", {5}, {3, 3, 3, 3, 3}).Expect("Mask", {5}, {1, 1, 1, 1, 1});
    all.Expect("Out", {5}, {0, 0, 0, 0, 0}).Expect("Mask", {5}, {0, 0, 0, 0, 0});
  }
}

TEST(Dropout, InTests) {
  OpTest upscale = Dropout(0.25f, "upscale_in_train", 2);
  upscale.Attr("is_test", true).Expect("Out", {2}, {3, 3}).CheckGradient({"X"});
  OpTest downgrade = Dropout(0.25f, "downgrade_in_infer", 2);
  downgrade.Attr("is_test", true)
      .Expect("Out", {2}, {2.25, 2.25})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  OpTest no_mask = Dropout(0.25f, "downgrade_in_infer", 2);
  no_mask.Attr("is_test", true)
      .NoOutput("Mask")
      .Expect("Out", {2}, {2.25, 2.25})
      .CheckGradient({"X"});
}

TEST(Dropout, Gradients) {
  for (const char* how : {"upscale_in_train", "downgrade_in_infer"}) {
    OpTest("dropout")
        .Attr("dropout_prob", 0.4f)
        .Attr("dropout_implementation", how)
        .RandomInput("X", {4, 5})
        .CheckGradient({"X"})
        .CheckSecondGradient({"X"})
        .CheckFast();
  }
}

TEST(Dropout, SmallShapes) {
  OpTest("dropout").Attr("dropout_prob", 0.0f).Input("X", {}, {2}).Expect("Out", {}, {2});
  OpTest("dropout").Input("X", {0, 3}, {}).Expect("Out", {0, 3}, {});
  OpTest("dropout")
      .Attr("dropout_prob", 0.0f)
      .InPlace("X", "Out")
      .Input("X", {2}, {2, 1})
      .Expect("Out", {2}, {2, 1});
}

// Paddle's first files declare Mask with X's dtype; it then holds the factors.
TEST(Dropout, MaskOfFactors) {
  for (const bool upscale : {false, true}) {
    ProgramDesc program;
    BlockDesc& block = program.Root();
    block.Var("x").SetShape({64});
    block.Var("mask").SetShape({-1});
    block.Var("out");
    const std::string how = upscale ? "upscale_in_train" : "downgrade_in_infer";
    const OpDesc& op =
        block.AppendOp("dropout", {{"X", {"x"}}}, {{"Out", {"out"}}, {"Mask", {"mask"}}},
                       {{"dropout_prob", 0.25f}, {"dropout_implementation", how}});
    InferOp(block, op, DefaultOps());
    const std::string dx =
        Gradients({Variable::Of(block, "out")}, {Variable::Of(block, "x")}).at(0);
    VarValues env;
    env["x"] = Tensor::Of<float>({64}, std::vector<float>(64, 3.f));
    Interpret(block, DefaultOps(), env);
    const auto floats = [&](const std::string& name) {
      return std::get<Tensor>(env.at(name)).span<float>();
    };
    int kept = 0;
    for (size_t i = 0; i < 64; ++i) {
      const float factor = floats("mask")[i];
      kept += factor != 0;
      if (factor != 0) {
        ASSERT_FLOAT_EQ(factor, upscale ? 1 / 0.75f : 1.f);
      }
      ASSERT_FLOAT_EQ(floats("out")[i], 3 * factor);
      ASSERT_FLOAT_EQ(floats(dx)[i], factor);
    }
    EXPECT_GT(kept, 24);
    EXPECT_LT(kept, 64);
  }
  OpTest("dropout_grad")
      .Input("Mask", {3}, {0, 2, 1})
      .Input("Out@GRAD", {3}, {5, 6, 7})
      .Expect("X@GRAD", {3}, {0, 12, 7});
}

TEST(Dropout, C1_Seed) {
  OpTest("dropout").RandomInput("X", {2}).RandomInput("Seed", {1}).ExpectError("dropout.C1");
  OpTest("dropout").RandomInput("X", {2}).IntInput("Seed", {2}, {1, 2}).ExpectError("dropout.C1");
}

TEST(DropoutGrad, Constraints) {
  OpTest("dropout_grad")
      .IntInput("Mask", {3}, {1, 0, 1}, DType::kUInt8)
      .RandomInput("Out@GRAD", {2})
      .ExpectError("dropout_grad.C1");
  OpTest("dropout_grad")
      .IntInput("Mask", {2}, {1, 0}, DType::kInt32)
      .RandomInput("Out@GRAD", {2})
      .ExpectError("dropout_grad.C1");
  OpTest("dropout_grad").RandomInput("Out@GRAD", {2}).ExpectError("dropout_grad.C2");
}

// Word by word, for parts that begin and end anywhere.
TEST(Dropout, PartsOfFloats) {
  const Philox random(3, 4, 5);
  constexpr int64_t kCount = 2500;
  std::vector<float> x(kCount), y(kCount), out(kCount);
  std::vector<uint8_t> mask(kCount);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(i) - 1000;
    y[i] = static_cast<float>(i % 7);
  }
  for (const double p : {0.0, 1e-12, 0.25, 1.0}) {
    for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{
             {0, kCount}, {0, 0}, {1, 2}, {3, 1030}, {1022, 2500}, {2, 2499}}) {
      for (const bool sum : {false, true}) {
        out.assign(kCount, -5);
        mask.assign(kCount, 9);
        DropPart({random, p, 2.0f}, begin, end, x.data(), sum ? y.data() : nullptr, out.data(),
                 mask.data());
        for (int64_t i = 0; i < kCount; ++i) {
          const auto at = static_cast<size_t>(i);
          const uint32_t word = random.Block(static_cast<uint64_t>(i) / 4)[at % 4];
          const bool inside = i >= begin && i < end, kept = word >= p * 0x1p32 || p < 1e-9;
          ASSERT_EQ(out[at], inside ? (kept ? 2 * x[at] : 0) + (sum ? y[at] : 0) : -5) << i;
          ASSERT_EQ(mask[at], inside ? kept : 9) << i;
        }
      }
    }
  }
}

TEST(Philox, BlocksAreTheSingleOnes) {
  const Philox random(3, 4, uint64_t{1} << 40);
  for (int64_t count : {0, 1, 7, 8, 9, 20}) {
    std::vector<uint32_t> words(static_cast<size_t>(4 * count));
    const uint64_t first = (uint64_t{1} << 32) - 5;
    random.Blocks(first, count, words.data());
    for (size_t i = 0; i < words.size(); ++i)
      ASSERT_EQ(words[i], random.Block(first + i / 4)[i % 4]) << count << ' ' << i;
  }
}
}  // namespace coracle::dropout_test
