#include <coracle/test/op_test.h>

namespace coracle::kron_test {

TEST(Kron, Values) {
  OpTest("kron")
      .Input("X", {2, 2}, {1, 2, 3, 4})
      .Input("Y", {1, 2}, {1, 10})
      .Expect("Out", {2, 4}, {1, 10, 2, 20, 3, 30, 4, 40});
  OpTest("kron")
      .Input("X", {2}, {1, 2})
      .Input("Y", {2, 1}, {3, 4})
      .Expect("Out", {2, 2}, {3, 6, 4, 8});
  OpTest("kron").Input("X", {}, {2}).Input("Y", {2}, {3, 4}).Expect("Out", {2}, {6, 8});
  OpTest("kron").Input("X", {0}, {}).Input("Y", {2}, {3, 4}).Expect("Out", {0}, {});
  OpTest("kron").IntInput("X", {2}, {1, -2}).IntInput("Y", {1}, {3}).Expect("Out", {2}, {3, -6});
}

TEST(Kron, GradientsOfFloatsAddUpInDouble) {
  OpTest("kron_grad")
      .Input("X", {1}, {1})
      .Input("Y", {3}, {1, 1, 1})
      .Input("Out@GRAD", {3}, {1e8, 1, -1e8})
      .Expect("X@GRAD", {1}, {1});
}

TEST(Kron, Gradients) {
  OpTest test("kron");
  test.RandomInput("X", {2, 3})
      .RandomInput("Y", {3, 2})
      .CheckGradient({"X", "Y"})
      .CheckHigherGradients();
  OpTest ranks("kron");
  ranks.RandomInput("X", {3}).RandomInput("Y", {2, 2}).CheckGradient({"X", "Y"});
}

TEST(Kron, Constraints) {
  OpTest("kron").RandomInput("X", {1}).IntInput("Y", {1}, {1}).ExpectError("kron.C1");
  OpTest("kron_grad")
      .RandomInput("X", {2})
      .RandomInput("Y", {2})
      .RandomInput("Out@GRAD", {3})
      .ExpectError("kron_grad.C2");
}

}  // namespace coracle::kron_test
