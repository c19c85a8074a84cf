#include <coracle/framework/op/op_context.h>
#include <coracle/test/op_test.h>

namespace coracle::reshape_test {

using Ints = std::vector<int32_t>;

std::vector<double> Count(int64_t n) {
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<double>(i) + 1);
  return values;
}

void CheckShapes(const std::string& type, const Shape& x, const AttrList& attrs, const Shape& out) {
  OpTest test(type);
  for (const NamedAttr& attr : attrs) test.Attr(attr.name, attr.value);
  test.Input("X", x, Count(x.numel())).Expect("Out", out, Count(x.numel()));
  if (x.numel() > 0) test.CheckGradient({"X"}).CheckSecondGradient({"X"});
}

// Shape of Out when the program is built, where X may have unknown dimensions.
std::string BuildShape(const std::string& type, const Shape& x, const AttrList& attrs) {
  ProgramDesc program;
  BlockDesc& block = program.Root();
  block.Var("x").SetShape(x);
  block.Var("out");
  InferOp(block, block.AppendOp(type, {{"X", {"x"}}}, {{"Out", {"out"}}}, attrs), DefaultOps());
  return block.FindVarRecursive("out")->shape().ToString();
}

TEST(Reshape, Values) {
  for (const char* type : {"reshape", "reshape2"}) {
    CheckShapes(type, {2, 6}, {{"shape", Ints{3, 4}}}, {3, 4});
    CheckShapes(type, {2, 6}, {{"shape", Ints{0, -1, 3}}}, {2, 2, 3});
    CheckShapes(type, {1}, {{"shape", Ints{}}}, {});
    CheckShapes(type, {0, 3}, {{"shape", Ints{0, -1}}}, {0, 3});
    CheckShapes(type, {0, 3}, {{"shape", Ints{-1, 5}}}, {0, 5});
  }
}

TEST(Reshape, AllowZero) {
  for (const std::string type : {"reshape", "reshape2"}) {
    const auto op = [&](const Ints& shape) {
      return OpTest(type).Attr("allow_zero", true).Attr("shape", shape);
    };
    op({0, 3}).Input("X", {4, 0}, {}).Expect("Out", {0, 3}, {});
    op({2, -1}).Input("X", {1, 4}, {1, 2, 3, 4}).Expect("Out", {2, 2}, {1, 2, 3, 4});
    OpTest(type)
        .Attr("allow_zero", true)
        .Input("X", {2, 0}, {})
        .IntInput("Shape", {3}, {5, 0, 1})
        .Expect("Out", {5, 0, 1}, {});
    op({0, 3}).Input("X", {1, 3}, {1, 2, 3}).ExpectError(type + ".C6");
    // Any number would do in place of -1.
    op({0, -1}).Input("X", {0}, {}).ExpectError(type + ".C4");
  }
}

TEST(Reshape, ShapeTensorsWin) {
  OpTest("reshape2")
      .Attr("shape", Ints{6})
      .Input("X", {6}, Count(6))
      .IntInput("Shape", {2}, {2, -1}, DType::kInt32)
      .Expect("Out", {2, 3}, Count(6));
  OpTest("reshape2")
      .Attr("shape", Ints{6})
      .Input("X", {6}, Count(6))
      .IntInput("Shape", {2}, {2, -1}, DType::kInt32)
      .IntInput("ShapeTensor", {1}, {3}, DType::kInt32)
      .IntInput("ShapeTensor", {1}, {-1})
      .Expect("Out", {3, 2}, Count(6));
}

TEST(Reshape, XShapeAndDTypes) {
  Tensor shape =
      OpTest("reshape2").Attr("shape", Ints{6}).Input("X", {2, 3}, Count(6)).Output("XShape");
  EXPECT_EQ("[0, 2, 3]", shape.shape().ToString());
  for (DType dtype :
       {DType::kBool, DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64, DType::kFloat16}) {
    OpTest("reshape2")
        .Attr("shape", Ints{2, 1})
        .IntInput("X", {2}, {1, 0}, dtype)
        .Expect("Out", {2, 1}, {1, 0})
        .ExpectDType("Out", dtype);
  }
}

TEST(Reshape, WithoutXShape) {
  OpTest("reshape2")
      .NoOutput("XShape")
      .Attr("shape", Ints{6})
      .Input("X", {2, 3}, Count(6))
      .Expect("Out", {6}, Count(6))
      .CheckGradient({"X"})
      .CheckSecondGradient({"X"});
}

TEST(Reshape, UnknownDimensions) {
  EXPECT_EQ("[-1, 12]", BuildShape("reshape2", {-1, 3, 4}, {{"shape", Ints{0, -1}}}));
  EXPECT_EQ("[-1, 4]", BuildShape("reshape2", {-1, 3, 4}, {{"shape", Ints{-1, 4}}}));
  EXPECT_EQ("[-1, 12]", BuildShape("flatten2", {-1, 3, 4}, {{"axis", 1}}));
  EXPECT_EQ("[3, -1]", BuildShape("squeeze2", {1, 3, -1}, {{"axes", Ints{0}}}));
  EXPECT_EQ("[-1, 1]", BuildShape("unsqueeze2", {-1}, {{"axes", Ints{1}}}));
}

TEST(Reshape, Constraints) {
  auto op = [](Ints shape) {
    OpTest test("reshape2");
    test.Attr("shape", std::move(shape)).Input("X", {2, 3}, Count(6));
    return test;
  };
  op({-1, -1}).ExpectError("reshape2.C1");
  op({1, 2, 0}).ExpectError("reshape2.C2");
  op({-2, 3}).ExpectError("reshape2.C3");
  op({4, -1}).ExpectError("reshape2.C4");
  op(Ints(10, 1)).ExpectError("reshape2.C5");
  op({2, 4}).ExpectError("reshape2.C6");
  op({2147483647, 2147483647, 2147483647}).ExpectError("64-bit");
  OpTest("reshape").Attr("shape", Ints{-1, -1}).Input("X", {1}, {1}).ExpectError("reshape.C1");
  OpTest("reshape").Attr("shape", Ints{1, 0}).Input("X", {1}, {1}).ExpectError("reshape.C2");
  OpTest("reshape").Attr("shape", Ints{-3}).Input("X", {1}, {1}).ExpectError("reshape.C3");
  OpTest("reshape").Attr("shape", Ints{2, -1}).Input("X", {1}, {1}).ExpectError("reshape.C4");
  OpTest("reshape").Attr("shape", Ints(10, 1)).Input("X", {1}, {1}).ExpectError("reshape.C5");
  OpTest("reshape").Attr("shape", Ints{2}).Input("X", {1}, {1}).ExpectError("reshape.C6");
}

TEST(ReshapeGrad, Constraints) {
  for (const char* type :
       {"reshape_grad", "reshape2_grad", "squeeze_grad", "squeeze2_grad", "unsqueeze_grad",
        "unsqueeze2_grad", "flatten_grad", "flatten2_grad", "flatten_contiguous_range_grad"}) {
    const std::string name = type;
    OpTest(name).Input("XShape", {}, {1}).Input("Out@GRAD", {1}, {1}).ExpectError(name + ".C1");
    OpTest(name).Input("Out@GRAD", {1}, {1}).ExpectError(name + ".C2");
    OpTest(name)
        .Input("XShape", {0, 3}, {})
        .Input("Out@GRAD", {2}, {1, 2})
        .ExpectError(name + ".C3");
  }
}

TEST(Squeeze, Values) {
  for (const char* type : {"squeeze", "squeeze2"}) {
    CheckShapes(type, {1, 3, 1}, {{"axes", Ints{0}}}, {3, 1});
    CheckShapes(type, {1, 3, 1}, {{"axes", Ints{-1}}}, {1, 3});
    CheckShapes(type, {1, 3, 1}, {}, {3});
    CheckShapes(type, {1, 3, 1}, {{"axes", Ints{1}}}, {1, 3, 1});
    CheckShapes(type, {1, 1}, {}, {});
    OpTest(type)
        .Attr("axes", Ints{2})
        .Input("X", {1, 1}, {1})
        .ExpectError(std::string(type) + ".C1");
  }
}

TEST(Unsqueeze, Values) {
  for (const char* type : {"unsqueeze", "unsqueeze2"}) {
    CheckShapes(type, {3}, {{"axes", Ints{0}}}, {1, 3});
    CheckShapes(type, {3}, {{"axes", Ints{-1}}}, {3, 1});
    CheckShapes(type, {3, 4}, {{"axes", Ints{0, 2}}}, {1, 3, 1, 4});
    CheckShapes(type, {}, {{"axes", Ints{0}}}, {1});
    const std::string name = type;
    OpTest(type).Attr("axes", Ints{3}).Input("X", {1}, {1}).ExpectError(name + ".C1");
    OpTest(type).Attr("axes", Ints(9, 0)).Input("X", {1}, {1}).ExpectError(name + ".C2");
  }
  OpTest("unsqueeze2")
      .Input("X", {2}, {1, 2})
      .IntInput("AxesTensor", {1}, {1})
      .Expect("Out", {2, 1}, {1, 2});
}

TEST(Flatten, Values) {
  for (const char* type : {"flatten", "flatten2"}) {
    CheckShapes(type, {2, 3, 2}, {}, {2, 6});
    CheckShapes(type, {2, 3, 2}, {{"axis", 0}}, {1, 12});
    CheckShapes(type, {2, 3, 2}, {{"axis", 3}}, {12, 1});
    OpTest(type).Attr("axis", 2).Input("X", {1}, {1}).ExpectError(std::string(type) + ".C1");
  }
}

TEST(FlattenContiguousRange, Values) {
  const char* type = "flatten_contiguous_range";
  CheckShapes(type, {2, 3, 2}, {{"start_axis", 0}, {"stop_axis", 1}}, {6, 2});
  CheckShapes(type, {2, 3, 2}, {{"start_axis", 1}, {"stop_axis", -1}}, {2, 6});
  CheckShapes(type, {}, {{"start_axis", 0}, {"stop_axis", 0}}, {1});
  OpTest(type)
      .Attr("stop_axis", 2)
      .Input("X", {1, 1}, {1})
      .ExpectError("flatten_contiguous_range.C1");
  OpTest(type)
      .Attr("stop_axis", 0)
      .Input("X", {1, 1}, {1})
      .ExpectError("flatten_contiguous_range.C2");
}

}  // namespace coracle::reshape_test
