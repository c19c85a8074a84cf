#include <coracle/backward/backward.h>
#include <coracle/test/op_test.h>

namespace coracle::expand_test {

using Ints = std::vector<int32_t>;

TEST(Expand, Values) {
  OpTest("expand")
      .Attr("expand_times", Ints{2, 1})
      .Input("X", {1, 2}, {1, 2})
      .Expect("Out", {2, 2}, {1, 2, 1, 2})
      .CheckGradient({"X"})
      .CheckHigherGradients();
  OpTest("expand")
      .Attr("expand_times", Ints{1, 2})
      .Input("X", {2, 2}, {1, 2, 3, 4})
      .Expect("Out", {2, 4}, {1, 2, 1, 2, 3, 4, 3, 4})
      .CheckGradient({"X"});
  OpTest("expand")
      .Attr("expand_times", Ints{3})
      .IntInput("X", {1}, {1}, DType::kBool)
      .Expect("Out", {3}, {1, 1, 1});
  OpTest("expand").Attr("expand_times", Ints{3}).Input("X", {0}, {}).Expect("Out", {0}, {});
}

TEST(Expand, NumbersFromTensors) {
  OpTest("expand")
      .Attr("expand_times", Ints{5})
      .Input("X", {2}, {1, 2})
      .IntInput("ExpandTimes", {1}, {2}, DType::kInt32)
      .Expect("Out", {4}, {1, 2, 1, 2})
      .CheckGradient({"X"});
  OpTest("expand")
      .Input("X", {2}, {1, 2})
      .IntInput("expand_times_tensor", {1}, {2}, DType::kInt32)
      .Expect("Out", {4}, {1, 2, 1, 2})
      .CheckGradient({"X"});
}

TEST(Expand, Constraints) {
  OpTest("expand").Attr("expand_times", Ints{1, 1}).Input("X", {1}, {1}).ExpectError("expand.C1");
  OpTest("expand").Attr("expand_times", Ints{0}).Input("X", {1}, {1}).ExpectError("expand.C2");
}

TEST(ExpandAs, Values) {
  OpTest("expand_as")
      .Input("X", {1, 2}, {1, 2})
      .IntInput("target_tensor", {2, 4}, {0, 0, 0, 0, 0, 0, 0, 0})
      .Expect("Out", {2, 4}, {1, 2, 1, 2, 1, 2, 1, 2})
      .CheckGradient({"X"})
      .CheckHigherGradients();
}

TEST(ExpandAs, Constraints) {
  OpTest("expand_as")
      .Input("X", {2}, {1, 2})
      .Input("target_tensor", {3}, {0, 0, 0})
      .ExpectError("expand_as.C1");
  OpTest("expand_as_grad")
      .Input("X", {2}, {1, 2})
      .Input("Out@GRAD", {3}, {0, 0, 0})
      .ExpectError("expand_as_grad.C1");
  OpTest("expand_as_grad")
      .IntInput("X", {2}, {1, 2})
      .Input("Out@GRAD", {2}, {0, 0})
      .ExpectError("expand_as_grad.C2");
}

TEST(ExpandAsV2, Values) {
  OpTest("expand_as_v2")
      .Attr("target_shape", Ints{2, 2, 3})
      .Input("X", {2, 1}, {1, 2})
      .Expect("Out", {2, 2, 3}, {1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2})
      .CheckGradient({"X"})
      .CheckHigherGradients();
  OpTest("expand_as_v2").Attr("target_shape", Ints{1}).Input("X", {}, {7}).Expect("Out", {1}, {7});
  // Y gives the shape, and target_shape does not matter.
  OpTest("expand_as_v2")
      .Attr("target_shape", Ints{-1, 5})
      .Input("X", {2, 1}, {1, 2})
      .Input("Y", {2, 2}, {0, 0, 0, 0})
      .Expect("Out", {2, 2}, {1, 1, 2, 2})
      .CheckGradient({"X"});
}

TEST(ExpandAsV2, Constraints) {
  OpTest("expand_as_v2")
      .Attr("target_shape", Ints{1})
      .Input("X", {1, 1}, {1})
      .ExpectError("expand_as_v2.C1");
  OpTest("expand_as_v2")
      .Attr("target_shape", Ints{3})
      .Input("X", {2}, {1, 2})
      .ExpectError("expand_as_v2.C2");
  OpTest("expand_as_v2")
      .Attr("target_shape", Ints(10, 1))
      .Input("X", {1}, {1})
      .ExpectError("expand_as_v2.C3");
}

TEST(BroadcastTensors, Values) {
  OpTest("broadcast_tensors")
      .Outputs("Out", 3)
      .Input("X", {2, 1}, {1, 2})
      .Input("X", {3}, {3, 4, 5})
      .Input("X", {1, 1, 1}, {6})
      .Expect("Out", {1, 2, 3}, {1, 1, 1, 2, 2, 2}, 1e-6, 0)
      .Expect("Out", {1, 2, 3}, {3, 4, 5, 3, 4, 5}, 1e-6, 1)
      .Expect("Out", {1, 2, 3}, {6, 6, 6, 6, 6, 6}, 1e-6, 2)
      .CheckGradient({"X"})
      .CheckHigherGradients();
}

TEST(BroadcastTensors, Constraints) {
  OpTest("broadcast_tensors")
      .Input("X", {1}, {1})
      .Input("X", {1}, {1})
      .ExpectError("broadcast_tensors.C1");
  OpTest("broadcast_tensors")
      .Outputs("Out", 2)
      .Input("X", {2}, {1, 2})
      .Input("X", {3}, {1, 2, 3})
      .ExpectError("broadcast_tensors.C2");
}

// Backward accepts programs that were not verified: an input without an output has no effect.
TEST(BroadcastTensors, GradientOfFewerOutputs) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  for (const char* name : {"a", "b", "y", "loss"}) root.Var(name).SetShape({1});
  root.AppendOp("broadcast_tensors", {{"X", {"a", "b"}}}, {{"Out", {"y"}}});
  root.AppendOp("mean", {{"X", {"y"}}}, {{"Out", {"loss"}}});
  EXPECT_NO_THROW(Gradients({Variable::Of(root, "loss")}, {Variable::Of(root, "b")}));
}
}  // namespace coracle::expand_test
