#include <coracle/test/op_test.h>

namespace coracle::adagrad_test {

// moment 3 + 1, 0 + 16; steps 0.5 * 1 / 2, 0.5 * -4 / 4.
TEST(Adagrad, Values) {
  OpTest("adagrad")
      .Attr("epsilon", 0.0f)
      .Input("Param", {2}, {1, 2})
      .Input("Grad", {2}, {1, -4})
      .Input("Moment", {2}, {3, 0})
      .Input("LearningRate", {1}, {0.5})
      .Expect("ParamOut", {2}, {0.75, 2.5})
      .Expect("MomentOut", {2}, {4, 16});
}

// sqrt(4) + 2 = 4.
TEST(Adagrad, EpsilonIsOutsideOfTheRoot) {
  OpTest("adagrad")
      .InPlace("Param", "ParamOut")
      .InPlace("Moment", "MomentOut")
      .Attr("epsilon", 2.0f)
      .Input("Param", {1}, {1})
      .Input("Grad", {1}, {2})
      .Input("Moment", {1}, {0})
      .TensorInput("LearningRate", Tensor::Of<float>({1}, {1.0f}))
      .Expect("ParamOut", {1}, {0.5})
      .Expect("MomentOut", {1}, {4});
}

// Row 2 is stored twice: the sum (3, -4) counts. Rows 0 and 3 keep their moments and elements.
TEST(Adagrad, SelectedRowsAreMergedAndOthersStay) {
  OpTest("adagrad")
      .Attr("epsilon", 0.0f)
      .Input("Param", {4, 2}, {1, 1, 2, 2, 3, 3, 4, 4})
      .RowsInput("Grad", {4, 2}, {2, 1, 2}, {1, -1, 2, 5, 2, -3})
      .Input("Moment", {4, 2}, {9, 9, 0, 0, 16, 0, 9, 9})
      .Input("LearningRate", {1}, {10})
      .Expect("ParamOut", {4, 2}, {1, 1, -8, -8, 3 - 6, 3 + 10, 4, 4})
      .Expect("MomentOut", {4, 2}, {9, 9, 4, 25, 25, 16, 9, 9});
}

TEST(Adagrad, SmallShapes) {
  OpTest("adagrad")
      .Attr("epsilon", 0.0f)
      .Input("Param", {}, {1})
      .Input("Grad", {}, {2})
      .Input("Moment", {}, {0})
      .Input("LearningRate", {}, {1})
      .Expect("ParamOut", {}, {0});
  OpTest("adagrad")
      .Input("Param", {0}, {})
      .Input("Grad", {0}, {})
      .Input("Moment", {0}, {})
      .Input("LearningRate", {1}, {1})
      .Expect("ParamOut", {0}, {});
  OpTest("adagrad")
      .Input("Param", {2, 2}, {1, 2, 3, 4})
      .RowsInput("Grad", {2, 2}, {}, {})
      .Input("Moment", {2, 2}, {0, 0, 0, 0})
      .Input("LearningRate", {1}, {1})
      .Expect("ParamOut", {2, 2}, {1, 2, 3, 4});
}

TEST(Adagrad, FastAgainstReference) {
  for (int64_t n : {1, 7, 8, 17, 33, 1000, 70001}) {
    OpTest("adagrad")
        .RandomInput("Param", {n})
        .RandomInput("Grad", {n})
        .RandomInput("Moment", {n}, 0, 1)
        .Input("LearningRate", {1}, {0.3})
        .CheckFast(1e-5);
  }
}

TEST(Adagrad, Constraints) {
  OpTest("adagrad")
      .RandomInput("Param", {2})
      .RandomInput("Grad", {3})
      .RandomInput("Moment", {2})
      .RandomInput("LearningRate", {1})
      .ExpectError("adagrad.C1");
  OpTest("adagrad")
      .RandomInput("Param", {2})
      .RandomInput("Grad", {2})
      .RandomInput("Moment", {2, 1})
      .RandomInput("LearningRate", {1})
      .ExpectError("adagrad.C1");
  OpTest("adagrad")
      .RandomInput("Param", {2})
      .RandomInput("Grad", {2})
      .RandomInput("Moment", {2})
      .RandomInput("LearningRate", {2})
      .ExpectError("adagrad.C2");
}
}  // namespace coracle::adagrad_test
