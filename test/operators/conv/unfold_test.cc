#include <coracle/test/op_test.h>

namespace coracle::unfold_test {

using Ints = std::vector<int32_t>;

OpTest Unfold(const Ints& kernel, const Ints& strides, const Ints& paddings,
              const Ints& dilations = {1, 1}) {
  OpTest test("unfold");
  test.Attr("kernel_sizes", kernel).Attr("strides", strides);
  test.Attr("paddings", paddings).Attr("dilations", dilations);
  return test;
}

TEST(Unfold, Values) {
  Unfold({2, 2}, {1, 1}, {0, 0, 0, 0})
      .Input("X", {1, 1, 2, 3}, {1, 2, 3, 4, 5, 6})
      .Expect("Y", {1, 4, 2}, {1, 2, 2, 3, 4, 5, 5, 6});
  // One column of zeros on the left, one row below; channel after channel.
  Unfold({2, 1}, {1, 2}, {0, 1, 1, 0})
      .Input("X", {1, 2, 1, 3}, {1, 2, 3, 4, 5, 6})
      .Expect("Y", {1, 4, 2}, {0, 2, 0, 0, 0, 5, 0, 0});
  Unfold({1, 2}, {1, 1}, {0, 0, 0, 0}, {1, 2})
      .Input("X", {1, 1, 1, 3}, {1, 2, 3})
      .Expect("Y", {1, 2, 1}, {1, 3});
  Unfold({1, 1}, {1, 1}, {0, 0, 0, 0}).Input("X", {0, 1, 1, 1}, {}).Expect("Y", {0, 1, 1}, {});
}

// Windows that lie in the padding as a whole, or whose taps leave X on both sides.
TEST(Unfold, WidePaddings) {
  Unfold({1, 1}, {1, 2}, {1, 3, 0, 4})
      .Input("X", {1, 1, 1, 2}, {1, 2})
      .Expect("Y", {1, 1, 10}, {0, 0, 0, 0, 0, 0, 0, 2, 0, 0})
      .CheckGradient({"X"});
  Unfold({1, 2}, {1, 3}, {0, 2, 0, 2}, {1, 3})
      .Input("X", {1, 1, 1, 3}, {1, 2, 3})
      .Expect("Y", {1, 2, 2}, {0, 2, 2, 0})
      .CheckGradient({"X"});
}

TEST(Unfold, Gradients) {
  OpTest test = Unfold({2, 3}, {1, 2}, {1, 0, 0, 2}, {2, 1});
  test.RandomInput("X", {2, 2, 4, 5}).CheckGradient({"X"});
  Unfold({2, 1}, {1, 1}, {1, 0, 0, 0}).RandomInput("X", {1, 1, 2, 2}).CheckHigherGradients();
}

TEST(Unfold, Constraints) {
  Unfold({1, 1}, {1, 1}, {0, 0, 0, 0}).RandomInput("X", {2, 2}).ExpectError("unfold.C1");
  const auto refused = [](OpTest test) {
    test.RandomInput("X", {1, 1, 2, 2}).ExpectError("unfold.C2");
  };
  refused(Unfold({1}, {1, 1}, {0, 0, 0, 0}));
  refused(Unfold({1, 1}, {1, 0}, {0, 0, 0, 0}));
  refused(Unfold({1, 1}, {1, 1}, {0, 0}));
  refused(Unfold({1, 1}, {1, 1}, {0, 0, 0, 0}, {0, 1}));
  Unfold({3, 1}, {1, 1}, {0, 0, 0, 0}).RandomInput("X", {1, 1, 2, 2}).ExpectError("unfold.C3");
  OpTest("unfold_grad")
      .Attr("kernel_sizes", Ints{1, 1})
      .Attr("strides", Ints{1, 1})
      .Attr("paddings", Ints{0, 0, 0, 0})
      .Attr("dilations", Ints{1, 1})
      .RandomInput("X", {1, 1, 2, 2})
      .RandomInput("Y@GRAD", {1, 1, 3})
      .ExpectError("unfold_grad.C4");
}

}  // namespace coracle::unfold_test
