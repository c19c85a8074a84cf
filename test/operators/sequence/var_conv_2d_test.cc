#include <coracle/test/op_test.h>
#include <coracle/test/threads.h>

namespace coracle::var_conv_2d_test {

struct Sizes {
  int32_t in = 1, out = 1, kh = 1, kw = 1, sh = 1, sw = 1;
};

Tensor Rows(const LoD& lod) {
  return Tensor::Zeros(DType::kFloat32, {lod.empty() ? 1 : static_cast<int64_t>(lod[0].back())});
}

OpTest Conv(const Sizes& s, const std::vector<double>& x, const LoD& rows, const LoD& columns,
            const std::vector<double>& w) {
  return std::move(OpTest("var_conv_2d")
                       .Attr("InputChannel", s.in)
                       .Attr("OutputChannel", s.out)
                       .Attr("KernelH", s.kh)
                       .Attr("KernelW", s.kw)
                       .Attr("StrideH", s.sh)
                       .Attr("StrideW", s.sw)
                       .Input("X", {static_cast<int64_t>(x.size()), 1}, x)
                       .TensorInput("ROW", Rows(rows))
                       .Lod(rows)
                       .TensorInput("COLUMN", Rows(columns))
                       .Lod(columns)
                       .Input("W", {s.out, static_cast<int64_t>(w.size()) / s.out}, w));
}

TEST(VarConv2d, ByHand) {
  // An image [1 2 3; 4 5 6], one without rows, and [7 8]. The kernel of 1 x 3 adds the left
  // neighbour, and 10 times the right one.
  Conv({.kw = 3}, {1, 2, 3, 4, 5, 6, 7, 8}, {{0, 2, 2, 3}}, {{0, 3, 5, 7}}, {1, 0, 10})
      .Expect("Out", {8, 1}, {20, 31, 2, 50, 64, 5, 80, 7})
      .ExpectLod("Out", {{0, 6, 6, 8}})
      .ExpectLod("Col", {{0, 18, 18, 24}});
  // Strides: rows 0 and 2, columns 0 and 2 of a 3 x 3 image; a kernel of 2 x 1 has its first row
  // above the position.
  Conv({.kh = 2, .sh = 2, .sw = 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9}, {{0, 3}}, {{0, 3}}, {100, 1})
      .Expect("Out", {4, 1}, {1, 3, 407, 609});
  // Two channels to two.
  Conv({.in = 2, .out = 2}, {1, 2, 3, 4}, {{0, 1}}, {{0, 2}}, {1, 10, 100, 1000})
      .Expect("Out", {4, 1}, {31, 42, 3100, 4200})
      .Expect("Col", {4, 1}, {1, 2, 3, 4});
}

TEST(VarConv2d, Gradient) {
  std::vector<double> x, w;
  for (int i = 0; i < 2 * (3 * 4 + 2 * 1); ++i) x.push_back(0.1 * (i * 7 % 11) - 0.4);
  for (int i = 0; i < 3 * 2 * 3 * 2; ++i) w.push_back(0.1 * (i * 5 % 13) - 0.5);
  Conv({.in = 2, .out = 3, .kh = 3, .kw = 2, .sh = 2, .sw = 1}, x, {{0, 3, 3, 5}}, {{0, 4, 6, 7}},
       w)
      .CheckGradient({"X", "W"})
      .CheckFast(1e-5);
}

// Images that are large enough for several threads, against the sums by their definition.
TEST(VarConv2d, LargeImagesWithThreads) {
  const std::vector<std::pair<int64_t, int64_t>> images = {{40, 30}, {0, 5}, {25, 33}, {1, 1}};
  for (const Sizes& s : {Sizes{4, 16, 3, 3, 1, 1}, Sizes{3, 32, 2, 5, 1, 2}}) {
    std::mt19937 random(7);
    std::uniform_real_distribution<double> uniform(-1, 1);
    LoD rows{{0}}, columns{{0}};
    std::vector<double> x, out;
    std::vector<double> w(static_cast<size_t>(s.in * s.out * s.kh * s.kw));
    for (double& v : w) v = uniform(random);
    for (const auto& [height, width] : images) {
      rows[0].push_back(rows[0].back() + static_cast<uint64_t>(height));
      columns[0].push_back(columns[0].back() + static_cast<uint64_t>(width));
      const auto begin = static_cast<int64_t>(x.size());
      for (int64_t i = 0; i < s.in * height * width; ++i) x.push_back(uniform(random));
      for (int64_t o = 0; o < s.out; ++o) {
        for (int64_t p = 0; p < height; p += s.sh) {
          for (int64_t q = 0; q < width; q += s.sw) {
            double sum = 0;
            for (int64_t tap = 0; tap < s.in * s.kh * s.kw; ++tap) {
              const int64_t c = tap / (s.kh * s.kw);
              const int64_t row = p + tap / s.kw % s.kh - s.kh / 2;
              const int64_t column = q + tap % s.kw - s.kw / 2;
              if (row < 0 || row >= height || column < 0 || column >= width) continue;
              sum += w[static_cast<size_t>(o * s.in * s.kh * s.kw + tap)] *
                     x[static_cast<size_t>(begin + (c * height + row) * width + column)];
            }
            out.push_back(sum);
          }
        }
      }
    }
    const Threads threads(3);
    Conv(s, x, rows, columns, w)
        .Expect("Out", {static_cast<int64_t>(out.size()), 1}, out, 1e-4)
        .CheckFast(1e-4);
    Conv(s, x, rows, columns, w)
        .NoOutput("Col")
        .Expect("Out", {static_cast<int64_t>(out.size()), 1}, out, 1e-4);
  }
}

TEST(VarConv2d, Constraints) {
  OpTest("var_conv_2d")
      .RandomInput("X", {1, 2})
      .RandomInput("ROW", {1})
      .Lod({{0, 1}})
      .RandomInput("COLUMN", {1})
      .Lod({{0, 1}})
      .RandomInput("W", {1, 1})
      .ExpectError("var_conv_2d.C1");
  Conv({}, {1}, {{0, 1}}, {{0, 1}}, {1, 2}).ExpectError("var_conv_2d.C2");
  Conv({}, {1}, {}, {{0, 1}}, {1}).ExpectError("var_conv_2d.C3");
  Conv({}, {1}, {{0, 1}}, {{0, 1, 1}}, {1}).ExpectError("var_conv_2d.C4");
  Conv({}, {1, 2}, {{0, 1}}, {{0, 1}}, {1}).ExpectError("var_conv_2d.C4");
  for (const Shape& dout : {Shape{2, 1}, Shape{1}}) {
    OpTest("var_conv_2d_grad")
        .RandomInput("X", {1, 1})
        .RandomInput("ROW", {1})
        .Lod({{0, 1}})
        .RandomInput("COLUMN", {1})
        .Lod({{0, 1}})
        .RandomInput("W", {1, 1})
        .RandomInput("Out@GRAD", dout)
        .ExpectError("var_conv_2d_grad.C5");
  }
}
}  // namespace coracle::var_conv_2d_test
