#include <coracle/backward/backward.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/test/op_test.h>
#include <coracle/test/operators/gradient_of.h>

#include <cmath>
#include <limits>

namespace coracle::pair_loss_test {

const double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

// 1e-12, the least slope of the sigmoid that counts, is 0 in float16.
TEST(BceLoss, GradientsOfCertainHalves) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    const Tensor x = Tensor::Of<float>({3}, {0, 1, 0.5}).Cast(dtype);
    const Tensor label = Tensor::Of<float>({3}, {0, 1, 1}).Cast(dtype);
    EXPECT_EQ(NumbersOf(GradientOf("bce_loss", {}, {{"X", x}, {"Label", label}}, "X")),
              (std::vector<double>{0, 0, -2}));
  }
}

TEST(BceLoss, Values) {
  OpTest("bce_loss")
      .Input("X", {2, 2}, {0.25, 0.5, 0.9, 0.2})
      .Input("Label", {2, 2}, {1, 0, 0.5, 0.25})
      .Expect("Out", {2, 2},
              {std::log(4), std::log(2), -0.5 * std::log(0.9) - 0.5 * std::log(0.1),
               -0.25 * std::log(0.2) - 0.75 * std::log(0.8)});
  // Probabilities that exclude the label cost 100.
  OpTest("bce_loss")
      .Input("X", {5}, {0, 1, 0, 1, -1})
      .Input("Label", {5}, {1, 0, 0, 1, 1})
      .Expect("Out", {5}, {100, 100, 0, 0, kNan});
  OpTest("bce_loss").Input("X", {0, 1}, {}).Input("Label", {0, 1}, {}).Expect("Out", {0, 1}, {});
}

TEST(BceLoss, Gradients) {
  OpTest test("bce_loss");
  test.RandomInput("X", {2, 3}, 0.2, 0.8).RandomInput("Label", {2, 3}, 0, 1);
  test.CheckGradient({"X"}).CheckHigherGradients();
}

TEST(HingeLoss, Values) {
  OpTest("hinge_loss")
      .Input("Logits", {5, 1}, {0.5, 0.5, 2, -3, kNan})
      .Input("Labels", {5, 1}, {1, 0, 1, 1, 0})
      .Expect("Loss", {5, 1}, {0.5, 1.5, 0, 4, kNan});
  OpTest("hinge_loss")
      .Input("Logits", {4, 1}, {0.5, 0.25, 2, -3})
      .Input("Labels", {4, 1}, {1, 0, 1, 1})
      .CheckGradient({"Logits"})
      .CheckHigherGradients();
}

TEST(HuberLoss, Values) {
  OpTest("huber_loss")
      .Attr("delta", 1.f)
      .Input("X", {6}, {0, 0, 0, 1, 0, 0})
      .Input("Y", {6}, {0.5, -3, 1, 1, -1, kInf})
      .Expect("Out", {6}, {0.125, 2.5, 0.5, 0, 0.5, kInf})
      .Expect("Residual", {6}, {0.5, -3, 1, 0, -1, kInf});
  OpTest("huber_loss")
      .Attr("delta", 0.f)
      .Input("X", {1, 1}, {0})
      .Input("Y", {1, 1}, {2})
      .Expect("Out", {1, 1}, {0});
}

TEST(HuberLoss, Gradients) {
  OpTest test("huber_loss");
  test.Attr("delta", 0.5f).Input("X", {2, 2}, {0.1, 1, -2, 0.3});
  test.Input("Y", {2, 2}, {0.3, -1, 0, 0.2}).CheckGradient({"X", "Y"}).CheckHigherGradients();
}

TEST(LogLoss, Values) {
  OpTest("log_loss")
      .Attr("epsilon", 0.25f)
      .Input("Predicted", {4, 1}, {0.25, 0.75, 0, 1})
      .Input("Labels", {4, 1}, {1, 0, 1, 0})
      .Expect("Loss", {4, 1}, {std::log(2), std::log(2), std::log(4), std::log(4)});
  OpTest test("log_loss");
  test.Attr("epsilon", 1e-4f).RandomInput("Predicted", {4, 1}, 0.2, 0.8);
  test.Input("Labels", {4, 1}, {1, 0, 1, 0}).CheckGradient({"Predicted"}).CheckHigherGradients();
}

TEST(MarginRankLoss, Values) {
  OpTest("margin_rank_loss")
      .Attr("margin", 0.5f)
      .Input("X1", {4, 1}, {1, 1, 0, 0.5})
      .Input("X2", {4, 1}, {0, 0, 0.25, 0})
      .Input("Label", {4, 1}, {1, -1, 1, 1})
      .Expect("Out", {4, 1}, {0, 1.5, 0.75, 0})
      .Expect("Activated", {4, 1}, {0, 1, 1, 0});
  OpTest("margin_rank_loss")
      .Attr("margin", 0.125f)
      .Input("X1", {3}, {1, 1, 0})
      .Input("X2", {3}, {0, 0, 0.25})
      .Input("Label", {3}, {1, -1, 1})
      .CheckGradient({"X1", "X2"})
      .CheckHigherGradients();
}

TEST(ModifiedHuberLoss, Values) {
  OpTest("modified_huber_loss")
      .Input("X", {6, 1}, {-3, -1, 0.5, 2, 2, -0.5})
      .Input("Y", {6, 1}, {1, 1, 1, 1, 0, 0})
      .Expect("Out", {6, 1}, {12, 4, 0.25, 0, 8, 0.25})
      .Expect("IntermediateVal", {6, 1}, {-3, -1, 0.5, 2, -2, 0.5});
  OpTest("modified_huber_loss")
      .Input("X", {4, 1}, {-3, 0.5, 2, 0.25})
      .Input("Y", {4, 1}, {1, 1, 1, 0})
      .CheckGradient({"X"})
      .CheckHigherGradients();
}

TEST(RankLoss, Values) {
  OpTest("rank_loss")
      .Input("Label", {3, 1}, {1, 0, 1})
      .Input("Left", {3, 1}, {1, 1, 0})
      .Input("Right", {3, 1}, {0, 0, 0})
      .Expect("Out", {3, 1},
              {std::log(1 + std::exp(1)) - 1, std::log(1 + std::exp(1)), std::log(2)});
  // No overflow.
  OpTest("rank_loss")
      .Input("Label", {4}, {1, 0, 1, 0})
      .Input("Left", {4}, {1000, 1000, -1000, -1000})
      .Input("Right", {4}, {0, 0, 0, 0})
      .Expect("Out", {4}, {0, 1000, 1000, 0});
}

TEST(RankLoss, ColumnsMayLackTheirDim) {
  const Shape shapes[] = {{3}, {3, 1}};
  for (const Shape& label : shapes) {
    for (const Shape& left : shapes) {
      OpTest test("rank_loss");
      test.Input("Label", label, {1, 0, 1}).Input("Left", left, {0, 0, 0});
      test.Input("Right", {3}, {0, 0, 0});
      const double log2 = std::log(2);
      test.Expect("Out", label, {log2, log2, log2}).CheckGradient({"Left", "Right"});
    }
  }
  OpTest("rank_loss")
      .Input("Label", {0, 1}, {})
      .Input("Left", {0}, {})
      .Input("Right", {0, 1}, {})
      .Expect("Out", {0, 1}, {});
  OpTest test("rank_loss");
  test.Input("Label", {2, 1}, {1, 0}).RandomInput("Left", {2}).RandomInput("Right", {2, 1});
  test.CheckHigherGradients();
}

double CrossEntropyOf(double x, double z) {
  const double p = 1 / (1 + std::exp(-x));
  return -z * std::log(p) - (1 - z) * std::log(1 - p);
}

TEST(TeacherStudentSigmoidLoss, Values) {
  OpTest("teacher_student_sigmoid_loss")
      .Input("X", {5, 1}, {0.5, -0.5, 2, 1, -1})
      .Input("Label", {5, 1}, {-2, -1, 0.25, 1.75, 0})
      .Expect("Y", {5, 1},
              {CrossEntropyOf(0.5, 0), CrossEntropyOf(-0.5, 1),
               CrossEntropyOf(2, 0) + CrossEntropyOf(2, 0.25),
               CrossEntropyOf(1, 1) + CrossEntropyOf(1, 0.75), 2 * CrossEntropyOf(-1, 0)});
  OpTest("teacher_student_sigmoid_loss")
      .Input("X", {2}, {1000, -1000})
      .Input("Label", {2}, {-2, -1})
      .Expect("Y", {2}, {1000, 1000});
  OpTest("teacher_student_sigmoid_loss")
      .Input("X", {5, 1}, {0.5, -0.5, 2, 1, -1})
      .Input("Label", {5, 1}, {-2, -1, 0.25, 1.75, 0})
      .CheckGradient({"X"})
      .CheckHigherGradients();
}

// The original's rule for logits at their bounds.
TEST(TeacherStudentSigmoidLoss, NoGradientBeyondTheBounds) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  for (const char* name : {"x", "label"}) block.Var(name).SetShape({3});
  OpDesc& op = block.AppendOp("teacher_student_sigmoid_loss", {{"X", {"x"}}, {"Label", {"label"}}},
                              {{"Y", {"y"}}}, {{"soft_max_up_bound", 2.f}});
  block.Var("y");
  InferOp(block, op, DefaultOps());
  const std::vector<std::string> gradients =
      Gradients({Variable::Of(block, "y")}, {Variable::Of(block, "x")});
  VarValues env;
  env["x"] = Tensor::Of<float>({3}, {2, 0, -15});
  env["label"] = Tensor::Of<float>({3}, {-2, -2, -1});
  Interpret(block, DefaultOps(), env);
  const auto dx = std::get<Tensor>(env.at(gradients[0])).span<float>();
  EXPECT_EQ(dx[0], 0);
  EXPECT_EQ(dx[1], 0.5f);
  EXPECT_EQ(dx[2], 0);
}

TEST(PairLoss, Constraints) {
  const struct {
    const char *type, *first, *second, *third;
  } rows[] = {{"bce_loss", "X", "Label", nullptr},
              {"hinge_loss", "Logits", "Labels", nullptr},
              {"huber_loss", "X", "Y", nullptr},
              {"log_loss", "Predicted", "Labels", nullptr},
              {"margin_rank_loss", "X1", "X2", "Label"},
              {"modified_huber_loss", "X", "Y", nullptr},
              {"rank_loss", "Label", "Left", "Right"},
              {"teacher_student_sigmoid_loss", "X", "Label", nullptr}};
  for (const auto& row : rows) {
    const auto made = [&row](const Shape& shape, const Tensor& last) {
      OpTest test(row.type);
      if (row.type == std::string("huber_loss")) test.Attr("delta", 1.f);
      if (row.type == std::string("log_loss")) test.Attr("epsilon", 1.f);
      test.RandomInput(row.first, shape);
      if (row.third) test.RandomInput(row.second, shape);
      test.TensorInput(row.third ? row.third : row.second, last);
      return test;
    };
    const std::string id = std::string(row.type) + ".C";
    made({3, 1}, Tensor::Zeros(DType::kFloat32, {3, 2})).ExpectError(id + "1");
    made({3, 1}, Tensor::Zeros(DType::kFloat64, {3, 1})).ExpectError(id + "1");
    const bool columns = row.type == std::string("rank_loss");
    made({}, Tensor::Zeros(DType::kFloat32, {})).ExpectError(id + (columns ? "1" : "2"));
  }
}
}  // namespace coracle::pair_loss_test
