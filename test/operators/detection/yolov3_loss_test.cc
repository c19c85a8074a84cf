#include <coracle/test/op_test.h>

#include <cmath>

namespace coracle::yolov3_loss_test {

using Doubles = std::vector<double>;
using Ints = std::vector<int32_t>;

double Bce(double x, double z) { return std::log1p(std::exp(x)) - x * z; }

// The input is 64 x 32 for a map of 2 x 1 cells. Anchor 1 is 16 x 16.
OpTest Yolo(const Ints& mask, int32_t classes = 2) {
  return std::move(OpTest("yolov3_loss")
                       .Attr("class_num", classes)
                       .Attr("anchors", Ints{4, 4, 16, 16, 60, 30})
                       .Attr("anchor_mask", mask));
}

// One box of a quarter of the width and half of the height, in the second cell.
TEST(Yolov3Loss, OneBox) {
  const Doubles x = {.1, .2, .3, .4, .5, .6, .7, .8, -.9, 1, 1.1, -1.2, 1.3, 1.4};
  const double score = 0.5;
  const auto at = [&](size_t entry) { return x[2 * entry + 1]; };
  const double weight = score * (2 - 0.125);
  double loss =
      weight * (Bce(at(0), 0.5) + Bce(at(1), 0.25) + std::abs(at(2) - 0) + std::abs(at(3) - 0));
  for (bool smooth : {true, false}) {
    const double d = smooth ? 1.0 / 40 : 0;
    const double classes = score * (Bce(at(5), d) + Bce(at(6), 1 - d));
    const double objects = score * Bce(at(4), 1) + Bce(x[8], 0);
    Yolo({1, 2})
        .Attr("use_label_smooth", smooth)
        .Attr("anchor_mask", Ints{1})
        .Input("X", {1, 7, 1, 2}, x)
        .Input("GTBox", {1, 2, 4}, {0.75, 0.25, 0.25, 0.5, 0.1, 0.1, 0, 0})
        .IntInput("GTLabel", {1, 2}, {1, 9}, DType::kInt32)
        .Input("GTScore", {1, 2}, {score, 1})
        .Expect("Loss", {1}, {loss + classes + objects})
        .Expect("ObjectnessMask", {1, 1, 1, 2}, {0, score})
        .Expect("GTMatchMask", {1, 2}, {0, -1})
        .CheckGradient({"X"});
  }
}

// A box of the size of an anchor that X does not have; what is predicted there is ignored where it
// overlaps enough.
TEST(Yolov3Loss, Ignored) {
  for (double threshold : {0.4, 0.6}) {
    const bool ignored = threshold < 0.5;  // 16 x 16 is predicted, 16 x 8 is there
    Yolo({1}, 1)
        .Attr("anchors", Ints{16, 8, 16, 16})
        .Attr("ignore_thresh", static_cast<float>(threshold))
        .Input("X", {1, 6, 1, 1}, {0, 0, 0, 0, 0.5, 1})
        .Input("GTBox", {1, 1, 4}, {0.5, 0.5, 0.5, 0.25})
        .IntInput("GTLabel", {1, 1}, {0})
        .Expect("Loss", {1}, {ignored ? 0 : Bce(0.5, 0)})
        .Expect("ObjectnessMask", {1, 1, 1, 1}, {ignored ? -1.0 : 0.0})
        .Expect("GTMatchMask", {1, 1}, {-1});
  }
}

// Two boxes in one cell: the losses add up, and so do the gradients.
TEST(Yolov3Loss, TwoBoxesInOneCell) {
  Yolo({0, 1, 2})
      .Attr("scale_x_y", 1.2f)
      .RandomInput("X", {2, 21, 2, 3}, -1, 1)
      .Input("GTBox", {2, 2, 4},
             {0.4, 0.3, 0.2, 0.3, 0.5, 0.4, 0.2, 0.2, 0.9, 0.9, 0.7, 0.6, 1, 1, 0.05, 0.05})
      .IntInput("GTLabel", {2, 2}, {1, 0, 1, 1})
      .CheckGradient({"X"});
}

OpTest With(const Ints& mask, const Shape& x, const Shape& box, const Shape& label,
            int64_t wanted = 0) {
  return std::move(Yolo(mask)
                       .RandomInput("X", x)
                       .Input("GTBox", box, {0.5, 0.5, 0.5, 0.5})
                       .IntInput("GTLabel", label, {wanted}));
}

TEST(Yolov3Loss, Constraints) {
  const Shape x = {1, 7, 1, 1}, box = {1, 1, 4}, label = {1, 1};
  With({1}, x, box, label).IntInput("GTScore", label, {1}).ExpectError("yolov3_loss.C1");
  With({3}, x, box, label).ExpectError("yolov3_loss.C2");
  With({1}, {1, 8, 1, 1}, box, label).ExpectError("yolov3_loss.C3");
  With({1}, x, {1, 4}, label).ExpectError("yolov3_loss.C4");
  With({1}, x, box, {1}).ExpectError("yolov3_loss.C5");
  With({1}, x, box, label).RandomInput("GTScore", {1}).ExpectError("yolov3_loss.C5");
  With({1}, x, box, label, 2).ExpectError("yolov3_loss.C6");
  Yolo({1})
      .RandomInput("X", x)
      .Input("GTBox", box, {0.5, 1.5, 0.5, 0.5})
      .IntInput("GTLabel", label, {0})
      .ExpectError("yolov3_loss.C7");
  const auto grad = [&](const Shape& dloss, int64_t match) {
    return std::move(OpTest("yolov3_loss_grad")
                         .Attr("class_num", 2)
                         .Attr("anchors", Ints{4, 4})
                         .Attr("anchor_mask", Ints{0})
                         .RandomInput("X", x)
                         .Input("GTBox", box, {0.5, 0.5, 0.5, 0.5})
                         .IntInput("GTLabel", label, {0})
                         .RandomInput("ObjectnessMask", {1, 1, 1, 1})
                         .IntInput("GTMatchMask", label, {match}, DType::kInt32)
                         .RandomInput("Loss@GRAD", dloss));
  };
  grad({2}, 0).ExpectError("yolov3_loss_grad.C8");
  grad({1}, 1).ExpectError("yolov3_loss_grad.C9");
}
}  // namespace coracle::yolov3_loss_test
