#include <coracle/test/op_test.h>

namespace coracle::sgd_test {

TEST(Sgd, Values) {
  OpTest("sgd")
      .Input("Param", {3}, {1, 2, 3})
      .Input("Grad", {3}, {10, -20, 0})
      .Input("LearningRate", {1}, {0.1})
      .Expect("ParamOut", {3}, {0, 4, 3});
}

TEST(Sgd, InPlaceAndFloatRateForADoubleParameter) {
  OpTest("sgd")
      .InPlace("Param", "ParamOut")
      .Input("Param", {2}, {1, 2})
      .Input("Grad", {2}, {1, 1})
      .TensorInput("LearningRate", Tensor::Of<float>({1}, {0.5f}))
      .Expect("ParamOut", {2}, {0.5, 1.5});
}

TEST(Sgd, SmallShapes) {
  OpTest("sgd")
      .Input("Param", {}, {1})
      .Input("Grad", {}, {1})
      .Input("LearningRate", {}, {1})
      .Expect("ParamOut", {}, {0});
  OpTest("sgd")
      .Input("Param", {0}, {})
      .Input("Grad", {0}, {})
      .Input("LearningRate", {1}, {1})
      .Expect("ParamOut", {0}, {});
}

TEST(Sgd, FastAgainstReference) {
  for (int64_t n : {1, 7, 8, 17, 33, 1000, 70001}) {
    OpTest("sgd")
        .RandomInput("Param", {n})
        .RandomInput("Grad", {n})
        .Input("LearningRate", {1}, {0.3})
        .CheckFast(1e-6);
  }
}

TEST(Sgd, C1_Gradient) {
  OpTest("sgd")
      .RandomInput("Param", {2})
      .RandomInput("Grad", {3})
      .RandomInput("LearningRate", {1})
      .ExpectError("sgd.C1");
}

TEST(Sgd, C2_LearningRate) {
  OpTest("sgd")
      .RandomInput("Param", {2})
      .RandomInput("Grad", {2})
      .RandomInput("LearningRate", {2})
      .ExpectError("sgd.C2");
  OpTest("sgd")
      .RandomInput("Param", {2})
      .RandomInput("Grad", {2})
      .IntInput("LearningRate", {1}, {1})
      .ExpectError("sgd.C2");
}
}  // namespace coracle::sgd_test
