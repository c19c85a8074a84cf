#include <coracle/framework/op/op_context.h>
#include <coracle/test/op_test.h>

namespace coracle::slice_test {

using Ints = std::vector<int32_t>;

OpTest Cut(const std::string& type, Ints axes, Ints starts, Ints ends, Ints strides = {}) {
  OpTest test(type);
  test.Attr("axes", std::move(axes)).Attr("starts", std::move(starts)).Attr("ends", ends);
  if (type == "strided_slice") test.Attr("strides", std::move(strides));
  return test;
}

const std::vector<double> kCount = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

std::string BuildShape(const Shape& x, const AttrList& attrs) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  block.Var("x").SetShape(x);
  block.Var("out");
  InferOp(block, block.AppendOp("slice", {{"Input", {"x"}}}, {{"Out", {"out"}}}, attrs),
          DefaultOps());
  return block.FindVarRecursive("out")->shape().ToString();
}

TEST(Slice, Values) {
  Cut("slice", {0, 1}, {1, 0}, {3, 2})
      .Input("Input", {3, 4}, kCount)
      .Expect("Out", {2, 2}, {4, 5, 8, 9})
      .CheckGradient({"Input"})
      .CheckSecondGradient({"Input"});
  // Bounds from the end, and past it.
  Cut("slice", {1}, {-3}, {-1})
      .Input("Input", {2, 4}, {0, 1, 2, 3, 4, 5, 6, 7})
      .Expect("Out", {2, 2}, {1, 2, 5, 6});
  Cut("slice", {0}, {-100}, {100}).Input("Input", {3}, {1, 2, 3}).Expect("Out", {3}, {1, 2, 3});
  Cut("slice", {0}, {2}, {1}).Input("Input", {3}, {1, 2, 3}).Expect("Out", {0}, {});
  Cut("slice", {0}, {0}, {2}).Input("Input", {0, 2}, {}).Expect("Out", {0, 2}, {});
}

TEST(Slice, DecreaseAxis) {
  Cut("slice", {1}, {2}, {3})
      .Attr("decrease_axis", Ints{1})
      .Input("Input", {3, 4}, kCount)
      .Expect("Out", {3}, {2, 6, 10})
      .CheckGradient({"Input"})
      .CheckSecondGradient({"Input"});
  Cut("slice", {0}, {1}, {2})
      .Attr("decrease_axis", Ints{0})
      .Input("Input", {3}, {7, 8, 9})
      .Expect("Out", {1}, {8});
  Cut("slice", {0}, {-1}, {0})
      .Attr("decrease_axis", Ints{0})
      .Input("Input", {3}, {7, 8, 9})
      .Expect("Out", {1}, {9});
}

TEST(Slice, BoundsFromTensors) {
  OpTest("slice")
      .Attr("axes", Ints{0, 1})
      .Input("Input", {3, 4}, kCount)
      .IntInput("StartsTensor", {2}, {1, -2}, DType::kInt32)
      .IntInput("EndsTensorList", {1}, {2})
      .IntInput("EndsTensorList", {1}, {9}, DType::kInt32)
      .Expect("Out", {1, 2}, {6, 7})
      .CheckGradient({"Input"})
      .CheckSecondGradient({"Input"});
}

TEST(Slice, EveryDType) {
  for (DType dtype :
       {DType::kBool, DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64, DType::kFloat16}) {
    Cut("slice", {0}, {1}, {3})
        .IntInput("Input", {3}, {0, 1, 0}, dtype)
        .Expect("Out", {2}, {1, 0})
        .ExpectDType("Out", dtype);
  }
}

TEST(Slice, UnknownDimensions) {
  EXPECT_EQ(
      "[-1, 2]",
      BuildShape({-1, 4}, {{"axes", Ints{0, 1}}, {"starts", Ints{0, 1}}, {"ends", Ints{5, 3}}}));
  EXPECT_EQ("[4]", BuildShape({-1, 4}, {{"axes", Ints{0}},
                                        {"starts", Ints{0}},
                                        {"ends", Ints{1}},
                                        {"decrease_axis", Ints{0}}}));
}

TEST(Slice, Constraints) {
  for (const std::string type : {"slice", "strided_slice"}) {
    Cut(type, {1}, {0}, {1}, {1}).Input("Input", {2}, {1, 2}).ExpectError(type + ".C1");
    Cut(type, {0, 0}, {0, 0}, {1, 1}, {1, 1}).Input("Input", {2}, {1, 2}).ExpectError(type + ".C1");
    Cut(type, {0}, {0, 0}, {1}, {1}).Input("Input", {2}, {1, 2}).ExpectError(type + ".C2");
    Cut(type, {0}, {0}, {2}, {1})
        .Attr("decrease_axis", Ints{0})
        .Input("Input", {2}, {1, 2})
        .ExpectError(type + ".C4");
  }
  Cut("strided_slice", {0}, {0}, {1}, {0})
      .Input("Input", {2}, {1, 2})
      .ExpectError("strided_slice.C3");
  Cut("slice", {0}, {0}, {1})
      .Attr("decrease_axis", Ints{3})
      .Input("Input", {2}, {1, 2})
      .ExpectError("slice.C4");
}

TEST(StridedSlice, Values) {
  Cut("strided_slice", {1}, {0}, {4}, {2})
      .Input("Input", {3, 4}, kCount)
      .Expect("Out", {3, 2}, {0, 2, 4, 6, 8, 10})
      .CheckGradient({"Input"})
      .CheckSecondGradient({"Input"});
  // Backwards; an end of -1 means before element 0.
  Cut("strided_slice", {0}, {2}, {-1}, {-1})
      .Input("Input", {3}, {1, 2, 3})
      .Expect("Out", {3}, {3, 2, 1})
      .CheckGradient({"Input"})
      .CheckSecondGradient({"Input"});
  Cut("strided_slice", {0}, {-1}, {0}, {-2})
      .Input("Input", {5}, {1, 2, 3, 4, 5})
      .Expect("Out", {2}, {5, 3});
  Cut("strided_slice", {0, 1}, {2, 1}, {0, 100}, {-1, 2})
      .Input("Input", {3, 4}, kCount)
      .Expect("Out", {2, 2}, {9, 11, 5, 7})
      .CheckGradient({"Input"});
  Cut("strided_slice", {0}, {0}, {3}, {2147483647})
      .Input("Input", {3}, {4, 5, 6})
      .Expect("Out", {1}, {4});
}

TEST(StridedSlice, StridesFromTensor) {
  OpTest("strided_slice")
      .Attr("axes", Ints{0})
      .Attr("starts", Ints{4})
      .Attr("ends", Ints{-1})
      .Input("Input", {5}, {1, 2, 3, 4, 5})
      .IntInput("StridesTensor", {1}, {-3})
      .Expect("Out", {2}, {5, 2})
      .CheckGradient({"Input"});
}

}  // namespace coracle::slice_test
