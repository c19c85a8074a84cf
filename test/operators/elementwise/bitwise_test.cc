#include <coracle/test/op_test.h>

namespace coracle::bitwise_test {

OpTest Pair(const std::string& type, DType dtype) {
  OpTest test(type);
  test.IntInput("X", {4}, {0, 5, 12, 127}, dtype).IntInput("Y", {4}, {7, 3, 10, 127}, dtype);
  return test;
}

TEST(Bitwise, Integers) {
  for (DType dtype : {DType::kUInt8, DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64}) {
    Pair("bitwise_and", dtype).Expect("Out", {4}, {0, 1, 8, 127}).ExpectDType("Out", dtype);
    Pair("bitwise_or", dtype).Expect("Out", {4}, {7, 7, 14, 127});
    Pair("bitwise_xor", dtype).Expect("Out", {4}, {7, 6, 6, 0});
  }
  OpTest("bitwise_and").IntInput("X", {1}, {-2}).IntInput("Y", {1}, {7}).Expect("Out", {1}, {6});
  OpTest("bitwise_not").IntInput("X", {3}, {0, 5, -1}).Expect("Out", {3}, {-1, -6, 0});
  OpTest("bitwise_not").IntInput("X", {2}, {0, 5}, DType::kUInt8).Expect("Out", {2}, {255, 250});
  OpTest("bitwise_not").IntInput("X", {1}, {-128}, DType::kInt8).Expect("Out", {1}, {127});
}

TEST(Bitwise, Bools) {
  for (const auto& [type, expected] : {std::pair{"bitwise_and", std::vector<double>{0, 0, 0, 1}},
                                       {"bitwise_or", {0, 1, 1, 1}},
                                       {"bitwise_xor", {0, 1, 1, 0}}}) {
    OpTest(type)
        .TensorInput("X", Tensor::Of<bool>({4}, {false, false, true, true}))
        .TensorInput("Y", Tensor::Of<bool>({4}, {false, true, false, true}))
        .Expect("Out", {4}, expected)
        .ExpectDType("Out", DType::kBool);
  }
  OpTest("bitwise_not")
      .TensorInput("X", Tensor::Of<bool>({2}, {false, true}))
      .Expect("Out", {2}, {1, 0});
}

TEST(Bitwise, BroadcastAndEdges) {
  OpTest("bitwise_or")
      .IntInput("X", {2, 1}, {1, 2})
      .IntInput("Y", {2}, {4, 8})
      .Expect("Out", {2, 2}, {5, 9, 6, 10});
  OpTest("bitwise_and")
      .IntInput("X", {2}, {1, 2})
      .IntInput("Y", {2, 2}, {1, 2, 3, 4})
      .Expect("Out", {2, 2}, {1, 2, 1, 0});
  OpTest("bitwise_xor").IntInput("X", {0}, {}).IntInput("Y", {0}, {}).Expect("Out", {0}, {});
  OpTest("bitwise_not").IntInput("X", {}, {0}).InPlace("X", "Out").Expect("Out", {}, {-1});
}

TEST(Bitwise, Constraints) {
  for (const char* name : {"bitwise_and", "bitwise_or", "bitwise_xor"}) {
    const std::string type = name;
    OpTest(type).IntInput("X", {2}, {1, 2}).IntInput("Y", {3}, {1, 2, 3}).ExpectError(type + ".C3");
    OpTest(type)
        .IntInput("X", {1}, {1})
        .IntInput("Y", {1}, {1}, DType::kInt32)
        .ExpectError(type + ".C4");
    OpTest(type).Input("X", {1}, {1}).Input("Y", {1}, {1}).ExpectError("float32");
  }
}

}  // namespace coracle::bitwise_test
