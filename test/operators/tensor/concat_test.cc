#include <coracle/framework/op/op_context.h>
#include <coracle/test/op_test.h>

namespace coracle::concat_test {

using Ints = std::vector<int32_t>;

TEST(Concat, Values) {
  OpTest("concat")
      .Attr("axis", 0)
      .Input("X", {1, 2}, {1, 2})
      .Input("X", {2, 2}, {3, 4, 5, 6})
      .Expect("Out", {3, 2}, {1, 2, 3, 4, 5, 6})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  OpTest("concat")
      .Attr("axis", -1)
      .Input("X", {2, 1}, {1, 2})
      .Input("X", {2, 2}, {3, 4, 5, 6})
      .Expect("Out", {2, 3}, {1, 3, 4, 2, 5, 6})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  OpTest("concat")
      .Attr("axis", 1)
      .Input("X", {2, 0}, {})
      .Input("X", {2, 1}, {3, 4})
      .Expect("Out", {2, 1}, {3, 4});
  OpTest("concat").Input("X", {0}, {}).Input("X", {0}, {}).Expect("Out", {0}, {});
}

TEST(Concat, Sequences) {
  const auto joined = [](int axis) {
    return std::move(OpTest("concat")
                         .Input("X", {2, 1}, {1, 2})
                         .Lod({{0, 1}, {0, 2}})
                         .Input("X", {2, 1}, {3, 4})
                         .Lod({{0, 1, 2}, {0, 0, 2}})
                         .IntInput("AxisTensor", {1}, {axis}));
  };
  joined(0).ExpectLod("Out", {{0, 1, 2, 3}, {0, 2, 2, 4}});
  joined(-2).ExpectLod("Out", {{0, 1, 2, 3}, {0, 2, 2, 4}});
  joined(1).ExpectLod("Out", {{0, 1}, {0, 2}});
  OpTest("concat")
      .Input("X", {0, 1}, {})
      .Lod({{0}})
      .Input("X", {1, 1}, {1})
      .Lod({{0, 1}})
      .ExpectLod("Out", {{0, 1}});
  OpTest("concat").Input("X", {2}, {1, 2}).Lod({{0, 2}}).Input("X", {1}, {3}).ExpectLod("Out", {});
}

TEST(Concat, AxisTensorAndDTypes) {
  OpTest("concat")
      .Attr("axis", 0)
      .Input("X", {2, 1}, {1, 2})
      .Input("X", {2, 1}, {3, 4})
      .IntInput("AxisTensor", {1}, {1}, DType::kInt32)
      .Expect("Out", {2, 2}, {1, 3, 2, 4})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  for (DType dtype : {DType::kBool, DType::kInt16, DType::kInt64, DType::kBFloat16}) {
    OpTest("concat")
        .IntInput("X", {1}, {1}, dtype)
        .IntInput("X", {2}, {0, 1}, dtype)
        .Expect("Out", {3}, {1, 0, 1})
        .ExpectDType("Out", dtype);
  }
}

TEST(Concat, UnknownDimensions) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  block.Var("a").SetShape({-1, 3, 4});
  block.Var("b").SetShape({2, 5, -1});
  block.Var("out");
  AttrList attrs = {{"axis", 1}};
  InferOp(block, block.AppendOp("concat", {{"X", {"a", "b"}}}, {{"Out", {"out"}}}, attrs),
          DefaultOps());
  EXPECT_EQ("[2, 8, 4]", block.FindVarRecursive("out")->shape().ToString());
}

TEST(Concat, Constraints) {
  OpTest("concat").Attr("axis", 1).Input("X", {1}, {1}).ExpectError("concat.C1");
  OpTest("concat").Input("X", {1, 2}, {1, 2}).Input("X", {1}, {1}).ExpectError("concat.C2");
  OpTest("concat").Input("X", {1, 2}, {1, 2}).Input("X", {1, 1}, {1}).ExpectError("concat.C2");
  OpTest("concat").Input("X", {1}, {1}).IntInput("X", {1}, {1}).ExpectError("concat.C3");
  OpTest("concat")
      .Input("X", {1}, {1})
      .Lod({{0, 1}})
      .Input("X", {1}, {1})
      .Lod({{0, 1}, {0, 1}})
      .ExpectError("concat.C4");
}

TEST(Split, Values) {
  OpTest("split")
      .Attr("num", 2)
      .Attr("axis", 1)
      .Outputs("Out", 2)
      .Input("X", {2, 4}, {1, 2, 3, 4, 5, 6, 7, 8})
      .Expect("Out", {2, 2}, {1, 2, 5, 6}, 1e-6, 0)
      .Expect("Out", {2, 2}, {3, 4, 7, 8}, 1e-6, 1)
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  OpTest("split")
      .Attr("sections", Ints{1, -1, 0})
      .Attr("axis", -1)
      .Outputs("Out", 3)
      .Input("X", {2, 3}, {1, 2, 3, 4, 5, 6})
      .Expect("Out", {2, 1}, {1, 4}, 1e-6, 0)
      .Expect("Out", {2, 2}, {2, 3, 5, 6}, 1e-6, 1)
      .Expect("Out", {2, 0}, {}, 1e-6, 2)
      .CheckGradient({"X"});
}

TEST(Split, FromTensors) {
  OpTest("split")
      .Outputs("Out", 2)
      .Input("X", {2, 3}, {1, 2, 3, 4, 5, 6})
      .IntInput("AxisTensor", {1}, {1})
      .IntInput("SectionsTensorList", {1}, {1})
      .IntInput("SectionsTensorList", {1}, {2}, DType::kInt32)
      .Expect("Out", {2, 1}, {1, 4}, 1e-6, 0)
      .Expect("Out", {2, 2}, {2, 3, 5, 6}, 1e-6, 1)
      .CheckGradient({"X"});
}

TEST(Split, Constraints) {
  auto op = [](int outputs) {
    OpTest test("split");
    test.Outputs("Out", outputs).Input("X", {3}, {1, 2, 3});
    return test;
  };
  op(1).Attr("axis", 2).Attr("num", 1).ExpectError("split.C1");
  op(1).Attr("num", 3).ExpectError("split.C2");
  op(1).Attr("sections", Ints{1, 2}).ExpectError("split.C2");
  op(2).Attr("num", 2).ExpectError("split.C3");
  op(2).Attr("sections", Ints{1, 1}).ExpectError("split.C4");
  op(2).Attr("sections", Ints{-1, -1}).ExpectError("split.C4");
  op(2).Attr("sections", Ints{-2, 5}).ExpectError("split.C4");
  op(2).Attr("sections", Ints{4, -1}).ExpectError("split.C4");
}

TEST(Stack, Values) {
  OpTest("stack")
      .Attr("axis", 0)
      .Input("X", {2}, {1, 2})
      .Input("X", {2}, {3, 4})
      .Expect("Y", {2, 2}, {1, 2, 3, 4})
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  OpTest("stack")
      .Attr("axis", -1)
      .Input("X", {2}, {1, 2})
      .Input("X", {2}, {3, 4})
      .Expect("Y", {2, 2}, {1, 3, 2, 4})
      .CheckGradient({"X"});
  OpTest("stack").Input("X", {}, {1}).Input("X", {}, {3}).Expect("Y", {2}, {1, 3});
  OpTest("stack").Input("X", {0}, {}).Expect("Y", {1, 0}, {});
}

TEST(Stack, Constraints) {
  OpTest("stack").Attr("axis", 2).Input("X", {1}, {1}).ExpectError("stack.C1");
  OpTest("stack").Input("X", {1}, {1}).Input("X", {2}, {1, 2}).ExpectError("stack.C2");
  OpTest("stack").Input("X", {1}, {1}).IntInput("X", {1}, {1}).ExpectError("stack.C3");
  OpTest("stack").Input("X", {1, 1, 1, 1, 1, 1, 1, 1, 1}, {1}).ExpectError("stack.C4");
}

TEST(Unstack, Values) {
  OpTest("unstack")
      .Attr("axis", 1)
      .Attr("num", 2)
      .Outputs("Y", 2)
      .Input("X", {2, 2}, {1, 2, 3, 4})
      .Expect("Y", {2}, {1, 3}, 1e-6, 0)
      .Expect("Y", {2}, {2, 4}, 1e-6, 1)
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
  OpTest("unstack")
      .Attr("num", 2)
      .Outputs("Y", 2)
      .Input("X", {2}, {5, 6})
      .Expect("Y", {}, {6}, 1e-6, 1);
}

TEST(Unbind, Values) {
  OpTest("unbind")
      .Outputs("Out", 2)
      .Input("X", {2, 3}, {1, 2, 3, 4, 5, 6})
      .Expect("Out", {3}, {1, 2, 3}, 1e-6, 0)
      .Expect("Out", {3}, {4, 5, 6}, 1e-6, 1)
      .CheckGradient({"X"})
      .CheckHigherGradients();
  OpTest("unbind")
      .Attr("axis", -1)
      .Outputs("Out", 2)
      .IntInput("X", {2, 2}, {1, 2, 3, 4})
      .Expect("Out", {2}, {2, 4}, 1e-6, 1);
}

TEST(Unbind, Constraints) {
  OpTest("unbind").Input("X", {}, {1}).ExpectError("unbind.C1");
  OpTest("unbind").Attr("axis", 1).Input("X", {1}, {1}).ExpectError("unbind.C1");
  OpTest("unbind").Input("X", {2}, {1, 2}).ExpectError("unbind.C2");
}

TEST(Unstack, Constraints) {
  OpTest("unstack").Attr("num", 1).Input("X", {}, {1}).ExpectError("unstack.C1");
  OpTest("unstack").Attr("num", 1).Attr("axis", 1).Input("X", {1}, {1}).ExpectError("unstack.C1");
  OpTest("unstack").Attr("num", 2).Input("X", {1}, {1}).ExpectError("unstack.C2");
}

}  // namespace coracle::concat_test
