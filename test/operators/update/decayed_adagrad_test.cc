#include <coracle/test/operators/update_test.h>

namespace coracle::decayed_adagrad_test {

UpdateCase Case() {
  return {"decayed_adagrad",
          {{"decay", 0.5f}, {"epsilon", 0.125f}},
          {{"Moment", "MomentOut", {0.25, 1, 4}}}};
}

// Moment = (old + Grad^2) / 2; Param - 0.1 Grad / (sqrt(Moment) + 1/8).
TEST(DecayedAdagrad, Values) {
  Case()
      .Make()
      .Expect("MomentOut", {3}, {0.25, 1, 2})
      .Expect("ParamOut", {3}, {0.92, -1.911111111111, 0.5});
}

TEST(DecayedAdagrad, Edges) {
  Case().CheckEdges();
  Case().CheckLarge();
}
}  // namespace coracle::decayed_adagrad_test
