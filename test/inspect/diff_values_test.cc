// How the values of two programs' persistable variables differ.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/layers/builder.h>
#include <coracle/test/inspect/diff_programs.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

namespace coracle::diff_values_test {

TEST(DiffValues, ValuesOfParameters) {
  ProgramDesc a;
  for (const char* name : {"w", "v", "u"}) {
    a.Root().Var(name).SetShape({2, 2});
    a.Root().Var(name).SetPersistable(true);
  }
  const auto tensor = [](std::initializer_list<float> elements) {
    Tensor t(DType::kFloat32, {2, 2});
    std::copy(elements.begin(), elements.end(), t.data<float>());
    return t;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Scope before, after;
  before.Set("w", tensor({1, 2, 3, nan}));
  after.Set("w", tensor({1, 2.5f, 2, nan}));
  before.Set("v", tensor({1, 1, 1, 1}));
  after.Set("v", tensor({1, 1, 1, 1}));
  before.Set("u", tensor({0, 0, 0, 0}));
  const std::vector<ValueDiff> values = DiffValues({}, a, before, a, after);
  ASSERT_EQ(values.size(), 2u);
  EXPECT_EQ(values[0].before, "u");
  EXPECT_EQ(values[0].problem, "only before: float32[2, 2]");
  EXPECT_EQ(values[1].before, "w");
  EXPECT_EQ(values[1].different, 2);
  EXPECT_EQ(values[1].max_difference, 1);
  EXPECT_EQ(values[1].worst, 2);
  ExpectPart(DiffText({}, a, a, DefaultOps(), values),
             "  ~ w  2 of 4 elements differ, most by 1 at [1, 0]: 3 -> 2\n");
  EXPECT_EQ(DiffValues({}, a, before, a, after, {.relative = 0, .absolute = 0.75}).back().different,
            1);
  EXPECT_EQ(DiffValues({}, a, before, a, after, {.relative = 0.5, .absolute = 0}).size(), 1u);
}

TEST(DiffValues, OneNanIsTheLargestDifference) {
  ProgramDesc a;
  a.Root().Var("w").SetShape({2});
  a.Root().Var("w").SetPersistable(true);
  Scope before, after;
  before.Set("w", Tensor::Zeros(DType::kFloat32, {2}));
  Tensor t = Tensor::Zeros(DType::kFloat32, {2});
  t.data<float>()[0] = 5;
  t.data<float>()[1] = std::numeric_limits<float>::quiet_NaN();
  after.Set("w", t);
  const std::vector<ValueDiff> values =
      DiffValues({}, a, before, a, after, {.relative = 100, .absolute = 100});
  ASSERT_EQ(values.size(), 1u);
  EXPECT_EQ(values[0].worst, 1);
  EXPECT_EQ(values[0].different, 1);
}

// Without a tolerance bits count; so do sequences and selected rows.
TEST(DiffValues, ValuesAreComparedToTheBit) {
  ProgramDesc a;
  for (const char* name : {"w", "n", "s", "r", "o"}) {
    a.Root().Var(name).SetShape({2});
    a.Root().Var(name).SetPersistable(true);
  }
  for (const char* name : {"r", "o"}) a.Root().FindVar(name)->SetType(VarType::kSelectedRows);
  const auto nan = [](uint32_t bits) { return std::bit_cast<float>(bits); };
  const auto rows = [](std::vector<int64_t> rows, float last) {
    return SelectedRows{std::move(rows), 9, Tensor::Of<float>({2, 1}, {1, last})};
  };
  Tensor sequences = Tensor::Of<float>({2}, {1, 2});
  Scope before, after;
  before.Set("s", sequences);
  sequences.lod() = {{0, 1, 2}};
  after.Set("s", sequences);
  before.Set("w", Tensor::Of<float>({2}, {1, 0.f}));
  after.Set("w", Tensor::Of<float>({2}, {1, -0.f}));
  before.Set("n", Tensor::Of<float>({2}, {nan(0x7fc00000), nan(0x7fc00001)}));
  after.Set("n", Tensor::Of<float>({2}, {nan(0x7fc00000), nan(0x7fc00002)}));
  before.Var("r") = rows({1, 2}, 5);
  after.Var("r") = rows({1, 3}, 5);
  before.Var("o") = rows({1, 2}, 5);
  after.Var("o") = rows({1, 2}, 6);
  EXPECT_TRUE(DiffValues({}, a, before, a, before).empty());
  EXPECT_EQ(DiffText({}, a, a, DefaultOps(), DiffValues({}, a, before, a, after)),
            "values\n"
            "  ~ n  1 of 2 elements differ, most by 0 at [1]: nan -> nan (other bits)\n"
            "  ~ o  1 of 2 elements differ, most by 1 at [1]: 5 -> 6\n"
            "  ~ r  other rows: 2 of 9 -> 2 of 9\n"
            "  ~ s  other sequences (LoD)\n"
            "  ~ w  1 of 2 elements differ, most by 0 at [1]: 0 -> -0\n"
            "values of 5 variables differ\n");
  const auto loose = DiffValues({}, a, before, a, after, {.relative = 0, .absolute = 2});
  ASSERT_EQ(loose.size(), 2u);
  EXPECT_EQ(loose[0].before, "r");
  EXPECT_EQ(loose[1].before, "s");
}

TEST(DiffValues, InfinitiesAndLargeIntegersAreNoSmallDifferences) {
  ProgramDesc a;
  for (const char* name : {"i", "w"}) {
    a.Root().Var(name).SetShape({1});
    a.Root().Var(name).SetPersistable(true);
  }
  Scope before, after;
  const auto integer = [](int64_t value) {
    Tensor t(DType::kInt64, {1});
    t.data<int64_t>()[0] = value;
    return t;
  };
  const auto number = [](float value) {
    Tensor t(DType::kFloat32, {1});
    t.data<float>()[0] = value;
    return t;
  };
  before.Set("i", integer(int64_t{1} << 53));
  after.Set("i", integer((int64_t{1} << 53) + 1));
  before.Set("w", number(3));
  after.Set("w", number(std::numeric_limits<float>::infinity()));
  EXPECT_EQ(DiffValues({}, a, before, a, after).size(), 2u);
  const std::vector<ValueDiff> loose = DiffValues(
      {}, a, before, a, after, {.relative = 1e-3, .absolute = 0, .exact_integers = false});
  ASSERT_EQ(loose.size(), 1u);
  EXPECT_EQ(loose[0].before, "w");
}

TEST(DiffValues, ValuesOfLargeTensors) {
  ProgramDesc a;
  a.Root().Var("w").SetShape({1000, 200});
  a.Root().Var("w").SetPersistable(true);
  Scope before, after;
  before.Set("w", Tensor::Zeros(DType::kInt64, {1000, 200}));
  Tensor t = Tensor::Zeros(DType::kInt64, {1000, 200});
  t.data<int64_t>()[150'007] = -3;
  t.data<int64_t>()[7] = 1;
  after.Set("w", t);
  const std::vector<ValueDiff> values = DiffValues({}, a, before, a, after);
  ASSERT_EQ(values.size(), 1u);
  EXPECT_EQ(values[0].different, 2);
  EXPECT_EQ(values[0].worst, 150'007);
  EXPECT_EQ(values[0].worst_after, -3);
  ExpectPart(DiffText({}, a, a, DefaultOps(), values), "most by 3 at [750, 7]: 0 -> -3\n");
}

}  // namespace coracle::diff_values_test
