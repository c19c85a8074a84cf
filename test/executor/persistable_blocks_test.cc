// Persistable variables that a sub-block gives another shape or value.
#include <coracle/test/executor/control_flow_net.h>

namespace coracle::persistable_blocks_test {

// A variable that outlives the runs, and one bool that decides.
struct Kept : LoopNet {
  Variable on = net.Data("on", {1}, DType::kBool);
  Variable Keep(const std::string& name, const Shape& shape, DType dtype = DType::kFloat32) {
    VarDesc& var = main.Root().Var(name);
    var.SetMeta({VarType::kLoDTensor, dtype, shape, 0});
    var.SetPersistable(true);
    return net.Var(name);
  }
};

// An op that reads the variable after the block gets the new tensor, although the frame held the
// address of the old one.
TEST(If, PersistablesChangeTheirShape) {
  Kept t;
  Variable x = t.net.Data("x", {-1, 1}), p = t.Keep("p", {-1, 1});
  Variable before = t.net.Scale(p, {.scale = 2.0f});
  If(t.net, t.on, [&] { Assign(t.net, x, p); });
  Variable after = t.net.Scale(p, {.scale = 3.0f});
  auto run = t.Prepare({"x", "on"}, {before.name(), after.name(), "p"});
  Scope scope;
  for (int again = 0; again < 2; ++again) {
    for (const int64_t rows : {5, 1, 3, 1000}) {
      for (const bool on : {true, false}) {
        scope.Set("p", Tensor::Full<float>({3, 1}, 1));
        const auto& out =
            run.Run(scope, {Tensor::Full<float>({rows, 1}, 7), Tensor::Full<bool>({1}, on)});
        const Tensor now = on ? Tensor::Full<float>({rows, 1}, 7) : Tensor::Full<float>({3, 1}, 1);
        EXPECT_TRUE(BitEqual(out[0], Tensor::Full<float>({3, 1}, 2)));
        EXPECT_TRUE(BitEqual(out[1], Tensor::Full<float>(now.shape(), on ? 21 : 3)));
        EXPECT_TRUE(BitEqual(out[2], now));
        EXPECT_TRUE(BitEqual(scope.Get("p"), now));
      }
    }
  }
}

// The blocks around a block that writes it all see the change.
TEST(If, PersistablesChangeTheirShapeInsideALoop) {
  Kept t;
  Variable n = t.net.Data("n", {1}, DType::kInt64), x = t.net.Data("x", {-1, 1});
  Variable p = t.Keep("p", {-1, 1});
  Variable total = FillConstant(t.net, {1}, DType::kFloat32, 0);
  const auto add = [&] {
    Assign(t.net, t.net.Add(total, t.net.ReduceSum(p, {.dim = {0}})), total);
  };
  add();
  t.For(n, [&](Variable i) {
    add();
    If(t.net, t.Less(i, t.Int(1)), [&] { If(t.net, t.on, [&] { Assign(t.net, x, p); }); });
    add();
  });
  add();
  auto run = t.Prepare({"n", "x", "on"}, {total.name()});
  Scope scope;
  for (int again = 0; again < 2; ++again) {
    for (const int64_t rows : {5, 1}) {
      scope.Set("p", Tensor::Full<float>({3, 1}, 1));
      const auto& out = run.Run(
          scope, {OneInt(2), Tensor::Full<float>({rows, 1}, 2), Tensor::Full<bool>({1}, true)});
      const float sum = 2.0f * static_cast<float>(rows);
      EXPECT_EQ(out[0].Item<float>(), 3 + 3 + sum + sum + sum + sum);
    }
  }
}

// A shape that was known from the variable's value is not known after the block.
TEST(If, PersistablesThatAreShapes) {
  Kept t;
  Variable n = t.net.Data("n", {1}, DType::kInt64), p = t.Keep("p", {1}, DType::kInt64);
  const auto filled = [&] {
    return t.net.Make("fill_constant", {{"ShapeTensor", {p.name()}}},
                      {{"value", 2.0f}, {"dtype", static_cast<int32_t>(DType::kFloat32)}});
  };
  Variable before = filled();
  If(t.net, t.on, [&] { Assign(t.net, n, p); });
  Variable after = filled();
  auto run = t.Prepare({"n", "on"}, {before.name(), after.name()});
  Scope scope;
  for (int again = 0; again < 2; ++again) {
    for (const bool on : {true, false}) {
      scope.Set("p", OneInt(3));
      const auto& out = run.Run(scope, {OneInt(5), Tensor::Full<bool>({1}, on)});
      EXPECT_TRUE(BitEqual(out[0], Tensor::Full<float>({3}, 2)));
      EXPECT_TRUE(BitEqual(out[1], Tensor::Full<float>({on ? 5 : 3}, 2)));
    }
  }
}

// The op that runs the block reads the variable between the rounds.
TEST(While, AConditionInTheScopeKeepsItsType) {
  Kept t;
  Variable go = t.Keep("go", {-1, 1}, DType::kBool);
  Variable x = t.net.Data("x", {-1, 1}, DType::kBool);
  While(t.net, go, [&] { Assign(t.net, x, go); });
  auto run = t.Prepare({"x"}, {"go"});
  Scope scope;
  for (int again = 0; again < 2; ++again) {
    scope.Set("go", Tensor::Full<bool>({1, 1}, true));
    EXPECT_FALSE(run.Run(scope, {Tensor::Full<bool>({1, 1}, false)})[0].Item<bool>());
    scope.Set("go", Tensor::Full<bool>({1, 1}, true));
    const std::string error = ErrorOf([&] { run.Run(scope, {Tensor::Full<bool>({2, 1}, false)}); });
    EXPECT_EQ(error,
              "the persistable var 'go' would change from bool[1, 1] to bool[2, 1] while an op "
              "runs that uses it");
  }
}
// A feed in the memory of a variable that only a block writes is copied: its values are those from
// before the run, wherever they are read.
TEST(If, FeedsInTheMemoryOfWhatABlockWrites) {
  for (const bool reads : {true, false}) {
    Kept t;
    Variable x = t.net.Data("x", {4}), p = t.Keep("p", {4});
    If(t.net, t.on, [&] { Assign(t.net, t.net.Scale(p, {.scale = 2.0f}), p); });
    Variable out = t.net.Add(x, reads ? p : x);
    auto run = t.Prepare({"x", "on"}, {out.name()});
    Scope scope;
    scope.Set("p", Tensor::Full<float>({4}, 1));
    for (const float before : {1.f, 2.f, 4.f}) {
      const auto& result = run.Run(scope, {scope.Get("p"), Tensor::Full<bool>({1}, true)});
      EXPECT_TRUE(BitEqual(result[0], Tensor::Full<float>({4}, reads ? 3 * before : 2 * before)));
      EXPECT_TRUE(BitEqual(scope.Get("p"), Tensor::Full<float>({4}, 2 * before)));
    }
  }
}

// The block that writes the variable is inside a loop, which also reads the feed. Another stage
// begins after the loop.
TEST(If, FeedsInTheMemoryOfWhatALoopWrites) {
  Kept t;
  Variable n = t.net.Data("n", {1}, DType::kInt64), x = t.net.Data("x", {4});
  Variable p = t.Keep("p", {4}), total = FillConstant(t.net, {4}, DType::kFloat32, 0);
  const auto add = [&] { Assign(t.net, t.net.Add(total, x), total); };
  t.For(n, [&](Variable i) {
    If(t.net, t.Less(i, t.Int(1)),
       [&] { If(t.net, t.on, [&] { Assign(t.net, t.net.Scale(p, {.scale = 2.0f}), p); }); });
    add();
  });
  add();
  auto run = t.Prepare({"n", "x", "on"}, {total.name()});
  Scope scope;
  scope.Set("p", Tensor::Full<float>({4}, 1));
  for (const float before : {1.f, 2.f, 4.f}) {
    const auto& result = run.Run(scope, {OneInt(3), scope.Get("p"), Tensor::Full<bool>({1}, true)});
    EXPECT_TRUE(BitEqual(result[0], Tensor::Full<float>({4}, 4 * before)));
    EXPECT_TRUE(BitEqual(scope.Get("p"), Tensor::Full<float>({4}, 2 * before)));
  }
}

// A feed that lies within the variable, not at its begin.
TEST(If, FeedsWithinTheMemoryOfWhatIsWritten) {
  Kept t;
  Variable x = t.net.Data("x", {2}), p = t.Keep("p", {4});
  Assign(t.net, t.net.Scale(p, {.scale = 2.0f}), p);
  Variable out = t.net.Add(x, x);
  auto run = t.Prepare({"x"}, {out.name()});
  Scope scope;
  scope.Set("p", Tensor::Full<float>({4}, 1));
  auto* memory = std::get<Tensor>(scope.Var("p")).data<float>();
  const auto& result = run.Run(scope, {Tensor::View(DType::kFloat32, {2}, memory + 2)});
  EXPECT_TRUE(BitEqual(result[0], Tensor::Full<float>({2}, 2)));
}

}  // namespace coracle::persistable_blocks_test
