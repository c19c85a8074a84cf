#include <coracle/test/op_test.h>

#include <cmath>

namespace coracle::arg_max_test {

OpTest Arg(const std::string& type, int64_t axis) {
  OpTest test(type);
  test.Attr("axis", axis);
  return test;
}

TEST(ArgMax, Values) {
  const std::vector<double> x = {1, 5, 2, 7, 7, 0};
  Arg("arg_max", -1)
      .Input("X", {2, 3}, x)
      .Expect("Out", {2}, {1, 0})
      .ExpectDType("Out", DType::kInt64);
  Arg("arg_max", 0).Input("X", {2, 3}, x).Expect("Out", {3}, {1, 1, 0});
  Arg("arg_min", 1).Attr("keepdims", true).Input("X", {2, 3}, x).Expect("Out", {2, 1}, {0, 2});
  Arg("arg_min", 0)
      .Attr("dtype", 2)
      .Input("X", {2, 3}, x)
      .Expect("Out", {3}, {0, 0, 1})
      .ExpectDType("Out", DType::kInt32);
  Arg("arg_max", 0).Attr("flatten", true).Input("X", {2, 3}, x).Expect("Out", {1}, {3});
  Arg("arg_max", 0).Input("X", {3}, {1, 3, 2}).Expect("Out", {1}, {1});
  Arg("arg_max", 0).Input("X", {}, {1}).Expect("Out", {1}, {0});
  Arg("arg_max", 1).Input("X", {0, 3}, {}).Expect("Out", {0}, {});
}

TEST(ArgMax, TypesAndNan) {
  for (DType dtype : {DType::kInt8, DType::kUInt8, DType::kInt16, DType::kInt32, DType::kInt64,
                      DType::kFloat16, DType::kBFloat16}) {
    Arg("arg_max", 0).IntInput("X", {4}, {1, 3, 0, 3}, dtype).Expect("Out", {1}, {1});
    Arg("arg_min", 0).IntInput("X", {4}, {1, 3, 0, 3}, dtype).Expect("Out", {1}, {2});
  }
  const double nan = std::nan("");
  for (const char* type : {"arg_max", "arg_min"})
    Arg(type, 0).Input("X", {4}, {1, nan, 9, nan}).Expect("Out", {1}, {1});
}

TEST(ArgMax, Constraints) {
  for (const std::string type : {"arg_max", "arg_min"}) {
    Arg(type, 1).Input("X", {1}, {1}).ExpectError(type + ".C1");
    Arg(type, 0).Input("X", {0}, {}).ExpectError(type + ".C2");
    Arg(type, 0).Attr("dtype", 5).Input("X", {1}, {1}).ExpectError(type + ".C3");
  }
}

}  // namespace coracle::arg_max_test
