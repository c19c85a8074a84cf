#include <coracle/test/op_test.h>
#include <coracle/test/threads.h>

#include <cmath>

namespace coracle::hierarchical_sigmoid_test {

double Softplus(double z) { return std::log(1 + std::exp(z)); }

// Three classes: the leaves 3 = 11, 4 = 100, 5 = 101 of a tree with the nodes 0 and 1.
OpTest Tree() {
  OpTest test("hierarchical_sigmoid");
  test.Attr("num_classes", 3).Input("X", {3, 1}, {2, 1, -1}).Input("W", {2, 1}, {0.5, -1});
  test.IntInput("Label", {3, 1}, {0, 1, 2}).Input("Bias", {2, 1}, {0.25, 0});
  return test;
}

TEST(HierarchicalSigmoid, DefaultTree) {
  const double log2 = std::log(2);
  Tree()
      .Expect("Out", {3, 1},
              {Softplus(1.25) - 1.25 + log2, Softplus(-1) + Softplus(0.75),
               Softplus(1) - 1 + Softplus(-0.25)})
      .Expect("PreOut", {3, 2},
              {Softplus(1.25), log2, Softplus(-1), Softplus(0.75), Softplus(1), Softplus(-0.25)})
      .Expect("W_Out", {2, 1}, {0.5, -1});
  // Logits are clipped.
  OpTest("hierarchical_sigmoid")
      .Input("X", {2, 1}, {1000, -1000})
      .Input("W", {1, 1}, {1})
      .IntInput("Label", {2, 1}, {0, 0})
      .Expect("Out", {2, 1}, {40, 0}, 1e-9);
  OpTest("hierarchical_sigmoid")
      .Input("X", {0, 1}, {})
      .Input("W", {1, 1}, {1})
      .IntInput("Label", {0, 1}, {})
      .Expect("Out", {0, 1}, {});
}

OpTest Custom(const std::string& type, bool sparse) {
  OpTest test(type);
  test.Attr("is_sparse", sparse).Input("X", {2, 1}, {2, 1}).Input("W", {3, 1}, {0, 0, 0});
  test.IntInput("Label", {2, 1}, {0, 1}).IntInput("PathTable", {2, 3}, {0, 2, -1, 2, -1, 0});
  test.IntInput("PathCode", {2, 3}, {1, 0, 0, 1, 0, 1});
  return test;
}

TEST(HierarchicalSigmoid, CustomTree) {
  const double log2 = std::log(2);
  Custom("hierarchical_sigmoid", false).Expect("Out", {2, 1}, {3 * log2, 3 * log2});
  OpTest grad = Custom("hierarchical_sigmoid_grad", false);
  grad.Input("Out@GRAD", {2, 1}, {1, 4}).NoOutput("Bias@GRAD");
  grad.Expect("W@GRAD", {3, 1}, {-1, 0, -1}).Expect("X@GRAD", {2, 1}, {0, 0});
  OpTest sparse = Custom("hierarchical_sigmoid_grad", true);
  sparse.Input("Out@GRAD", {2, 1}, {1, 4}).NoOutput("Bias@GRAD");
  sparse.ExpectRows("W@GRAD", 3, {0, 2}, {-1, -1});
}

TEST(HierarchicalSigmoid, Gradients) {
  Tree().CheckGradient({"X", "W", "Bias"});
  OpTest test("hierarchical_sigmoid");
  test.Attr("num_classes", 6).RandomInput("X", {5, 3}).RandomInput("W", {5, 3});
  test.IntInput("Label", {5, 1}, {5, 0, 3, 3, 1}).CheckGradient({"X", "W"});
  OpTest custom("hierarchical_sigmoid");
  custom.RandomInput("X", {2, 3}).RandomInput("W", {4, 3}).IntInput("Label", {2, 1}, {0, 1});
  custom.IntInput("PathTable", {2, 3}, {3, 2, 0, 1, 3, -1}).RandomInput("Bias", {4, 1});
  custom.IntInput("PathCode", {2, 3}, {1, 0, 0, 1, 1, 0}).CheckGradient({"X", "W", "Bias"});
}

TEST(HierarchicalSigmoid, FastKernel) {
  for (const int64_t width : {1, 7, 16, 40}) {
    for (const int threads : {1, 3}) {
      const Threads scoped(threads);
      OpTest test("hierarchical_sigmoid");
      std::vector<int64_t> labels;
      for (int64_t i = 0; i < 50; ++i) labels.push_back(i * 7 % 23);
      test.Attr("num_classes", 23).RandomInput("X", {50, width}).RandomInput("W", {22, width});
      test.IntInput("Label", {50, 1}, labels).RandomInput("Bias", {22, 1}).CheckFast(1e-5);
    }
  }
}

TEST(HierarchicalSigmoid, Constraints) {
  const std::string type = "hierarchical_sigmoid";
  const auto refused = [&](const Shape& x, const Shape& w, const Shape& label, int32_t classes,
                           const Shape& bias, const char* id) {
    OpTest test(type);
    test.Attr("num_classes", classes).RandomInput("X", x).RandomInput("W", w);
    test.IntInput("Label", label, std::vector<int64_t>(static_cast<size_t>(label.numel()), 0));
    test.RandomInput("Bias", bias).ExpectError(type + id);
  };
  refused({2, 3}, {1, 2}, {2, 1}, 2, {1}, ".C1");
  refused({2, 3}, {1, 3}, {3, 1}, 2, {1}, ".C2");
  refused({2, 3}, {1, 3}, {2, 1}, 3, {1}, ".C4");
  refused({2, 3}, {1, 3}, {2, 1}, 1, {1}, ".C4");
  refused({2, 3}, {1, 3}, {2, 1}, INT32_MIN, {1}, ".C4");
  refused({2, 3}, {1, 3}, {2, 1}, 2, {2}, ".C5");
  OpTest(type)
      .RandomInput("X", {2, 3})
      .RandomInput("W", {1, 3})
      .IntInput("Label", {2, 1}, {0, 0})
      .IntInput("PathTable", {2, 1}, {0, 0})
      .ExpectError(type + ".C3");
  for (int64_t label : {int64_t{2}, int64_t{-1}, INT64_MAX}) {
    OpTest(type)
        .RandomInput("X", {1, 3})
        .RandomInput("W", {1, 3})
        .IntInput("Label", {1, 1}, {label})
        .ExpectError("Label holds " + std::to_string(label));
  }
  OpTest(type)
      .RandomInput("X", {1, 3})
      .RandomInput("W", {1, 3})
      .IntInput("Label", {1, 1}, {0})
      .IntInput("PathTable", {1, 2}, {0, 1})
      .IntInput("PathCode", {1, 2}, {0, 1})
      .ExpectError("PathTable holds 1");
  OpTest grad = Custom(type + "_grad", false);
  grad.RandomInput("Out@GRAD", {2, 2}).NoOutput("Bias@GRAD").ExpectError(type + "_grad.C6");
}
}  // namespace coracle::hierarchical_sigmoid_test
