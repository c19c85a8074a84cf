#include <coracle/test/op_test.h>

namespace coracle::partial_concat_test {

OpTest Of(const std::string& type, int32_t start, int32_t length) {
  OpTest test(type);
  test.Attr("start_index", start).Attr("length", length);
  test.Input("X", {2, 3}, {1, 2, 3, 4, 5, 6});
  test.Input("X", {2, 3}, {10, 20, 30, 40, 50, 60});
  return test;
}

TEST(PartialConcat, Values) {
  Of("partial_concat", 1, 1)
      .Expect("Out", {2, 2}, {2, 20, 5, 50})
      .CheckGradient({"X"})
      .CheckHigherGradients();
  Of("partial_concat", 1, -1)
      .Expect("Out", {2, 4}, {2, 3, 20, 30, 5, 6, 50, 60})
      .CheckGradient({"X"});
  Of("partial_concat", -2, 2)
      .Expect("Out", {2, 4}, {2, 3, 20, 30, 5, 6, 50, 60})
      .CheckGradient({"X"});
  Of("partial_concat", -3, 2)
      .Expect("Out", {2, 4}, {1, 2, 10, 20, 4, 5, 40, 50})
      .CheckGradient({"X"});
  Of("partial_concat", 3, -1).Expect("Out", {2, 0}, {});
  OpTest("partial_concat").IntInput("X", {1, 2}, {1, 2}).Expect("Out", {1, 2}, {1, 2});
  OpTest("partial_concat").Input("X", {1, 2}, {1, 2}).CheckGradient({"X"});
}

TEST(PartialSum, Values) {
  Of("partial_sum", 1, 1)
      .Expect("Out", {2, 1}, {22, 55})
      .CheckGradient({"X"})
      .CheckHigherGradients();
  Of("partial_sum", -2, -1).Expect("Out", {2, 2}, {22, 33, 55, 66}).CheckGradient({"X"});
  OpTest("partial_sum").Input("X", {0, 2}, {}).Expect("Out", {0, 2}, {});
}

TEST(PartialConcat, Constraints) {
  for (const std::string type : {"partial_concat", "partial_sum"}) {
    OpTest(type).Input("X", {1}, {1}).ExpectError(type + ".C1");
    OpTest(type).Input("X", {1, 1}, {1}).Input("X", {1, 2}, {1, 2}).ExpectError(type + ".C2");
    Of(type, 2, 2).ExpectError(type + ".C3");
    Of(type, -4, 1).ExpectError(type + ".C3");
    Of(type, 4, -1).ExpectError(type + ".C3");
  }
}
}  // namespace coracle::partial_concat_test
