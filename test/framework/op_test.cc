// Op definitions, registry, libraries and the interpreter.

#include <coracle/framework/base/file.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/operators.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

namespace coracle::op_test {

OpDef Sample(const std::string& type) {
  return OpDef(type).Doc("Out = X.").Input("X", "x").Output("Out", "out").NoGradient("a sample");
}

TEST(OpRegistry, TypesAreUniqueAndSorted) {
  OpRegistry ops;
  ops.Add(Sample("b"));
  ops.Add(Sample("a"));
  EXPECT_THROW(ops.Add(Sample("a")), Error);
  EXPECT_EQ(ops.Types(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(ops.Find("c"), nullptr);
  try {
    DefaultOps().Get("clp");
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kNotFound);
    EXPECT_NE(e.message().find("did you mean"), std::string::npos) << e.message();
  }
}

TEST(OpRegistry, ContradictoryDeclarationsAreRefused) {
  OpRegistry ops;
  EXPECT_THROW(ops.Add(OpDef("no_doc").NoGradient("x")), InternalError);
  EXPECT_THROW(ops.Add(OpDef("no_gradient_rule").Doc("d")), InternalError);
  EXPECT_THROW(ops.Add(Sample("twice").Input("X", "again")), InternalError);
  EXPECT_THROW(ops.Add(Sample("undocumented").Attr<float>("a", "")), InternalError);
  EXPECT_THROW(ops.Add(Sample("place").Inplace("X", "Nowhere")), InternalError);
}

TEST(OpDef, AttrsAreConvertedOrDefaulted) {
  const OpSpec def =
      Sample("t").Attr<int64_t>("axis", -1, "axis").Attr<float>("scale", "scale").spec();
  OpDesc op("t", {}, {}, {{"axis", int32_t{2}}});
  EXPECT_EQ(def.AttrOf<int64_t>(op, "axis"), 2);
  EXPECT_EQ(def.AttrOf<int64_t>(OpDesc("t"), "axis"), -1);
  EXPECT_THROW(def.AttrOf<float>(op, "scale"), Error);          // required
  EXPECT_THROW(def.AttrOf<float>(op, "other"), InternalError);  // not declared
  op.SetAttr("axis", std::string("x"));
  EXPECT_THROW(def.AttrOf<int64_t>(op, "axis"), Error);
}

TEST(OpDef, InferAsksForLimits) {
  OpRegistry ops;
  ops.Add(Sample("limited")
              .Attr<float>("scale", 1.f, "factor")
              .Range(0, 10)
              .Attr<std::vector<int32_t>>("sizes", {}, "sizes")
              .Range(1, {})
              .Attr<std::string>("mode", "same", "how")
              .OneOf({"same", "valid"})
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", ctx.Input("X")); }));
  const auto error = [&](AttrList attrs) -> std::string {
    ProgramDesc program;
    BlockDesc& block = program.Root();
    block.Var("x").SetShape({2});
    const OpDesc& op =
        block.AppendOp("limited", {{"X", {"x"}}}, {{"Out", {"y"}}}, std::move(attrs));
    try {
      InferOp(block, op, ops);
      return "";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
      return e.message();
    }
  };
  using Ints = std::vector<int32_t>;
  EXPECT_EQ(error({}), "");
  EXPECT_EQ(error({{"scale", 10}, {"sizes", Ints{1, 2}}, {"mode", std::string("valid")}}), "");
  EXPECT_EQ(error({{"scale", 11}}), "limited: attr scale must lie in [0, 10], got 11");
  EXPECT_EQ(error({{"scale", std::nanf("")}}), "limited: attr scale must lie in [0, 10], got nan");
  EXPECT_EQ(error({{"sizes", Ints{1, 0}}}), "limited: attr sizes must be at least 1, got [1, 0]");
  EXPECT_EQ(error({{"mode", std::string("sane")}}),
            "limited: attr mode must be one of same, valid, got 'sane'; did you mean same?");
}

// A text is not accepted as a number, unless the default is a number.
TEST(OpDef, NumbersAsTexts) {
  const OpSpec def = Sample("t")
                         .Attr<std::string>("tolerance", "1e-5", "a number as text")
                         .Attr<std::string>("mode", "", "a text")
                         .spec();
  const OpDesc op("t", {}, {}, {{"tolerance", 0.5f}, {"mode", 0.5f}});
  EXPECT_EQ(def.AttrOf<std::string>(op, "tolerance"), "0.5");
  EXPECT_THROW(def.AttrOf<std::string>(op, "mode"), Error);
}

TEST(OpDef, TakesAttrsAndConstraintsOfAnother) {
  OpRegistry ops;
  ops.Add(Sample("first")
              .Attr<float>("a", 1, "a")
              .Attr<float>("b", 2, "b")
              .Range(0, 3)
              .Constraint("C2", "X must be even")
              .Constraint("C1", "X must be small"));
  ops.Add(Sample("second")
              .Attr<float>("c", 3, "c")
              .AttrsOf("first")
              .Attr<float>("d", 4, "d")
              .ConstraintsOf("first", {"C2"}));
  ops.Add(Sample("third").ConstraintsOf("second", {"C2"}));
  std::string names;
  for (const AttrDef& attr : ops.Get("second").attrs) names += attr.name;
  EXPECT_EQ(names, "cabd");
  EXPECT_EQ(ops.Get("second").FindAttr("b")->max, 3.0);
  EXPECT_EQ(ops.Get("first").Documentation(), "Out = X. C1: X must be small. C2: X must be even.");
  const ConstraintDef* taken = ops.Get("third").FindConstraint("C2");
  ASSERT_NE(taken, nullptr);
  EXPECT_EQ(taken->text, "X must be even");
  EXPECT_EQ(taken->like, "first");
  EXPECT_EQ(ops.Get("third").FindConstraint("C1"), nullptr);
  EXPECT_THROW(ops.Add(Sample("fourth").AttrsOf("nothing")), InternalError);
  EXPECT_THROW(ops.Add(Sample("fourth").ConstraintsOf("first", {"C3"})), InternalError);
  EXPECT_THROW(ops.Add(Sample("fourth").Constraint("C1", "a").Constraint("C1", "b")),
               InternalError);
}

TEST(OpSpec, FailuresTellTheirValues) {
  const OpSpec spec = Sample("t").Constraint("C1", "min must not exceed max").spec();
  EXPECT_EQ(spec.Failure("C1", GotValues("min", 2.5f, "max", 0.1f).text()),
            "t: min must not exceed max [t.C1], got min 2.5, max 0.1");
  EXPECT_EQ(GotValues(64, 32).text(), "64 vs 32");
  EXPECT_EQ(GotValues("X", Shape{2, 3}, Shape{4}, DType::kBool, true).text(),
            "X [2, 3] vs [4] vs bool vs true");
  EXPECT_EQ(GotValues(std::vector<int32_t>{1, -1}, std::string("text")).text(), "[1, -1] vs text");
  EXPECT_EQ(spec.Failure("C1", ""), "t: min must not exceed max [t.C1]");
  EXPECT_THROW(spec.Failure("C2", ""), InternalError);
}

TEST(OpLibrary, OpsOfASharedObjectRun) {
  const char* path = std::getenv("CORACLE_OP_LIBRARY");
  if (!path) GTEST_SKIP() << "CORACLE_OP_LIBRARY is not set";
  OpRegistry ops;
  LoadOpLibrary(path, ops);
  VarValues env;
  env["x"] = Tensor::Of<float>({2}, {1, -2});
  InterpretOp(OpDesc("triple", {{"X", {"x"}}}, {{"Out", {"y"}}}), ops, env);
  EXPECT_TRUE(BitEqual(std::get<Tensor>(env.at("y")), Tensor::Of<float>({2}, {3, -6})));
  EXPECT_THROW(LoadOpLibrary(path, ops), Error);  // its op is registered already
}

// The new variables of an expansion have other names than those of the op.
TEST(Interpreter, AnExpansionKeepsTheOpsVariables) {
  const auto run = [](const std::string& bias) {
    VarValues env;
    env["x"] = Tensor::Of<float>({2, 2}, {1, 2, 3, 5});
    env["y"] = Tensor::Of<float>({2, 2}, {0, 4, -1, 2});
    env[bias] = Tensor::Of<float>({2}, {10, 20});
    const SlotList inputs = {{"X", {"x"}}, {"Y", {"y"}}, {"Bias", {bias}}};
    InterpretOp(OpDesc("skip_layernorm", inputs, {{"Out", {"out"}}},
                       {{"epsilon", 0.5f}, {"begin_norm_axis", int32_t{1}}}),
                DefaultOps(), env);
    return std::get<Tensor>(env.at("out"));
  };
  const Tensor expected = run("bias");
  for (const char* bias : {"elementwise_add@0", "Mean@1", "Variance@2"})
    EXPECT_TRUE(BitEqual(run(bias), expected)) << bias;
}

std::string LoadError(const std::string& path) {
  OpRegistry ops;
  try {
    LoadOpLibrary(path, ops);
  } catch (const Error& e) {
    return e.message();
  }
  return "no error";
}

TEST(OpLibrary, OtherFilesAreErrors) {
  EXPECT_EQ(LoadError("/no/such/library.so"),
            "cannot load the op library '/no/such/library.so': no such file");
  const char* own = std::getenv("CORACLE_OP_LIBRARY");
  if (!own) GTEST_SKIP() << "CORACLE_OP_LIBRARY is not set";
  const std::string directory = std::string(own).substr(0, std::string(own).rfind('/'));
  const std::string whole = ReadFile(own), path = directory + "/damaged.so";
  // Cut short, or with bytes changed in its headers, it is an error (or still fit to be loaded).
  for (size_t size : {0u, 3u, 16u, 64u, 4096u}) {
    WriteFileAtomic(path, whole.substr(0, size));
    EXPECT_NE(LoadError(path).find("the op library"), std::string::npos) << size;
  }
  WriteFileAtomic(path, "not ELF" + whole);
  EXPECT_NE(LoadError(path).find("is not a 64-bit ELF shared object"), std::string::npos);
  std::string renamed = whole;
  for (size_t at = renamed.find("CoracleRegisterOps"); at != renamed.npos;
       at = renamed.find("CoracleRegisterOps", at + 1))
    renamed[at] = 'X';
  WriteFileAtomic(path, renamed);
  EXPECT_NE(LoadError(path).find("exports no CoracleRegisterOps"), std::string::npos);
  std::filesystem::remove(path);
}

// None of its code is run: its constructor would end this process.
TEST(OpLibrary, AnotherVersionIsRefused) {
  const char* path = std::getenv("CORACLE_OTHER_VERSION");
  if (!path) GTEST_SKIP() << "CORACLE_OTHER_VERSION is not set";
  EXPECT_NE(LoadError(path).find("was built against Coracle 0.0.9, and this is Coracle "),
            std::string::npos)
      << LoadError(path);
}

TEST(Interpreter, RunsOpsInOrder) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  root.AppendOp("mul", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"y"}}});
  root.AppendOp("clip", {{"X", {"y"}}}, {{"Out", {"y"}}}, {{"min", -5.f}, {"max", 5.f}});
  VarValues env;
  env["x"] = Tensor::Of<float>({1, 2}, {1, 2});
  env["w"] = Tensor::Of<float>({2, 2}, {1, -4, 3, -4});
  for (KernelMode mode : {KernelMode::kReference, KernelMode::kAuto}) {
    Interpret(root, DefaultOps(), env, {.kernels = mode});
    // [1 + 6, -4 - 8] clipped
    EXPECT_TRUE(BitEqual(std::get<Tensor>(env.at("y")), Tensor::Of<float>({1, 2}, {5, -5})));
  }
}

TEST(Interpreter, ErrorsNameOpAndVar) {
  VarValues env;
  auto error = [&](const OpDesc& op) -> std::string {
    try {
      InterpretOp(op, DefaultOps(), env);
    } catch (const Error& e) {
      return e.message();
    }
    return "";
  };
  EXPECT_NE(error(OpDesc("no_such_op")).find("no_such_op"), std::string::npos);
  OpDesc op("clip", {{"X", {"absent"}}}, {{"Out", {"y"}}}, {{"min", -5.f}, {"max", 5.f}});
  EXPECT_NE(error(op).find("absent"), std::string::npos) << error(op);
}
}  // namespace coracle::op_test
