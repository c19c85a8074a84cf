#include <coracle/test/op_test.h>

#include <cmath>
#include <random>

namespace coracle::prelu_test {

OpTest InMode(const std::string& mode) {
  OpTest test("prelu");
  test.Attr("mode", mode);
  return test;
}

TEST(Prelu, Values) {
  const std::vector<double> x = {-1, 2, -3, 4, -5, 0, 7, -8};
  InMode("all")
      .Input("X", {2, 2, 2}, x)
      .Input("Alpha", {1}, {0.5})
      .Expect("Out", {2, 2, 2}, {-0.5, 2, -1.5, 4, -2.5, 0, 7, -4});
  InMode("channel")
      .Input("X", {2, 2, 2}, x)
      .Input("Alpha", {1, 2, 1}, {2, -1})
      .Expect("Out", {2, 2, 2}, {-2, 2, 3, 4, -10, 0, 7, 8});
  const std::vector<double> by_element = {-1, 2, -9, 4, -5, 0, 7, -32};
  for (const Shape& alpha : {Shape{2, 2}, Shape{1, 2, 2}})
    InMode("element")
        .Input("X", {2, 2, 2}, x)
        .Input("Alpha", alpha, {1, 2, 3, 4})
        .Expect("Out", {2, 2, 2}, by_element);
  InMode("element")
      .Input("X", {2, 2}, {-1, -1, -1, -1})
      .Input("Alpha", {2, 2}, {1, 2, 3, 4})
      .Expect("Out", {2, 2}, {-1, -2, -3, -4});
}

TEST(Prelu, Edges) {
  InMode("all").Input("X", {}, {-2}).Input("Alpha", {1}, {3}).Expect("Out", {}, {-6});
  InMode("all")
      .Input("X", {1}, {std::nan("")})
      .Input("Alpha", {1}, {3})
      .Expect("Out", {1}, {std::nan("")});
  InMode("channel").Input("X", {0, 2}, {}).Input("Alpha", {2}, {1, 2}).Expect("Out", {0, 2}, {});
  OpTest("prelu_grad")
      .Attr("mode", std::string("channel"))
      .Input("X", {0, 2}, {})
      .Input("Alpha", {2}, {1, 2})
      .Input("Out@GRAD", {0, 2}, {})
      .Expect("Alpha@GRAD", {2}, {0, 0});
}

TEST(Prelu, Gradients) {
  struct Case {
    const char* mode;
    Shape alpha;
  };
  for (const Case& c : {Case{"all", {1}},
                        {"channel", {3}},
                        {"channel", {1, 3, 1}},
                        {"element", {3, 4}},
                        {"element", {1, 3, 4}},
                        {"element", {2, 3, 4}}}) {
    OpTest test = InMode(c.mode);
    test.RandomInput("X", {2, 3, 4}, -2, 2, 0.1).RandomInput("Alpha", c.alpha);
    test.CheckGradient({"X", "Alpha"}).CheckHigherGradients();
    test.CheckFast();
  }
}

// Sums over many elements and rows, in pieces.
TEST(Prelu, GradientsOfLongRuns) {
  struct {
    const char* mode;
    Shape x, alpha;
  } cases[] = {{"all", {3, 20000}, {1}},
               {"channel", {2, 3, 20000}, {3}},
               {"channel", {40, 3}, {3}},
               {"element", {9, 700}, {700}}};
  for (const auto& c : cases) {
    std::mt19937 random(3);
    std::uniform_real_distribution<double> draw(-1, 1);
    std::vector<double> x, dout, alpha, dx;
    for (int64_t i = 0; i < c.x.numel(); ++i) {
      x.push_back(draw(random));
      dout.push_back(draw(random));
    }
    const int64_t slopes = c.alpha.numel(), run = c.x.rank() == 3 ? c.x[2] : 1;
    std::vector<double> dalpha(static_cast<size_t>(slopes));
    for (int64_t i = 0; i < slopes; ++i) alpha.push_back(draw(random));
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t k = i / static_cast<size_t>(run) % static_cast<size_t>(slopes);
      dx.push_back(x[i] > 0 ? dout[i] : alpha[k] * dout[i]);
      if (x[i] <= 0) dalpha[k] += x[i] * dout[i];
    }
    OpTest("prelu_grad")
        .Attr("mode", std::string(c.mode))
        .Input("X", c.x, x)
        .Input("Alpha", c.alpha, alpha)
        .Input("Out@GRAD", c.x, dout)
        .Expect("X@GRAD", c.x, dx)
        .Expect("Alpha@GRAD", c.alpha, dalpha);
  }
}

// The sign of X counts, not the sign of Out.
TEST(Prelu, NegativeSlope) {
  OpTest("prelu_grad")
      .Input("X", {2}, {-2, 2})
      .Input("Alpha", {1}, {-3})
      .Input("Out@GRAD", {2}, {1, 1})
      .Expect("X@GRAD", {2}, {-3, 1})
      .Expect("Alpha@GRAD", {1}, {-2});
}

TEST(Prelu, FastAgainstReference) {
  for (int64_t n : {1, 7, 8, 33, 20000}) {
    InMode("all").RandomInput("X", {n}).RandomInput("Alpha", {1}).CheckFast();
    InMode("channel").RandomInput("X", {2, 3, n}).RandomInput("Alpha", {3}).CheckFast();
  }
}

TEST(Prelu, Constraints) {
  InMode("channel").RandomInput("X", {3}).RandomInput("Alpha", {3}).ExpectError("prelu.C1");
  InMode("all").RandomInput("X", {3}).RandomInput("Alpha", {3}).ExpectError("prelu.C2");
  InMode("channel").RandomInput("X", {2, 3}).RandomInput("Alpha", {2}).ExpectError("prelu.C2");
  InMode("element").RandomInput("X", {2, 3}).RandomInput("Alpha", {2}).ExpectError("prelu.C2");
  InMode("all").RandomInput("X", {3}).IntInput("Alpha", {1}, {3}).ExpectError("prelu.C3");
  InMode("channel")
      .RandomInput("X", {2, 3, 3, 3})
      .RandomInput("Alpha", {3})
      .Attr("data_format", std::string("NHWC"))
      .ExpectError("prelu.C5");
  InMode("every").RandomInput("X", {3}).RandomInput("Alpha", {1}).ExpectError("mode");
  OpTest("prelu_grad")
      .RandomInput("X", {3})
      .RandomInput("Alpha", {1})
      .RandomInput("Out@GRAD", {2})
      .ExpectError("prelu_grad.C4");
}

}  // namespace coracle::prelu_test
