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

TEST(Bitwise, Shifts) {
  const std::vector<int64_t> by = {0, 1, 7, 8, 100, -1};
  for (DType dtype : {DType::kInt8, DType::kUInt8}) {
    const bool is_signed = dtype == DType::kInt8;
    OpTest("bitwise_left_shift")
        .IntInput("X", {6}, {5, 67, 3, 1, 1, 1}, dtype)
        .IntInput("Y", {6}, by, dtype)
        .Expect("Out", {6}, {5, is_signed ? -122. : 134., is_signed ? -128. : 128., 0, 0, 0});
    OpTest("bitwise_right_shift")
        .IntInput("X", {6}, {5, 67, 127, 127, 127, 127}, dtype)
        .IntInput("Y", {6}, by, dtype)
        .Expect("Out", {6}, {5, 33, 0, 0, 0, 0});
  }
  for (bool arithmetic : {true, false}) {
    OpTest("bitwise_right_shift")
        .Attr("is_arithmetic", arithmetic)
        .IntInput("X", {4}, {-128, -128, -1, -1}, DType::kInt8)
        .IntInput("Y", {4}, {1, 7, 8, -1}, DType::kInt8)
        .Expect("Out", {4},
                {arithmetic ? -64. : 64., arithmetic ? -1. : 1., arithmetic ? -1. : 0,
                 arithmetic ? -1. : 0});
  }
  OpTest wide("bitwise_left_shift");
  wide.TensorInput("X", Tensor::Of<uint64_t>({3}, {1, 3, 1}))
      .TensorInput("Y", Tensor::Of<uint64_t>({3}, {63, 63, 64}));
  EXPECT_TRUE(BitEqual(wide.Output("Out"),
                       Tensor::Of<uint64_t>({3}, {uint64_t{1} << 63, uint64_t{1} << 63, 0})));
}

TEST(Bitwise, Constraints) {
  for (const char* name :
       {"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"}) {
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
