#include <coracle/test/op_test.h>

namespace coracle::gather_tree_test {

OpTest Tree(const Shape& shape, const std::vector<int64_t>& ids,
            const std::vector<int64_t>& parents, DType dtype = DType::kInt64) {
  return std::move(OpTest("gather_tree")
                       .IntInput("Ids", shape, ids, dtype)
                       .IntInput("Parents", shape, parents, dtype));
}

TEST(GatherTree, Values) {
  for (DType dtype : {DType::kInt32, DType::kInt64}) {
    // Two beams: the first ends 6 <- 3 <- 2, the second 5 <- 3 <- 2.
    Tree({3, 1, 2}, {1, 2, 3, 4, 5, 6}, {9, 9, 1, 0, 0, 0}, dtype)
        .Expect("Out", {3, 1, 2}, {2, 2, 3, 3, 5, 6});
    // Two items of a batch do not mix.
    Tree({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}, {0, 0, 0, 0, 1, 0, 1, 1}, dtype)
        .Expect("Out", {2, 2, 2}, {2, 1, 4, 4, 5, 6, 7, 8});
  }
  Tree({0, 2, 2}, {}, {}).Expect("Out", {0, 2, 2}, {});
  Tree({1, 1, 2}, {3, 4}, {7, -7}).Expect("Out", {1, 1, 2}, {3, 4});
}

TEST(GatherTree, Constraints) {
  Tree({2, 2}, {1, 2, 3, 4}, {0, 0, 0, 0}).ExpectError("gather_tree.C1");
  OpTest("gather_tree")
      .IntInput("Ids", {1, 1, 1}, {1})
      .IntInput("Parents", {1, 1, 2}, {0, 0})
      .ExpectError("gather_tree.C2");
  Tree({2, 1, 1}, {1, 2}, {0, 1}).ExpectError("outside [0, 1)");
  Tree({2, 1, 1}, {1, 2}, {0, -1}).ExpectError("outside [0, 1)");
}
}  // namespace coracle::gather_tree_test
