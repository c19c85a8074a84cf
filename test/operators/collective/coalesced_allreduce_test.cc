// c_coalesced_allreduce_sum where one rank runs the program; among ranks: test/distribute.
#include <coracle/test/completeness.h>
#include <coracle/test/op_test.h>
#include <gtest/gtest.h>

namespace coracle::coalesced_allreduce_test {

constexpr const char* kType = "c_coalesced_allreduce_sum";

TEST(CoalescedAllreduce, ValuesAreThoseOfX) {
  OpTest(kType)
      .Input("X", {2}, {1, 2})
      .Input("X", {1, 1}, {3})
      .Outputs("Out", 2)
      .Expect("Out", {2}, {1, 2})
      .Expect("Out", {1, 1}, {3}, 1e-5, 1);
  OpTest(kType).InPlace("X", "Out").IntInput("X", {2}, {4, 5}).Expect("Out", {2}, {4, 5});
  OpTest(kType).Input("X", {0, 3}, {}).Expect("Out", {0, 3}, {});
}

TEST(CoalescedAllreduce, C1_AsManyOutputs) {
  OpTest(kType).Input("X", {1}, {1}).Outputs("Out", 2).ExpectError(std::string(kType) + ".C1");
}

TEST(CoalescedAllreduce, C2_OneDType) {
  OpTest(kType)
      .Input("X", {1}, {1})
      .IntInput("X", {1}, {1})
      .Outputs("Out", 2)
      .ExpectError(std::string(kType) + ".C2");
}
}  // namespace coracle::coalesced_allreduce_test
