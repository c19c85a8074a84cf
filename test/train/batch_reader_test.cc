#include <coracle/test/train/train_test_util.h>
#include <coracle/train/data/data_source.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace coracle::batch_reader_test {

DataSourcePtr Counting(int64_t n) {
  std::vector<int64_t> values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), int64_t{0});
  return MakeMemorySource({{"x", Tensor::Of<int64_t>({n, 1}, values), {1}}}, "counting");
}

std::vector<int64_t> ValuesOf(const std::vector<Tensor>& batch) {
  auto span = batch[0].span<int64_t>();
  return {span.begin(), span.end()};
}

TEST(ShuffleRows, IsAPermutationThatSeedAndEpochDecide) {
  std::vector<int64_t> a(1000), b(1000);
  ShuffleRows(1, 0, a);
  std::vector<int64_t> sorted = a;
  std::sort(sorted.begin(), sorted.end());
  for (int64_t i = 0; i < 1000; ++i) EXPECT_EQ(sorted[static_cast<size_t>(i)], i);
  ShuffleRows(1, 0, b);
  EXPECT_EQ(a, b);
  ShuffleRows(1, 1, b);
  EXPECT_NE(a, b);
  ShuffleRows(2, 0, b);
  EXPECT_NE(a, b);
  std::vector<int64_t> none;
  ShuffleRows(1, 0, none);
}

// Every value must reach every place about equally often: chi-squared over 6 x 6 cells, 25 degrees
// of freedom; 60 is past the 0.01% point.
TEST(ShuffleRows, IsFair) {
  constexpr int kRounds = 6000, kN = 6;
  double count[kN][kN] = {};
  std::vector<int64_t> rows(kN);
  for (uint64_t epoch = 0; epoch < kRounds; ++epoch) {
    ShuffleRows(11, epoch, rows);
    for (size_t i = 0; i < kN; ++i) ++count[i][rows[i]];
  }
  constexpr double kExpected = static_cast<double>(kRounds) / kN;
  double chi = 0;
  for (auto& row : count)
    for (double c : row) chi += (c - kExpected) * (c - kExpected) / kExpected;
  EXPECT_LT(chi, 60);
}

TEST(BatchReader, GoesThroughEachEpochOnce) {
  for (bool drop_last : {false, true}) {
    BatchReader reader(Counting(10),
                       {.batch_size = 4, .shuffle = true, .drop_last = drop_last, .seed = 5});
    EXPECT_EQ(reader.batches_per_epoch(), drop_last ? 2 : 3);
    for (int epoch = 0; epoch < 3; ++epoch) {
      std::set<int64_t> seen;
      for (int64_t b = 0; b < reader.batches_per_epoch(); ++b) {
        std::vector<int64_t> values = ValuesOf(reader.Next());
        EXPECT_EQ(values.size(), b == 2 ? 2u : 4u);
        seen.insert(values.begin(), values.end());
      }
      EXPECT_EQ(seen.size(), drop_last ? 8u : 10u);
    }
  }
}

TEST(BatchReader, WithoutShuffleTheOrderIsTheData) {
  BatchReader reader(Counting(5), {.batch_size = 2});
  EXPECT_EQ(ValuesOf(reader.Next()), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(ValuesOf(reader.Next()), (std::vector<int64_t>{2, 3}));
  const std::vector<Tensor>& last = reader.Next();
  EXPECT_EQ(last[0].shape(), Shape({1, 1}));
  EXPECT_EQ(ValuesOf(last), (std::vector<int64_t>{4}));
  EXPECT_EQ(ValuesOf(reader.Next()), (std::vector<int64_t>{0, 1}));
}

TEST(BatchReader, PrefetchChangesNothing) {
  BatchOptions options{.batch_size = 7, .shuffle = true, .seed = 3};
  BatchReader with(Counting(100), options);
  options.prefetch = false;
  BatchReader without(Counting(100), options);
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(with.position(), without.position());
    ASSERT_EQ(ValuesOf(with.Next()), ValuesOf(without.Next())) << "batch " << i;
    if (i % 37 == 11) {
      with.Seek(i / 2);
      without.Seek(i / 2);
    }
  }
}

TEST(BatchReader, SeekContinuesAsIfReadThrough) {
  BatchOptions options{.batch_size = 3, .shuffle = true, .seed = 8};
  BatchReader through(Counting(20), options), jump(Counting(20), options);
  for (int i = 0; i < 17; ++i) through.Next();
  jump.Seek(17);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(ValuesOf(through.Next()), ValuesOf(jump.Next()));
  ErrorOf([&] { jump.Seek(-1); });
}

TEST(BatchReader, TheBatchInUseIsLeftAlone) {
  BatchReader reader(Counting(1000), {.batch_size = 10});
  const std::vector<Tensor>& batch = reader.Next();
  std::vector<int64_t> before = ValuesOf(batch);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(ValuesOf(batch), before);
}

class Failing : public DataSource {
 public:
  const std::vector<DataColumn>& columns() const override { return columns_; }
  int64_t size() const override { return 10; }
  std::string Describe() const override { return "failing"; }
  void Get(std::span<const int64_t> rows, std::span<Tensor> out) const override {
    for (int64_t row : rows)
      if (row == 5) ThrowInvalid("row 5 is bad");
    out[0].data<int64_t>()[0] = rows[0];
  }

 private:
  std::vector<DataColumn> columns_{{"x", DType::kInt64, {1}}};
};

TEST(BatchReader, ForwardsErrorsForTheirBatch) {
  for (bool prefetch : {false, true}) {
    BatchReader reader(std::make_shared<Failing>(), {.batch_size = 1, .prefetch = prefetch});
    for (int i = 0; i < 5; ++i) EXPECT_EQ(ValuesOf(reader.Next())[0], i);
    EXPECT_EQ(ErrorOf([&] { reader.Next(); }), "row 5 is bad");
    EXPECT_EQ(ErrorOf([&] { reader.Next(); }), "row 5 is bad");
    reader.Seek(6);
    EXPECT_EQ(ValuesOf(reader.Next())[0], 6);
  }
}

TEST(BatchReader, RefusesWhatGivesNoBatch) {
  ErrorOf([] { BatchReader(Counting(3), {.batch_size = 4, .drop_last = true}); });
  ErrorOf([] { BatchReader(Counting(3), {.batch_size = 0}); });
  ErrorOf([] { BatchReader(Counting(0), {.batch_size = 1}); });
}

TEST(BatchReader, RefusesWhatCannotBeRead) {
  ExpectContains(ErrorOf([] { BatchReader(nullptr, {}); }), "the pointer is null");
  for (const int rank : {-1, 2, 5}) {
    ExpectContains(ErrorOf([&] { BatchReader(Counting(4), {.rank = rank, .ranks = 2}); }),
                   "have no part of rank");
  }
  ExpectContains(ErrorOf([] { BatchReader(Counting(4), {.rank = 0, .ranks = 0}); }),
                 "have no part of rank 0 of 0");
  BatchReader reader(Counting(4), {.batch_size = 2});
  reader.Next();
  EXPECT_EQ(reader.PlaceOf(1), "row 1 of counting");
  ExpectContains(ErrorOf([&] { reader.PlaceOf(2); }), "row 2 requested from a batch, which has 2");
  ExpectContains(ErrorOf([&] { reader.PlaceOf(-1); }), "row -1 requested from a batch");
}

}  // namespace coracle::batch_reader_test
