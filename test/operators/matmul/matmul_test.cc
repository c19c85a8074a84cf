#include <coracle/test/op_test.h>
#include <coracle/test/operators/inferred_shape.h>

namespace coracle::matmul_test {

struct Case {
  Shape x, y, out;
  bool tx, ty;
};

std::vector<Case> Cases() {
  return {{{2, 3}, {3, 4}, {2, 4}, false, false},
          {{3, 2}, {3, 4}, {2, 4}, true, false},
          {{2, 3}, {4, 3}, {2, 4}, false, true},
          {{3, 2}, {4, 3}, {2, 4}, true, true},
          {{5, 2, 3}, {5, 3, 4}, {5, 2, 4}, false, false},
          {{5, 3, 2}, {5, 4, 3}, {5, 2, 4}, true, true},
          {{5, 2, 3}, {3, 4}, {5, 2, 4}, false, false},
          {{5, 2, 3}, {4, 3}, {5, 2, 4}, false, true},
          {{5, 3, 2}, {3, 4}, {5, 2, 4}, true, false},
          {{2, 3}, {5, 3, 4}, {5, 2, 4}, false, false},
          {{3, 2}, {5, 4, 3}, {5, 2, 4}, true, true},
          {{2, 1, 2, 3}, {3, 3, 4}, {2, 3, 2, 4}, false, false},
          {{2, 1, 3, 2}, {1, 3, 3, 4}, {2, 3, 2, 4}, true, false},
          {{3}, {3}, {1}, false, false},
          {{3}, {3, 4}, {4}, false, false},
          {{3}, {5, 3, 4}, {5, 4}, false, false},
          {{2, 3}, {3}, {2}, false, false},
          {{5, 2, 3}, {3}, {5, 2}, false, false},
          {{5, 3, 2}, {3}, {5, 2}, true, false}};
}

OpTest Make(bool v2, const Case& c) {
  OpTest test(v2 ? "matmul_v2" : "matmul");
  test.Attr(v2 ? "trans_x" : "transpose_X", c.tx).Attr(v2 ? "trans_y" : "transpose_Y", c.ty);
  return test;
}

// Element (b, i, j) of the product by the definition, every dim of the batch read modulo.
std::vector<double> Product(const Case& c, const std::vector<double>& x,
                            const std::vector<double>& y) {
  const auto widen = [](const Shape& s, bool is_x) {
    std::vector<int64_t> dims = s.ToVector();
    if (dims.size() == 1) dims.insert(is_x ? dims.begin() : dims.end(), 1);
    while (dims.size() < 4) dims.insert(dims.begin(), 1);
    return dims;
  };
  const auto xs = widen(c.x, true), ys = widen(c.y, false);
  const bool tx = c.tx && c.x.rank() > 1, ty = c.ty && c.y.rank() > 1;
  const int64_t m = xs[tx ? 3 : 2], k = xs[tx ? 2 : 3], n = ys[ty ? 2 : 3];
  std::vector<double> out;
  for (int64_t p = 0; p < std::max(xs[0], ys[0]); ++p)
    for (int64_t q = 0; q < std::max(xs[1], ys[1]); ++q)
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (int64_t r = 0; r < k; ++r) {
            const int64_t xb = (p % xs[0] * xs[1] + q % xs[1]) * m * k;
            const int64_t yb = (p % ys[0] * ys[1] + q % ys[1]) * k * n;
            sum += x[static_cast<size_t>(xb + (tx ? r * m + i : i * k + r))] *
                   y[static_cast<size_t>(yb + (ty ? j * k + r : r * n + j))];
          }
          out.push_back(sum);
        }
  return out;
}

std::vector<double> Ramp(const Shape& shape, double step) {
  std::vector<double> values;
  for (int64_t i = 0; i < shape.numel(); ++i)
    values.push_back(static_cast<double>((i * 7) % 11) * step - 1);
  return values;
}

TEST(Matmul, HandComputed) {
  OpTest("matmul")
      .Attr("alpha", 2.f)
      .Input("X", {2, 2}, {1, 2, 3, 4})
      .Input("Y", {2, 2}, {1, 0, 2, 1})
      .Expect("Out", {2, 2}, {10, 4, 22, 8})
      .CheckGradient({"X", "Y"})
      .CheckSecondGradient({"X", "Y"});
  OpTest("matmul_v2")
      .Attr("trans_x", true)
      .Input("X", {2, 2}, {1, 2, 3, 4})
      .Input("Y", {2, 1}, {1, 10})
      .Expect("Out", {2, 1}, {31, 42});
  OpTest("matmul_v2")
      .Input("X", {3}, {1, 2, 3})
      .Input("Y", {3}, {4, 5, 6})
      .Expect("Out", {1}, {32});
}

TEST(Matmul, AgainstTheDefinition) {
  for (bool v2 : {false, true}) {
    for (const Case& c : Cases()) {
      SCOPED_TRACE(c.x.ToString() + " " + c.y.ToString());
      const auto x = Ramp(c.x, 0.25), y = Ramp(c.y, 0.5);
      Make(v2, c).Input("X", c.x, x).Input("Y", c.y, y).Expect("Out", c.out, Product(c, x, y));
    }
  }
}

// In matmul, not in matmul_v2, a transposed vector X is a column and a transposed Y a row.
TEST(Matmul, TransposedVectors) {
  const auto test = [](const Shape& x, const Shape& y, bool tx, bool ty) {
    OpTest t("matmul");
    t.Attr("transpose_X", tx).Attr("transpose_Y", ty).Attr("alpha", 2.f);
    t.RandomInput("X", x).RandomInput("Y", y);
    return t;
  };
  OpTest("matmul")
      .Attr("transpose_X", true)
      .Input("X", {2}, {1, 2})
      .Input("Y", {1, 3}, {3, 4, 5})
      .Expect("Out", {2, 3}, {3, 4, 5, 6, 8, 10});
  OpTest("matmul")
      .Attr("transpose_Y", true)
      .Input("X", {2, 1}, {1, 2})
      .Input("Y", {3}, {3, 4, 5})
      .Expect("Out", {2, 3}, {3, 4, 5, 6, 8, 10});
  OpTest("matmul")
      .Attr("transpose_X", true)
      .Attr("transpose_Y", true)
      .Input("X", {2}, {1, 2})
      .Input("Y", {2}, {3, 4})
      .Expect("Out", {2, 2}, {3, 4, 6, 8});
  OpTest("matmul")
      .Attr("transpose_X", true)
      .Input("X", {2}, {1, 2})
      .Input("Y", {1}, {3})
      .Expect("Out", {2}, {3, 6});
  test({3}, {3, 4}, true, false).ExpectError("matmul.C2");
  test({2, 3}, {3}, false, true).ExpectError("matmul.C2");
  for (OpTest t : {test({2}, {1, 3}, true, false), test({2, 1}, {3}, false, true),
                   test({2}, {3}, true, true), test({2}, {5, 1, 3}, true, false)})
    t.CheckGradient({"X", "Y"}).CheckHigherGradients();
}

// Both operands are split where they have one inner size, else X and the columns of Y.
TEST(Matmul, Heads) {
  const auto heads = [](int n) { return std::move(OpTest("matmul").Attr("head_number", n)); };
  heads(2)
      .Input("X", {2, 4}, {1, 2, 3, 4, 5, 6, 7, 8})
      .Input("Y", {4, 1}, {1, 2, 3, 4})
      .Expect("Out", {2, 2}, {5, 25, 17, 53});
  heads(2)
      .Attr("transpose_X", true)
      .Attr("transpose_Y", true)
      .Input("X", {4, 2}, {1, 5, 2, 6, 3, 7, 4, 8})
      .Input("Y", {1, 4}, {1, 2, 3, 4})
      .Expect("Out", {2, 2}, {5, 25, 17, 53});
  heads(2)
      .Attr("alpha", 0.5f)
      .Input("X", {2, 1, 4}, {1, 2, 3, 4, 0, 2, 4, 0})
      .Input("Y", {2, 4}, {1, 0, 2, 1, 0, 1, 1, 3})
      .Expect("Out", {2, 1, 4}, {0.5, 1, 5, 7.5, 0, 1, 4, 2});
  heads(2)
      .Input("X", {1, 2}, {1, 2})
      .Input("Y", {3, 2, 1}, {1, 2, 3, 4, 5, 6})
      .Expect("Out", {3, 1, 2}, {1, 4, 3, 8, 5, 12});
  heads(2).Input("X", {2}, {2, 3}).Input("Y", {2}, {4, 5}).Expect("Out", {2}, {8, 15});
  heads(2).Input("X", {2, 0}, {}).Input("Y", {0, 1}, {}).Expect("Out", {2, 2}, {0, 0, 0, 0});
  heads(3).RandomInput("X", {2, 4}).RandomInput("Y", {4, 1}).ExpectError("matmul.C6");
  heads(2).RandomInput("X", {2, 4}).RandomInput("Y", {2, 3}).ExpectError("matmul.C6");
  heads(2).RandomInput("X", {2, 4}).RandomInput("Y", {3, 3}).ExpectError("matmul.C2");
  EXPECT_EQ("[-1, 6]",
            InferredShape("matmul", {{"X", {-1, 4}}, {"Y", {4, 3}}}, "Out", {{"head_number", 2}}));
  EXPECT_EQ("[-1, 4]",
            InferredShape("matmul", {{"X", {-1, 4}}, {"Y", {2, 4}}}, "Out", {{"head_number", 2}}));
}

TEST(Matmul, Integers) {
  for (const DType dtype : {DType::kInt32, DType::kInt64}) {
    OpTest("matmul_v2")
        .Attr("trans_y", true)
        .IntInput("X", {2, 1, 2}, {1, 2, 3, 4}, dtype)
        .IntInput("Y", {3, 2}, {1, 0, 0, 1, -1, 1}, dtype)
        .Expect("Out", {2, 1, 3}, {1, 2, 1, 3, 4, 1});
  }
  OpTest("matmul")
      .Attr("alpha", 2.f)
      .IntInput("X", {2}, {3, int64_t{1} << 40})
      .IntInput("Y", {2}, {5, 1})
      .Expect("Out", {1}, {2.0 * (15 + 0x1p40)});
}

TEST(Matmul, Gradients) {
  for (bool v2 : {false, true}) {
    for (const Case& c : Cases()) {
      SCOPED_TRACE(c.x.ToString() + " " + c.y.ToString());
      Make(v2, c)
          .RandomInput("X", c.x)
          .RandomInput("Y", c.y)
          .CheckGradient({"X", "Y"})
          .CheckGradient({"X"})
          .CheckGradient({"Y"})
          .CheckSecondGradient({"X", "Y"})
          .CheckSecondGradient({"Y"})
          .CheckFast();
    }
  }
}

TEST(Matmul, FastAgainstReference) {
  for (const Case& c : {Case{{33, 70}, {70, 45}, {}, false, false},
                        Case{{6, 2, 17, 33}, {6, 2, 33, 9}, {}, false, false},
                        Case{{6, 2, 33, 17}, {2, 9, 33}, {}, true, true},
                        Case{{130, 260}, {260, 300}, {}, false, false},
                        Case{{9, 64, 32}, {32, 48}, {}, false, false}})
    Make(true, c).RandomInput("X", c.x).RandomInput("Y", c.y).CheckFast();
}

TEST(Matmul, EmptySizes) {
  OpTest("matmul_v2")
      .Input("X", {0, 2}, {})
      .Input("Y", {2, 3}, Ramp({2, 3}, 1))
      .Expect("Out", {0, 3}, {});
  OpTest("matmul_v2").Input("X", {2, 0}, {}).Input("Y", {0, 1}, {}).Expect("Out", {2, 1}, {0, 0});
  OpTest("matmul_v2")
      .Input("X", {0, 2, 1}, {})
      .Input("Y", {1, 1}, {1})
      .Expect("Out", {0, 2, 1}, {});
  OpTest("matmul_v2_grad")
      .Input("X", {0, 2, 1}, {})
      .Input("Y", {1, 1}, {5})
      .Input("Out@GRAD", {0, 2, 1}, {})
      .Expect("X@GRAD", {0, 2, 1}, {})
      .Expect("Y@GRAD", {1, 1}, {0});
  OpTest("matmul_v2_grad")
      .Input("X", {2, 1}, {1, 2})
      .Input("Y", {0, 1, 3}, {})
      .Input("Out@GRAD", {0, 2, 3}, {})
      .Expect("X@GRAD", {2, 1}, {0, 0});
}

TEST(Matmul, Constraints) {
  for (const char* name : {"matmul", "matmul_v2"}) {
    const std::string type = name, grad = type + "_grad";
    const auto test = [](const std::string& op, const Shape& x, const Shape& y, const Shape& out) {
      OpTest t(op);
      t.RandomInput("X", x).RandomInput("Y", y);
      if (op.find("_grad") != std::string::npos) t.RandomInput("Out@GRAD", out);
      return t;
    };
    for (const std::string& op : {type, grad}) {
      test(op, {}, {2}, {2}).ExpectError(op + ".C1");
      test(op, {2, 3}, {2, 3}, {2, 3}).ExpectError(op + ".C2");
      test(op, {2, 2, 3}, {3, 3, 2}, {2, 2, 2}).ExpectError(op + ".C3");
    }
    OpTest(type).RandomInput("X", {1}).IntInput("Y", {1}, {1}).ExpectError(type + ".C4");
    OpTest(grad)
        .RandomInput("X", {1})
        .RandomInput("Y", {1})
        .IntInput("Out@GRAD", {1}, {1})
        .ExpectError(grad + ".C4");
    test(grad, {2, 3}, {3, 2}, {2, 3}).ExpectError(grad + ".C5");
  }
}

}  // namespace coracle::matmul_test
