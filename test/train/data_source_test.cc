#include <coracle/test/train/train_test_util.h>
#include <coracle/train/data/data_source.h>
#include <coracle/train/run/ranks/same_data.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace coracle::data_source_test {

DataSourcePtr Numbers() {
  return MakeMemorySource({{"x", Tensor::Of<float>({3, 2}, {0, 1, 2, 3, 4, 5}), {2}},
                           {"y", Tensor::Of<int64_t>({3}, {7, 8, 9}), {1}}},
                          "numbers");
}

TEST(DataSource, GetCopiesTheRowsAskedForInOrder) {
  DataSourcePtr source = Numbers();
  ASSERT_EQ(source->size(), 3);
  std::vector<Tensor> out{Tensor(DType::kFloat32, {2, 2}), Tensor(DType::kInt64, {2, 1})};
  std::vector<int64_t> rows{2, 0};
  source->Get(rows, out);
  EXPECT_TRUE(BitEqual(out[0], Tensor::Of<float>({2, 2}, {4, 5, 0, 1})));
  EXPECT_TRUE(BitEqual(out[1], Tensor::Of<int64_t>({2, 1}, {9, 7})));
  EXPECT_EQ(source->FindColumn("y"), 1);
  EXPECT_EQ(source->FindColumn("z"), -1);
}

TEST(DataSource, BytesAreScaled) {
  DataSourcePtr source = MakeMemorySource(
      {{"x", Tensor::Of<uint8_t>({2, 2}, {0, 255, 10, 20}), {2}, true, 10.0f, 0.5f}}, "bytes");
  std::vector<Tensor> out{Tensor(DType::kFloat32, {2, 2})};
  std::vector<int64_t> rows{0, 1};
  source->Get(rows, out);
  EXPECT_TRUE(BitEqual(out[0], Tensor::Of<float>({2, 2}, {-5, 122.5, 0, 5})));
}

TEST(DataSource, RefusesWhatDoesNotFit) {
  DataSourcePtr source = Numbers();
  std::vector<Tensor> out{Tensor(DType::kFloat32, {1, 2}), Tensor(DType::kInt64, {1, 1})};
  for (int64_t row : {int64_t{3}, int64_t{-1}}) {
    std::vector<int64_t> rows{row};
    ExpectContains(ErrorOf([&] { source->Get(rows, out); }), "numbers");
  }
  ExpectContains(ErrorOf([] {
                   MakeMemorySource({{"x", Tensor::Of<float>({2}, {0, 1}), {1}},
                                     {"y", Tensor::Of<float>({1}, {0}), {1}}},
                                    "uneven");
                 }),
                 "column 'y' has 1 rows, column 'x' has 2");
  ExpectContains(ErrorOf([] {
                   MakeMemorySource({{"x", Tensor::Of<float>({2}, {0, 1}), {3}}}, "odd");
                 }),
                 "shape [3] needs 3");
  ErrorOf([] { MakeMemorySource({{"x", Tensor::Of<float>({}, {1}), {1}}}, "scalar"); });
  ErrorOf([] { MakeMemorySource({}, "nothing"); });
}

TEST(DataSource, SubsetShiftsRows) {
  DataSourcePtr source = MakeSubset(Numbers(), 1, 0);
  EXPECT_EQ(source->size(), 2);
  EXPECT_EQ(MakeSubset(Numbers(), 0, 2)->size(), 2);
  std::vector<Tensor> out{Tensor(DType::kFloat32, {1, 2}), Tensor(DType::kInt64, {1, 1})};
  std::vector<int64_t> rows{0};
  source->Get(rows, out);
  EXPECT_EQ(out[1].Item<int64_t>(), 8);
  rows[0] = 2;
  ErrorOf([&] { source->Get(rows, out); });
  ErrorOf([] { MakeSubset(Numbers(), 3, 0); });
  ErrorOf([] { MakeSubset(Numbers(), 1, 3); });
  ErrorOf([] { MakeSubset(Numbers(), -1, 0); });
}

// Every row is in one of the two parts, whatever the seed; the seed decides which.
TEST(DataSource, RandomPartsShareTheRows) {
  std::vector<int64_t> numbers(100);
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  const DataSourcePtr all =
      MakeMemorySource({{"n", Tensor::Of<int64_t>({100, 1}, numbers), {1}}}, "numbers");
  const auto rows_of = [](const DataSourcePtr& source) {
    std::vector<int64_t> rows(static_cast<size_t>(source->size()));
    std::iota(rows.begin(), rows.end(), int64_t{0});
    std::vector<Tensor> out{Tensor(DType::kInt64, {source->size(), 1})};
    source->Get(rows, out);
    const auto values = out[0].span<int64_t>();
    return std::vector<int64_t>(values.begin(), values.end());
  };
  std::vector<std::vector<int64_t>> drawn;
  for (const uint64_t seed : {1u, 2u, 1u}) {
    const DataSourcePtr test = MakeRandomPart(all, 0.25, seed, true);
    const DataSourcePtr train = MakeRandomPart(all, 0.25, seed, false);
    EXPECT_EQ(test->size(), 25);
    std::vector<int64_t> both = rows_of(test), rest = rows_of(train);
    drawn.push_back(both);
    both.insert(both.end(), rest.begin(), rest.end());
    std::sort(both.begin(), both.end());
    EXPECT_EQ(both, numbers);
  }
  EXPECT_NE(drawn[0], drawn[1]);
  EXPECT_EQ(drawn[0], drawn[2]);
  const DataSourcePtr test = MakeRandomPart(all, 0.25, 1, true);
  EXPECT_EQ(test->Describe(), "numbers a random 25% (seed 1)");
  EXPECT_EQ(test->Place(3), "row " + std::to_string(drawn[0][3]) + " of numbers");
  ErrorOf([&] { MakeRandomPart(all, 0.001, 1, true); });
}

DataSourcePtr Sequences(std::vector<uint64_t> offsets) {
  return MakeMemorySource({{.name = "s",
                            .rows = Tensor::Of<float>({3, 2}, {0, 1, 2, 3, 4, 5}),
                            .shape = {2},
                            .offsets = std::move(offsets)}},
                          "sequences");
}

TEST(DataSource, OffsetsMustLieInTheRows) {
  EXPECT_EQ(Sequences({0, 1, 1, 3})->size(), 3);
  ExpectContains(ErrorOf([] { Sequences({0, 9, 2}); }), "have 2 at place 2");
  ExpectContains(ErrorOf([] { Sequences({0, 900000000, 900000001}); }), "900000001 at place 2");
  ExpectContains(ErrorOf([] { Sequences({5, 3, 1}); }), "have 3 at place 1");
  ExpectContains(ErrorOf([] { Sequences({0, 2, uint64_t{1} << 62}); }), "at place 2");
  ExpectContains(ErrorOf([] { LengthsOf(MemoryColumn{.name = "s"}); }), "has no sequences");
}

TEST(DataSource, RefusesWhatGetCannotFill) {
  const std::vector<int64_t> rows{0, 1};
  const DataSourcePtr images =
      MakeMemorySource({{"x", Tensor(DType::kFloat32, {4, 12}), {3, 2, 2}}}, "images");
  const DataSourcePtr sources[] = {Numbers(), MakeSubset(Numbers(), 1, 0),
                                   MakeRandomPart(Numbers(), 0.5, 1, true),
                                   MakeTransformed(images, {.crop_size = 1})};
  for (const DataSourcePtr& source : sources) {
    std::vector<Tensor> none, small(source->columns().size());
    std::vector<Tensor> wrong;
    for (const DataColumn& column : source->columns()) {
      wrong.emplace_back(column.dtype == DType::kInt64 ? DType::kFloat32 : DType::kInt64,
                         Shape{100});
    }
    ExpectContains(ErrorOf([&] { source->Get(rows, none); }), "needs a tensor for each of its");
    ExpectContains(ErrorOf([&] { source->Get(rows, small); }), "elements of");
    ExpectContains(ErrorOf([&] { source->Get(rows, wrong); }), "elements of");
  }
}

TEST(DataSource, NullSources) {
  ExpectContains(ErrorOf([] { MakeSubset(nullptr, 0, 0); }), "the pointer is null");
  ExpectContains(ErrorOf([] { MakeRandomPart(nullptr, 0.5, 1, true); }), "the pointer is null");
  ExpectContains(ErrorOf([] { MakeTransformed(nullptr, {}); }), "the pointer is null");
  for (const double share : {-0.1, 1.5, std::nan("")})
    ExpectContains(ErrorOf([&] { MakeRandomPart(Numbers(), share, 1, true); }),
                   "must lie in [0, 1]");
}

// Makes its rows when they are read, and keeps which were.
class MadeRows : public DataSource {
 public:
  MadeRows(int64_t size, int64_t length, bool sequences)
      : columns_{{"x", DType::kFloat32, sequences ? Shape{1} : Shape{length}, sequences}},
        size_(size),
        length_(length) {}
  const std::vector<DataColumn>& columns() const override { return columns_; }
  int64_t size() const override { return size_; }
  void Get(std::span<const int64_t> rows, std::span<Tensor> out) const override {
    const auto n = static_cast<int64_t>(rows.size());
    if (columns_[0].sequences) out[0] = Tensor(DType::kFloat32, {n * length_, 1});
    for (int64_t i = 0; i < n; ++i) {
      const int64_t row = rows[static_cast<size_t>(i)];
      read.push_back(row);
      std::fill_n(out[0].data<float>() + i * length_, length_, row == changed ? -1.0f : 1.0f);
    }
  }
  std::string Describe() const override { return "made"; }

  mutable std::vector<int64_t> read;
  int64_t changed = -1;

 private:
  std::vector<DataColumn> columns_;
  int64_t size_, length_;
};

// The fingerprint of large data reads some rows, once, from the first to the last.
TEST(DataSource, FingerprintOfLargeData) {
  for (const bool sequences : {false, true}) {
    SCOPED_TRACE(sequences);
    const int64_t size = sequences ? 100001 : 10000001, length = sequences ? 1000 : 8;
    MadeRows rows(size, length, sequences);
    const uint64_t before = FingerprintOf(rows);
    EXPECT_EQ(rows.read.size(), 1024u);
    std::sort(rows.read.begin(), rows.read.end());
    EXPECT_EQ(rows.read.front(), 0);
    EXPECT_EQ(rows.read.back(), size - 1);
    for (size_t i = 1; i < rows.read.size(); ++i)
      EXPECT_LE(rows.read[i] - rows.read[i - 1], size / 1023 + 1);
    rows.changed = size - 1;
    EXPECT_NE(FingerprintOf(rows), before);
  }
  MadeRows small(3000, 8, false);
  const uint64_t before = FingerprintOf(small);
  EXPECT_EQ(small.read.size(), 3000u);
  small.changed = 1;
  EXPECT_NE(FingerprintOf(small), before);
  // Every row counts where sequences are short.
  MadeRows sequences(3000, 8, true);
  const uint64_t unchanged = FingerprintOf(sequences);
  sequences.changed = 1;
  EXPECT_NE(FingerprintOf(sequences), unchanged);
}

}  // namespace coracle::data_source_test
