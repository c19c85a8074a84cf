// One test for each weakness that the specification of fluid.backward lists, by its number; each
// fails on the behaviour that the list describes.

#include <coracle/clip/clip.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/test/backward/loop_ops.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

namespace coracle::paddle_weaknesses_test {

using Names = std::vector<std::string>;

BackwardOptions Options() {
  BackwardOptions options;
  options.ops = &LoopOps();
  return options;
}

Names Types(const BlockDesc& block, size_t from = 0) {
  Names types;
  for (size_t i = from; i < block.NumOps(); ++i) types.push_back(block.op(i).type());
  return types;
}

template <class F>
std::string MessageOf(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// 1: path finding in time of ops times names. A set that is copied per op takes hours here.
TEST(PaddleWeaknesses, W1_PathsInLinearTime) {
  TestProgram test({1});
  const int kOps = 40'000;
  for (int i = 0; i < kOps; ++i) test.Param(fmt::format("p{}", i));
  std::string last = "p0";
  for (int i = 1; i < kOps; ++i)
    last = test.Op("t_add", {last, fmt::format("p{}", i)}, fmt::format("h{}", i));
  const auto pairs = AppendBackward(test.Loss(last), Options());
  ASSERT_EQ(pairs.size(), static_cast<size_t>(kOps));
  for (const ParamAndGrad& pair : pairs) EXPECT_EQ(pair.grad, pair.param + "@GRAD");
}

// 2: every second contribution renames all ops so far, every sum moves the list.
TEST(PaddleWeaknesses, W2_ManyContributionsInLinearTime) {
  TestProgram test({1});
  test.Param("w");
  const int kReaders = 20'000;
  std::string total = test.Op("t_tanh", {"w"}, "h0");
  for (int i = 1; i < kReaders; ++i) {
    test.Op("t_tanh", {"w"}, fmt::format("h{}", i));
    total = test.Op("t_add", {total, fmt::format("h{}", i)}, fmt::format("t{}", i));
  }
  const auto pairs = AppendBackward(test.Loss(total), Options());
  EXPECT_EQ(pairs[0].grad, "w@GRAD");
  const OpDesc& sum = test.root().op(test.root().NumOps() - 1);
  EXPECT_EQ(sum.type(), "sum");
  EXPECT_EQ(sum.Input("X").size(), static_cast<size_t>(kReaders));
}

// 3: contributions to the values that one name takes in turn are added up as if they were one.
TEST(PaddleWeaknesses, W3_OverwrittenNames) {
  TestProgram test;
  test.Param("w");
  test.Param("v");
  test.Op("t_tanh", {"w"}, "h");
  test.Op("t_square", {"h"}, "a");
  test.Op("t_tanh", {"v"}, "h");  // has nothing to do with the first h
  test.Op("t_square", {"h"}, "b");
  auto pairs = AppendBackward(test.Loss(test.Op("t_mul", {"a", "b"}, "ab")), Options());
  EXPECT_EQ(test.CountOps("sum"), 0);
  ExpectGradients(test, pairs);
}

// 4: a counter that is written twice is renamed and summed like a gradient, and rewound.
TEST(PaddleWeaknesses, W4_CountersAreLeftAlone) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  root.Var("x").SetShape({2});
  auto op = [&](const char* type, SlotList in, const char* out, AttrList attrs = {}) {
    InferOp(root, root.AppendOp(type, std::move(in), {{"Out", {out}}}, std::move(attrs)),
            DefaultOps());
  };
  op("fill_constant", {}, "i",
     {{"shape", std::vector<int64_t>{1}},
      {"value", 0.f},
      {"dtype", static_cast<int32_t>(DType::kFloat32)}});
  op("elementwise_add", {{"X", {"x"}}, {"Y", {"i"}}}, "y");
  for (int k = 0; k < 2; ++k) {
    op("increment", {{"X", {"i"}}}, "i", {{"step", 1.f}});
    op("elementwise_mul", {{"X", {"y"}}, {"Y", {"i"}}}, "y");
  }
  const Names grads = Gradients({Variable::Of(root, "y")}, {Variable::Of(root, "x")});
  for (size_t k = 0; k < root.NumOps(); ++k) {
    if (root.op(k).role() != kBackward) continue;
    root.op(k).ForEachOutput(
        [&](const std::string& name) { EXPECT_NE(name, "i") << root.op(k).type(); });
  }
  VarValues env;
  env["x"] = Tensor::Of<float>({2}, {3, 5});
  Interpret(root, DefaultOps(), env);
  EXPECT_EQ(Values(env, "i"), std::vector<double>{2});
  EXPECT_EQ(Values(env, grads[0]), (std::vector<double>{2, 2}));  // 1 * 2
}

// 5: every op of a sub-block is differentiated, and what did not run leaves garbage.
TEST(PaddleWeaknesses, W5_SubBlocks) {
  for (int times : {0, 2}) {
    TestProgram test;
    test.Param("w");
    test.Data("x");
    test.Op("t_square", {"w"}, "h");
    BlockDesc& body = test.program.AppendBlock(test.root());
    TestProgram::AppendTo(body, "t_square", {"x"}, "aside");
    TestProgram::AppendTo(body, "t_tanh", {"h"}, "h");
    test.root().AppendOp("t_loop", {{"X", {"h", "x"}}}, {{"Out", {"h"}}},
                         {{"sub_block", BlockRef{body.idx()}}, {"times", int32_t{times}}});
    auto pairs = AppendBackward(test.Loss("h"), Options());
    EXPECT_EQ(Types(test.program.Block(2)), Names{"t_tanh_grad"});
    ExpectLoopGradients(test, pairs);
  }
}

// 6: pieces that lead nowhere are filled with zeros and summed; the caller's set grows.
TEST(PaddleWeaknesses, W6_NoDeadPieces) {
  TestProgram test;
  test.Param("w");
  test.Param("v");
  test.Op("t_square", {"v"}, "n");
  test.Op("t_mul", {"w", "n"}, "a");
  test.Op("t_mul", {"a", "n"}, "b");
  BackwardOptions options = Options();
  options.no_grad_set = {"n"};
  const BackwardOptions before = options;
  auto pairs = AppendBackward(test.Loss("b"), options);
  EXPECT_EQ(options.no_grad_set, before.no_grad_set);
  EXPECT_EQ(pairs[1].grad, "");
  EXPECT_EQ(test.CountOps("fill_zeros_like"), 0);
  EXPECT_EQ(test.CountOps("sum"), 0);
  for (const char* name : {"n@GRAD", "v@GRAD"}) EXPECT_EQ(test.root().FindVar(name), nullptr);
}

// 7: in a sub-block the gradients heed the root's no-grad set; foreign inputs raise a string.
TEST(PaddleWeaknesses, W7_GradientsInASubBlock) {
  TestProgram test;
  test.Param("w");
  BlockDesc& inner = test.program.AppendBlock(test.root());
  TestProgram::AppendTo(inner, "t_square", {"w"}, "a");
  TestProgram::AppendTo(inner, "t_tanh", {"w"}, "b");
  TestProgram::AppendTo(inner, "t_mul", {"a", "b"}, "c");
  inner.FindVar("a")->SetStopGradient(true);
  Variable c = Variable::Of(inner, "c"), w = Variable::Of(inner, "w");
  const Names grads = Gradients({c}, {w}, Options());
  EXPECT_NE(inner.FindVar(grads[0]), nullptr);
  EXPECT_EQ(inner.FindVar("a@GRAD"), nullptr);
  // A variable outside the block is not silently a constant.
  test.Op("t_square", {"w"}, "outer");
  TestProgram::AppendTo(inner, "t_tanh", {"outer"}, "d");
  const Names through = Gradients({Variable::Of(inner, "d")}, {w}, Options());
  ASSERT_EQ(Types(inner).back(), "t_square_grad");
  EXPECT_EQ(inner.op(inner.NumOps() - 1).Output("X@GRAD"), through);
  TestProgram other;
  other.Param("w");
  EXPECT_NE(MessageOf([&] {
              Gradients({c}, {other.Var("w")}, Options());
            }).find("the input 'w' is not a variable of the program of the targets"),
            std::string::npos);
}

// 8: callbacks are not checked, the clip has no role, a strange entry stays in the map.
TEST(PaddleWeaknesses, W8_Callbacks) {
  TestProgram test;
  test.Param("w");
  test.Op("t_square", {"w"}, "h");
  test.root().FindVar("h")->SetErrorClip(ErrorClipByValue(1));
  Variable loss = test.Loss(test.Op("t_tanh", {"h"}, "y"));
  BackwardOptions options = Options();
  options.callbacks = {BackwardCallback()};
  EXPECT_NE(MessageOf([&] { AppendBackward(loss, options); }).find("a callback is empty"),
            std::string::npos);
  options.callbacks = {ErrorClipCallback};
  GradToVar map;
  AppendBackward(loss, options, &map);
  EXPECT_EQ(test.CountOps("clip"), 1);
  for (size_t i = 0; i < test.root().NumOps(); ++i) {
    if (test.root().op(i).type() == "clip") {
      EXPECT_EQ(test.root().op(i).role(), kBackward);
    }
  }
  for (const auto& [grad, var] : map) EXPECT_EQ(grad, var + "@GRAD");
}

// 9: any loss is taken, and its gradient has the shape [1].
TEST(PaddleWeaknesses, W9_ShapeOfTheLoss) {
  TestProgram test({1, 1});
  test.Param("w");
  test.Op("t_square", {"w"}, "y");
  AppendBackward(test.Var("y"), Options());
  EXPECT_EQ(test.root().FindVar("y@GRAD")->shape(), (Shape{1, 1}));
  TestProgram wide({2, 3});
  wide.Param("w");
  wide.Op("t_square", {"w"}, "y");
  EXPECT_NE(MessageOf([&] { AppendBackward(wide.Var("y"), Options()); }).find("one element"),
            std::string::npos);
}

// 10: a parameter without gradient, and an unknown one, are passed over in silence.
TEST(PaddleWeaknesses, W10_ParametersWithoutGradient) {
  TestProgram test;
  test.Param("w");
  test.Param("idle");
  Variable loss = test.Loss("w");
  EXPECT_EQ(AppendBackward(loss, Options()),
            (std::vector<ParamAndGrad>{{"w", "w@GRAD"}, {"idle", ""}}));
  BackwardOptions options = Options();
  options.parameter_list = {"vv"};
  EXPECT_NE(MessageOf([&] { AppendBackward(loss, options); }).find("'vv'"), std::string::npos);
}

// 11: the gradient of a gradient is mistaken for the gradient of the variable.
TEST(PaddleWeaknesses, W11_GradientsOfGradients) {
  TestProgram test;
  test.Param("w");
  test.Op("t_mul", {"w", "w"}, "y");
  const Names first = Gradients({test.Var("y")}, {test.Var("w")}, Options());
  test.Op("t_mul", {first[0], first[0]}, "g2");
  GradToVar map;
  const Names second = Gradients({test.Var("g2")}, {test.Var("w")}, Options(), &map);
  EXPECT_EQ(map.at("w@GRAD@GRAD"), "w@GRAD");
  EXPECT_EQ(map.at(second[0]), "w");
  VarValues env = test.Run(test.Inputs());
  const auto w = Values(env, "w"), got = Values(env, second[0]);
  for (size_t i = 0; i < w.size(); ++i) EXPECT_NEAR(got[i], 8 * w[i], 1e-13);  // (2 w)^2
}

// 12: what is a parameter, what stops gradients and what clips them is lost with the file.
TEST(PaddleWeaknesses, W12_AfterSavingAndLoading) {
  TestProgram test;
  test.Param("w");
  test.Param("v");
  test.Op("t_square", {"w"}, "h");
  test.Op("t_mul", {"h", "v"}, "y");
  test.root().FindVar("v")->SetStopGradient(true);
  test.root().FindVar("h")->SetErrorClip(ErrorClipByValue(0.5));
  test.Loss("y");
  ProgramDesc loaded = ParseProgram(SerializeProgram(test.program));
  BackwardOptions options = Options();
  options.callbacks = {ErrorClipCallback};
  const auto pairs = AppendBackward(test.Var("loss"), options);
  EXPECT_EQ(AppendBackward(Variable::Of(loaded.Root(), "loss"), options), pairs);
  EXPECT_TRUE(loaded == test.program);
  EXPECT_EQ(test.CountOps("clip"), 1);
  // The links to forward ops are kept too.
  ProgramDesc again = ParseProgram(SerializeProgram(loaded));
  int links = 0;
  for (size_t i = 0; i < again.Root().NumOps(); ++i) {
    const OpDesc* forward = FindForwardOp(again.Root().op(i));
    links += forward != nullptr;
    if (again.Root().op(i).type() == "t_square_grad") {
      EXPECT_EQ(forward, &again.Root().op(0));
    }
  }
  EXPECT_GE(links, 3);
}
}  // namespace coracle::paddle_weaknesses_test
