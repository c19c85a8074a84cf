#include <coracle/framework/op/infer_context.h>

#include "../../completeness.h"
#include "../../op_test.h"

namespace coracle {
namespace {

constexpr auto kFloat = static_cast<int32_t>(DType::kFloat32);
constexpr auto kInt = static_cast<int32_t>(DType::kInt32);

OpTest Two() {
  OpTest test("coalesce_tensor");
  test.Attr("dtype", kInt)
      .IntInput("Input", {3}, {1, 2, 3}, DType::kInt32)
      .IntInput("Input", {1, 2}, {4, 5}, DType::kInt32)
      .Outputs("Output", 2);
  return test;
}

TEST(CoalesceTensor, Values) {
  Two()
      .Attr("use_align", false)
      .Attr("copy_data", true)
      .Expect("FusedOutput", {5}, {1, 2, 3, 4, 5})
      .Expect("Output", {3}, {1, 2, 3})
      .Expect("Output", {1, 2}, {4, 5}, 1e-5, 1);
  Two()
      .Attr("align_size", 16)
      .Expect("FusedOutput", {8}, {1, 2, 3, 0, 4, 5, 0, 0})
      .Expect("Output", {1, 2}, {4, 5}, 1e-5, 1);
  Two()
      .Attr("align_size", 16)
      .Attr("set_constant", true)
      .Attr("constant", 7.f)
      .Expect("FusedOutput", {8}, {7, 7, 7, 0, 7, 7, 0, 0})
      .Expect("Output", {3}, {7, 7, 7});
  EXPECT_EQ(Two().Output("FusedOutput").shape(), Shape({2048}));
  OpTest("coalesce_tensor")
      .Attr("dtype", kInt)
      .Attr("use_align", false)
      .IntInput("Input", {0}, {}, DType::kInt32)
      .Expect("FusedOutput", {0}, {});
}

TEST(CoalesceTensor, SameVariables) {
  OpTest test("coalesce_tensor");
  test.Attr("dtype", kInt)
      .Attr("use_align", false)
      .Attr("check_name", true)
      .IntInput("Input", {2}, {1, 2}, DType::kInt32)
      .InPlace("Input", "Output")
      .Expect("FusedOutput", {2}, {1, 2})
      .Expect("Output", {2}, {1, 2});
}

TEST(CoalesceTensor, Constraints) {
  OpTest("coalesce_tensor")
      .Attr("dtype", 99)
      .IntInput("Input", {1}, {1})
      .ExpectError("coalesce_tensor.C1");
  Two().Outputs("Output", 1).ExpectError("coalesce_tensor.C2");
  OpTest("coalesce_tensor")
      .Attr("dtype", kFloat)
      .IntInput("Input", {1}, {1})
      .ExpectError("coalesce_tensor.C3");
  Two().Attr("copy_data", true).Attr("set_constant", true).ExpectError("coalesce_tensor.C4");
  Two().Attr("check_name", true).ExpectError("coalesce_tensor.C6");
}

// Output and FusedOutput share memory in Paddle.
TEST(CoalesceTensor, C5_ChangedAfterwards) {
  const auto refused = [](const std::string& read, const std::string& changed) {
    ProgramDesc program;
    BlockDesc& root = program.Root();
    root.Var("x").SetShape({2});
    root.AppendOp("coalesce_tensor", {{"Input", {"x"}}},
                  {{"Output", {"x"}}, {"FusedOutput", {"f"}}}, {{"dtype", kFloat}});
    InferOp(root, root.op(0), DefaultOps());
    root.AppendOp("scale", {{"X", {read}}}, {{"Out", {changed}}});
    try {
      InferOp(root, root.op(0), DefaultOps());
    } catch (const Error& e) {
      ExpectConstraint(e.message(), "coalesce_tensor.C5");
      return true;
    }
    return false;
  };
  EXPECT_TRUE(refused("x", "f"));
  EXPECT_TRUE(refused("f", "f"));
  EXPECT_TRUE(refused("f", "x"));
  EXPECT_FALSE(refused("f", "y"));
  EXPECT_FALSE(refused("x", "x"));
}

}  // namespace
}  // namespace coracle
