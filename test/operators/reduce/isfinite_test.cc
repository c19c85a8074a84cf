#include <coracle/test/op_test.h>

#include <limits>

namespace coracle::isfinite_test {

TEST(IsFinite, Values) {
  const double inf = std::numeric_limits<double>::infinity();
  OpTest("isfinite")
      .Input("X", {3}, {1, -2, 0})
      .Expect("Out", {1}, {1})
      .ExpectDType("Out", DType::kBool);
  OpTest("isfinite").Input("X", {3}, {1, inf, 0}).Expect("Out", {1}, {0});
  OpTest("isfinite").Input("X", {3}, {1, -inf, 0}).Expect("Out", {1}, {0});
  OpTest("isfinite").Input("X", {}, {std::nan("")}).Expect("Out", {1}, {0});
  OpTest("isfinite").Input("X", {0}, {}).Expect("Out", {1}, {1});
  OpTest("isfinite").IntInput("X", {1}, {7}).Expect("Out", {1}, {1});
}

TEST(IsFinite, InfOrNan) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  struct Case {
    std::vector<double> x;
    double has_inf, has_nan;
  };
  for (const Case& c :
       {Case{{1, -2}, 0, 0}, {{1, -inf}, 1, 0}, {{nan, 2}, 0, 1}, {{inf, nan}, 1, 1}}) {
    OpTest("isinf").Input("X", {2}, c.x).Expect("Out", {1}, {c.has_inf});
    OpTest("isnan").Input("X", {2}, c.x).Expect("Out", {1}, {c.has_nan});
  }
  for (const char* type : {"isinf", "isnan"}) {
    OpTest(type).Input("X", {0}, {}).Expect("Out", {1}, {0}).ExpectDType("Out", DType::kBool);
    OpTest(type).IntInput("X", {1}, {7}).Expect("Out", {1}, {0});
  }
}

TEST(IsFinite, SelectedRows) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  OpTest("isfinite").RowsInput("X", {4, 2}, {1, 3}, {1, 2, 3, 4}).Expect("Out", {1}, {1});
  OpTest("isinf").RowsInput("X", {4, 2}, {1, 3}, {1, 2, inf, 4}).Expect("Out", {1}, {1});
  OpTest("isnan").RowsInput("X", {4, 2}, {1, 3}, {1, 2, 3, nan}).Expect("Out", {1}, {1});
}

TEST(IsFinite, ElementByElement) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> x = {0, inf, -inf, std::nan("")};
  OpTest("isfinite_v2")
      .Input("X", {2, 2}, x)
      .Expect("Out", {2, 2}, {1, 0, 0, 0})
      .ExpectDType("Out", DType::kBool);
  OpTest("isinf_v2").Input("X", {4}, x).Expect("Out", {4}, {0, 1, 1, 0});
  OpTest("isnan_v2").Input("X", {4}, x).Expect("Out", {4}, {0, 0, 0, 1});
  for (const char* name : {"isfinite_v2", "isinf_v2", "isnan_v2"}) {
    const std::string type = name;
    const double finite = type == "isfinite_v2" ? 1 : 0;
    OpTest(type).IntInput("X", {2}, {7, 0}).Expect("Out", {2}, {finite, finite});
    OpTest(type).Input("X", {}, {1}).Expect("Out", {}, {finite});
    OpTest(type).Input("X", {0, 2}, {}).Expect("Out", {0, 2}, {});
  }
}

TEST(IsFinite, EveryPlace) {
  for (size_t at = 0; at < 70; ++at) {
    std::vector<double> x(70, 3e38);
    x[at] = at % 2 ? std::nan("") : std::numeric_limits<double>::infinity();
    OpTest("isfinite").Input("X", {70}, x).Expect("Out", {1}, {0});
  }
}

}  // namespace coracle::isfinite_test
