#include <coracle/test/op_test.h>
#include <coracle/test/threads.h>

#include <limits>

namespace coracle::sequence_pool_test {

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

// A nan in any row is the largest of its column: neighbouring columns, and some past a block of 64.
TEST(SequencePool, NanInAColumn) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr size_t kWidth = 70;
  for (const size_t j : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, kWidth - 1}) {
    for (const size_t row : {size_t{0}, size_t{1}, size_t{2}}) {
      SCOPED_TRACE(testing::Message() << "row " << row << ", column " << j);
      // Rows of 1, of 3 and of 2, then a sequence of one row.
      std::vector<double> x(4 * kWidth, 1), out(2 * kWidth, 3), index(2 * kWidth, 1);
      std::fill_n(x.begin() + kWidth, kWidth, 3);
      std::fill_n(x.begin() + 2 * kWidth, kWidth, 2);
      std::fill_n(out.begin() + kWidth, kWidth, 1);
      std::fill_n(index.begin() + kWidth, kWidth, 3);
      x[row * kWidth + j] = kNan;
      out[j] = kNan;
      index[j] = static_cast<double>(row);
      std::vector<double> dout(2 * kWidth), dx(4 * kWidth, 0);
      for (size_t k = 0; k < dout.size(); ++k) {
        dout[k] = static_cast<double>(k + 1);
        dx[static_cast<size_t>(index[k]) * kWidth + k % kWidth] = dout[k];
      }
      const auto width = static_cast<int64_t>(kWidth);
      const auto with = [&](const std::string& type) {
        return std::move(OpTest(type)
                             .Attr("pooltype", std::string("MAX"))
                             .Input("X", {4, width}, x)
                             .Lod({{0, 3, 4}}));
      };
      with("sequence_pool").Expect("Out", {2, width}, out).Expect("MaxIndex", {2, width}, index);
      with("sequence_pool_grad")
          .Input("Out@GRAD", {2, width}, dout)
          .Expect("X@GRAD", {4, width}, dx);
    }
  }
}

// Enough elements for several threads; some sequences are empty.
TEST(SequencePool, ManySequencesWithThreads) {
  constexpr int64_t kCount = 200, kWidth = 67;
  std::mt19937 random(4);
  LoD lod{{0}};
  for (int64_t i = 0; i < kCount; ++i) lod[0].push_back(lod[0].back() + random() % 9);
  const auto rows = static_cast<int64_t>(lod[0].back());
  // Whole numbers, so that elements are equal and sums are exact.
  std::vector<double> x, dout;
  for (int64_t i = 0; i < rows * kWidth; ++i) x.push_back(static_cast<double>(random() % 7) - 3);
  for (int64_t i = 0; i < kCount * kWidth; ++i) dout.push_back(static_cast<double>(random() % 5));
  for (const std::string type : {"SUM", "AVERAGE", "SQRT", "FIRST", "LAST", "MAX"}) {
    std::vector<double> out(kCount * kWidth, -9), index(kCount * kWidth, -1), dx(x.size(), 0);
    for (int64_t i = 0; i < kCount; ++i) {
      const auto begin = static_cast<int64_t>(lod[0][static_cast<size_t>(i)]);
      const auto end = static_cast<int64_t>(lod[0][static_cast<size_t>(i) + 1]);
      const auto length = static_cast<double>(end - begin);
      for (int64_t j = 0; j < kWidth && begin < end; ++j) {
        const auto at = [&](int64_t r) { return static_cast<size_t>(r * kWidth + j); };
        int64_t best = begin;
        double sum = 0;
        for (int64_t r = begin; r < end; ++r) {
          sum += x[at(r)];
          if (x[at(r)] > x[at(best)]) best = r;
        }
        const bool adds = type == "SUM" || type == "AVERAGE" || type == "SQRT";
        const double factor = type == "AVERAGE" ? 1 / length
                              : type == "SQRT"  ? 1 / std::sqrt(length)
                                                : 1;
        const int64_t taken = type == "FIRST" ? begin : type == "LAST" ? end - 1 : best;
        out[at(i)] = adds ? sum * factor : x[at(taken)];
        if (type == "MAX") index[at(i)] = static_cast<double>(best);
        for (int64_t r = begin; r < end; ++r) {
          if (adds || r == taken) dx[at(r)] = dout[at(i)] * (adds ? factor : 1);
        }
      }
    }
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(testing::Message() << type << ", " << threads << " threads");
      const Threads set(threads);
      OpTest("sequence_pool")
          .Attr("pooltype", type)
          .Attr("pad_value", -9.f)
          .Input("X", {rows, kWidth}, x)
          .Lod(lod)
          .Expect("Out", {kCount, kWidth}, out)
          .Expect("MaxIndex", {kCount, kWidth}, index);
      OpTest("sequence_pool_grad")
          .Attr("pooltype", type)
          .Input("X", {rows, kWidth}, x)
          .Lod(lod)
          .Input("Out@GRAD", {kCount, kWidth}, dout)
          .Expect("X@GRAD", {rows, kWidth}, dx);
    }
  }
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
}  // namespace coracle::sequence_pool_test
