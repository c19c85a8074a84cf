#include <coracle/backward/backward.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/op/kernel/interpreter.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>

#include <cmath>

namespace coracle::fake_quantize_test {

// Four bits: Q = 7. Halves round away from 0: 7 * 0.5 = 3.5.
TEST(FakeQuantizeAbsMax, Values) {
  OpTest("fake_quantize_abs_max")
      .Attr("bit_length", 4)
      .Input("X", {2, 3}, {0.5, -0.5, 1, -1, 0.1, 0})
      .Expect("Out", {2, 3}, {4, -4, 7, -7, 1, 0})
      .Expect("OutScale", {1}, {1});
  OpTest("fake_quantize_dequantize_abs_max")
      .Attr("bit_length", 4)
      .Input("X", {4}, {1, -2, 0.125, 0})
      .Expect("Out", {4}, {8.0 / 7, -2, 0, 0})
      .Expect("OutScale", {1}, {2});
}

TEST(FakeQuantizeAbsMax, Edges) {
  for (const char* type : {"fake_quantize_abs_max", "fake_quantize_dequantize_abs_max"}) {
    OpTest(type).Input("X", {2}, {0, 0}).Expect("Out", {2}, {0, 0}).Expect("OutScale", {1}, {0});
    OpTest(type).Input("X", {0, 2}, {}).Expect("Out", {0, 2}, {}).Expect("OutScale", {1}, {0});
    const double nan = std::nan("");
    OpTest(type).Input("X", {2}, {nan, 1}).Expect("Out", {2}, {nan, nan});
  }
}

OpTest Range(int64_t iter, double in_scale, const std::vector<double>& x) {
  OpTest test("fake_quantize_range_abs_max");
  test.Attr("bit_length", 4).Attr("window_size", 3).IntInput("Iter", {1}, {iter});
  test.Input("X", {2}, x).Input("InScale", {1}, {in_scale}).Input("InScales", {3}, {4, 2, 1});
  return test;
}

TEST(FakeQuantizeRangeAbsMax, Values) {
  // A new largest element.
  Range(4, 4, {5, -2.5})
      .Expect("OutScale", {1}, {5})
      .Expect("OutScales", {3}, {4, 5, 1})
      .Expect("Out", {2}, {7, -4});
  // The window still holds the scale.
  Range(4, 4, {3, 1}).Expect("OutScale", {1}, {4}).Expect("OutScales", {3}, {4, 3, 1});
  // The scale leaves the window: the largest of the rest.
  Range(3, 4, {0.5, 1}).Expect("OutScale", {1}, {2}).Expect("OutScales", {3}, {1, 2, 1});
  // In the first steps, only the steps so far count.
  Range(0, 4, {0.5, 1}).Expect("OutScale", {1}, {1}).Expect("OutScales", {3}, {1, 2, 1});
}

TEST(FakeQuantizeRangeAbsMax, StateInPlace) {
  Range(3, 4, {0.5, 1})
      .InPlace("InScale", "OutScale")
      .InPlace("InScales", "OutScales")
      .Expect("OutScale", {1}, {2})
      .Expect("OutScales", {3}, {1, 2, 1});
}

TEST(FakeQuantizeRangeAbsMax, WithoutAWindow) {
  for (const bool test : {false, true}) {
    OpTest op("fake_quantize_range_abs_max");
    op.Attr("is_test", test).Attr("bit_length", 4).NoOutput("OutScales");
    op.Input("X", {2}, {5, 1}).Input("InScale", {1}, {4});
    op.Expect("OutScale", {1}, {test ? 4.0 : 5.0}).Expect("Out", {2}, {7, test ? 2.0 : 1.0});
  }
  Range(1, 4, {5, 1}).Attr("is_test", true).Expect("OutScales", {3}, {4, 2, 1});
  Range(1, 4, {5, 1})
      .Attr("is_test", true)
      .InPlace("InScales", "OutScales")
      .Expect("OutScales", {3}, {4, 2, 1});
}

// Without any value before, the window is of zeros.
TEST(FakeQuantizeRangeAbsMax, FreshWindow) {
  OpTest op("fake_quantize_range_abs_max");
  op.Attr("window_size", 3).Input("X", {2}, {5, 1}).Input("InScale", {1}, {4});
  op.Expect("OutScale", {1}, {5}).Expect("OutScales", {3}, {5, 0, 0});
}

TEST(FakeQuantizeRangeAbsMax, Constraints) {
  const std::string type = "fake_quantize_range_abs_max";
  OpTest(type).RandomInput("X", {2}).RandomInput("InScale", {2}).ExpectError(type + ".C1");
  OpTest(type)
      .RandomInput("X", {2})
      .RandomInput("InScale", {1})
      .RandomInput("Iter", {1})
      .ExpectError(type + ".C2");
  OpTest(type)
      .RandomInput("X", {2})
      .RandomInput("InScale", {1})
      .RandomInput("InScales", {3})
      .ExpectError(type + ".C3");
  OpTest(type)
      .Attr("window_size", 0)
      .RandomInput("X", {2})
      .RandomInput("InScale", {1})
      .ExpectError(type + ".C3");
  Range(-1, 4, {5, 1}).ExpectError(type + ".C4");
}

OpTest MovingAverage(const std::string& type) {
  OpTest test(type);
  test.Attr("moving_rate", 0.5f).Input("X", {3}, {-4, 2, 1}).Input("InAccum", {1}, {3});
  test.Input("InState", {1}, {1});
  if (type != "moving_average_abs_max_scale") test.Attr("bit_length", 3).Input("InScale", {1}, {2});
  return test;
}

// accum = 1.5 + 4, state = 0.5 + 1; Q = 3.
TEST(FakeQuantizeMovingAverage, Values) {
  const double scale = 5.5 / 1.5;
  for (const std::string type :
       {"fake_quantize_moving_average_abs_max", "fake_quantize_dequantize_moving_average_abs_max",
        "moving_average_abs_max_scale"}) {
    MovingAverage(type)
        .Expect("OutScale", {1}, {scale})
        .Expect("OutAccum", {1}, {5.5})
        .Expect("OutState", {1}, {1.5});
    MovingAverage(type)
        .InPlace("InAccum", "OutAccum")
        .InPlace("InState", "OutState")
        .Expect("OutScale", {1}, {scale});
    MovingAverage(type).Attr("is_test", true).Expect("OutAccum", {1}, {3});
    // No state yet.
    OpTest first(type);
    first.Input("X", {2}, {-4, 2});
    if (type != "moving_average_abs_max_scale") first.Input("InScale", {1}, {0});
    first.Expect("OutScale", {1}, {4});
  }
  MovingAverage("fake_quantize_moving_average_abs_max").Expect("Out", {3}, {-3, 2, 1});
  MovingAverage("fake_quantize_dequantize_moving_average_abs_max")
      .Expect("Out", {3}, {-scale, scale * 2 / 3, scale / 3});
  MovingAverage("moving_average_abs_max_scale").Expect("Out", {3}, {-4, 2, 1});
  MovingAverage("moving_average_abs_max_scale").NoOutput("Out").Expect("OutScale", {1}, {scale});
}

TEST(FakeQuantizeMovingAverage, InTestTheScaleIsGiven) {
  MovingAverage("fake_quantize_moving_average_abs_max")
      .Attr("is_test", true)
      .Expect("OutScale", {1}, {2})
      .Expect("Out", {3}, {-3, 3, 2});
  MovingAverage("moving_average_abs_max_scale")
      .Attr("is_test", true)
      .Expect("OutScale", {1}, {3})
      .Expect("OutState", {1}, {1});
}

// The largest value of all ranks, which X need not have: accum = 1.5 + 6.
TEST(FakeQuantizeMovingAverage, TheLargestOfAllRanks) {
  for (const std::string type :
       {"fake_quantize_moving_average_abs_max", "fake_quantize_dequantize_moving_average_abs_max",
        "moving_average_abs_max_scale"}) {
    MovingAverage(type)
        .Input("Largest", {1}, {6})
        .Expect("OutScale", {1}, {7.5 / 1.5})
        .Expect("OutAccum", {1}, {7.5})
        .Expect("OutState", {1}, {1.5});
    // No rank has elements.
    MovingAverage(type)
        .Input("Largest", {1}, {-1})
        .Expect("OutAccum", {1}, {3})
        .Expect("OutState", {1}, {1});
    MovingAverage(type)
        .Attr("is_test", true)
        .Input("Largest", {1}, {6})
        .Expect("OutAccum", {1}, {3});
  }
}

// An empty batch would lower the average.
TEST(FakeQuantizeMovingAverage, EmptyBatchesDoNotCount) {
  for (const std::string type :
       {"fake_quantize_dequantize_moving_average_abs_max", "moving_average_abs_max_scale"}) {
    OpTest test(type);
    test.Input("X", {0, 2}, {}).Input("InScale", {1}, {3}).Input("InAccum", {1}, {3});
    test.Input("InState", {1}, {1}).Expect("OutScale", {1}, {3});
    test.Expect("OutAccum", {1}, {3}).Expect("OutState", {1}, {1});
  }
}

TEST(FakeQuantizeMovingAverage, Constraints) {
  for (const std::string type :
       {"fake_quantize_moving_average_abs_max", "fake_quantize_dequantize_moving_average_abs_max",
        "moving_average_abs_max_scale"}) {
    OpTest test(type);
    test.RandomInput("X", {2}).RandomInput("InState", {2});
    if (type != "moving_average_abs_max_scale") test.RandomInput("InScale", {1});
    test.ExpectError(type + ".C1");
  }
}

// Programs as Paddle writes them, run step after step: their state is in persistable variables.
struct Steps {
  explicit Steps(const std::string& type, AttrList attrs, SlotList inputs, SlotList outputs) {
    BlockDesc& block = program.Root();
    block.Var("x").SetShape({2});
    inputs.insert(inputs.begin(), {"X", {"x"}});
    outputs.insert(outputs.begin(), {"Out", {"out"}});
    block.Var("out");
    for (const SlotList* slots : {&inputs, &outputs}) {
      for (const Slot& slot : *slots)
        block.Var(slot.args[0]).SetPersistable(slot.args[0][0] == 's');
    }
    block.AppendOp(type, inputs, outputs, std::move(attrs));
  }
  void Hold(const std::string& name, std::vector<float> values) {
    const Shape shape{static_cast<int64_t>(values.size())};
    program.Root().Var(name).SetShape(shape);
    scope.Set(name, Tensor::Of<float>(shape, values));
    env[name] = Tensor::Of<float>(shape, values);
  }
  // Runs a step, in the executor and op by op.
  void Run(std::vector<float> x) {
    const Tensor fed = Tensor::Of<float>({2}, x);
    out = executor.Run(program, scope, {{"x", fed}}, {"out"})[0].Clone();
    env["x"] = fed;
    Interpret(program.Root(), DefaultOps(), env);
    EXPECT_TRUE(BitEqual(out, std::get<Tensor>(env.at("out"))));
  }
  std::vector<float> Held(const std::string& name) {
    const Tensor& held = scope.Get(name);
    EXPECT_TRUE(BitEqual(held, std::get<Tensor>(env.at(name))));
    const auto span = held.span<float>();
    return {span.begin(), span.end()};
  }

  ProgramDesc program;
  Scope scope;
  VarValues env;
  Executor executor;
  Tensor out;
};
using Floats = std::vector<float>;

TEST(QuantizeSteps, WindowOfScales) {
  Steps steps("fake_quantize_range_abs_max", {{"window_size", 2}},
              {{"InScale", {"s_scale"}}, {"Iter", {"s_iter"}}},
              {{"OutScale", {"s_scale"}}, {"OutScales", {"s_scales"}}});
  steps.Hold("s_scale", {0});
  steps.Hold("s_scales", {0, 0});
  const auto step = [&](int64_t i, Floats x) {
    const Tensor iter = Tensor::Of<int64_t>({1}, {i});
    steps.program.Root().Var("s_iter").SetDType(DType::kInt64);
    steps.program.Root().Var("s_iter").SetShape({1});
    steps.scope.Set("s_iter", iter);
    steps.env["s_iter"] = iter;
    steps.Run(std::move(x));
  };
  step(0, {4, 1});
  EXPECT_EQ(steps.Held("s_scales"), (Floats{4, 0}));
  step(1, {-3, 1});
  EXPECT_EQ(steps.Held("s_scales"), (Floats{4, 3}));
  EXPECT_EQ(steps.Held("s_scale"), (Floats{4}));
  // The 4 leaves the window.
  step(2, {2, 1});
  EXPECT_EQ(steps.Held("s_scales"), (Floats{2, 3}));
  EXPECT_EQ(steps.Held("s_scale"), (Floats{3}));
}

TEST(QuantizeSteps, MovingAverage) {
  for (const bool scale_only : {false, true}) {
    SlotList inputs = {{"InAccum", {"s_accum"}}, {"InState", {"s_state"}}};
    if (!scale_only) inputs.push_back({"InScale", {"s_scale"}});
    const SlotList outputs = {
        {"OutScale", {"s_scale"}}, {"OutAccum", {"s_accum"}}, {"OutState", {"s_state"}}};
    Steps steps(
        scale_only ? "moving_average_abs_max_scale" : "fake_quantize_moving_average_abs_max",
        {{"moving_rate", 0.5f}}, inputs, outputs);
    for (const char* name : {"s_scale", "s_accum", "s_state"}) steps.Hold(name, {0});
    for (const float largest : {4.f, 2.f, 8.f}) steps.Run({-largest, 1});
    EXPECT_EQ(steps.Held("s_accum"), Floats{(4 / 2 + 2) / 2.f + 8});
    EXPECT_EQ(steps.Held("s_state"), Floats{1.75f});
    EXPECT_EQ(steps.Held("s_scale"), Floats{10 / 1.75f});
  }
}

// A sum beyond float32 would be infinite from then on.
TEST(QuantizeSteps, SumsThatOverflowDoNotCount) {
  Steps steps("fake_quantize_moving_average_abs_max", {{"moving_rate", 0.5f}},
              {{"InScale", {"s_scale"}}, {"InAccum", {"s_accum"}}, {"InState", {"s_state"}}},
              {{"OutScale", {"s_scale"}}, {"OutAccum", {"s_accum"}}, {"OutState", {"s_state"}}});
  for (const char* name : {"s_scale", "s_accum", "s_state"}) steps.Hold(name, {0});
  steps.Run({3e38f, 1});
  steps.Run({-3e38f, 1});
  EXPECT_EQ(steps.Held("s_accum"), Floats{3e38f});
  EXPECT_EQ(steps.Held("s_state"), Floats{1});
  EXPECT_EQ(steps.Held("s_scale"), Floats{3e38f});
  steps.Run({2, 1});
  EXPECT_EQ(steps.Held("s_accum"), Floats{1.5e38f});
}

// A batch with a nan or an infinity leaves the state as it is; the scale stays the one before.
TEST(QuantizeSteps, MovingAverageSkipsWhatIsNotFinite) {
  Steps steps("fake_quantize_dequantize_moving_average_abs_max", {{"moving_rate", 0.5f}},
              {{"InAccum", {"s_accum"}}, {"InState", {"s_state"}}, {"InScale", {"s_scale"}}},
              {{"OutScale", {"s_scale"}}, {"OutAccum", {"s_accum"}}, {"OutState", {"s_state"}}});
  for (const char* name : {"s_scale", "s_accum", "s_state"}) steps.Hold(name, {0});
  steps.Run({INFINITY, 1});  // the first step
  for (const char* name : {"s_scale", "s_accum", "s_state"})
    EXPECT_EQ(steps.Held(name), Floats{0}) << name;
  steps.Run({-4, 1});
  for (const float bad : {INFINITY, -INFINITY, std::nanf("")}) {
    steps.Run({bad, 100});
    EXPECT_EQ(steps.Held("s_scale"), Floats{4});
    EXPECT_EQ(steps.Held("s_accum"), Floats{4});
    EXPECT_EQ(steps.Held("s_state"), Floats{1});
  }
  steps.Run({-8, 1});
  EXPECT_EQ(steps.Held("s_scale"), Floats{10 / 1.5f});
}

// In a test the scale stays what training left in the variable.
TEST(QuantizeSteps, ScalesInTest) {
  Steps average("moving_average_abs_max_scale", {{"is_test", true}}, {}, {{"OutScale", {"s"}}});
  average.Hold("s", {7});
  average.Run({1, 2});
  EXPECT_EQ(average.Held("s"), Floats{7});
  Steps channels("fake_channel_wise_quantize_abs_max", {{"is_test", true}, {"bit_length", 3}}, {},
                 {{"OutScale", {"s"}}});
  channels.Hold("s", {2, 1});
  for (int i = 0; i < 2; ++i) {
    channels.Run({1, -2});
    EXPECT_TRUE(BitEqual(channels.out, Tensor::Of<float>({2}, {2, -3})));
    EXPECT_EQ(channels.Held("s"), (Floats{2, 1}));
  }
}

// In training they do not read that variable, so that the scope need not hold it yet.
TEST(QuantizeSteps, FirstStepOfTraining) {
  for (const auto& [type, scales] :
       {std::pair{"moving_average_abs_max_scale", Floats{2}},
        std::pair{"fake_channel_wise_quantize_abs_max", Floats{1, 2}}}) {
    Steps steps(type, {{"is_test", false}}, {}, {{"OutScale", {"s"}}});
    steps.program.Root().Var("s").SetShape({static_cast<int64_t>(scales.size())});
    steps.Run({1, -2});
    EXPECT_EQ(steps.Held("s"), scales) << type;
  }
}

// The gradient passes what was rounded straight through, so differences do not see it.
TEST(StraightThrough, Gradients) {
  for (const std::string type :
       {"fake_quantize_dequantize_abs_max", "fake_quantize_dequantize_moving_average_abs_max",
        "fake_channel_wise_quantize_dequantize_abs_max", "moving_average_abs_max_scale"}) {
    ProgramDesc program;
    BlockDesc& block = program.Root();
    for (const char* name : {"x", "w"}) block.Var(name).SetShape({3});
    block.Var("s").SetShape({1});
    SlotList inputs = {{"X", {"x"}}};
    if (DefaultOps().Get(type).FindInput("InScale")) inputs.push_back({"InScale", {"s"}});
    for (const char* name : {"y", "scale"}) block.Var(name);
    const OpDesc& op = block.AppendOp(type, inputs, {{"Out", {"y"}}, {"OutScale", {"scale"}}});
    InferOp(block, op, DefaultOps());
    const Variable x = Variable::Of(block, "x"), w = Variable::Of(block, "w");
    GradientsOptions options;
    options.target_gradients = {w.name()};
    const std::string dx = Gradients({Variable::Of(block, "y")}, {x}, options).at(0);
    // dX = w, and the gradient of w is the gradient of dX.
    const std::string dw = Gradients({Variable::Of(block, dx)}, {w}).at(0);
    VarValues env;
    env["x"] = Tensor::Of<float>({3}, {0.3f, -1, 2});
    env["w"] = Tensor::Of<float>({3}, {1, 2, -3});
    env["s"] = Tensor::Of<float>({1}, {1});
    Interpret(block, DefaultOps(), env);
    EXPECT_TRUE(BitEqual(std::get<Tensor>(env.at(dx)), std::get<Tensor>(env.at("w")))) << type;
    EXPECT_TRUE(BitEqual(std::get<Tensor>(env.at(dw)), Tensor::Of<float>({3}, {1, 1, 1}))) << type;
    NoteCheckedGradient(type);
    HigherGradientsAreChecked(type);
  }
}
}  // namespace coracle::fake_quantize_test
