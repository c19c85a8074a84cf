// 1-D convolutions: squeezes that move after other ops until an unsqueeze undoes them.

#include <coracle/passes/passes.h>
#include <coracle/test/passes/op_program.h>

#include <string>
#include <vector>

namespace coracle::move_squeezes_test {

using Ints = std::vector<int32_t>;

std::string After(const OpProgram& p, const std::vector<std::string>& fetches = {"y"}) {
  return p.After({"move_squeezes"}, fetches, true);
}

// A convolution of signals, as importers write it.
void Conv1d(OpProgram& p, const std::string& x, const std::string& filter, const std::string& out,
            const Ints& paddings = {0, 1}) {
  p.Unary("unsqueeze2", x, out + ".in", {{"axes", Ints{2}}});
  p.Append("conv2d", {{"Input", {out + ".in"}}, {"Filter", {filter}}}, {{"Output", {out + ".4"}}},
           {{"paddings", paddings}});
  p.Unary("squeeze2", out + ".4", out, {{"axes", Ints{2}}});
}

void Binary(OpProgram& p, const std::string& type, const std::string& x, const std::string& y,
            const std::string& out, int32_t axis = -1) {
  p.Append(type, {{"X", {x}}, {"Y", {y}}}, {{"Out", {out}}}, {{"axis", axis}});
}

TEST(MoveSqueezes, BetweenConvolutions) {
  OpProgram p;
  p.Data("x", {-1, 3, 8});
  p.Parameter("w", {4, 3, 1, 3});
  p.Parameter("v", {4, 4, 1, 3});
  p.Parameter("b", {4});
  Conv1d(p, "x", "w", "a");
  Binary(p, "elementwise_add", "a", "b", "s", 1);
  p.Unary("relu", "s", "r");
  Conv1d(p, "r", "v", "h");
  Binary(p, "elementwise_add", "h", "r", "y");
  EXPECT_EQ(After(p),
            "Out=a.in = unsqueeze2(X=x)\n"
            "Output=a.4 = conv2d(Input=a.in, Filter=w)\n"
            "Out=s@IMAGE = elementwise_add(X=a.4, Y=b) axis=1\n"
            "Out=r@IMAGE = relu(X=s@IMAGE)\n"
            "Out=r = squeeze2(X=r@IMAGE)\n"
            "Output=h.4 = conv2d(Input=r@IMAGE, Filter=v)\n"
            "Out=h = squeeze2(X=h.4)\n"
            "Out=y = elementwise_add(X=h, Y=r) axis=-1\n");
  p.ExpectSame({"y"});
}

// Builders add the bias to the image.
TEST(MoveSqueezes, SqueezesOfSums) {
  OpProgram p;
  p.Data("x", {-1, 3, 8});
  p.Parameter("w", {4, 3, 1, 3});
  p.Parameter("b", {4});
  p.Unary("unsqueeze2", "x", "x4", {{"axes", Ints{2}}});
  p.Append("conv2d", {{"Input", {"x4"}}, {"Filter", {"w"}}}, {{"Output", {"c"}}},
           {{"paddings", Ints{0, 1}}});
  Binary(p, "elementwise_add", "c", "b", "s", 1);
  p.Unary("squeeze2", "s", "a", {{"axes", Ints{2}}});
  p.Unary("relu", "a", "r");
  p.Unary("tanh", "r", "y");
  const std::string after = After(p);
  EXPECT_NE(after.find("Out=r@IMAGE = relu(X=s)"), std::string::npos) << after;
  p.ExpectSame({"y"});
}

TEST(MoveSqueezes, ConstantsGetAHeight) {
  for (const Shape& shape : {Shape{1, 4, 1}, Shape{4, 1}, Shape{4, 8}, Shape{1}, Shape{8}}) {
    for (bool first : {false, true}) {
      if (first && shape.numel() > 1) continue;
      OpProgram p;
      p.Data("x", {-1, 3, 8});
      p.Parameter("w", {4, 3, 1, 3});
      p.Parameter("v", {4, 4, 1, 1});
      p.Parameter("c", shape);
      Conv1d(p, "x", "w", "a");
      Binary(p, "elementwise_mul", first ? "c" : "a", first ? "a" : "c", "s");
      Conv1d(p, "s", "v", "h", {0, 0});
      p.Unary("relu", "h", "y");
      const std::string after = After(p, {"y"});
      EXPECT_NE(after.find("Out=s@IMAGE"), std::string::npos) << after;
      EXPECT_EQ(after.find("h.in"), std::string::npos) << after;
      p.ExpectSame({"y"});
    }
  }
}

TEST(MoveSqueezes, NormConcatAndPool) {
  OpProgram p;
  p.Data("x", {-1, 3, 8});
  p.Parameter("w", {4, 3, 1, 3});
  p.Parameter("v", {2, 8, 1, 1});
  // Small, so that the sums round less than the tolerance.
  Tensor small = OpProgram::Drawn({2, 8, 1, 1});
  for (double& value : small.span<double>()) value *= 0.01;
  p.scope.Set("v", small.Cast(DType::kFloat32));
  for (const char* name : {"scale", "shift", "mean"}) p.Parameter(name, {4});
  p.Parameter("variance", {4});
  p.scope.Set("variance", Tensor::Of<float>({4}, {0.5f, 1, 2, 3}));
  Conv1d(p, "x", "w", "a");
  p.Append("batch_norm",
           {{"X", {"a"}},
            {"Scale", {"scale"}},
            {"Bias", {"shift"}},
            {"Mean", {"mean"}},
            {"Variance", {"variance"}}},
           {{"Y", {"n"}}, {"MeanOut", {"mean"}}, {"VarianceOut", {"variance"}}},
           {{"is_test", true}});
  p.Unary("unsqueeze2", "n", "n4", {{"axes", Ints{2}}});
  p.Append("pool2d", {{"X", {"n4"}}}, {{"Out", {"m4"}}},
           {{"pooling_type", std::string("max")},
            {"ksize", Ints{1, 3}},
            {"strides", Ints{1, 1}},
            {"paddings", Ints{0, 1}}});
  p.Unary("squeeze2", "m4", "m", {{"axes", Ints{-2}}});
  p.Append("concat", {{"X", {"m", "n"}}}, {{"Out", {"c"}}}, {{"axis", int32_t{-2}}});
  Conv1d(p, "c", "v", "h", {0, 0});
  p.Unary("tanh", "h", "y");
  const std::string after = After(p, {"y"});
  EXPECT_NE(after.find("Out=c@IMAGE = concat(X=m4+n@IMAGE) axis=1"), std::string::npos) << after;
  EXPECT_NE(after.find("conv2d(Input=c@IMAGE, Filter=v)"), std::string::npos) << after;
  p.ExpectSame({"y"});
}

// The height is 1 only if nothing changes it: the squeeze of another height keeps it.
TEST(MoveSqueezes, NearMisses) {
  for (int miss = 0; miss < 5; ++miss) {
    SCOPED_TRACE(miss);
    OpProgram p;
    p.Data("x", {-1, 3, 8});
    p.Parameter("w", {4, 3, miss == 0 ? 2 : 1, 3});
    p.Parameter("v", {4, 4, 1, 1});
    p.Data("d", {4, 8});
    Conv1d(p, "x", "w", "a", miss <= 1 ? Ints{1, 1} : Ints{0, 1});
    if (miss <= 1) {  // a height of 2 or 3 remains, and the squeeze keeps it
      p.Append("conv2d", {{"Input", {"a"}}, {"Filter", {"v"}}}, {{"Output", {"y"}}});
    } else if (miss == 2) {  // the unsqueeze makes another image
      p.Unary("relu", "a", "r");
      p.Unary("unsqueeze2", "r", "y4", {{"axes", Ints{3}}});
      p.Append("conv2d", {{"Input", {"y4"}}, {"Filter", {"v"}}}, {{"Output", {"y"}}});
    } else if (miss == 3) {  // an operand that is fed
      Binary(p, "elementwise_add", "a", "d", "y");
    } else {  // axis 1 of a signal is not axis 1 of every image
      p.Unary("softmax", "a", "y", {{"axis", int32_t{1}}});
    }
    const std::string after = After(p, {"y"});
    const bool kept = after.find("Out=a = squeeze2(X=a.4)") != std::string::npos;
    EXPECT_EQ(kept, miss != 2) << after;
    EXPECT_EQ(after.find("@IMAGE") == std::string::npos, miss != 2) << after;
    EXPECT_EQ(after.find("Out=y4 = unsqueeze2(X=r)") != std::string::npos, miss == 2) << after;
    p.ExpectSame({"y"});
  }
}

// A transpose meets another one through an unsqueeze and a squeeze.
TEST(MoveSqueezes, TransposesPassSqueezes) {
  OpProgram p;
  p.Data("x", {-1, 8, 3});
  p.Parameter("w", {4, 3, 1, 3});
  p.Transpose("x", "t", {0, 2, 1});
  Conv1d(p, "t", "w", "a");
  p.Transpose("a", "b", {0, 2, 1});
  p.Unary("relu", "b", "y");
  const std::string after = p.After({"nhwc", "move_transposes"}, {"y"}, true);
  EXPECT_EQ(after.find("transpose2"), std::string::npos) << after;
  p.ExpectSame({"y"});
}

// A transpose that drops LoD does so when it is exchanged with an unsqueeze or a squeeze, too.
TEST(ExchangeSqueezes, LodIsKeptOrDroppedAsBefore) {
  for (const bool keeps : {false, true}) {
    for (const bool squeeze_after : {false, true}) {
      SCOPED_TRACE(testing::Message() << keeps << squeeze_after);
      OpProgram p;
      p.Data("x", {3, 4, 5});
      p.feeds["x"].lod() = {{0, 1, 3}};
      p.root().Var("x").SetLoDLevel(1);
      p.Unary("unsqueeze2", "x", "v", {{"axes", std::vector<int32_t>{1}}});
      p.Transpose("v", "y", {0, 1, 3, 2}, keeps);
      if (squeeze_after) p.Unary("squeeze2", "y", "z", {{"axes", std::vector<int32_t>{1}}});
      const std::string last = squeeze_after ? "z" : "y";
      p.ExpectSame({last});
      const Tensor got = Executor().Run(p.program, p.scope, p.feeds, {last})[0];
      EXPECT_EQ(!got.lod().empty(), keeps);
    }
  }
}

}  // namespace coracle::move_squeezes_test
