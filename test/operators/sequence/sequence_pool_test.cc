#include "../../op_test.h"

namespace coracle {
namespace {

// Sequences of 2, 0, 1 and 3 rows.
OpTest Pool(const std::string& type) {
  return std::move(OpTest("sequence_pool")
                       .Attr("pooltype", type)
                       .Attr("pad_value", -9.f)
                       .Input("X", {6, 2}, {1, 2, 3, -4, 5, 6, 7, 1, 8, 9, 6, 0})
                       .Lod({{0, 2, 2, 3, 6}}));
}

TEST(SequencePool, Values) {
  const double root2 = std::sqrt(2), root3 = std::sqrt(3);
  const std::vector<std::pair<std::string, std::vector<double>>> cases = {
      {"SUM", {4, -2, -9, -9, 5, 6, 21, 10}},
      {"AVERAGE", {2, -1, -9, -9, 5, 6, 7, 10. / 3}},
      {"SQRT", {4 / root2, -2 / root2, -9, -9, 5, 6, 21 / root3, 10 / root3}},
      {"FIRST", {1, 2, -9, -9, 5, 6, 7, 1}},
      {"LAST", {3, -4, -9, -9, 5, 6, 6, 0}},
      {"MAX", {3, 2, -9, -9, 5, 6, 8, 9}}};
  for (const auto& [type, values] : cases) {
    SCOPED_TRACE(type);
    Pool(type).Expect("Out", {4, 2}, values).ExpectLod("Out", {}).CheckGradient({"X"});
  }
  Pool("MAX").Expect("MaxIndex", {4, 2}, {1, 0, -1, -1, 2, 2, 4, 4});
  Pool("MAX").ExpectDType("MaxIndex", DType::kInt32);
  Pool("SUM").Expect("MaxIndex", {4, 2}, std::vector<double>(8, -1));
}

// Many columns, with equal elements: the first largest of each.
TEST(SequencePool, WideRows) {
  constexpr int64_t kRows = 9, kWidth = 150;
  std::vector<double> x, largest, index;
  for (int64_t i = 0; i < kRows * kWidth; ++i) x.push_back(static_cast<double>(i * 7919 % 101 % 5));
  const std::vector<int64_t> offsets{0, 4, 9};
  for (size_t s = 0; s < 2; ++s) {
    for (int64_t j = 0; j < kWidth; ++j) {
      int64_t best = offsets[s];
      for (int64_t r = best; r < offsets[s + 1]; ++r) {
        if (x[static_cast<size_t>(r * kWidth + j)] > x[static_cast<size_t>(best * kWidth + j)])
          best = r;
      }
      largest.push_back(x[static_cast<size_t>(best * kWidth + j)]);
      index.push_back(static_cast<double>(best));
    }
  }
  OpTest("sequence_pool")
      .Attr("pooltype", std::string("MAX"))
      .Input("X", {kRows, kWidth}, x)
      .Lod({{0, 4, 9}})
      .Expect("Out", {2, kWidth}, largest)
      .Expect("MaxIndex", {2, kWidth}, index);
}

TEST(SequencePool, TheFirstOfEqualElements) {
  OpTest("sequence_pool")
      .Attr("pooltype", std::string("MAX"))
      .Input("X", {3}, {1, 2, 2})
      .Lod({{0, 3}})
      .Expect("MaxIndex", {1}, {1});
  OpTest("sequence_pool_grad")
      .Attr("pooltype", std::string("MAX"))
      .Input("X", {3}, {1, 2, 2})
      .Lod({{0, 3}})
      .Input("Out@GRAD", {1}, {5})
      .Expect("X@GRAD", {3}, {0, 5, 0});
}

TEST(SequencePool, TwoLevels) {
  OpTest("sequence_pool")
      .Attr("pooltype", std::string("SUM"))
      .Input("X", {4}, {1, 2, 3, 4})
      .Lod({{0, 2, 3}, {0, 1, 3, 4}})
      .Expect("Out", {3}, {1, 5, 4})
      .ExpectLod("Out", {{0, 2, 3}})
      .CheckGradient({"X"});
}

TEST(SequencePool, WithoutRows) {
  OpTest("sequence_pool").Input("X", {0, 2}, {}).Lod({{0, 0}}).Expect("Out", {1, 2}, {0, 0});
  OpTest("sequence_pool").Input("X", {0, 2}, {}).Lod({{0}}).Expect("Out", {0, 2}, {});
  OpTest("sequence_pool").Input("X", {2, 0}, {}).Lod({{0, 2}}).Expect("Out", {1, 0}, {});
}

TEST(SequencePool, Half) {
  const Tensor x = Tensor::Of<float>({3}, {1, 2, 4}).Cast(DType::kFloat16);
  OpTest("sequence_pool")
      .Attr("pooltype", std::string("SUM"))
      .TensorInput("X", x)
      .Lod({{0, 1, 2}, {0, 2, 3}})
      .Expect("Out", {2}, {3, 4})
      .ExpectLod("Out", {{0, 1, 2}})
      .ExpectDType("Out", DType::kFloat16);
}

TEST(SequencePool, Constraints) {
  OpTest("sequence_pool").Input("X", {}, {1}).ExpectError("sequence_pool.C1");
  OpTest("sequence_pool").Input("X", {1}, {1}).ExpectError("sequence_pool.C2");
  OpTest("sequence_pool")
      .Input("X", {1}, {1})
      .Lod({{0, 1}, {0, 1}, {0, 1}})
      .ExpectError("sequence_pool.C2");
  OpTest("sequence_pool_grad")
      .Input("X", {2}, {1, 2})
      .Lod({{0, 2}})
      .Input("Out@GRAD", {2}, {1, 1})
      .ExpectError("sequence_pool_grad.C3");
}

TEST(SequencePool, WrongOffsets) {
  const auto refused = [](LoD lod, const std::string& why) {
    OpTest("sequence_pool")
        .Input("X", {3}, {1, 2, 3})
        .Lod(std::move(lod))
        .ExpectError("the LoD of 'X.0' float32[3] is wrong: level " + why);
  };
  refused({{0, 2, 1, 3}}, "0 decreases from 2 to 1 at 2");
  refused({{1, 3}}, "0 does not begin with 0");
  refused({{}}, "0 does not begin with 0");
  refused({{0, 4}}, "0 ends with 4 where there are 3 rows");
  refused({{0, 2}, {0, 3}}, "0 ends with 2 where there are 1 sequences");
}

}  // namespace
}  // namespace coracle
