#include <coracle/test/operators/update_test.h>

namespace coracle::proximal_test {

UpdateCase Descent(float l1) { return {"proximal_gd", {{"l1", l1}, {"l2", 0.5f}}, {}}; }

UpdateCase Adagrad() {
  return {
      "proximal_adagrad", {{"l1", 4.0f}, {"l2", 0.5f}}, {{"Moment", "MomentOut", {0.75, 0, 0}}}};
}

// q = {0.95, -1.9, 0.5}; towards zero by 0.4, then divided by 1.05.
TEST(ProximalGd, Values) {
  Descent(4).Make().Expect("ParamOut", {3}, {0.52380952381, -1.428571428571, 0.095238095238});
  Descent(0).Make().Expect("ParamOut", {3}, {0.904761904762, -1.809523809524, 0.47619047619});
  // All of it is pulled to zero.
  Descent(100).Make().Expect("ParamOut", {3}, {0, 0, 0});
}

// sqrt(Moment) is 1 in the first two elements; in the third it is 0, so there is no step.
TEST(ProximalAdagrad, Values) {
  Adagrad()
      .Make()
      .Expect("MomentOut", {3}, {1, 1, 0})
      .Expect("ParamOut", {3}, {0.52380952381, -1.428571428571, 0.095238095238});
}

TEST(Proximal, Edges) {
  for (const UpdateCase& op : {Descent(4), Descent(0), Adagrad()}) {
    op.CheckEdges();
    op.CheckLarge();
  }
}
}  // namespace coracle::proximal_test
