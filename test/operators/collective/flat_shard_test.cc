// One rank; test/distribute tests several ranks.

#include <coracle/test/op_test.h>

namespace coracle::flat_shard_test {

TEST(FlatShard, OfOneRankIsAll) {
  OpTest("c_flat_shard")
      .Input("X", {2, 3}, {1, 2, 3, 4, 5, 6})
      .Expect("Out", {6}, {1, 2, 3, 4, 5, 6});
  OpTest("c_flat_reducescatter")
      .Input("X", {2, 2}, {1, 2, 3, 4})
      .Input("X", {1}, {5})
      .Outputs("Out", 2)
      .Expect("Out", {2, 2}, {1, 2, 3, 4})
      .Expect("Out", {1}, {5}, 1e-5, 1);
  OpTest("c_flat_reducescatter")
      .InPlace("X", "Out")
      .Input("X", {2}, {4, 5})
      .Expect("Out", {2}, {4, 5});
  OpTest("c_flat_allgather")
      .Input("X", {6}, {1, 2, 3, 4, 5, 6})
      .Attr("shape", std::vector<int64_t>{2, 3})
      .Expect("Out", {2, 3}, {1, 2, 3, 4, 5, 6});
}

TEST(FlatShard, Refused) {
  OpTest("c_flat_shard")
      .Input("X", {2}, {1, 2})
      .Attr("nranks", 2)
      .ExpectError("nranks is 2, but one rank runs the program");
  OpTest("c_flat_reducescatter")
      .Input("X", {1}, {1})
      .IntInput("X", {1}, {1})
      .Outputs("Out", 2)
      .ExpectError("c_flat_reducescatter.C2");
  OpTest("c_flat_reducescatter")
      .Input("X", {1}, {1})
      .Outputs("Out", 2)
      .ExpectError("c_flat_reducescatter.C1");
  OpTest("c_flat_allgather").Input("X", {6}, {1, 2, 3, 4, 5, 6}).ExpectError("c_flat_allgather.C1");
  OpTest("c_flat_allgather")
      .Input("X", {6}, {1, 2, 3, 4, 5, 6})
      .Attr("shape", std::vector<int64_t>{2, -2})
      .ExpectError("c_flat_allgather.C1");
}

}  // namespace coracle::flat_shard_test
