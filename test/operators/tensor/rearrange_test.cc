#include <coracle/test/op_test.h>

#include <numeric>

namespace coracle::rearrange_test {

std::vector<double> Count(int n) {
  std::vector<double> values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

TEST(PixelShuffle, Values) {
  OpTest("pixel_shuffle")
      .Attr("upscale_factor", 2)
      .Input("X", {1, 4, 1, 2}, Count(8))
      .Expect("Out", {1, 1, 2, 4}, {0, 2, 1, 3, 4, 6, 5, 7})
      .CheckGradient({"X"})
      .CheckHigherGradients();
  // The same image with its channels last.
  OpTest("pixel_shuffle")
      .Attr("upscale_factor", 2)
      .Attr("data_format", std::string("NHWC"))
      .Input("X", {1, 1, 2, 4}, {0, 2, 4, 6, 1, 3, 5, 7})
      .Expect("Out", {1, 2, 4, 1}, {0, 2, 1, 3, 4, 6, 5, 7})
      .CheckGradient({"X"});
  OpTest("pixel_shuffle")
      .Attr("upscale_factor", 2)
      .Input("X", {1, 8, 1, 1}, Count(8))
      .Expect("Out", {1, 2, 2, 2}, Count(8));
  OpTest("pixel_shuffle").Input("X", {0, 1, 2, 2}, {}).Expect("Out", {0, 1, 2, 2}, {});
}

TEST(ShuffleChannel, Values) {
  OpTest("shuffle_channel")
      .Attr("group", 2)
      .Input("X", {1, 6, 1, 1}, Count(6))
      .Expect("Out", {1, 6, 1, 1}, {0, 3, 1, 4, 2, 5})
      .CheckGradient({"X"})
      .CheckHigherGradients();
  OpTest("shuffle_channel")
      .Attr("group", 2)
      .Input("X", {1, 4, 1, 2}, Count(8))
      .Expect("Out", {1, 4, 1, 2}, {0, 1, 4, 5, 2, 3, 6, 7});
}

// By the formula of the place of each element, on shapes with several of everything.
TEST(SpaceToDepth, PlacesOfElements) {
  const int n = 2, c = 8, h = 4, w = 6, b = 2, part = c / (b * b);
  std::vector<double> expected(static_cast<size_t>(n * c * h * w));
  int at = 0;
  for (int i = 0; i < n; ++i) {
    for (int k = 0; k < c; ++k) {
      for (int y = 0; y < h; ++y) {
        for (int x = 0; x < w; ++x) {
          const int o = k / part;
          const int place = x * b + o % b + w * b * (y * b + o / b + h * b * (k % part + part * i));
          expected[static_cast<size_t>(place)] = at++;
        }
      }
    }
  }
  OpTest("space_to_depth")
      .Input("X", {n, c, h, w}, Count(at))
      .Expect("Out", {n, 32, 2, 3}, expected);
}

TEST(SpaceToDepth, Gradients) {
  OpTest("space_to_depth")
      .Attr("blocksize", int64_t{2})
      .Input("X", {1, 4, 2, 2}, Count(16))
      .Expect("Out", {1, 16, 1, 1}, {0, 4, 1, 5, 8, 12, 9, 13, 2, 6, 3, 7, 10, 14, 11, 15})
      .CheckGradient({"X"})
      .CheckHigherGradients();
}

TEST(Rearrange, EveryDType) {
  for (DType dtype : {DType::kInt64, DType::kInt32, DType::kFloat16, DType::kUInt8}) {
    OpTest("shuffle_channel")
        .Attr("group", 2)
        .IntInput("X", {1, 4, 1, 1}, {1, 2, 3, 4}, dtype)
        .Expect("Out", {1, 4, 1, 1}, {1, 3, 2, 4});
  }
}

TEST(Rearrange, Constraints) {
  for (const std::string type : {"pixel_shuffle", "shuffle_channel", "space_to_depth"}) {
    OpTest(type).Input("X", {1}, {1}).ExpectError(type + ".C1");
    OpTest(type + "_grad")
        .Input("X", {1, 4, 2, 2}, Count(16))
        .Input("Out@GRAD", {1}, {1})
        .ExpectError(type + "_grad.C3");
  }
  OpTest("pixel_shuffle")
      .Attr("upscale_factor", 2)
      .Input("X", {1, 2, 1, 1}, {1, 2})
      .ExpectError("pixel_shuffle.C2");
  OpTest("shuffle_channel")
      .Attr("group", 2)
      .Input("X", {1, 1, 1, 1}, {1})
      .ExpectError("shuffle_channel.C2");
  OpTest("space_to_depth").Input("X", {1, 4, 1, 2}, Count(8)).ExpectError("space_to_depth.C2");
}
}  // namespace coracle::rearrange_test
