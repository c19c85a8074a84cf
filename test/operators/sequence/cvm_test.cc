#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>

#include <cmath>

namespace coracle::cvm_test {

OpTest Cvm(const std::string& type, bool use) {
  OpTest test(type);
  test.Attr("use_cvm", use).Input("X", {3, 3}, {0, 1, 5, 3, 0, 6, 1, 1, 7});
  return test;
}

const std::vector<double> kCounts = {10, 20, 30, 40, 50, 60};

TEST(Cvm, Values) {
  const double two = std::log(2), four = std::log(4);
  Cvm("cvm", true)
      .Input("CVM", {3, 2}, kCounts)
      .Expect("Y", {3, 3}, {0, two, 5, four, -four, 6, two, 0, 7});
  Cvm("cvm", false).Input("CVM", {3, 2}, kCounts).Expect("Y", {3, 1}, {5, 6, 7});
  OpTest("cvm").Input("X", {0, 2}, {}).Input("CVM", {0, 2}, {}).Expect("Y", {0, 2}, {});
}

TEST(Cvm, TheGradientOfTheCountsIsGiven) {
  GradientIsCheckedIn("cvm", "test/operators/sequence/cvm_test.cc");
  Cvm("cvm_grad", true)
      .Input("CVM", {3, 2}, kCounts)
      .Input("Y@GRAD", {3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9})
      .Expect("X@GRAD", {3, 3}, {10, 20, 3, 30, 40, 6, 50, 60, 9});
  // Two sequences, one of two rows.
  Cvm("cvm_grad", false)
      .Lod({{0, 2, 3}})
      .Input("CVM", {2, 2}, {10, 20, 30, 40})
      .Input("Y@GRAD", {3, 1}, {1, 2, 3})
      .Expect("X@GRAD", {3, 3}, {10, 20, 1, 10, 20, 2, 30, 40, 3});
}

TEST(Cvm, Constraints) {
  OpTest("cvm").RandomInput("X", {2, 1}).RandomInput("CVM", {2, 2}).ExpectError("cvm.C1");
  Cvm("cvm", true).RandomInput("CVM", {3, 3}).ExpectError("cvm.C2");
  const auto grad = [](const Shape& cvm, const Shape& dy) {
    Cvm("cvm_grad", true)
        .RandomInput("CVM", cvm)
        .RandomInput("Y@GRAD", dy)
        .ExpectError(cvm[0] == 3 ? "cvm_grad.C4" : "cvm_grad.C3");
  };
  grad({2, 2}, {3, 3});
  grad({3, 2}, {3, 1});
}

}  // namespace coracle::cvm_test
