#include "../../op_test.h"

namespace coracle {
namespace {

// Node 1 has the children 2 and 3, node 2 the child 4. 3 and 4 are the items 10 and 11.
OpTest Tree(const Shape& shape, const std::vector<int64_t>& x) {
  OpTest test("tdm_child");
  test.Attr("child_nums", 2).IntInput("X", shape, x);
  test.IntInput("TreeInfo", {5, 5},
                {0, 0, 0, 0, 0, 0, 0, 0, 2, 3, 0, 1, 1, 4, 0, 10, 1, 1, 0, 0, 11, 2, 2, 0, 0});
  return test;
}

TEST(TdmChild, Values) {
  Tree({5, 1}, {0, 1, 2, 3, 4})
      .Expect("Child", {5, 1, 2}, {0, 0, 2, 3, 4, 0, 0, 0, 0, 0})
      .Expect("LeafMask", {5, 1, 2}, {0, 0, 0, 1, 1, 0, 0, 0, 0, 0})
      .ExpectDType("Child", DType::kInt32);
  Tree({1}, {1})
      .Attr("dtype", static_cast<int32_t>(DType::kInt64))
      .Expect("Child", {1, 2}, {2, 3})
      .ExpectDType("LeafMask", DType::kInt64);
  Tree({0, 1}, {}).Expect("Child", {0, 1, 2}, {});
}

TEST(TdmChild, Constraints) {
  OpTest("tdm_child")
      .Attr("child_nums", 2)
      .RandomInput("X", {1})
      .IntInput("TreeInfo", {1, 5}, {0, 0, 0, 0, 0})
      .ExpectError("tdm_child.C1");
  OpTest("tdm_child")
      .Attr("child_nums", 3)
      .IntInput("X", {1}, {0})
      .IntInput("TreeInfo", {1, 5}, {0, 0, 0, 0, 0})
      .ExpectError("tdm_child.C2");
  Tree({1}, {1}).Attr("dtype", static_cast<int32_t>(DType::kFloat32)).ExpectError("tdm_child.C3");
  Tree({1, 1, 1, 1, 1, 1, 1, 1, 1}, {1}).ExpectError("tdm_child.C4");
  for (int64_t node : {int64_t{5}, int64_t{-1}, INT64_MAX})
    Tree({1}, {node}).ExpectError("tdm_child: X holds " + std::to_string(node));
  OpTest("tdm_child")
      .Attr("child_nums", 1)
      .IntInput("X", {1}, {1})
      .IntInput("TreeInfo", {2, 4}, {0, 0, 0, 0, 0, 0, 0, 2})
      .ExpectError("tdm_child: TreeInfo holds 2");
}

}  // namespace
}  // namespace coracle
