// Drawn feeds and parameters.
#include <coracle/executor/drawn_values.h>
#include <coracle/executor/executor.h>
#include <coracle/layers/builder.h>
#include <coracle/optimizer/optimizer.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

namespace coracle::drawn_values_test {

std::pair<int64_t, int64_t> RangeOf(const Tensor& ids) {
  const auto values = ids.span<int64_t>();
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return {*least, *most};
}

// Ids stay below the table's height, also where they are reshaped before; labels below the number
// of classes; what nothing is known of is 0 or 1.
TEST(DrawnValues, IntegersAreInRange) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  const Variable ids = net.Data("ids", {-1, 4}, DType::kInt64);
  const Variable flat = net.Reshape(ids, {-1, 1});
  const Variable rows = net.Embedding(flat, {100, 8});
  const Variable label = net.Data("label", {-1, 1}, DType::kInt64);
  net.SoftmaxWithCrossEntropy(net.Fc(rows, {.size = 5}), label);
  net.Data("flags", {-1, 3}, DType::kInt64);
  EXPECT_EQ(DrawnIdLimit(main, "ids"), 100);
  EXPECT_EQ(DrawnIdLimit(main, "label"), 5);
  EXPECT_EQ(DrawnIdLimit(main, "flags"), 2);
  const auto [least, most] = RangeOf(DrawFeed(main, "ids", {1000, 4}));
  EXPECT_EQ(least, 0);
  EXPECT_EQ(most, 99);  // of 4000 draws: missed with a probability of 0.99^4000
  EXPECT_EQ(RangeOf(DrawFeed(main, "label", {1000, 1})), (std::pair<int64_t, int64_t>{0, 4}));
  EXPECT_EQ(RangeOf(DrawFeed(main, "flags", {1000, 3})), (std::pair<int64_t, int64_t>{0, 1}));
  EXPECT_EQ(ErrorOf([&] { DrawFeed(main, "no", {1}); }), "the program has no variable 'no'");
}

// Texts are keys where an op looks them up, also in another shape; else any words.
TEST(DrawnValues, Texts) {
  ProgramDesc main;
  for (const char* name : {"keys", "flat", "words", "id"}) {
    VarDesc& var = main.Root().Var(name);
    var.SetDType(name == std::string("id") ? DType::kInt64 : DType::kString);
    var.SetShape({-1, 2});
  }
  main.Root().AppendOp("reshape2", {{"X", {"keys"}}}, {{"Out", {"flat"}}},
                       {{"shape", std::vector<int32_t>{-1}}});
  main.Root().AppendOp("map_values", {{"X", {"flat"}}}, {{"Out", {"id"}}},
                       {{"out_dtype", static_cast<int32_t>(DType::kInt64)},
                        {"has_default", false},
                        {"keys_strings", std::vector<std::string>{"yes", "no"}},
                        {"values_int64s", std::vector<int64_t>{1, 0}}});
  const Tensor keys = DrawFeed(main, "keys", {50, 2});
  EXPECT_EQ(keys.shape(), Shape({50, 2}));
  std::set<std::string> seen;
  for (const StringRef& text : keys.span<StringRef>()) seen.insert(std::string(text.view()));
  EXPECT_EQ(seen, (std::set<std::string>{"no", "yes"}));
  seen.clear();
  const Tensor words = DrawFeed(main, "words", {50, 2});
  for (const StringRef& text : words.span<StringRef>()) seen.insert(std::string(text.view()));
  EXPECT_GT(seen.size(), 3u);
  EXPECT_TRUE(BitEqual(words, DrawFeed(main, "words", {50, 2})));
}

TEST(DrawnValues, SequencesCoverTheRows) {
  ProgramDesc main;
  const auto var = [&](const char* name, int levels) -> VarDesc& {
    VarDesc& desc = main.Root().Var(name);
    desc.SetShape({-1, 2});
    desc.SetLoDLevel(levels);
    return desc;
  };
  EXPECT_EQ(DrawnShape(var("plain", 0), 3), Shape({3, 2}));
  EXPECT_EQ(DrawnShape(var("one", 1), 3), Shape({24, 2}));
  var("two", 2);
  EXPECT_EQ(DrawFeed(main, "plain", {3, 2}).lod(), LoD());
  EXPECT_EQ(DrawFeed(main, "one", {10, 2}, 3).lod(), (LoD{{0, 4, 7, 10}}));
  EXPECT_EQ(DrawFeed(main, "two", {8, 2}, 2).lod(), (LoD{{0, 2, 4}, {0, 2, 4, 6, 8}}));
  EXPECT_EQ(DrawFeed(main, "one", {2, 2}, 3).lod(), (LoD{{0, 1, 2, 2}}));  // one is empty
  var("many", 1000);
  EXPECT_EQ(ErrorOf([&] {
              DrawFeed(main, "many", {8, 2});
            }),
            "cannot draw sequences of 1000 levels for 'many': at most 8");
}

TEST(DrawnValues, ParametersAreFiniteAndTrain) {
  ProgramDesc main, startup;
  Builder net(main, startup);
  const Variable x = net.Data("x", {-1, 64});
  Variable h = net.Fc(x, {.size = 64, .act = "relu"});
  h = net.BatchNorm(net.Fc(h, {.size = 64}));
  const Variable loss = net.Mean(h);
  Adam({.learning_rate = 0.1}).Minimize(loss, startup);
  Scope scope;
  scope.Set("fc_0.w_0", Tensor::Full<float>({64, 64}, 0.25f));
  const std::vector<std::string> names = DrawMissingParameters(main, scope);
  EXPECT_EQ(std::count(names.begin(), names.end(), "fc_0.w_0"), 0);
  EXPECT_EQ(scope.Get("fc_0.w_0").data<float>()[7], 0.25f);
  double square = 0;
  for (float v : scope.Get("fc_1.w_0").span<float>()) square += double{v} * v;
  EXPECT_NEAR(square / 64, 1, 0.1);  // the sum over a column is that of 64 / 64
  for (const std::string& name : scope.LocalNames()) {
    const Tensor& value = scope.Get(name);
    const bool state = name.find("moment") != name.npos || name.find("pow") != name.npos ||
                       name.find("learning_rate") != name.npos;
    for (float v : value.span<float>()) {
      const bool vector = value.shape().rank() == 1;
      EXPECT_TRUE(state ? v == 0 : !vector || (v >= 0.5f && v < 1.5f)) << name << " " << v;
    }
  }
  const Tensor feed = DrawFeed(main, "x", {8, 64});
  PreparedProgram step = Executor({.check_nan_inf = true}).Prepare(main, {"x"}, {loss.name()});
  for (int i = 0; i < 3; ++i) step.Run(scope, {feed});
  main.Root().Var("odd").SetShape({-1, 2});
  main.Root().FindVar("odd")->SetPersistable(true);
  EXPECT_TRUE(DrawMissingParameters(main, scope).empty());  // nothing reads it
}
}  // namespace coracle::drawn_values_test
