#include <coracle/framework/op/op_context.h>
#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>

namespace coracle::coalesce_tensor_test {

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

TEST(CoalesceTensor, C5_SharedBeyondARun) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  root.Var("x").SetShape({2});
  root.Var("f").SetPersistable(true);
  root.AppendOp("coalesce_tensor", {{"Input", {"x"}}}, {{"Output", {"x"}}, {"FusedOutput", {"f"}}},
                {{"dtype", kFloat}});
  try {
    InferOp(root, root.op(0), DefaultOps());
    ADD_FAILURE() << "was accepted";
  } catch (const Error& e) {
    ExpectConstraint(e.message(), "coalesce_tensor.C5");
  }
}

TEST(DivideCoalesced, Values) {
  OpTest("divide_coalesced")
      .Attr("align_size", 16)
      .IntInput("X", {8}, {1, 2, 3, 0, 4, 5, 0, 0}, DType::kInt32)
      .IntInput("Like", {3}, {0, 0, 0}, DType::kInt32)
      .IntInput("Like", {1, 2}, {0, 0}, DType::kInt32)
      .Outputs("Out", 2)
      .Expect("Out", {3}, {1, 2, 3})
      .Expect("Out", {1, 2}, {4, 5}, 1e-5, 1);
}

TEST(DivideCoalesced, Constraints) {
  const auto test = [](DType dtype, int64_t elements) {
    OpTest test("divide_coalesced");
    test.Attr("use_align", false)
        .IntInput("X", {elements}, std::vector<int64_t>(static_cast<size_t>(elements)), dtype)
        .IntInput("Like", {3}, {0, 0, 0}, DType::kInt32);
    return test;
  };
  test(DType::kInt32, 3).Outputs("Out", 2).ExpectError("divide_coalesced.C1");
  test(DType::kInt64, 3).ExpectError("divide_coalesced.C2");
  test(DType::kInt32, 4).ExpectError("divide_coalesced.C2");
}
}  // namespace coracle::coalesce_tensor_test
