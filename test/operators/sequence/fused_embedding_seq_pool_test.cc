#include <coracle/test/op_test.h>

namespace coracle::fused_embedding_seq_pool_test {

// Rows 0 to 2 of the table are [1, 2], [10, 20], [100, 200].
OpTest Pool(int64_t padding) {
  return std::move(OpTest("fused_embedding_seq_pool")
                       .Attr("padding_idx", padding)
                       .Input("W", {3, 2}, {1, 2, 10, 20, 100, 200})
                       .IntInput("Ids", {3, 2}, {0, 1, 0, 2, 2, 2})
                       .Lod({{0, 2, 2, 3}}));
}

TEST(FusedEmbeddingSeqPool, Values) {
  Pool(-1)
      .Expect("Out", {3, 4}, {2, 4, 110, 220, 0, 0, 0, 0, 100, 200, 100, 200})
      .ExpectLod("Out", {})
      .CheckGradient({"W"});
  Pool(2).Expect("Out", {3, 4}, {2, 4, 10, 20, 0, 0, 0, 0, 0, 0, 0, 0}).CheckGradient({"W"});
  OpTest("fused_embedding_seq_pool")
      .Input("W", {2, 1}, {3, 4})
      .IntInput("Ids", {2, 1, 1}, {1, 1})
      .Lod({{0, 2}})
      .Expect("Out", {1, 1}, {8});
  OpTest("fused_embedding_seq_pool")
      .Input("W", {2, 1}, {3, 4})
      .IntInput("Ids", {0, 1}, {})
      .Lod({{0, 0}})
      .Expect("Out", {1, 1}, {0});
}

TEST(FusedEmbeddingSeqPool, SparseGradient) {
  for (const bool padded : {false, true}) {
    OpTest test("fused_embedding_seq_pool_grad");
    test.Attr("is_sparse", true)
        .Attr("padding_idx", padded ? int64_t{0} : int64_t{-1})
        .Input("W", {3, 1}, {0, 0, 0})
        .IntInput("Ids", {3, 1}, {2, 0, 2})
        .Lod({{0, 2, 3}})
        .Input("Out@GRAD", {2, 1}, {5, 7});
    if (padded)
      test.ExpectRows("W@GRAD", 3, {2, 2}, {5, 7});
    else
      test.ExpectRows("W@GRAD", 3, {2, 0, 2}, {5, 5, 7});
  }
}

TEST(FusedEmbeddingSeqPool, Constraints) {
  const std::string type = "fused_embedding_seq_pool";
  OpTest(type)
      .RandomInput("W", {3})
      .IntInput("Ids", {1, 1}, {0})
      .Lod({{0, 1}})
      .ExpectError(type + ".C1");
  OpTest(type)
      .RandomInput("W", {3, 1})
      .RandomInput("Ids", {1, 1})
      .Lod({{0, 1}})
      .ExpectError(type + ".C2");
  OpTest(type).RandomInput("W", {3, 1}).IntInput("Ids", {1, 1}, {0}).ExpectError(type + ".C3");
  OpTest(type + "_grad")
      .RandomInput("W", {3, 1})
      .IntInput("Ids", {1, 1}, {0})
      .Lod({{0, 1}})
      .RandomInput("Out@GRAD", {1, 2})
      .ExpectError(type + "_grad.C4");
  for (const int64_t id : {-2, 3}) {
    OpTest(type)
        .RandomInput("W", {3, 1})
        .IntInput("Ids", {1, 1}, {id})
        .Lod({{0, 1}})
        .ExpectError("outside [0, 3)");
  }
}
}  // namespace coracle::fused_embedding_seq_pool_test
