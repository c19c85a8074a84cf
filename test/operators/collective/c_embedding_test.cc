#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>
#include <gtest/gtest.h>

namespace coracle::c_embedding_test {

TEST(CEmbedding, RowsOfThisProcess) {
  OpTest("c_embedding")
      .Attr("start_index", int64_t{10})
      .Input("W", {3, 2}, {1, 2, 3, 4, 5, 6})
      .IntInput("Ids", {2, 3}, {10, 12, 9, 13, 11, -5})
      .Expect("Out", {2, 3, 2}, {1, 2, 5, 6, 0, 0, 0, 0, 3, 4, 0, 0})
      .CheckGradient({"W"})
      .CheckHigherGradients();
  OpTest("c_embedding")
      .Input("W", {2, 1}, {7, 8})
      .IntInput("Ids", {2}, {1, 0}, DType::kInt32)
      .Expect("Out", {2, 1}, {8, 7});
  OpTest("c_embedding")
      .Input("W", {2, 2}, {1, 2, 3, 4})
      .IntInput("Ids", {0}, {})
      .Expect("Out", {0, 2}, {});
  OpTest("c_embedding")
      .Input("W", {0, 2}, {})
      .IntInput("Ids", {1}, {0})
      .Expect("Out", {1, 2}, {0, 0});
  // The largest numbers do not overflow.
  const int64_t most = std::numeric_limits<int64_t>::max();
  OpTest("c_embedding")
      .Attr("start_index", most)
      .Input("W", {1, 1}, {3})
      .IntInput("Ids", {3}, {most, most - 1, std::numeric_limits<int64_t>::min()})
      .Expect("Out", {3, 1}, {3, 0, 0});
}

TEST(CEmbedding, GradientAddsUpRows) {
  OpTest("c_embedding_grad")
      .Attr("start_index", int64_t{4})
      .Input("W", {3, 1}, {0, 0, 0})
      .IntInput("Ids", {4}, {4, 6, 4, 7})
      .Input("Out@GRAD", {4, 1}, {1, 2, 4, 8})
      .Expect("W@GRAD", {3, 1}, {5, 0, 2});
}

TEST(CEmbedding, LodIsThatOfIds) {
  OpTest("c_embedding")
      .Input("W", {2, 1}, {7, 8})
      .IntInput("Ids", {3}, {1, 0, 1})
      .Lod({{0, 2, 3}})
      .ExpectLod("Out", {{0, 2, 3}});
}

TEST(CEmbedding, Constraints) {
  OpTest("c_embedding")
      .Input("W", {2}, {1, 2})
      .IntInput("Ids", {1}, {0})
      .ExpectError("c_embedding.C1");
  OpTest("c_embedding")
      .Input("W", {1, 1}, {1})
      .Input("Ids", {1}, {0})
      .ExpectError("c_embedding.C2");
  OpTest("c_embedding")
      .Input("W", {1, 1}, {1})
      .IntInput("Ids", {1, 1, 1, 1, 1, 1, 1, 1, 1}, {0})
      .ExpectError("c_embedding.C3");
  OpTest("c_embedding_grad")
      .Input("W", {1, 1}, {1})
      .IntInput("Ids", {1}, {0})
      .Input("Out@GRAD", {2, 1}, {0, 0})
      .ExpectError("c_embedding_grad.C4");
}
}  // namespace coracle::c_embedding_test
