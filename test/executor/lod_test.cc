// Sequences through the executor: which LoD passes on, what plans rely on, and that it agrees with
// the interpreter.
#include <coracle/backward/backward.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/layers/builder.h>
#include <gtest/gtest.h>

namespace coracle::lod_test {

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

// select_input and read_from_array pass on the LoD of what they choose, though its shape is known.
TEST_F(Sequences, OfWhatIsChosen) {
  const Variable x = X(), one = FillConstant(net_, {1}, DType::kInt32, 1);
  const Variable chosen = net_.Make(
      "select_input",
      {{"X", {Reset(x, {0, 1, 3}).name(), Reset(x, {0, 2, 3}).name()}}, {"Mask", {one.name()}}});
  const Variable pooled = Pool(chosen);
  Check({Fed({1, 2, 4}, {}), Fed({1, 2, 4}, {{0, 3}})}, {chosen.name(), pooled.name()});
  Scope scope;
  const auto out = Executor().Run(main_, scope, {{"x", Fed({1, 2, 4}, {})}}, {pooled.name()});
  EXPECT_EQ(ValuesOf(out[0]), (std::vector<float>{3, 4}));
}

TEST_F(Sequences, OfElementsOfAnArray) {
  const Variable x = X(), zero = FillConstant(net_, {1}, DType::kInt64, 0);
  main_.Root().Var("array").SetType(VarType::kLoDTensorArray);
  net_.Append("write_to_array", {{"X", {x.name()}}, {"I", {zero.name()}}}, {{"Out", {"array"}}});
  std::vector<std::string> fetches;
  for (const int64_t index : {0, 1}) {
    const Variable at = FillConstant(net_, {1}, DType::kInt64, static_cast<double>(index));
    const Variable read =
        net_.Make("read_from_array", {{"X", {"array"}}, {"I", {at.name()}}, {"X_W", {x.name()}}});
    fetches.insert(fetches.end(), {read.name(), Pool(read).name()});
  }
  Check({Fed({1, 2, 4}, {{0, 1, 3}}), Fed({1, 2, 4}, {{0, 2, 3}})}, fetches);
}

TEST_F(Sequences, OfAnArrayPutTogether) {
  const Variable x = X();
  main_.Root().Var("table").SetType(VarType::kLoDRankTable);
  main_.Root().Var("array").SetType(VarType::kLoDTensorArray);
  net_.Append("lod_rank_table", {{"X", {x.name()}}}, {{"Out", {"table"}}}, {{"level", 0}});
  net_.Append("lod_tensor_to_array", {{"X", {x.name()}}, {"RankTable", {"table"}}},
              {{"Out", {"array"}}});
  const Variable again = net_.Make(
      "array_to_lod_tensor", {{"X", {"array"}}, {"RankTable", {"table"}}, {"Like", {x.name()}}});
  Check({Fed({1, 2, 4}, {{0, 1, 3}}), Fed({1, 2, 4}, {{0, 2, 3}})},
        {again.name(), Pool(again).name()});
}

// A plan that relies on a value relies on the LoD that an op read with it.
TEST_F(Sequences, OfKnownValues) {
  net_.Data("v", {-1}, DType::kInt32);
  const Variable six = FillConstant(net_, {6}, DType::kFloat32, 1);
  const Variable shaped = net_.Make("reshape", {{"X", {six.name()}}, {"Shape", {"v"}}});
  net_.Append("sequence_reverse", {{"X", {"v"}}}, {{"Y", {"reversed"}}});
  PreparedProgram program = Executor().Prepare(main_, {"v"}, {shaped.name(), "reversed"});
  Scope scope;
  for (int again = 0; again < 2; ++again) {
    for (const LoD& lod : {LoD{{0, 2}}, LoD{{0, 1, 2}}}) {
      Tensor v = Tensor::Of<int32_t>({2}, {2, 3});
      v.lod() = lod;
      const std::vector<Tensor>& out = program.Run(scope, {&v, 1});
      EXPECT_EQ(out[0].shape(), (Shape{2, 3}));
      EXPECT_EQ(out[1].data<int32_t>()[0], lod[0].size() == 2 ? 3 : 2);
      EXPECT_EQ(out[1].lod(), lod);
    }
  }
}

// A persistable variable gets the LoD of what is written, and passes its own on.
TEST_F(Sequences, OfPersistableVariables) {
  const Variable x = X();
  VarDesc& p = main_.Root().Var("p");
  p.SetPersistable(true);
  p.SetShape({-1, 1});
  VarDesc& q = main_.Root().Var("q");
  q.SetPersistable(true);
  q.SetShape({-1, 1});
  const Variable of_q = Pool(net_.Scale(Variable::Of(main_.Root(), "q"), {.scale = 2.0f}));
  net_.Append("assign", {{"X", {x.name()}}}, {{"Out", {"p"}}});
  const Variable of_p = Pool(Variable::Of(main_.Root(), "p"));
  PreparedProgram program = Executor().Prepare(main_, {"x"}, {of_p.name(), of_q.name(), "p"});
  Scope scope;
  for (int again = 0; again < 2; ++again) {
    for (const LoD& lod : {LoD{{0, 1, 3}}, LoD{{0, 2, 3}}, LoD{{0, 3}}}) {
      scope.Set("q", Fed({1, 2, 4}, lod));
      const Tensor fed = Fed({1, 2, 4}, lod);
      const std::vector<Tensor>& out = program.Run(scope, {&fed, 1});
      EXPECT_EQ(out[0].shape()[0], static_cast<int64_t>(lod[0].size()) - 1);
      EXPECT_EQ(out[1].shape()[0], static_cast<int64_t>(lod[0].size()) - 1);
      EXPECT_EQ(out[0].data<float>()[0], lod[0][1] == 1 ? 1 : lod[0][1] == 2 ? 3 : 7);
      EXPECT_EQ(out[1].data<float>()[0], 2 * out[0].data<float>()[0]);
      EXPECT_EQ(out[2].lod(), lod);
      EXPECT_EQ(scope.Get("p").lod(), lod);
    }
  }
}

TEST_F(Sequences, AWriteTakesTheOldOnesAway) {
  const Variable x = X();
  VarDesc& p = main_.Root().Var("p");
  p.SetPersistable(true);
  p.SetShape({-1, 1});
  const Variable before = net_.Scale(Variable::Of(main_.Root(), "p"), {.scale = 1.0f});
  net_.Append("assign", {{"X", {x.name()}}}, {{"Out", {"p"}}});
  Scope scope;
  scope.Set("p", Fed({1, 2}, {{0, 2}}));
  Executor().Run(main_, scope, {{"x", Fed({1, 2}, {})}}, {before.name()});
  EXPECT_EQ(scope.Get("p").lod(), LoD());
}

TEST_F(Sequences, ASecondWriteTakesThemAway) {
  const Variable x = X();
  VarDesc& p = main_.Root().Var("p");
  p.SetPersistable(true);
  p.SetShape({2, 1});
  net_.Append("assign", {{"X", {x.name()}}}, {{"Out", {"p"}}});
  net_.Append("fill_constant", {}, {{"Out", {"p"}}},
              {{"shape", std::vector<int64_t>{2, 1}}, {"value", 3.0f}});
  const Variable after = net_.Scale(Variable::Of(main_.Root(), "p"), {.scale = 1.0f});
  Scope scope;
  const auto out = Executor().Run(main_, scope, {{"x", Fed({1, 2}, {{0, 2}})}}, {after.name()});
  EXPECT_EQ(out[0].lod(), LoD());
  EXPECT_EQ(scope.Get("p").lod(), LoD());
}

// A result computed from a persistable variable keeps the LoD of that time.
TEST_F(Sequences, BeforeAWrite) {
  const Variable x = X();
  VarDesc& p = main_.Root().Var("p");
  p.SetPersistable(true);
  p.SetShape({-1, 1});
  const Variable old = Variable::Of(main_.Root(), "p");
  const Variable before = net_.Scale(net_.Scale(old, {.scale = 2.0f}), {.scale = 3.0f});
  net_.Append("assign", {{"X", {x.name()}}}, {{"Out", {"p"}}});
  const Variable between = net_.Scale(old, {.scale = 1.0f});
  const Variable sums = Pool(before);
  net_.Append("lod_reset", {{"X", {"p"}}}, {{"Out", {"p"}}},
              {{"target_lod", std::vector<int32_t>{0, 3}}});
  PreparedProgram program =
      Executor().Prepare(main_, {"x"}, {before.name(), between.name(), sums.name(), "p"});
  Scope scope;
  const LoD first = {{0, 1, 3}}, second = {{0, 2, 3}};
  for (int again = 0; again < 2; ++again) {
    for (const auto& [held, given] : {std::pair(first, second), std::pair(second, first)}) {
      scope.Set("p", Fed({1, 2, 4}, held));
      const Tensor fed = Fed({5, 6, 7}, given);
      const std::vector<Tensor>& out = program.Run(scope, {&fed, 1});
      EXPECT_EQ(out[0].lod(), held);
      EXPECT_EQ(out[1].lod(), given);
      EXPECT_EQ(out[2].data<float>()[0], held == first ? 6 : 18);
      EXPECT_EQ(out[3].lod(), (LoD{{0, 3}}));
    }
  }
}

// So it does where a block writes the variable, once or in a loop.
TEST_F(Sequences, BeforeAWriteInABlock) {
  const Variable x = X(), on = net_.Data("on", {1}, DType::kBool);
  const Variable one = FillConstant(net_, {1}, DType::kInt64, 1);
  std::vector<std::string> fetches;
  for (const bool loop : {false, true}) {
    const std::string name = loop ? "q" : "p";
    VarDesc& kept = main_.Root().Var(name);
    kept.SetPersistable(true);
    kept.SetShape({-1, 1});
    const Variable old = net_.Var(name), before = net_.Scale(old, {.scale = 2.0f});
    if (loop) {
      const Variable i = FillConstant(net_, {1}, DType::kInt64, 0);
      const Variable more = net_.Binary("less_than", i, one);
      While(net_, more, [&] {
        Assign(net_, x, old);
        Increment(net_, i);
        Assign(net_, net_.Binary("less_than", i, one), more);
      });
    } else {
      If(net_, on, [&] { Assign(net_, x, old); });
    }
    fetches.insert(fetches.end(), {before.name(), Pool(before).name(), Pool(old).name()});
  }
  PreparedProgram program = Executor().Prepare(main_, {"x", "on"}, fetches);
  Scope scope;
  const LoD first = {{0, 1, 3}}, second = {{0, 2, 3}};
  for (int again = 0; again < 2; ++again) {
    for (const auto& [held, given] : {std::pair(first, second), std::pair(second, first)}) {
      for (const bool taken : {true, false}) {
        scope.Set("p", Fed({1, 2, 4}, held));
        scope.Set("q", Fed({1, 2, 4}, held));
        const std::vector<Tensor> feeds = {Fed({1, 2, 4}, given), Tensor::Full<bool>({1}, taken)};
        const std::vector<Tensor>& out = program.Run(scope, feeds);
        for (const size_t at : {0, 3}) {
          EXPECT_EQ(out[at].lod(), held);
          EXPECT_EQ(out[at + 1].data<float>()[0], held == first ? 2 : 6);
          const LoD& now = at == 3 || taken ? given : held;
          EXPECT_EQ(out[at + 2].data<float>()[0], now == first ? 1 : 3);
        }
      }
    }
  }
}

TEST_F(Sequences, WrongOffsetsInTheScope) {
  VarDesc& p = main_.Root().Var("p");
  p.SetPersistable(true);
  p.SetShape({-1, 1});
  const Variable one = FillConstant(net_, {1}, DType::kInt32, 0);
  const Variable chosen = net_.Make("select_input", {{"X", {"p"}}, {"Mask", {one.name()}}});
  Scope scope;
  scope.Set("p", Fed({1, 2}, {{0, 7}}));
  try {
    Executor().Run(main_, scope, {}, {Pool(chosen).name()});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("the LoD of 'p' float32[2, 1] is wrong"), std::string::npos)
        << e.message();
  }
}

// Rows that are joined have the sequences of all, and none where a part has none.
TEST_F(Sequences, Joined) {
  const Variable x = X(), reset = Reset(x, {0, 2, 3});
  const Variable both = net_.Make("concat", {{"X", {x.name(), reset.name()}}}, {{"axis", 0}});
  const Variable pooled = Pool(both);
  const Variable one = FillConstant(net_, {1, 1}, DType::kFloat32, 1);
  const Variable some = net_.Make("concat", {{"X", {x.name(), one.name()}}}, {{"axis", 0}});
  const Variable beside = net_.Make("concat", {{"X", {x.name(), reset.name()}}}, {{"axis", 1}});
  Check({Fed({1, 2, 4}, {{0, 1, 3}}), Fed({1, 2, 4}, {{0, 3, 3}})},
        {both.name(), pooled.name(), some.name(), beside.name()});
  Scope scope;
  const auto out = Executor().Run(main_, scope, {{"x", Fed({1, 2, 4}, {{0, 1, 3}})}},
                                  {both.name(), pooled.name(), some.name()});
  EXPECT_EQ(out[0].lod(), (LoD{{0, 1, 3, 5, 6}}));
  EXPECT_EQ(ValuesOf(out[1]), (std::vector<float>{1, 6, 3, 4}));
  EXPECT_EQ(out[2].lod(), LoD());
}

TEST_F(Sequences, BatchSizeIsTheirNumber) {
  const Variable x = X();
  const Variable filled = net_.Make("fill_constant_batch_size_like", {{"Input", {x.name()}}},
                                    {{"shape", std::vector<int32_t>{-1, 2}}, {"value", 3.0f}});
  const Variable sum = net_.Add(filled, Pool(x));
  Check({Fed({1, 2, 3}, {{0, 1, 3}}), Fed({1, 2, 3}, {{0, 2, 2}, {0, 1, 3}}), Fed({}, {{0}})},
        {filled.name(), sum.name()});
  Scope scope;
  const auto out =
      Executor().Run(main_, scope, {{"x", Fed({1, 2, 3}, {{0, 1, 3}})}}, {filled.name()});
  EXPECT_EQ(out[0].shape(), (Shape{2, 2}));
}

// The gradient of a result of another number of rows, or with other sequences, has X's.
TEST_F(Sequences, GradientsHaveThoseOfTheirVariables) {
  const Variable x = X();
  main_.Root().FindVar("x")->SetStopGradient(false);
  const Variable loss = net_.Mean(Pool(Reset(x * x, {0, 3})));
  const std::vector<std::string> gradients = Gradients({loss}, {x});
  Check({Fed({1, 2, 4}, {{0, 1, 3}}), Fed({1, 2, 4}, {})}, {loss.name(), gradients[0]});
  Scope scope;
  const auto out =
      Executor().Run(main_, scope, {{"x", Fed({1, 2, 4}, {{0, 1, 3}})}}, {gradients[0]});
  EXPECT_EQ(out[0].lod(), (LoD{{0, 1, 3}}));
}

// Float32 kernels serve 16-bit floats also where only the run knows the shape.
TEST_F(Sequences, HalfTensorsOfUnknownShape) {
  net_.Data("h", {-1, 1}, DType::kFloat16);
  net_.Data("ids", {-1}, DType::kInt64);
  const Variable sums =
      net_.Make("segment_pool", {{"X", {"h"}}, {"SegmentIds", {"ids"}}}, {{"pooltype", "SUM"}});
  Scope scope;
  for (int again = 0; again < 2; ++again) {
    for (const int64_t last : {1, 2}) {
      const Tensor h = Tensor::Of<float>({3, 1}, {1, 2, 4}).Cast(DType::kFloat16);
      const Tensor ids = Tensor::Of<int64_t>({3}, {0, 1, last});
      const auto out = Executor().Run(main_, scope, {{"h", h}, {"ids", ids}}, {sums.name()});
      EXPECT_EQ(out[0].dtype(), DType::kFloat16);
      EXPECT_EQ(ValuesOf(out[0].Cast(DType::kFloat32)),
                last == 1 ? (std::vector<float>{1, 6}) : (std::vector<float>{1, 2, 4}));
      VarValues env;
      env["h"] = h;
      env["ids"] = ids;
      Interpret(main_.Root(), DefaultOps(), env, {.kernels = KernelMode::kAuto});
      EXPECT_TRUE(BitEqual(out[0], std::get<Tensor>(env.at(sums.name()))));
    }
  }
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
}  // namespace coracle::lod_test
