// float16 ops between casts to and from float32.

#include <coracle/passes/passes.h>
#include <coracle/test/passes/op_program.h>

#include <cstring>
#include <string>
#include <vector>

namespace coracle::widen_halves_test {

using Ints = std::vector<int32_t>;

std::string After(const OpProgram& p, const std::vector<std::string>& fetches = {"y"}) {
  return p.After({"widen_halves"}, fetches);
}

void Cast(OpProgram& p, const std::string& x, const std::string& out, DType from, DType to) {
  p.Unary("cast", x, out,
          {{"in_dtype", static_cast<int32_t>(from)}, {"out_dtype", static_cast<int32_t>(to)}});
}
void Narrow(OpProgram& p, const std::string& x, const std::string& out) {
  Cast(p, x, out, DType::kFloat32, DType::kFloat16);
}
void Widen(OpProgram& p, const std::string& x, const std::string& out) {
  Cast(p, x, out, DType::kFloat16, DType::kFloat32);
}

// All passes give the same bits as none.
void ExpectSameBits(OpProgram& p) {
  const CompileOptions plain{.kernels = KernelMode::kReference, .optimize = false};
  const Tensor want = Executor(plain).Run(p.program, p.scope, p.feeds, {"y"})[0];
  const Tensor got = Executor().Run(p.program, p.scope, p.feeds, {"y"})[0];
  ASSERT_EQ(want.shape(), got.shape());
  for (int64_t i = 0; i < want.numel(); ++i)
    EXPECT_EQ(want.data<float>()[i], got.data<float>()[i]) << i;
}

TEST(WidenHalves, ReluConcatAndMaxPool) {
  OpProgram p;
  p.Data("x", {2, 3, 4, 6});
  p.feeds["x"].data<float>()[0] = 1e6f;  // infinity in float16
  p.feeds["x"].data<float>()[1] = -1e6f;
  p.feeds["x"].data<float>()[2] = 2e-8f;  // 0 in float16
  p.Unary("scale", "x", "s", {{"scale", 1.7f}});
  Narrow(p, "s", "h");
  p.Unary("relu", "h", "r");
  Narrow(p, "x", "i");
  p.Append("concat", {{"X", {"r", "i"}}}, {{"Out", {"c"}}}, {{"axis", int32_t{1}}});
  p.Append("pool2d", {{"X", {"c"}}}, {{"Out", {"m"}}},
           {{"pooling_type", std::string("max")}, {"ksize", Ints{2, 2}}, {"strides", Ints{1, 2}}});
  Widen(p, "m", "w");
  p.Unary("scale", "w", "y", {{"scale", 3.0f}});
  EXPECT_EQ(After(p),
            "Out=s = scale(X=x)\n"
            "Out=r@WIDE = relu(X=s)\n"
            "Out=r = cast(X=r@WIDE)\n"
            "Out=i = cast(X=x)\n"
            "Out=r@WIDE_0 = cast(X=r)\n"
            "Out=i@WIDE = cast(X=i)\n"
            "Out=c@WIDE = concat(X=r@WIDE_0+i@WIDE) axis=1\n"
            "Out=m@WIDE = pool2d(X=c@WIDE)\n"
            "Out=y = scale(X=m@WIDE)\n");
  ExpectSameBits(p);
}

TEST(WidenHalves, BoundsAreRoundedAfterwards) {
  OpProgram p;
  p.Data("x", {40});
  p.Unary("scale", "x", "s", {{"scale", 100.0f}});
  Narrow(p, "s", "h");
  p.Unary("clip", "h", "r", {{"min", -33.333f}, {"max", 77.777f}});
  Widen(p, "r", "w");
  p.Unary("scale", "w", "y", {{"scale", 3.0f}});
  const std::string after = After(p);
  EXPECT_NE(after.find("clip(X=s)"), std::string::npos) << after;
  ExpectSameBits(p);
}

// Whoever reads the result: a convolution may apply it.
TEST(WidenHalves, ReluMovesBeforeACast) {
  OpProgram p;
  p.Data("x", {40});
  p.Unary("scale", "x", "s", {{"scale", 1.7f}});
  Narrow(p, "s", "h");
  p.Unary("relu", "h", "r");
  p.Unary("tanh", "r", "t");
  Widen(p, "t", "w");
  p.Unary("scale", "w", "y", {{"scale", 3.0f}});
  EXPECT_EQ(After(p),
            "Out=s = scale(X=x)\n"
            "Out=r@WIDE = relu(X=s)\n"
            "Out=r = cast(X=r@WIDE)\n"
            "Out=t = tanh(X=r)\n"
            "Out=w = cast(X=t)\n"
            "Out=y = scale(X=w)\n");
  ExpectSameBits(p);
}

TEST(WidenHalves, NearMisses) {
  for (int miss = 0; miss < 4; ++miss) {
    SCOPED_TRACE(miss);
    OpProgram p;
    p.Data("x", {2, 3, 4, 6});
    Narrow(p, "x", "h");
    if (miss == 0) {  // its values are rounded
      p.Append("pool2d", {{"X", {"h"}}}, {{"Out", {"r"}}},
               {{"pooling_type", std::string("avg")}, {"ksize", Ints{2, 2}}});
    } else if (miss == 1) {  // its bounds are not float16 numbers, and its input is read twice
      p.Unary("clip", "h", "r", {{"min", -0.3333f}, {"max", 0.7777f}});
      p.Unary("relu", "h", "other");
    } else {
      p.Unary("relu", "h", "r");
      p.Unary("abs", "h", "other");  // so that it cannot move before the cast
    }
    if (miss == 2) p.Unary("tanh", "r", "t");  // another reader
    Widen(p, "r", "w");
    p.Unary("scale", "w", "y", {{"scale", 3.0f}});
    std::vector<std::string> fetches = {"y"};
    if (miss == 3) fetches.push_back("r");
    EXPECT_EQ(After(p, fetches), p.Listing());
    ExpectSameBits(p);
  }
}

// A half that is written between two casts has two values, although another op is widened.
TEST(WidenHalves, ValuesThatChangeAreReadTwice) {
  for (const bool fed : {false, true}) {
    SCOPED_TRACE(fed);
    OpProgram p;
    p.Data("x", {6});
    p.Unary("scale", "x", "s", {{"scale", 1.5f}});
    Narrow(p, "s", "h");
    p.Unary("relu", "h", "r");
    Widen(p, "r", "o");
    if (fed)
      p.Data("half", {6}, DType::kFloat16);
    else
      Narrow(p, "x", "half");
    Widen(p, "half", "a");
    p.Unary("scale", "half", "half", {{"scale", 3.0f}});
    Widen(p, "half", "b");
    p.Append("sum", {{"X", {"o", "a", "b"}}}, {{"Out", {"all"}}});
    p.Unary("scale", "b", "y", {{"scale", 2.0f}});
    p.ExpectSame({"all", "y"});
    ExpectSameBits(p);
  }
}

}  // namespace coracle::widen_halves_test
