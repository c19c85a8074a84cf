#include <coracle/test/op_test.h>

namespace coracle::hash_test {

OpTest Hash(DType dtype, const Shape& shape, const std::vector<int64_t>& x, int32_t hashes,
            int64_t mod) {
  OpTest test("hash");
  test.Attr("num_hash", hashes).Attr("mod_by", mod).IntInput("X", shape, x, dtype);
  return test;
}

// Computed by another program, which was checked with published hashes of texts.
TEST(Hash, Values) {
  Hash(DType::kInt32, {1, 1}, {0}, 4, 10000)
      .Expect("Out", {1, 4, 1}, {4372, 9456, 8204, 6695})
      .ExpectDType("Out", DType::kInt32);
  // More than 32 bytes; all bytes of the int64 rows count.
  const std::vector<int64_t> row = {1, -2, 3, 4, 5, 6, 7, 8, 9};
  Hash(DType::kInt32, {1, 9}, row, 2, 10000).Expect("Out", {1, 2, 1}, {6748, 9322});
  const Tensor out = Hash(DType::kInt64, {1, 9}, row, 2, 1000000007).Output("Out");
  EXPECT_TRUE(BitEqual(out, Tensor::Of<int64_t>({1, 2, 1}, {55262692, 696858733})));
}

TEST(Hash, Edges) {
  Hash(DType::kInt64, {2, 0}, {}, 1, 1000).Expect("Out", {2, 1, 1}, {921, 921});
  Hash(DType::kInt64, {0, 2}, {}, 1, 1000).Expect("Out", {0, 1, 1}, {});
  Hash(DType::kInt32, {2, 1}, {0, 0}, 1, 10000)
      .Lod({{0, 2}})
      .Expect("Out", {2, 1, 1}, {4372, 4372})
      .ExpectLod("Out", {{0, 2}});
}

TEST(Hash, Constraints) {
  Hash(DType::kInt64, {2}, {0, 0}, 1, 10).ExpectError("hash.C1");
  Hash(DType::kInt64, {1, 1}, {0}, -1, 10).ExpectError("hash.C2");
  Hash(DType::kInt64, {1, 1}, {0}, 1, 0).ExpectError("hash.C2");
}
}  // namespace coracle::hash_test
