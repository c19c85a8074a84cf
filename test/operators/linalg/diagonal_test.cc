#include <coracle/test/op_test.h>
#include <coracle/test/operators/inferred_shape.h>

#include <limits>

namespace coracle::diagonal_test {

OpTest Plane(const std::string& type, int32_t offset, int32_t axis1 = 0, int32_t axis2 = 1) {
  OpTest test(type);
  return test.Attr("offset", offset).Attr("axis1", axis1).Attr("axis2", axis2), test;
}
OpTest Embed(int32_t offset, int32_t dim1 = -2, int32_t dim2 = -1) {
  OpTest test("diag_embed");
  return test.Attr("offset", offset).Attr("dim1", dim1).Attr("dim2", dim2), test;
}

const std::vector<double> kSix = {1, 2, 3, 4, 5, 6};
const std::vector<double> kEight = {1, 2, 3, 4, 5, 6, 7, 8};

TEST(Diagonal, Values) {
  Plane("diagonal", 0).Input("Input", {2, 3}, kSix).Expect("Out", {2}, {1, 5});
  Plane("diagonal", 1).Input("Input", {2, 3}, kSix).Expect("Out", {2}, {2, 6});
  Plane("diagonal", -1).Input("Input", {2, 3}, kSix).Expect("Out", {1}, {4});
  Plane("diagonal", 1, 1, 0).Input("Input", {2, 3}, kSix).Expect("Out", {1}, {4});
  Plane("diagonal", 3).Input("Input", {2, 3}, kSix).Expect("Out", {0}, {});
  Plane("diagonal", std::numeric_limits<int32_t>::min())
      .Input("Input", {2, 3}, kSix)
      .Expect("Out", {0}, {});
  Plane("diagonal", 0).Input("Input", {2, 2, 2}, kEight).Expect("Out", {2, 2}, {1, 7, 2, 8});
  Plane("diagonal", 0, -1, 0).Input("Input", {2, 2, 2}, kEight).Expect("Out", {2, 2}, {1, 6, 3, 8});
  Plane("diagonal", 0).IntInput("Input", {1, 1}, {7}).Expect("Out", {1}, {7});
  Plane("diagonal", 0).Input("Input", {0, 2}, {}).Expect("Out", {0}, {});
  EXPECT_EQ(InferredShape("diagonal", {{"Input", {-1, 2, 3}}}, "Out", {}), "[3, -1]");
}

TEST(Diagonal, Gradients) {
  for (int32_t offset : {0, 1, -1}) {
    OpTest test = Plane("diagonal", offset, 2, 0);
    test.RandomInput("Input", {2, 3, 3}).CheckGradient({"Input"}).CheckHigherGradients();
  }
}

TEST(Trace, Values) {
  Plane("trace", 0).Input("Input", {2, 3}, kSix).Expect("Out", {1}, {6});
  Plane("trace", 1).Input("Input", {2, 3}, kSix).Expect("Out", {1}, {8});
  Plane("trace", 1, 1, 0).Input("Input", {2, 3}, kSix).Expect("Out", {1}, {8});
  Plane("trace", -2).Input("Input", {2, 3}, kSix).Expect("Out", {1}, {0});
  Plane("trace", 0).Input("Input", {2, 2, 2}, kEight).Expect("Out", {2}, {8, 10});
  Plane("trace", 0, 1, 2).IntInput("Input", {2, 1, 1}, {7, 8}).Expect("Out", {2}, {7, 8});
  Plane("trace", 0).Input("Input", {2, 2, 0}, {}).Expect("Out", {0}, {});
}

TEST(Trace, Gradients) {
  for (int32_t offset : {0, 1, -1}) {
    Plane("trace", offset).RandomInput("Input", {2, 3}).CheckGradient({"Input"});
    OpTest test = Plane("trace", offset, 2, 0);
    test.RandomInput("Input", {2, 3, 3}).CheckGradient({"Input"}).CheckHigherGradients();
  }
}

// Old files name the axes dim1 and dim2.
TEST(Trace, OldNamesOfTheAxes) {
  const auto test = [](int32_t dim1, int32_t dim2) {
    OpTest t("trace");
    return t.Attr("dim1", dim1).Attr("dim2", dim2), t;
  };
  test(1, 2).Input("Input", {2, 2, 2}, kEight).Expect("Out", {2}, {5, 13});
  test(-1, 0).Attr("offset", 1).Input("Input", {2, 2, 2}, kEight).Expect("Out", {2}, {2, 4});
  for (int32_t dim1 : {0, 2})
    test(dim1, 1).Attr("offset", 1).RandomInput("Input", {2, 3, 4}).CheckGradient({"Input"});
  test(2, 0).RandomInput("Input", {2, 3, 4}).CheckGradient({"Input"}).CheckHigherGradients();
  EXPECT_EQ(InferredShape("trace", {{"Input", {-1, 2, 3}}}, "Out",
                          {{"dim1", int32_t{1}}, {"dim2", int32_t{2}}}),
            "[-1]");
  test(0, 2)
      .Attr("axis1", 1)
      .Attr("axis2", 2)
      .Input("Input", {2, 2, 2}, kEight)
      .Expect("Out", {2}, {5, 13});
  test(0, 3).RandomInput("Input", {2, 2, 2}).ExpectError("trace.C2");
  test(1, 1).RandomInput("Input", {2, 2, 2}).ExpectError("trace.C3");
}

TEST(Trace, FloatsAddUpInDouble) {
  std::vector<double> x(16, 0.0);
  x[0] = 1e8;
  x[5] = x[10] = 1;
  x[15] = -1e8;
  Plane("trace", 0).Input("Input", {4, 4}, x).Expect("Out", {1}, {2});
}

TEST(Diag, Values) {
  OpTest("diag").Input("Diagonal", {2}, {3, 4}).Expect("Out", {2, 2}, {3, 0, 0, 4});
  OpTest("diag").IntInput("Diagonal", {1}, {3}).Expect("Out", {1, 1}, {3});
  OpTest("diag").Input("Diagonal", {0}, {}).Expect("Out", {0, 0}, {});
}

TEST(Diag, Gradients) {
  OpTest("diag").RandomInput("Diagonal", {3}).CheckGradient({"Diagonal"}).CheckHigherGradients();
}

TEST(DiagV2, Values) {
  const auto test = [](int32_t offset) {
    OpTest t("diag_v2");
    t.Attr("offset", offset).Attr("padding_value", 9.f);
    return t;
  };
  test(0).Input("X", {2}, {3, 4}).Expect("Out", {2, 2}, {3, 9, 9, 4});
  test(1).Input("X", {1}, {3}).Expect("Out", {2, 2}, {9, 3, 9, 9});
  test(-1).IntInput("X", {1}, {3}).Expect("Out", {2, 2}, {9, 9, 3, 9});
  test(0).Input("X", {0}, {}).Expect("Out", {0, 0}, {});
  test(1).Input("X", {2, 3}, kSix).Expect("Out", {2}, {2, 6});
  test(-2).Input("X", {2, 3}, kSix).Expect("Out", {0}, {});
}

TEST(DiagV2, Gradients) {
  for (const Shape& shape : {Shape{3}, Shape{2, 3}}) {
    OpTest test("diag_v2");
    test.Attr("offset", 1).RandomInput("X", shape).CheckGradient({"X"}).CheckHigherGradients();
  }
}

TEST(DiagEmbed, Values) {
  Embed(0).Input("Input", {2, 2}, {1, 2, 3, 4}).Expect("Out", {2, 2, 2}, {1, 0, 0, 2, 3, 0, 0, 4});
  Embed(1).Input("Input", {1}, {5}).Expect("Out", {2, 2}, {0, 5, 0, 0});
  Embed(1, 1, 0).Input("Input", {1}, {5}).Expect("Out", {2, 2}, {0, 0, 5, 0});
  Embed(0, 0, 2)
      .Input("Input", {2, 2}, {1, 2, 3, 4})
      .Expect("Out", {2, 2, 2}, {1, 0, 3, 0, 0, 2, 0, 4});
  Embed(-1).IntInput("Input", {1}, {5}).Expect("Out", {2, 2}, {0, 0, 5, 0});
  Embed(0).Input("Input", {2, 0}, {}).Expect("Out", {2, 0, 0}, {});
}

TEST(DiagEmbed, Gradients) {
  for (int32_t offset : {0, 1, -2})
    Embed(offset, 0, 2)
        .RandomInput("Input", {2, 3})
        .CheckGradient({"Input"})
        .CheckHigherGradients();
}

TEST(Diagonal, Constraints) {
  for (const char* name : {"diagonal", "trace"}) {
    const std::string type = name;
    Plane(type, 0).RandomInput("Input", {2}).ExpectError(type + ".C1");
    Plane(type, 0, 0, 2).RandomInput("Input", {2, 2}).ExpectError(type + ".C2");
    Plane(type, 0, 1, -1).RandomInput("Input", {2, 2}).ExpectError(type + ".C3");
  }
  const auto grad = [](const Shape& x, const Shape& dout, int32_t axis2) {
    OpTest test = Plane("diagonal_grad", 0, 0, axis2);
    test.RandomInput("Input", x).RandomInput("Out@GRAD", dout);
    return test;
  };
  grad({2}, {2}, 1).ExpectError("diagonal_grad.C1");
  grad({2, 2}, {2}, 2).ExpectError("diagonal_grad.C2");
  grad({2, 2}, {2}, 0).ExpectError("diagonal_grad.C3");
  grad({2, 2}, {3}, 1).ExpectError("diagonal_grad.C4");
  OpTest("diag").RandomInput("Diagonal", {2, 2}).ExpectError("diag.C1");
  OpTest("diag_v2").RandomInput("X", {2, 2, 2}).ExpectError("diag_v2.C1");
  Embed(0).RandomInput("Input", {}).ExpectError("diag_embed.C1");
  Embed(0, 0, 2).RandomInput("Input", {2}).ExpectError("diag_embed.C2");
  Embed(0, 1, -1).RandomInput("Input", {2}).ExpectError("diag_embed.C3");
}

}  // namespace coracle::diagonal_test
