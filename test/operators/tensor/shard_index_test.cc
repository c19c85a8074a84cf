#include <coracle/test/op_test.h>

namespace coracle::shard_index_test {

OpTest Shard(int32_t shards, int32_t shard) {
  OpTest test("shard_index");
  test.Attr("index_num", 20).Attr("nshards", shards).Attr("shard_id", shard);
  return test;
}

TEST(ShardIndex, Values) {
  for (DType dtype : {DType::kInt32, DType::kInt64}) {
    Shard(2, 0).IntInput("X", {4, 1}, {16, 1, 9, 10}, dtype).Expect("Out", {4, 1}, {-1, 1, 9, -1});
    Shard(2, 1)
        .Attr("ignore_value", -7)
        .IntInput("X", {4, 1}, {16, 1, 9, 10}, dtype)
        .Expect("Out", {4, 1}, {6, -7, -7, 0});
  }
  // Shards of ceil(20 / 3) indices.
  Shard(3, 2).IntInput("X", {3}, {13, 14, 19}).Expect("Out", {3}, {-1, 0, 5});
  Shard(3, 2).IntInput("X", {0}, {}).Expect("Out", {0}, {});
}

TEST(ShardIndex, Constraints) {
  Shard(2, 2).IntInput("X", {1}, {1}).ExpectError("shard_index.C1");
  for (int64_t bad : {-1, 20}) Shard(2, 0).IntInput("X", {1}, {bad}).ExpectError("outside [0, 20)");
}
}  // namespace coracle::shard_index_test
