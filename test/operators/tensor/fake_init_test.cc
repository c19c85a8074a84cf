#include <coracle/framework/op/op_context.h>
#include <coracle/test/op_test.h>

namespace coracle::fake_init_test {

using Dims = std::vector<int64_t>;

TEST(FakeInit, Zeros) {
  OpTest("fake_init").Attr("shape", Dims{2, 2}).Expect("Out", {2, 2}, {0, 0, 0, 0});
  OpTest("fake_init").Attr("shape", Dims{}).Expect("Out", {}, {0});
  OpTest("fake_init").Attr("shape", Dims{0, 3}).Expect("Out", {0, 3}, {});
}

TEST(FakeInit, DTypeOfTheVariable) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  root.Var("w").SetDType(DType::kInt64);
  const OpDesc& op = root.AppendOp("fake_init", {}, {{"Out", {"w"}}}, {{"shape", Dims{3}}});
  InferOp(root, op, DefaultOps());
  EXPECT_EQ(root.Var("w").meta().ToString(), "int64[3]");
}

TEST(FakeInit, C1) {
  OpTest("fake_init").Attr("shape", Dims{-1}).ExpectError("fake_init.C1");
  OpTest("fake_init").Attr("shape", Dims(10, 1)).ExpectError("fake_init.C1");
}
}  // namespace coracle::fake_init_test
