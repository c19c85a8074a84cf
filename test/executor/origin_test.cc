// Errors of a run name ops, variables and shapes of the program as it was given, whatever passes
// made of it.

#include <coracle/executor/compiled_program.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/ir/origin.h>
#include <gtest/gtest.h>

#include <cmath>

#include "../origins.h"
#include "../real_models.h"
#include "op_net.h"

namespace coracle::origin_test {

// Convolution, then elementwise ops, which passes put into NHWC and join in a block of their own.
struct ImageNet : OpNet {
  ImageNet() {
    Var("x", {-1, 3, 8, 8});
    Var("b", {-1, 4, -1, -1});
    Var("f", {4, 3, 3, 3}, true);
    for (const char* name : {"c", "t", "u", "s", "v"}) Var(name, {-1, 4, -1, -1});
    BlockDesc& root = program.Root();
    root.AppendOp("conv2d", {{"Input", {"x"}}, {"Filter", {"f"}}}, {{"Output", {"c"}}},
                  {{"strides", std::vector<int32_t>{1, 1}},
                   {"paddings", std::vector<int32_t>{0, 0}},
                   {"dilations", std::vector<int32_t>{1, 1}}});
    root.AppendOp("tanh", {{"X", {"c"}}}, {{"Out", {"t"}}});
    root.AppendOp("elementwise_add", {{"X", {"t"}}, {"Y", {"b"}}}, {{"Out", {"u"}}});
    root.AppendOp("sigmoid", {{"X", {"u"}}}, {{"Out", {"s"}}});
    root.AppendOp("log", {{"X", {"s"}}}, {{"Out", {"v"}}});
    scope.Set("f", Tensor::Full<float>({4, 3, 3, 3}, 0.1f));
  }

  void Run(const CompileOptions& options, const Tensor& x, const Tensor& b) {
    Executor(options).Prepare(program, {"x", "b"}, {"v"}).Run(scope, {x, b});
  }
  std::string ErrorOf(const CompileOptions& options, const Tensor& x, const Tensor& b) {
    try {
      Run(options, x, b);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  Scope scope;
};

// The text is that of the program as it was given: the same as without passes.
TEST(Origin, ErrorsOfShapesAreThoseOfTheGivenProgram) {
  ImageNet net;
  const Tensor x = Tensor::Full<float>({1, 3, 8, 8}, 1);
  for (const Shape& shape : {Shape{1, 4, 5, 6}, Shape{1, 4, 6, 5}, Shape{2, 3, 6, 6}}) {
    const Tensor b = Tensor::Full<float>(shape, 1);
    CompileOptions plain;
    plain.optimize = false;
    const std::string expected = net.ErrorOf(plain, x, b);
    EXPECT_NE(expected.find("elementwise_add"), std::string::npos) << expected;
    EXPECT_NE(expected.find("op 2 of block 0"), std::string::npos) << expected;
    EXPECT_NE(expected.find("'t' float32[1, 4, 6, 6]"), std::string::npos) << expected;
    const std::string message = net.ErrorOf({}, x, b);
    EXPECT_EQ(message.substr(0, expected.size()), expected);
  }
  // The passes did rewrite it.
  const ProgramDesc compiled = Executor().Prepare(net.program, {"x", "b"}, {"v"}).program();
  EXPECT_GT(compiled.NumBlocks(), 1);
  EXPECT_NE(PrintProgram(compiled).find("@NHWC"), std::string::npos);
}

TEST(Origin, OutOfMemoryNamesTheGivenVariable) {
  ImageNet net;
  CompileOptions options;
  options.memory_limit = 6 << 20;
  // The image fits, the result of the convolution does not, to which tanh is applied at once.
  const Tensor x(DType::kFloat32, {1, 3, 700, 700}), b(DType::kFloat32, {1, 4, 1, 1});
  const std::string message = net.ErrorOf(options, x, b);
  EXPECT_NE(message.find("conv2d: out of memory: 't' float32[1, 4, 698, 698] takes"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("ops 0 and 1 of block 0"), std::string::npos) << message;
  EXPECT_EQ(message.find('@'), std::string::npos) << message;
}

// In NHWC the element has another place.
TEST(Origin, NumericChecksNameTheGivenElement) {
  ImageNet net;
  net.scope.Set("f", [] {
    Tensor f = Tensor::Zeros(DType::kFloat32, {4, 3, 3, 3});
    f.data<float>()[27 * 2] = NAN;  // of channel 2
    return f;
  }());
  CompileOptions check;
  check.check_nan_inf = true;
  const std::string message = net.ErrorOf(check, Tensor::Full<float>({1, 3, 8, 8}, 1),
                                          Tensor::Zeros(DType::kFloat32, {1, 4, 6, 6}));
  EXPECT_NE(message.find("conv2d: output var 't' float32[1, 4, 6, 6] has a nan or inf at index 72"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("ops 0 and 1 of block 0"), std::string::npos) << message;
}

// Kernels say what is wrong with values; the op's place is added, that of the innermost block.
TEST(Origin, ErrorsOfKernelsSayWhere) {
  OpNet net;
  net.Var("x", {-1, 3});
  net.Var("ids", {-1}, false, DType::kInt64);
  net.Var("y", {-1, 3});
  net.Var("z", {-1, 3});
  BlockDesc& root = net.program.Root();
  root.AppendOp("tanh", {{"X", {"x"}}}, {{"Out", {"z"}}});
  root.AppendOp("gather", {{"X", {"z"}}, {"Index", {"ids"}}}, {{"Out", {"y"}}});
  Scope scope;
  Tensor ids(DType::kInt64, {1});
  ids.data<int64_t>()[0] = 9;
  ExpectMessage(
      [&] {
        Executor()
            .Prepare(net.program, {"x", "ids"}, {"y"})
            .Run(scope, {Tensor::Full<float>({2, 3}, 1), ids});
      },
      "op 1 of block 0");
}

// The op of a function is named where the function has it, and so is its variable.
TEST(Origin, OfCallsItIsThePlaceInTheFunction) {
  OpNet net;
  net.Var("x", {-1, 3});
  net.Var("w", {-1, -1});
  net.Var("y", {-1, -1});
  BlockDesc& root = net.program.Root();
  BlockDesc& function = net.program.AppendBlock(root);
  for (const char* name : {"a", "b", "c", "d"}) function.Var(name).SetShape({-1, -1});
  function.AppendOp("tanh", {{"X", {"a"}}}, {{"Out", {"c"}}});
  function.AppendOp("mul", {{"X", {"c"}}, {"Y", {"b"}}}, {{"Out", {"d"}}});
  root.AppendOp("call", {{"X", {"x", "w"}}}, {{"Out", {"y"}}},
                {{"sub_block", BlockRef{function.idx()}},
                 {"parameters", std::vector<std::string>{"a", "b"}},
                 {"results", std::vector<std::string>{"d"}}});
  Scope scope;
  const auto run = [&] {
    Executor()
        .Prepare(net.program, {"x", "w"}, {"y"})
        .Run(scope, {Tensor::Full<float>({2, 3}, 1), Tensor::Full<float>({4, 2}, 1)});
  };
  ExpectMessage(run, "'c' float32[2, 3]");
  ExpectMessage(run, "op 1 of block 1");
}

TEST(Origin, SeveralPlaces) {
  EXPECT_EQ(DescribePlaces({{0, 7}}), "op 7 of block 0");
  EXPECT_EQ(DescribePlaces({{0, 2}, {0, 3}, {0, 4}}), "ops 2, 3 and 4 of block 0");
  EXPECT_EQ(DescribePlaces({{0, 2}, {1, 0}, {1, 4}}), "op 2 of block 0 and ops 0 and 4 of block 1");
  std::vector<OpOrigin> many;
  for (int i = 0; i < 100; ++i) many.push_back({0, i});
  EXPECT_EQ(DescribePlaces(many), "ops 0, 1, 2, 3, 4, 5, 6, 7 and 92 more of block 0");
}

TEST(Origin, AxesComeBackInTheirOrder) {
  VarOrigins origins;
  origins.Add("x@NHWC", "x", {0, 2, 3, 1});
  origins.Add("x@NHWC@FUSED", "x@NHWC");
  origins.Add("x@TWICE", "x@NHWC", {0, 2, 3, 1});
  const auto shape = [&](const std::string& name, const Shape& now) {
    return origins.MetaOf(name, {VarType::kLoDTensor, DType::kFloat32, now, 0}).shape;
  };
  EXPECT_EQ(origins.NameOf("x@NHWC@FUSED"), "x");
  EXPECT_EQ(origins.NameOf("other"), "other");
  EXPECT_EQ(shape("x@NHWC@FUSED", {1, 3, 12, 96}), (Shape{1, 96, 3, 12}));
  EXPECT_EQ(shape("x@TWICE", {1, 12, 96, 3}), (Shape{1, 96, 3, 12}));
  EXPECT_EQ(shape("x@NHWC", {4, 4}), (Shape{4, 4}));
  // Every element of [2, 3, 4, 5].
  for (int64_t i = 0; i < 120; ++i) {
    const int64_t n = i / 60, h = i / 15 % 4, w = i / 3 % 5, c = i % 3;
    EXPECT_EQ(origins.IndexOf("x@NHWC", {2, 4, 5, 3}, i), ((n * 3 + c) * 4 + h) * 5 + w);
  }
}

// Every op of a compiled program has an origin, in the models that Paddle exported too.
TEST(Origin, RealModels) {
  if (TestDataDirectory().empty()) GTEST_SKIP() << "the exported models are not there";
  ForEachModel(64, [](const DrawnModel& model) {
    const CompiledProgram plain(model.program, {}, {}, {}, DefaultOps(), {});
    EXPECT_EQ(OriginDefect(model.program, plain.program(), &plain.origins()), "");
    const CompiledProgram frozen(model.program, {}, {}, {}, DefaultOps(), {&model.scope, nullptr});
    EXPECT_EQ(OriginDefect(model.program, frozen.program(), &frozen.origins()), "");
  });
}

}  // namespace coracle::origin_test
