#include <coracle/test/op_test.h>

namespace coracle::increment_test {

TEST(Increment, Values) {
  OpTest("increment").Input("X", {1}, {1.5}).Expect("Out", {1}, {2.5}).CheckGradient({"X"});
  OpTest("increment").Attr("step", -2.f).IntInput("X", {1}, {7}).Expect("Out", {1}, {5});
  OpTest("increment")
      .IntInput("X", {1}, {7}, DType::kInt32)
      .InPlace("X", "Out")
      .Expect("Out", {1}, {8})
      .ExpectDType("Out", DType::kInt32);
}

TEST(Increment, C1_NotOneElement) {
  OpTest("increment").RandomInput("X", {2}).ExpectError("increment.C1");
  OpTest("increment").RandomInput("X", {0}).ExpectError("increment.C1");
}

}  // namespace coracle::increment_test
