// Sequences through the executor: which LoD passes on, what plans rely on, and that it agrees with
// the interpreter.
#include <coracle/backward/backward.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/op/interpreter.h>
#include <coracle/layers/builder.h>
#include <gtest/gtest.h>

namespace coracle {
namespace {

Tensor Fed(const std::vector<float>& values, LoD lod) {
  Tensor tensor = Tensor::Of<float>({static_cast<int64_t>(values.size()), 1}, values);
  tensor.lod() = std::move(lod);
  return tensor;
}

std::vector<float> ValuesOf(const Tensor& t) {
  return {t.span<float>().begin(), t.span<float>().end()};
}

class Sequences : public ::testing::Test {
 protected:
  Variable X() { return net_.Data("x", {-1, 1}); }
  Variable Pool(const Variable& x) {
    return net_.Make("sequence_pool", {{"X", {x.name()}}}, {{"pooltype", std::string("SUM")}});
  }
  Variable Reset(const Variable& x, std::vector<int32_t> level) {
    return net_.Make("lod_reset", {{"X", {x.name()}}}, {{"target_lod", std::move(level)}});
  }
  // Runs with each feed twice, in one prepared program; compares with the interpreter.
  void Check(const std::vector<Tensor>& feeds, const std::vector<std::string>& fetches) {
    PreparedProgram program = Executor().Prepare(main_, {"x"}, fetches);
    Scope scope;
    for (int again = 0; again < 2; ++again) {
      for (const Tensor& x : feeds) {
        VarValues env;
        env["x"] = x.Clone();
        Interpret(main_.Root(), DefaultOps(), env, {.kernels = KernelMode::kAuto});
        const std::vector<Tensor>& results = program.Run(scope, {&x, 1});
        for (size_t i = 0; i < fetches.size(); ++i) {
          const Tensor& expected = std::get<Tensor>(env.at(fetches[i]));
          EXPECT_TRUE(BitEqual(results[i], expected)) << fetches[i];
          EXPECT_EQ(results[i].lod(), expected.lod()) << fetches[i];
        }
      }
    }
  }
  std::string ErrorOf(const Tensor& x, const std::string& fetch) {
    try {
      Scope scope;
      Executor().Run(main_, scope, {{"x", x}}, {fetch});
    } catch (const Error& e) {
      return e.message();
    }
    return "no error";
  }

  ProgramDesc main_, startup_;
  Builder net_{main_, startup_};
};

TEST_F(Sequences, PlansFollowTheNumberOfSequences) {
  const Variable pooled = Pool(net_.Scale(X(), {.scale = 2.0f}));
  Check({Fed({1, 2, 3}, {{0, 1, 3}}), Fed({1, 2, 3}, {{0, 0, 3}}), Fed({1, 2, 3}, {{0, 1, 2, 3}}),
         Fed({1, 2, 3}, {{0, 2, 3}, {0, 1, 2, 3}}), Fed({}, {{0, 0}}), Fed({}, {{0}})},
        {pooled.name()});
  Scope scope;
  const auto out =
      Executor().Run(main_, scope, {{"x", Fed({1, 2, 3}, {{0, 1, 3}})}}, {pooled.name()});
  EXPECT_EQ(ValuesOf(out[0]), (std::vector<float>{2, 10}));
}

TEST_F(Sequences, OpsMakeThem) {
  const Variable x = X(), reset = Reset(x, {0, 1, 1, 4});
  net_.Append("sequence_reverse", {{"X", {reset.name()}}}, {{"Y", {"reversed"}}});
  const Variable reversed = Variable::Of(main_.Root(), "reversed");
  const Variable pooled = Pool(reversed), both = net_.Add(reversed, x);
  Check({Fed({1, 2, 3, 4}, {{0, 4}}), Fed({4, 3, 2, 1}, {})},
        {x.name(), reset.name(), reversed.name(), pooled.name(), both.name()});
}

// The first operand decides, and a square that is transposed has none.
TEST_F(Sequences, PassAsDeclared) {
  const Variable x = X(), reset = Reset(x, {0, 2});
  const Variable sum = net_.Add(x, reset), other = net_.Add(reset, x);
  const Variable square = net_.Make("concat", {{"X", {x.name(), x.name()}}}, {{"axis", 1}});
  const Variable transposed =
      net_.Make("transpose", {{"X", {square.name()}}}, {{"axis", std::vector<int32_t>{1, 0}}});
  Check({Fed({1, 2}, {{0, 1, 2}}), Fed({1, 2}, {})},
        {sum.name(), other.name(), square.name(), transposed.name()});
  Scope scope;
  const auto out = Executor().Run(main_, scope, {{"x", Fed({1, 2}, {{0, 1, 2}})}},
                                  {sum.name(), other.name(), square.name(), transposed.name()});
  EXPECT_EQ(out[0].lod(), (LoD{{0, 1, 2}}));
  EXPECT_EQ(out[1].lod(), (LoD{{0, 2}}));
  EXPECT_EQ(out[2].lod(), (LoD{{0, 1, 2}}));
  EXPECT_EQ(out[3].lod(), LoD());
}

TEST_F(Sequences, ShapesOfTheRun) {
  const Variable x = X();
  const Variable expanded = net_.Make("sequence_expand", {{"X", {x.name()}}, {"Y", {x.name()}}});
  const Variable pooled = Pool(expanded);
  Check({Fed({1, 2, 3}, {{0, 1, 3}}), Fed({1, 2, 3}, {{0, 0, 3}}), Fed({5}, {{0, 1}})},
        {expanded.name(), pooled.name()});
}

TEST_F(Sequences, Gradients) {
  const Variable x = X();
  main_.Root().FindVar("x")->SetStopGradient(false);
  const Variable hidden = net_.Make("sequence_softmax", {{"X", {x.name()}}});
  const Variable loss = net_.Mean(Pool(hidden * x));
  const std::vector<std::string> gradients = Gradients({loss}, {x});
  Check({Fed({1, 2, 3}, {{0, 1, 3}}), Fed({1, 2, 3}, {{0, 1, 2, 3}})}, {loss.name(), gradients[0]});
}

TEST_F(Sequences, WrongOffsetsAreRefused) {
  const Variable y = net_.Scale(X(), {.scale = 2.0f});
  const std::string wrong = "the LoD of 'x' float32[2, 1] is wrong: level 0 ";
  EXPECT_EQ(ErrorOf(Fed({1, 2}, {{0, 3}}), y.name()), wrong + "ends with 3 where there are 2 rows");
  EXPECT_EQ(ErrorOf(Fed({1, 2}, {{0, 2, 1, 2}}), y.name()), wrong + "decreases from 2 to 1 at 2");
  EXPECT_EQ(ErrorOf(Fed({1, 2}, {{1, 2}}), y.name()), wrong + "does not begin with 0");
}

TEST_F(Sequences, AMissingLod) {
  const Variable y = Pool(X());
  EXPECT_NE(ErrorOf(Fed({1, 2}, {}), y.name()).find("[sequence_pool.C2], got levels 0"),
            std::string::npos)
      << ErrorOf(Fed({1, 2}, {}), y.name());
}

}  // namespace
}  // namespace coracle
