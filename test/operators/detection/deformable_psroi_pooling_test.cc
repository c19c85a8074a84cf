#include <coracle/test/op_test.h>

namespace coracle::deformable_psroi_pooling_test {

using Ints = std::vector<int32_t>;

OpTest Pool(int32_t channels, int32_t bins, int32_t samples, const Ints& part = {1, 1}) {
  return std::move(OpTest("deformable_psroi_pooling")
                       .Attr("no_trans", false)
                       .Attr("spatial_scale", 1.f)
                       .Attr("output_dim", channels)
                       .Attr("group_size", Ints{1, 2})
                       .Attr("pooled_height", 1)
                       .Attr("pooled_width", bins)
                       .Attr("part_size", part)
                       .Attr("sample_per_part", samples)
                       .Attr("trans_std", 0.25f));
}

TEST(DeformablePsroiPooling, Values) {
  // Input[c, y, x] = 100 c + 10 y + x.
  std::vector<double> x;
  for (int c = 0; c < 2; ++c) {
    for (int y = 0; y < 4; ++y) {
      for (int i = 0; i < 5; ++i) x.push_back(100 * c + 10 * y + i);
    }
  }
  // The RoI is 2 x 2, from 0.5 to 2.5. The first bin has samples at 0.5 and 1, the second bin at
  // 1.5 and 2, in rows 0.5 and 1.5.
  Pool(1, 2, 2)
      .Attr("no_trans", true)
      .Input("Input", {1, 2, 4, 5}, x)
      .Input("ROIs", {1, 4}, {1, 1, 2, 2})
      .Input("Trans", {1, 2, 1, 1}, {9, 9})
      .Expect("Output", {1, 1, 1, 2}, {10.75, 111.75})
      .Expect("TopCount", {1, 1, 1, 2}, {4, 4})
      .CheckGradient({"Input"});
  // Half a cell to the right, one down.
  Pool(1, 2, 2)
      .Input("Input", {1, 2, 4, 5}, x)
      .Input("ROIs", {1, 4}, {1, 1, 2, 2})
      .Input("Trans", {1, 2, 1, 1}, {1, 2})
      .Expect("Output", {1, 1, 1, 2}, {21.25, 122.25});
  // At the left border: of -0.5 and 0 both count, as 0; of -2.5 and -2 none does.
  Pool(1, 1, 1)
      .Attr("no_trans", true)
      .Attr("group_size", Ints{1, 1})
      .Attr("sample_per_part", 2)
      .Input("Input", {1, 1, 1, 2}, {3, 5})
      .Input("ROIs", {2, 4}, {0, 0, 0, 0, -2, 0, -2, 0})
      .RandomInput("Trans", {2, 2, 1, 1})
      .Expect("Output", {2, 1, 1, 1}, {3, 0})
      .Expect("TopCount", {2, 1, 1, 1}, {4, 0});
}

// A map without rows has no sample, not even at its border.
TEST(DeformablePsroiPooling, EmptyMap) {
  for (const Shape& map : {Shape{1, 1, 0, 2}, Shape{1, 1, 2, 0}}) {
    Pool(1, 1, 1)
        .Attr("no_trans", true)
        .Attr("group_size", Ints{1, 1})
        .Input("Input", map, {})
        .Input("ROIs", {1, 4}, {0, 0, 0, 0})
        .RandomInput("Trans", {1, 2, 1, 1})
        .Expect("Output", {1, 1, 1, 1}, {0})
        .Expect("TopCount", {1, 1, 1, 1}, {0});
  }
}

TEST(DeformablePsroiPooling, Gradients) {
  // Two classes of one channel, shifts for each of two parts.
  Pool(2, 2, 3, {1, 2})
      .RandomInput("Input", {2, 4, 5, 6})
      .Input("ROIs", {3, 4}, {1, 1, 3, 3, 0, 1, 4, 2, 2, 0, 3, 4})
      .Lod({{0, 1, 3}})
      .RandomInput("Trans", {3, 4, 1, 2}, 0.1, 0.4)
      .CheckGradient({"Input", "Trans"})
      .CheckGradient({"Trans"});
}

TEST(DeformablePsroiPooling, Constraints) {
  const std::string op = "deformable_psroi_pooling";
  const auto with = [](const Shape& x, const Shape& rois, const Shape& trans) {
    return std::move(Pool(1, 2, 1)
                         .RandomInput("Input", x)
                         .RandomInput("ROIs", rois)
                         .RandomInput("Trans", trans));
  };
  with({1, 2, 1}, {1, 4}, {1, 2, 1, 1}).ExpectError(op + ".C1");
  with({1, 2, 1, 1}, {4}, {1, 2, 1, 1}).ExpectError(op + ".C2");
  with({2, 2, 1, 1}, {1, 4}, {1, 2, 1, 1}).ExpectError(op + ".C3");
  with({1, 2, 1, 1}, {1, 4}, {1, 2, 1, 1}).Attr("part_size", Ints{1}).ExpectError(op + ".C4");
  with({1, 3, 1, 1}, {1, 4}, {1, 2, 1, 1}).ExpectError(op + ".C5");
  with({1, 2, 1, 1}, {1, 4}, {1, 4, 1, 1}).ExpectError(op + ".C6");
  OpTest("deformable_psroi_pooling_grad")
      .Attr("no_trans", true)
      .Attr("spatial_scale", 1.f)
      .Attr("output_dim", 1)
      .Attr("group_size", Ints{1, 1})
      .Attr("pooled_height", 1)
      .Attr("pooled_width", 1)
      .Attr("part_size", Ints{1, 1})
      .Attr("sample_per_part", 1)
      .Attr("trans_std", 1.f)
      .RandomInput("Input", {1, 1, 1, 1})
      .RandomInput("ROIs", {1, 4})
      .RandomInput("Trans", {1, 2, 1, 1})
      .RandomInput("Output@GRAD", {1, 1, 1, 2})
      .ExpectError("deformable_psroi_pooling_grad.C7");
}
}  // namespace coracle::deformable_psroi_pooling_test
