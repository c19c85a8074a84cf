#include <coracle/test/op_test.h>
#include <coracle/test/threads.h>

namespace coracle::one_hot_test {

TEST(OneHot, Values) {
  OpTest("one_hot_v2")
      .Attr("depth", 3)
      .IntInput("X", {2}, {2, 0})
      .Expect("Out", {2, 3}, {0, 0, 1, 1, 0, 0})
      .ExpectDType("Out", DType::kFloat32);
  OpTest("one_hot")
      .Attr("depth", 3)
      .Attr("dtype", static_cast<int32_t>(DType::kInt64))
      .IntInput("X", {2, 1}, {2, 0}, DType::kInt32)
      .Expect("Out", {2, 3}, {0, 0, 1, 1, 0, 0})
      .ExpectDType("Out", DType::kInt64);
  OpTest("one_hot_v2")
      .IntInput("X", {}, {1})
      .IntInput("depth_tensor", {1}, {2}, DType::kInt32)
      .Expect("Out", {2}, {0, 1});
  OpTest("one_hot_v2").Attr("depth", 2).IntInput("X", {0}, {}).Expect("Out", {0, 2}, {});
}

TEST(OneHot, OutOfRange) {
  OpTest("one_hot_v2")
      .Attr("depth", 2)
      .Attr("allow_out_of_range", true)
      .IntInput("X", {3}, {-1, 2, 1})
      .Expect("Out", {3, 2}, {0, 0, 0, 0, 0, 1});
  OpTest("one_hot_v2").Attr("depth", 2).IntInput("X", {1}, {2}).ExpectError("outside [0, 2)");
  OpTest("one_hot_v2").Attr("depth", 2).IntInput("X", {1}, {-1}).ExpectError("outside [0, 2)");
}

// Enough elements for several threads; ids out of range at the end.
TEST(OneHot, ManyIds) {
  constexpr int64_t kIds = 400, kDepth = 500;
  std::vector<int64_t> ids;
  std::vector<double> out(kIds * kDepth, 0);
  for (int64_t i = 0; i < kIds; ++i) {
    ids.push_back(i * 7919 % kDepth);
    out[static_cast<size_t>(i * kDepth + ids.back())] = 1;
  }
  const Threads threads(3);
  const auto with = [&](bool allow) {
    return std::move(OpTest("one_hot_v2")
                         .Attr("depth", static_cast<int32_t>(kDepth))
                         .Attr("allow_out_of_range", allow)
                         .IntInput("X", {kIds}, ids));
  };
  with(false).Expect("Out", {kIds, kDepth}, out);
  for (const int64_t bad : {int64_t{-1}, kDepth}) {
    out[static_cast<size_t>((kIds - 2) * kDepth + (kIds - 2) * 7919 % kDepth)] = 0;
    ids[kIds - 2] = bad;
    with(true).Expect("Out", {kIds, kDepth}, out);
    with(false).ExpectError("X holds " + std::to_string(bad) + " at 398, outside [0, 500)");
  }
}

TEST(OneHot, Constraints) {
  for (const std::string type : {"one_hot", "one_hot_v2"}) {
    OpTest(type).Attr("depth", 2).Input("X", {1, 1}, {1}).ExpectError(type + ".C1");
    OpTest(type).IntInput("X", {1, 1}, {1}).ExpectError(type + ".C2");
    OpTest(type)
        .Attr("depth", 2)
        .Attr("dtype", 9)
        .IntInput("X", {1, 1}, {1})
        .ExpectError(type + ".C3");
  }
  OpTest("one_hot_v2")
      .Attr("depth", 2)
      .IntInput("X", {1, 1, 1, 1, 1, 1, 1, 1, 1}, {1})
      .ExpectError("one_hot_v2.C4");
  OpTest("one_hot").Attr("depth", 2).IntInput("X", {2}, {1, 1}).ExpectError("one_hot.C5");
}

TEST(OneHot, C4_RankOfOut) {
  OpTest("one_hot")  // one_hot.C4 holds always: the last dimension is replaced
      .Attr("depth", 1)
      .IntInput("X", {1, 1, 1, 1, 1, 1, 1, 1, 1}, {0})
      .Expect("Out", {1, 1, 1, 1, 1, 1, 1, 1, 1}, {1});
}

}  // namespace coracle::one_hot_test
