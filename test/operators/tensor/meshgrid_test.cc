#include <coracle/test/op_test.h>

namespace coracle::meshgrid_test {

TEST(Meshgrid, Values) {
  OpTest("meshgrid")
      .Outputs("Out", 2)
      .Input("X", {2}, {1, 2})
      .Input("X", {3}, {3, 4, 5})
      .Expect("Out", {2, 3}, {1, 1, 1, 2, 2, 2}, 1e-6, 0)
      .Expect("Out", {2, 3}, {3, 4, 5, 3, 4, 5}, 1e-6, 1)
      .CheckGradient({"X"})
      .CheckHigherGradients();
  OpTest("meshgrid")
      .Outputs("Out", 3)
      .Input("X", {2}, {1, 2})
      .Input("X", {}, {3})
      .Input("X", {2}, {4, 5})
      .Expect("Out", {2, 1, 2}, {3, 3, 3, 3}, 1e-6, 1)
      .Expect("Out", {2, 1, 2}, {4, 5, 4, 5}, 1e-6, 2)
      .CheckGradient({"X"});
  OpTest("meshgrid")
      .Outputs("Out", 2)
      .Input("X", {0}, {})
      .Input("X", {2}, {1, 2})
      .Expect("Out", {0, 2}, {}, 1e-6, 1);
}

TEST(Meshgrid, Constraints) {
  OpTest("meshgrid").Input("X", {1}, {1}).ExpectError("meshgrid.C1");
  OpTest("meshgrid").Input("X", {1}, {1}).Input("X", {1}, {1}).ExpectError("meshgrid.C2");
  OpTest("meshgrid")
      .Outputs("Out", 2)
      .Input("X", {1, 1}, {1})
      .Input("X", {1}, {1})
      .ExpectError("meshgrid.C3");
}
}  // namespace coracle::meshgrid_test
