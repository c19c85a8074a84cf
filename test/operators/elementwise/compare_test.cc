#include <coracle/test/op_test.h>

#include <cmath>

namespace coracle::compare_test {

struct Row {
  const char* type;
  std::vector<double> expected;  // of {1, 2, 3, nan} against {2, 2, 2, nan}
};
const Row kRows[] = {{"less_than", {1, 0, 0, 0}},    {"less_equal", {1, 1, 0, 0}},
                     {"greater_than", {0, 0, 1, 0}}, {"greater_equal", {0, 1, 1, 0}},
                     {"equal", {0, 1, 0, 0}},        {"not_equal", {1, 0, 1, 1}}};

TEST(Compare, Values) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.type);
    OpTest(row.type)
        .Input("X", {4}, {1, 2, 3, std::nan("")})
        .Input("Y", {4}, {2, 2, 2, std::nan("")})
        .Expect("Out", {4}, row.expected)
        .ExpectDType("Out", DType::kBool);
    const std::vector<double> three(row.expected.begin(), row.expected.begin() + 3);
    for (DType dtype : {DType::kInt32, DType::kInt64, DType::kInt8, DType::kUInt8, DType::kInt16,
                        DType::kFloat16, DType::kBFloat16}) {
      OpTest(row.type)
          .IntInput("X", {3}, {1, 2, 3}, dtype)
          .IntInput("Y", {1}, {2}, dtype)
          .Expect("Out", {3}, three);
    }
  }
}

TEST(Compare, BoolsAndBroadcast) {
  OpTest("equal")
      .TensorInput("X", Tensor::Of<bool>({2}, {true, false}))
      .TensorInput("Y", Tensor::Of<bool>({2}, {true, true}))
      .Expect("Out", {2}, {1, 0});
  OpTest("less_than")
      .Attr("axis", 0)
      .Input("X", {2, 2}, {1, 2, 3, 4})
      .Input("Y", {2}, {2, 4})
      .Expect("Out", {2, 2}, {1, 0, 1, 0});
  OpTest("less_than").Input("X", {}, {1}).Input("Y", {}, {2}).Expect("Out", {}, {1});
  OpTest("less_than").Input("X", {0}, {}).Input("Y", {1}, {2}).Expect("Out", {0}, {});
}

TEST(Compare, LargeIntegersAreExact) {
  OpTest("less_than")
      .IntInput("X", {1}, {(int64_t{1} << 53)})
      .IntInput("Y", {1}, {(int64_t{1} << 53) + 1})
      .Expect("Out", {1}, {1});
}

TEST(Compare, Constraints) {
  for (const Row& row : kRows) {
    const std::string type = row.type;
    OpTest(type).Attr("axis", 5).RandomInput("X", {2}).RandomInput("Y", {2}).ExpectError(type +
                                                                                         ".C1");
    OpTest(type)
        .Attr("axis", 1)
        .RandomInput("X", {2, 2})
        .RandomInput("Y", {3, 2})
        .ExpectError(type + ".C2");
    OpTest(type).RandomInput("X", {2}).RandomInput("Y", {3}).ExpectError(type + ".C3");
    OpTest(type).RandomInput("X", {2}).IntInput("Y", {2}, {1, 2}).ExpectError(type + ".C4");
  }
}

TEST(Compare, UInt64AndStrings) {
  const uint64_t big = uint64_t{1} << 63;
  const Tensor x = Tensor::Of<uint64_t>({3}, {big, 1, 5}),
               y = Tensor::Of<uint64_t>({3}, {1, big, 5});
  const auto expect = [&](const char* type, const std::vector<double>& wanted) {
    OpTest(type).TensorInput("X", x).TensorInput("Y", y).Expect("Out", {3}, wanted);
  };
  expect("less_than", {0, 1, 0});
  expect("less_equal", {0, 1, 1});
  expect("greater_than", {1, 0, 0});
  expect("greater_equal", {1, 0, 1});
  expect("equal", {0, 0, 1});
  const std::vector<std::string> words = {"a", "", "ab"}, one = {"a"};
  for (const bool equal : {true, false}) {
    OpTest(equal ? "equal" : "not_equal")
        .TensorInput("X", Tensor::OfStrings({3}, words))
        .TensorInput("Y", Tensor::OfStrings({1}, one))
        .Expect("Out", {3}, {equal ? 1. : 0., equal ? 0. : 1., equal ? 0. : 1.});
  }
  OpTest("less_than")
      .TensorInput("X", Tensor::OfStrings({3}, words))
      .TensorInput("Y", Tensor::OfStrings({1}, one))
      .ExpectError("less_than: the op takes no strings");
}

}  // namespace coracle::compare_test
