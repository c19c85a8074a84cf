#include <coracle/test/op_test.h>

#include <cmath>

namespace coracle::add_position_encoding_test {

TEST(AddPositionEncoding, Values) {
  // With width 4 the divisors are 1 and 10000.
  const double s = std::sin(1), c = std::cos(1), t = std::sin(1e-4), d = std::cos(1e-4);
  OpTest("add_position_encoding")
      .Attr("alpha", 2.f)
      .Attr("beta", 3.f)
      .Input("X", {1, 2, 4}, {1, 2, 3, 4, 5, 6, 7, 8})
      .Expect("Out", {1, 2, 4}, {2, 4, 9, 11, 10 + 3 * s, 12 + 3 * t, 14 + 3 * c, 16 + 3 * d});
  // With width 2 the divisor is 10000; positions restart with each sequence.
  OpTest("add_position_encoding")
      .Input("X", {3, 2}, {0, 0, 0, 0, 0, 0})
      .Lod({{0, 2, 2, 3}})
      .Expect("Out", {3, 2}, {0, 1, t, d, 0, 1})
      .ExpectLod("Out", {{0, 2, 2, 3}});
  OpTest("add_position_encoding").Input("X", {0, 2, 4}, {}).Expect("Out", {0, 2, 4}, {});
}

// Every sample has the encoding of its positions, whatever the number of threads.
TEST(AddPositionEncoding, SamplesOfManyPositions) {
  constexpr int64_t kSamples = 3, kLength = 70, kHalf = 45;
  std::vector<double> x, expected;
  for (int64_t n = 0; n < kSamples; ++n) {
    for (int64_t j = 0; j < kLength; ++j) {
      for (int64_t k = 0; k < 2 * kHalf; ++k) {
        const double v = static_cast<double>(j) /
                         std::pow(10000.0, static_cast<double>(k % kHalf) / (kHalf - 1));
        x.push_back(0.25 * static_cast<double>((n + j + k) % 8));
        expected.push_back(x.back() + (k < kHalf ? std::sin(v) : std::cos(v)));
      }
    }
  }
  OpTest("add_position_encoding")
      .Input("X", {kSamples, kLength, 2 * kHalf}, x)
      .Expect("Out", {kSamples, kLength, 2 * kHalf}, expected);
}

TEST(AddPositionEncoding, Gradients) {
  OpTest("add_position_encoding")
      .Attr("alpha", 0.5f)
      .RandomInput("X", {2, 3, 6})
      .CheckGradient({"X"})
      .CheckHigherGradients();
}

TEST(AddPositionEncoding, Constraints) {
  OpTest("add_position_encoding").RandomInput("X", {2}).ExpectError("add_position_encoding.C1");
  OpTest("add_position_encoding")
      .RandomInput("X", {1, 1, 3})
      .ExpectError("add_position_encoding.C2");
  OpTest("add_position_encoding").RandomInput("X", {2, 2}).ExpectError("add_position_encoding.C3");
}

}  // namespace coracle::add_position_encoding_test
