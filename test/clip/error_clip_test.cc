// Error clip: where its ops go, and what they do to the gradients.

#include <coracle/clip/clip.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/operators.h>
#include <coracle/test/backward/test_ops.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>

namespace coracle::error_clip_test {

BackwardOptions WithErrorClip() {
  BackwardOptions options;
  options.ops = &TestOps();
  options.callbacks = {ErrorClipCallback};
  return options;
}

std::vector<double> Clipped(std::vector<double> values, double min, double max) {
  for (double& v : values) v = std::clamp(v, min, max);
  return values;
}

// w -> h = w^2 -> y = tanh(h) -> loss, with or without a clip on h.
struct Chain {
  explicit Chain(bool clip) {
    test.Param("w");
    test.Op("t_square", {"w"}, "h");
    if (clip) test.root().FindVar("h")->SetErrorClip(ErrorClipByValue(0.8, 0.6));
    loss = test.Loss(test.Op("t_tanh", {"h"}, "y"));
  }
  TestProgram test;
  Variable loss;
};

TEST(ErrorClip, ClipsTheGradientBeforeItIsRead) {
  Chain plain(false), clipped(true);
  AppendBackward(plain.loss, WithErrorClip());
  AppendBackward(clipped.loss, WithErrorClip());
  EXPECT_EQ(plain.test.CountOps("clip"), 0);
  ASSERT_EQ(clipped.test.CountOps("clip"), 1);
  const BlockDesc& root = clipped.test.root();
  const OpDesc& clip = root.op(root.NumOps() - 2);
  EXPECT_EQ(clip.type(), "clip");
  EXPECT_EQ(clip.Input("X"), std::vector<std::string>{"h@GRAD"});
  EXPECT_EQ(clip.Output("Out"), std::vector<std::string>{"h@GRAD"});
  EXPECT_EQ(clip.GetAttr<float>("min", 0), 0.6f);
  EXPECT_EQ(clip.GetAttr<float>("max", 0), 0.8f);
  EXPECT_EQ(clip.role(), kBackward);
  EXPECT_EQ(root.op(root.NumOps() - 1).type(), "t_square_grad");

  VarValues a = plain.test.Run(plain.test.Inputs());
  VarValues b = clipped.test.Run(clipped.test.Inputs());
  auto before = Values(a, "h@GRAD");
  EXPECT_EQ(Values(b, "h@GRAD"), Clipped(before, 0.6f, 0.8f));
  EXPECT_NE(Values(b, "h@GRAD"), before) << "the bounds were to act";
  EXPECT_EQ(Values(b, "y@GRAD"), Values(a, "y@GRAD"));
  auto w = Values(b, "w"), dh = Values(b, "h@GRAD"), dw = Values(b, "w@GRAD");
  for (size_t i = 0; i < w.size(); ++i) EXPECT_EQ(dw[i], 2 * w[i] * dh[i]);
}

TEST(ErrorClip, OnceAfterTheSum) {
  TestProgram test;
  test.Param("w");
  test.Op("t_square", {"w"}, "h");
  test.root().FindVar("h")->SetErrorClip(ErrorClipByValue(1.5));
  test.Op("t_add", {test.Op("t_tanh", {"h"}, "a"), test.Op("t_shift", {"h"}, "b")}, "ab");
  test.Op("t_add", {"ab", test.Op("t_square", {"h"}, "c")}, "abc");
  AppendBackward(test.Loss("abc"), WithErrorClip());
  ASSERT_EQ(test.CountOps("clip"), 1) << test.Listing();
  const BlockDesc& root = test.root();
  EXPECT_EQ(root.op(root.NumOps() - 3).type(), "sum");
  EXPECT_EQ(root.op(root.NumOps() - 3).Input("X").size(), 3u);
  EXPECT_EQ(root.op(root.NumOps() - 2).type(), "clip");
  EXPECT_EQ(root.op(root.NumOps() - 1).type(), "t_square_grad");
  // dh = (1 - tanh(h)^2) + 1 + 2 h, clipped
  VarValues env = test.Run(test.Inputs());
  auto h = Values(env, "h"), a = Values(env, "a"), dh = Values(env, "h@GRAD");
  for (size_t i = 0; i < h.size(); ++i)
    EXPECT_NEAR(dh[i], std::min(1.5, 2 - a[i] * a[i] + 2 * h[i]), 1e-14);
}

TEST(ErrorClip, OnAParameterAndOnTheLoss) {
  TestProgram test;
  test.Param("w").SetErrorClip(ErrorClipByValue(0.25));
  Variable loss = test.Loss(test.Op("t_square", {"w"}, "s"));
  loss.desc().SetErrorClip(ErrorClipByValue(0.5));
  auto pairs = AppendBackward(loss, WithErrorClip());
  EXPECT_EQ(test.CountOps("clip"), 2);
  const OpDesc& last = test.root().op(test.root().NumOps() - 1);
  EXPECT_EQ(last.type(), "clip");
  EXPECT_EQ(last.GetAttr<std::vector<std::string>>(kOpRoleVarAttr, {}),
            (std::vector<std::string>{"w", "w@GRAD"}));
  VarValues env = test.Run(test.Inputs());
  EXPECT_EQ(Values(env, "loss@GRAD"), std::vector<double>{0.5});
  std::vector<double> expected = Values(env, "w");
  for (double& v : expected) v *= 2 * 0.5;
  EXPECT_EQ(Values(env, pairs[0].grad), Clipped(expected, -0.25, 0.25));
}

TEST(ErrorClip, EachValueOfAnOverwrittenVariable) {
  TestProgram test;
  test.Param("w");
  test.Op("t_tanh", {"w"}, "h");
  test.Op("t_shift", {"h"}, "h");
  test.root().FindVar("h")->SetErrorClip(ErrorClipByValue(1));
  AppendBackward(test.Loss(test.Op("t_square", {"h"}, "y")), WithErrorClip());
  EXPECT_EQ(test.CountOps("clip"), 2) << test.Listing();
}

TEST(ErrorClip, OnAVariableOfTheParentBlock) {
  TestProgram test;
  test.Param("w").SetErrorClip(ErrorClipByValue(1));
  BlockDesc& inner = test.program.AppendBlock(test.root());
  InferOp(inner, inner.AppendOp("t_square", {{"X", {"w"}}}, {{"Out", {"s"}}}), TestOps());
  InferOp(inner, inner.AppendOp("t_sum_all", {{"X", {"s"}}}, {{"Out", {"l"}}}), TestOps());
  AppendBackward(Variable::Of(inner, "l"), WithErrorClip());
  EXPECT_EQ(inner.op(inner.NumOps() - 1).type(), "clip");
  EXPECT_EQ(test.root().NumOps(), 0u);
}

TEST(ErrorClip, ByNormAppendsClipByNorm) {
  Chain chain(false);
  chain.test.root().FindVar("h")->SetErrorClip(ErrorClipByNorm(2.5));
  AppendBackward(chain.loss, WithErrorClip());
  const BlockDesc& root = chain.test.root();
  const OpDesc& clip = root.op(root.NumOps() - 2);
  EXPECT_EQ(clip.type(), "clip_by_norm");
  EXPECT_EQ(clip.GetAttr<float>("max_norm", 0), 2.5f);
  EXPECT_EQ(clip.Input("X"), clip.Output("Out"));
}

// Attrs are floats, and 0.1 is none.
TEST(ErrorClip, LimitsOfDoublesAreDoubles) {
  const std::vector<std::pair<ErrorClipPtr, double>> clips = {
      {std::make_shared<ErrorClipByValue>(0.1), 0.1},
      {std::make_shared<ErrorClipByValue>(0.75, 0.3), 0.75},
      {std::make_shared<ErrorClipByNorm>(0.1), 0.1}};
  for (const auto& [clip, expected] : clips) {
    ProgramDesc program;
    const Writer w(program.Root(), DefaultOps());
    VarDesc& x = program.Root().Var("x");
    x.SetMeta({VarType::kLoDTensor, DType::kFloat64, {1}, 0});
    const Variable v = Square(w.Var("x"));
    v.desc().SetErrorClip(clip);
    BackwardOptions options;
    options.callbacks = {ErrorClipCallback};
    options.parameter_list = {"x"};
    AppendBackward(Sum(v), options);
    VerifyOrThrow(program, DefaultOps());
    VarValues values = {{"x", Tensor::Of<double>({1}, {1})}};
    Interpret(program.Root(), DefaultOps(), values);
    EXPECT_EQ(std::get<Tensor>(values.at(GradName(v.name()))).Item<double>(), expected);
  }
}

TEST(ErrorClip, WithoutTheCallbackNothingIsClipped) {
  Chain chain(true);
  BackwardOptions options;
  options.ops = &TestOps();
  AppendBackward(chain.loss, options);
  EXPECT_EQ(chain.test.CountOps("clip"), 0);
}

TEST(ErrorClip, WrongBoundsAreRefused) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  EXPECT_THROW(ErrorClipByValue(1, 2), Error);
  EXPECT_THROW(ErrorClipByValue(-1), Error);  // min would be 1
  EXPECT_THROW(ErrorClipByValue{nan}, Error);
  EXPECT_THROW(ErrorClipByValue(1, nan), Error);
  EXPECT_THROW(ErrorClipByNorm(0), Error);
  EXPECT_THROW(ErrorClipByNorm(-1), Error);
  EXPECT_THROW(ErrorClipByNorm{nan}, Error);
  EXPECT_THROW(ErrorClipByNorm{inf}, Error);
  EXPECT_EQ(ErrorClipByValue(3).min(), -3);
  EXPECT_EQ(ErrorClipByValue(2, 2).min(), 2);
}

// --- a class of a user ---

// Multiplies the gradient by a factor: two ops, one of which sets no op_role.
class Damp : public BaseErrorClipAttr {
 public:
  explicit Damp(double factor) : factor_(factor) {}
  double factor() const { return factor_; }
  void AppendClipOp(BlockDesc& block, const std::string& grad_name) const override {
    const std::string factor = grad_name + "@DAMP";
    const VarMeta meta = block.FindVarRecursive(grad_name)->meta();
    block.Var(factor).SetMeta(meta);
    block.AppendOp("fill_constant", {}, {{"Out", {factor}}},
                   {{"shape", meta.shape.ToVector()},
                    {"value", static_cast<float>(factor_)},
                    {"dtype", static_cast<int32_t>(meta.dtype)}});
    block.AppendOp("t_mul", {{"X", {grad_name}}, {"Y", {factor}}}, {{"Out", {grad_name}}},
                   {{kOpRoleAttr, int32_t{kBackward}}});
  }
  std::optional<Setting> Save() const override { return Setting{"test_damp", {{"by", factor_}}}; }

 private:
  double factor_;
};

void RegisterDamp() {
  static const bool once = [] {
    RegisterErrorClip("test_damp", [](const Setting& s) -> ErrorClipPtr {
      return std::make_shared<Damp>(s.Get<double>("by", 1));
    });
    return true;
  }();
  (void)once;
}

TEST(UserErrorClip, Acts) {
  Chain plain(false), damped(false);
  damped.test.root().FindVar("h")->SetErrorClip(Damp(0.5));
  AppendBackward(plain.loss, WithErrorClip());
  AppendBackward(damped.loss, WithErrorClip());
  for (size_t i = 4; i < damped.test.root().NumOps(); ++i)
    EXPECT_EQ(damped.test.root().op(i).role(), kBackward) << i;
  auto a = Values(plain.test.Run(plain.test.Inputs()), "w@GRAD");
  auto b = Values(damped.test.Run(damped.test.Inputs()), "w@GRAD");
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(b[i], a[i] * 0.5);
}

// The user's ops see the true gradient, without the scale, in any dtype.
TEST(UserErrorClip, ActsUnderLossScaling) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
    ProgramDesc program;
    BlockDesc& root = program.Root();
    root.Var("g").SetMeta({VarType::kLoDTensor, dtype, {2}, 0});
    root.Var("by").SetMeta({VarType::kLoDTensor, DType::kFloat32, {1}, 0});
    root.Var("ok").SetMeta({VarType::kLoDTensor, DType::kBool, {1}, 0});
    AppendScaledErrorClip(root, Damp(0.5), "g", "by", "ok",
                          [](const std::string&, const auto& append) { append(); });
    root.ForEachOp([](OpDesc& op) {
      if (op.type() == "t_mul") op.SetType("elementwise_mul");
    });
    VarValues env;
    env["g"] = Tensor::Of<float>({2}, {16, -3}).Cast(dtype);
    env["by"] = Tensor::Of<float>({1}, {4});
    env["ok"] = Tensor::Of<bool>({1}, {true});
    Interpret(root, DefaultOps(), env);
    EXPECT_EQ(std::get<Tensor>(env.at("g")).dtype(), dtype);
    EXPECT_EQ(Values(env, "g"), (std::vector<double>{8, -1.5})) << ToString(dtype);
    EXPECT_TRUE(std::get<Tensor>(env.at("ok")).Item<bool>());
  }
}

TEST(UserErrorClip, SurvivesBinaryAndText) {
  RegisterDamp();
  Chain chain(false);
  chain.test.root().FindVar("h")->SetErrorClip(Damp(0.25));
  const ProgramDesc reloaded[] = {ParseProgram(SerializeProgram(chain.test.program)),
                                  ParseProgramText(ProgramToText(chain.test.program))};
  for (const ProgramDesc& program : reloaded) {
    auto clip = dynamic_cast<const Damp*>(program.Root().FindVar("h")->error_clip().get());
    ASSERT_NE(clip, nullptr);
    EXPECT_EQ(clip->factor(), 0.25);
    EXPECT_TRUE(program == chain.test.program);
  }
}

TEST(ErrorClip, SurvivesBinaryAndTextAndThenActs) {
  Chain chain(true), reference(true);
  AppendBackward(reference.loss, WithErrorClip());
  ProgramDesc reloaded[] = {ParseProgram(SerializeProgram(chain.test.program)),
                            ParseProgramText(ProgramToText(chain.test.program))};
  for (ProgramDesc& program : reloaded) {
    AppendBackward(Variable::Of(program.Root(), "loss"), WithErrorClip());
    EXPECT_TRUE(program == reference.test.program);
  }
}

class Nameless : public BaseErrorClipAttr {
 public:
  void AppendClipOp(BlockDesc&, const std::string&) const override {}
};
class Unregistered : public Nameless {
 public:
  std::optional<Setting> Save() const override { return Setting{"test_unregistered", {}}; }
};

TEST(UserErrorClip, UnregisteredCannotBeSaved) {
  Chain chain(false);
  VarDesc& h = *chain.test.root().FindVar("h");
  h.SetErrorClip(Nameless());
  EXPECT_THROW(SerializeProgram(chain.test.program), Error);
  h.SetErrorClip(Unregistered());
  EXPECT_THROW(SerializeProgram(chain.test.program), Error);
}

// --- the warning ---

class ErrorClipWarning : public ::testing::Test {
 protected:
  ErrorClipWarning() {
    previous_ = SetLogSink([this](MessageLevel level, const std::string& line) {
      EXPECT_EQ(level, MessageLevel::kWarning);
      lines.push_back(line);
    });
  }
  ~ErrorClipWarning() override { SetLogSink(previous_); }
  std::vector<std::string> lines;

 private:
  LogSink previous_;
};

TEST_F(ErrorClipWarning, NamesTheClipsThatNeverAct) {
  Chain chain(true);
  TestProgram& test = chain.test;
  test.Data("x").SetErrorClip(ErrorClipByValue(1));
  test.Op("t_square", {"w"}, "beside");
  test.root().FindVar("beside")->SetErrorClip(ErrorClipByValue(1));
  GradToVar map;
  AppendBackward(chain.loss, WithErrorClip(), &map);
  EXPECT_EQ(WarnOfIdleErrorClips(test.program, map), (std::vector<std::string>{"x", "beside"}));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].find("'x'"), std::string::npos);
  EXPECT_NE(lines[0].find("stop_gradient"), std::string::npos);
  EXPECT_NE(lines[1].find("'beside'"), std::string::npos);
}

// The ops of the example in docs/backward.md, without types and attrs, each in a line of its own.
TEST(ErrorClip, TheExampleOfTheDocs) {
  const char* sources = std::getenv("CORACLE_SOURCE_DIR");
  if (!sources) GTEST_SKIP() << "CORACLE_SOURCE_DIR is not set";
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (const auto& [name, shape] : {std::pair<const char*, Shape>{"x", {4, 3}}, {"w", {3, 2}}}) {
    VarDesc& var = root.Var(name);
    var.SetDType(DType::kFloat32);
    var.SetShape(shape);
    var.SetIsParameter(name[0] == 'w');
    var.SetPersistable(name[0] == 'w');
    var.SetStopGradient(name[0] == 'x');
  }
  const Writer w(root, DefaultOps());
  w.Into("y", "mul", {{"X", {"x"}}, {"Y", {"w"}}});
  w.Into("h", "tanh", {{"X", {"y"}}}).desc().SetErrorClip(ErrorClipByValue(1));
  w.Into("s", "elementwise_mul", {{"X", {"h"}}, {"Y", {"y"}}});
  const Variable loss = w.Into("loss", "mean", {{"X", {"s"}}});
  GradToVar map;
  const auto pairs = AppendBackward(loss, {.callbacks = {ErrorClipCallback}}, &map);
  EXPECT_EQ(pairs, (std::vector<ParamAndGrad>{{"w", "w@GRAD"}}));
  EXPECT_EQ(map, (GradToVar{{"loss@GRAD", "loss"},
                            {"s@GRAD", "s"},
                            {"h@GRAD", "h"},
                            {"y@GRAD", "y"},
                            {"w@GRAD", "w"}}));
  ASSERT_EQ(root.NumOps(), 11u);
  EXPECT_EQ(root.op(8).GetAttr<std::string>(kForwardOpAttr, ""), "tanh(h)");
  EXPECT_EQ(MarkOf(root.op(7)).of, "h");
  std::ifstream file(std::string(sources) + "/docs/backward.md");
  const std::string docs{std::istreambuf_iterator<char>(file), {}};
  for (size_t i = 0; i < root.NumOps(); ++i) {
    const OpDesc without_types(root.op(i));  // belongs to no block
    const std::string line =
        fmt::format("\n{}  {}\n", i,
                    PrintOp(without_types,
                            {.hide_attr = [](const OpDesc&, const NamedAttr&) { return true; }}));
    EXPECT_NE(docs.find(line), docs.npos) << line;
  }
}
}  // namespace coracle::error_clip_test
