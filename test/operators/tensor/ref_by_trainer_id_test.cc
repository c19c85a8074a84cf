#include <coracle/test/op_test.h>

namespace coracle::ref_by_trainer_id_test {

OpTest Two(int64_t id) {
  OpTest test("ref_by_trainer_id");
  test.Input("X", {2}, {1, 2}).Input("X", {2}, {3, 4}).IntInput("TrainerId", {1}, {id});
  return test;
}

TEST(RefByTrainerId, Values) {
  Two(0).Expect("Out", {2}, {1, 2});
  Two(1).Expect("Out", {2}, {3, 4});
  OpTest("ref_by_trainer_id")
      .IntInput("X", {0}, {})
      .IntInput("TrainerId", {1}, {0}, DType::kInt32)
      .Expect("Out", {0}, {});
}

TEST(RefByTrainerId, Constraints) {
  Two(0).Input("X", {3}, {1, 2, 3}).ExpectError("ref_by_trainer_id.C1");
  OpTest("ref_by_trainer_id")
      .RandomInput("X", {2})
      .RandomInput("TrainerId", {1})
      .ExpectError("ref_by_trainer_id.C2");
  for (int64_t id : {int64_t{2}, int64_t{-1}, INT64_MIN})
    Two(id).ExpectError("ref_by_trainer_id: TrainerId holds " + std::to_string(id));
}
}  // namespace coracle::ref_by_trainer_id_test
