#include <coracle/framework/op/op_context.h>
#include <coracle/test/op_test.h>

#include <cmath>
#include <limits>

namespace coracle::range_test {

OpTest Floats(double start, double end, double step) {
  OpTest test("range");
  test.Input("Start", {1}, {start}).Input("End", {1}, {end}).Input("Step", {1}, {step});
  return test;
}

OpTest Ints(int64_t start, int64_t end, int64_t step, DType dtype = DType::kInt64) {
  OpTest test("range");
  test.IntInput("Start", {1}, {start}, dtype).IntInput("End", {1}, {end}, dtype);
  test.IntInput("Step", {1}, {step}, dtype);
  return test;
}

TEST(Range, Values) {
  Floats(0.5, 2, 0.5).Expect("Out", {3}, {0.5, 1, 1.5});
  Floats(1, -1, -0.75).Expect("Out", {3}, {1, 0.25, -0.5});
  Floats(1, 1, 1).Expect("Out", {0}, {});
  Ints(1, 8, 3).Expect("Out", {3}, {1, 4, 7});
  Ints(5, 0, -2, DType::kInt32).Expect("Out", {3}, {5, 3, 1}).ExpectDType("Out", DType::kInt32);
  Ints(5, 5, -2).Expect("Out", {0}, {});
  const int64_t low = std::numeric_limits<int64_t>::min();
  Ints(low, 0, std::numeric_limits<int64_t>::max())
      .Expect("Out", {2}, {static_cast<double>(low), -1.0});
}

TEST(Range, UnknownAtBuildTime) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  block.Var("a").SetShape({1});
  block.Var("out");
  InferOp(block,
          block.AppendOp("range", {{"Start", {"a"}}, {"End", {"a"}}, {"Step", {"a"}}},
                         {{"Out", {"out"}}}),
          DefaultOps());
  EXPECT_EQ("[-1]", block.FindVarRecursive("out")->shape().ToString());
}

TEST(Range, Constraints) {
  OpTest("range")
      .Input("Start", {2}, {1, 2})
      .Input("End", {1}, {2})
      .Input("Step", {1}, {1})
      .ExpectError("range.C1");
  OpTest("range")
      .Input("Start", {1}, {1})
      .IntInput("End", {1}, {2})
      .Input("Step", {1}, {1})
      .ExpectError("range.C2");
  Ints(0, 1, 0).ExpectError("range.C3");
  Ints(1, 1, 0).ExpectError("range.C3");
  Ints(0, 1, -1).ExpectError("range.C3");
  Floats(0, 1, 0).ExpectError("range.C3");
  Floats(0, 1, -1).ExpectError("range.C3");
  Floats(0, std::nan(""), 1).ExpectError("range.C3");
  Floats(0, 1e30, 1e-8).ExpectError("range.C3");
}

}  // namespace coracle::range_test
