#include <coracle/test/op_test.h>

namespace coracle::logical_test {

OpTest Four(const std::string& type) {
  OpTest test(type);
  test.TensorInput("X", Tensor::Of<bool>({4}, {false, false, true, true}));
  if (type != "logical_not")
    test.TensorInput("Y", Tensor::Of<bool>({4}, {false, true, false, true}));
  return test;
}

TEST(Logical, Values) {
  Four("logical_and").Expect("Out", {4}, {0, 0, 0, 1}).ExpectDType("Out", DType::kBool);
  Four("logical_or").Expect("Out", {4}, {0, 1, 1, 1});
  Four("logical_xor").Expect("Out", {4}, {0, 1, 1, 0});
  Four("logical_not").Expect("Out", {4}, {1, 1, 0, 0}).ExpectDType("Out", DType::kBool);
  Four("logical_not").InPlace("X", "Out").Expect("Out", {4}, {1, 1, 0, 0});
}

TEST(Logical, NumbersBroadcastAndEdges) {
  OpTest("logical_and")
      .IntInput("X", {2, 1}, {0, 7})
      .IntInput("Y", {2}, {-1, 0})
      .Expect("Out", {2, 2}, {0, 0, 1, 0});
  OpTest("logical_not").Input("X", {2}, {0, 0.5}).Expect("Out", {2}, {1, 0});
  OpTest("logical_not").Input("X", {}, {0}).Expect("Out", {}, {1});
  OpTest("logical_or").Input("X", {0}, {}).Input("Y", {0}, {}).Expect("Out", {0}, {});
}

TEST(Logical, Constraints) {
  for (const char* name : {"logical_and", "logical_or", "logical_xor"}) {
    const std::string type = name;
    OpTest(type).RandomInput("X", {2}).RandomInput("Y", {3}).ExpectError(type + ".C3");
    OpTest(type).RandomInput("X", {2}).IntInput("Y", {2}, {1, 2}).ExpectError(type + ".C4");
  }
}

}  // namespace coracle::logical_test
