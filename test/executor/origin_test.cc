// Errors of a run name ops, variables and shapes of the program as it was given, whatever passes
// made of it.

#include <coracle/executor/compiled_program.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/ir/origin.h>
#include <coracle/framework/op/op_def.h>
#include <coracle/inspect/inspect.h>
#include <coracle/test/executor/op_net.h>
#include <coracle/test/origins.h>
#include <coracle/test/real_models.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

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

// The error's text names ops of the original program, as without passes.
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

// Kernels report what is wrong with values; the executor adds the op's place in the
// innermost block.
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

// Blocks that the program in `net` has: 1, a function that runs block 2 for each row of its
// parameter; 2, which should give 'o' a value. Returns block 2.
BlockDesc& AppendCallOfLoop(OpNet& net) {
  net.Var("x", {-1, 3});
  net.Var("y", {-1, -1});
  BlockDesc& root = net.program.Root();
  BlockDesc& function = net.program.AppendBlock(root);
  for (const char* name : {"a", "o"}) function.Var(name).SetShape({-1, -1});
  BlockDesc& body = net.program.AppendBlock(function);
  for (const char* name : {"a", "o"}) body.Var(name).SetShape({-1});
  function.Var("scopes").SetType(VarType::kStepScopes);
  function.AppendOp("recurrent", {{"inputs", {"a"}}},
                    {{"outputs", {"o"}}, {"step_scopes", {"scopes"}}},
                    {{"sub_block", BlockRef{body.idx()}},
                     {"ex_states", std::vector<std::string>{}},
                     {"states", std::vector<std::string>{}}});
  root.AppendOp("call", {{"X", {"x"}}}, {{"Out", {"y"}}},
                {{"sub_block", BlockRef{function.idx()}},
                 {"parameters", std::vector<std::string>{"a"}},
                 {"results", std::vector<std::string>{"o"}}});
  return body;
}

// The copy of the block that the call makes has another index, and its first op may be missing or
// come from yet another function.
TEST(Origin, BlocksInFunctionsAreNamedAsGiven) {
  for (const bool calls : {false, true}) {
    OpNet net;
    BlockDesc& body = AppendCallOfLoop(net);
    if (calls) {
      BlockDesc& inner = net.program.AppendBlock(net.program.Root());
      for (const char* name : {"p", "q"}) inner.Var(name).SetShape({-1});
      inner.AppendOp("tanh", {{"X", {"p"}}}, {{"Out", {"q"}}});
      body.Var("unused").SetShape({-1});
      body.AppendOp("call", {{"X", {"a"}}}, {{"Out", {"unused"}}},
                    {{"sub_block", BlockRef{inner.idx()}},
                     {"parameters", std::vector<std::string>{"p"}},
                     {"results", std::vector<std::string>{"q"}}});
    }
    Scope scope;
    ExpectMessage(
        [&] {
          Executor()
              .Prepare(net.program, {"x"}, {"y"})
              .Run(scope, {Tensor::Full<float>({2, 3}, 1)});
        },
        "block 2 gives no value to its var 'o'");
  }
}

TEST(Origin, BlocksOfCopiesAndAfterReordering) {
  ProgramOrigins origins;
  EXPECT_EQ(origins.GivenBlock(7), 7);
  EXPECT_EQ(origins.GivenBlock(-1), -1);
  origins.AddBlock(4, 2);
  origins.AddBlock(6, 4);  // a copy of the copy
  for (const auto& [block, given] : {std::pair{3, 3}, {4, 2}, {5, 5}, {6, 2}, {7, 7}})
    EXPECT_EQ(origins.GivenBlock(block), given) << block;
  origins.ReorderBlocks({0, 6, 3, 4});
  for (const auto& [block, given] : {std::pair{0, 0}, {1, 2}, {2, 3}, {3, 2}})
    EXPECT_EQ(origins.GivenBlock(block), given) << block;
}

// --- the attr in files ---

bool HasOriginAttr(const ProgramDesc& program) {
  bool found = false;
  program.ForEachOp([&](const OpDesc& op) { found |= op.HasAttr(kOpOriginAttr); });
  return found;
}

// A prepared program that a caller saves has no attr of the compiler.
TEST(Origin, PreparedProgramsDoNotShowTheAttr) {
  ImageNet net;
  for (const bool optimize : {true, false}) {
    CompileOptions options;
    options.optimize = optimize;
    PreparedProgram prepared = Executor(options).Prepare(net.program, {"x", "b"}, {"v"});
    EXPECT_TRUE(HasOriginAttr(prepared.compiled()->program()));
    EXPECT_FALSE(HasOriginAttr(prepared.program()));
    EXPECT_EQ(SerializeProgram(prepared.program()).find(kOpOriginAttr), std::string::npos);
    EXPECT_EQ(PrintProgram(prepared.program()), PrintProgram(prepared.compiled()->program()));
  }
}

// Values that a file may have for the attr: of other types, of ops that there are not, and of
// another op.
const std::vector<Attribute>& ForeignOrigins() {
  static const std::vector<Attribute> all = {
      std::string("op 7"),
      int32_t{1},
      true,
      2.5f,
      int64_t{-1},
      INT64_MAX,
      INT64_MIN,
      int64_t{5} << 32 | 3,
      int64_t{0},
      std::vector<int64_t>{},
      std::vector<int64_t>{9, 3, 3, -4},
      std::vector<int64_t>(100, int64_t{77} << 32),
      std::vector<std::string>{"x"},
  };
  return all;
}

// tanh, then a product, which a wrong w does not fit.
struct Product : OpNet {
  explicit Product(const Attribute* origin = nullptr) {
    Var("x", {-1, 3});
    Var("w", {-1, -1});
    Var("t", {-1, 3});
    Var("y", {-1, -1});
    program.Root().AppendOp("tanh", {{"X", {"x"}}}, {{"Out", {"t"}}});
    program.Root().AppendOp("mul", {{"X", {"t"}}, {"Y", {"w"}}}, {{"Out", {"y"}}});
    if (!origin) return;
    program.ForEachOp([&](OpDesc& op) { op.SetAttr(kOpOriginAttr, *origin); });
  }
  std::string Run(int64_t rows_of_w) const {
    Scope scope;
    try {
      const Tensor x = Tensor::Full<float>({2, 3}, 1), w = Tensor::Full<float>({rows_of_w, 2}, 1);
      return Executor().Prepare(program, {"x", "w"}, {"y"}).Run(scope, {x, w})[0].ToString();
    } catch (const Error& error) {
      return error.what();
    }
  }
};

std::string Problems(const ProgramDesc& program) {
  std::string text;
  for (const VerifyProblem& problem : Verify(program, DefaultOps()))
    text += problem.ToString() + "\n" + problem.details + "\n";
  return text;
}

TEST(Origin, TheAttrOfAFileIsNotBelieved) {
  const Product plain;
  const std::string error = plain.Run(4);
  EXPECT_NE(error.find("op 1 of block 0"), std::string::npos) << error;
  Product wrong;
  wrong.program.Root().op(1).RemoveInput("Y");
  EXPECT_NE(Problems(wrong.program).find("op 1"), std::string::npos) << Problems(wrong.program);
  for (const Attribute& origin : ForeignOrigins()) {
    SCOPED_TRACE(ToString(origin));
    Product hostile(&origin);
    EXPECT_EQ(Problems(hostile.program), "");
    EXPECT_EQ(PrintProgram(hostile.program), PrintProgram(plain.program));
    EXPECT_TRUE(DiffPrograms(plain.program, hostile.program, DefaultOps()).empty());
    EXPECT_EQ(Locate(hostile.program.Root().op(1)), "op 1 of block 0");
    EXPECT_EQ(hostile.Run(3), plain.Run(3));
    EXPECT_EQ(hostile.Run(4), error);
    hostile.program.Root().op(1).RemoveInput("Y");
    EXPECT_EQ(Problems(hostile.program), Problems(wrong.program));
  }
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
  ProgramOrigins origins;
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
