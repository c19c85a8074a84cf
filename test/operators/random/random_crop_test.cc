#include <coracle/test/op_test.h>

#include <set>

namespace coracle::random_crop_test {

using Ints = std::vector<int32_t>;

OpTest Crop(const Ints& shape) {
  OpTest test("random_crop");
  test.Attr("shape", shape);
  return test;
}

std::vector<double> Counting(int64_t n) {
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<double>(i));
  return values;
}

// Images of 5 by 6 whose elements are their places: every window begins somewhere inside, and all
// beginnings occur.
TEST(RandomCrop, WindowsOfEachInstance) {
  std::vector<double> values;
  for (int i = 0; i < 400; ++i) {
    for (int k = 0; k < 30; ++k) values.push_back(k);
  }
  const Tensor out = Crop({2, 3}).Input("X", {200, 2, 5, 6}, values).Output("Out");
  ASSERT_EQ(out.shape(), Shape({200, 2, 2, 3}));
  std::set<int> starts;
  for (int i = 0; i < 400; ++i) {
    const float* window = out.data<float>() + i * 6;
    const int first = static_cast<int>(window[0]);
    EXPECT_LE(first / 6, 3);
    EXPECT_LE(first % 6, 3);
    for (int k = 0; k < 6; ++k) EXPECT_EQ(window[k], static_cast<float>(first + k / 3 * 6 + k % 3));
    starts.insert(first);
  }
  EXPECT_EQ(starts.size(), 16u);
}

TEST(RandomCrop, EdgesAndSeeds) {
  Crop({2, 3}).Input("X", {2, 3}, Counting(6)).Expect("Out", {2, 3}, Counting(6));
  Crop({1}).Input("X", {0, 3}, {}).Expect("Out", {0, 1}, {});
  Crop({1})
      .IntInput("X", {2, 1}, {4, 5})
      .Expect("Out", {2, 1}, {4, 5})
      .ExpectDType("SeedOut", DType::kInt64);
  const auto draw = [](int64_t seed, uint64_t program) {
    const Tensor out = Crop({1})
                           .Input("X", {1, 1000}, Counting(1000))
                           .IntInput("Seed", {1}, {seed})
                           .Seed(program)
                           .Output("Out");
    return out.data<float>()[0];
  };
  EXPECT_EQ(draw(5, 1), draw(5, 2));
  EXPECT_NE(draw(5, 1), draw(6, 1));
  EXPECT_NE(draw(0, 1), draw(0, 2));
}

TEST(RandomCrop, Constraints) {
  Crop({}).RandomInput("X", {2, 2}).ExpectError("random_crop.C1");
  Crop({1, 1, 1}).RandomInput("X", {2, 2}).ExpectError("random_crop.C1");
  for (const int32_t size : {0, 3})
    Crop({size}).RandomInput("X", {2, 2}).ExpectError("random_crop.C2");
  Crop({1}).RandomInput("X", {2}).IntInput("Seed", {2}, {1, 2}).ExpectError("random_crop.C3");
}

}  // namespace coracle::random_crop_test
