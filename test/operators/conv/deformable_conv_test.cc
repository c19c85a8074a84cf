#include <coracle/test/op_test.h>

#include <cmath>
#include <limits>

namespace coracle::deformable_conv_test {

using Ints = std::vector<int32_t>;

const std::vector<double> kImage = {1, 2, 3, 4, 5, 6, 7, 8, 9};

TEST(DeformableConv, WithoutOffsetsAConvolution) {
  for (const std::string type : {"deformable_conv", "deformable_conv_v1"}) {
    OpTest test(type);
    test.Input("Input", {1, 1, 3, 3}, kImage)
        .Input("Offset", {1, 8, 2, 2}, std::vector<double>(32, 0));
    if (type == "deformable_conv") test.Input("Mask", {1, 4, 2, 2}, std::vector<double>(16, 1));
    test.Input("Filter", {1, 1, 2, 2}, {1, 2, 3, 4})
        .Expect("Output", {1, 1, 2, 2}, {37, 47, 67, 77});
  }
}

TEST(DeformableConv, Offsets) {
  // One tap at each of four places; offsets (y, x) and masks below.
  //   (0, 0) + (0.5, 0.5) = 3; (0, 1) + (-0.5, 0) = half of 2, outside of the other half;
  //   (1, 0) + (0, -1): outside; (1, 1) + (-1, -0.25) = 1.75.
  OpTest("deformable_conv")
      .Attr("strides", Ints{1, 1})
      .Attr("im2col_step", 1)
      .Input("Input", {1, 1, 2, 2}, {1, 2, 4, 5})
      .Input("Offset", {1, 2, 2, 2}, {0.5, -0.5, 0, -1, 0.5, 0, -1, -0.25})
      .Input("Mask", {1, 1, 2, 2}, {1, 2, 3, 0.5})
      .Input("Filter", {2, 1, 1, 1}, {1, 10})
      .Expect("Output", {1, 2, 2, 2}, {3, 2, 0, 0.875, 30, 20, 0, 8.75});
  // Two parts of channels with offsets of their own, and two groups.
  OpTest("deformable_conv_v1")
      .Attr("groups", 2)
      .Attr("deformable_groups", 2)
      .Input("Input", {1, 2, 1, 2}, {1, 2, 3, 4})
      .Input("Offset", {1, 4, 1, 2}, {0, 0, 1, -1, 0, 0, 0.5, 0})
      .Input("Filter", {2, 1, 1, 1}, {1, 10})
      .Expect("Output", {1, 2, 1, 2}, {2, 1, 35, 40});
  OpTest("deformable_conv_v1")
      .Input("Input", {0, 1, 1, 1}, {})
      .Input("Offset", {0, 2, 1, 1}, {})
      .Input("Filter", {1, 1, 1, 1}, {1})
      .Expect("Output", {0, 1, 1, 1}, {});
}

TEST(DeformableConv, GradientsAndFastKernels) {
  for (const std::string type : {"deformable_conv", "deformable_conv_v1"}) {
    for (const int32_t groups : {1, 2}) {
      for (const int32_t parts : {1, 2}) {
        OpTest test(type);
        test.Attr("groups", groups)
            .Attr("deformable_groups", parts)
            .Attr("strides", Ints{2, 1})
            .Attr("paddings", Ints{1, 1})
            .Attr("dilations", Ints{1, 2})
            .RandomInput("Input", {2, 4, 4, 5})
            .RandomInput("Offset", {2, 2 * parts * 6, 3, 3}, -0.9, 0.9, 0.01);
        std::vector<std::string> slots = {"Input", "Offset", "Filter"};
        if (type == "deformable_conv") {
          test.RandomInput("Mask", {2, parts * 6, 3, 3});
          slots.push_back("Mask");
        }
        test.RandomInput("Filter", {6, 4 / groups, 2, 3})
            .CheckGradient(slots, {.step = 1e-7, .tolerance = 1e-5})
            .CheckFast();
      }
    }
  }
}

TEST(DeformableConv, FastAtManyPlaces) {
  OpTest("deformable_conv")
      .Attr("groups", 1)
      .Attr("deformable_groups", 2)
      .Attr("paddings", Ints{1, 1})
      .RandomInput("Input", {2, 6, 13, 29})
      .RandomInput("Offset", {2, 36, 13, 29}, -3, 3)
      .RandomInput("Mask", {2, 18, 13, 29})
      .RandomInput("Filter", {5, 6, 3, 3})
      .CheckFast();
}

// An infinite mask multiplies the sum over the neighbours, of which some have weight 0 or
// another sign.
TEST(DeformableConv, NotFinite) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const auto op = [] {
    OpTest test("deformable_conv");
    test.Input("Filter", {1, 1, 1, 1}, {1});
    return test;
  };
  // Places (0, 0); (0, 1) + (0, -0.75); (0, 2) + (0, 5), outside: 0 times inf. Below: half of inf,
  // the other half being outside; 2 and 0 times nan; outside.
  op().Input("Input", {1, 1, 1, 3}, {2, -3, 4})
      .Input("Offset", {1, 2, 1, 3}, {0, 0, 0, 0, -0.75, 5})
      .Input("Mask", {1, 1, 1, 3}, {inf, inf, inf})
      .Expect("Output", {1, 1, 1, 3}, {inf, inf, nan});
  op().Input("Input", {1, 1, 1, 3}, {inf, 2, nan})
      .Input("Offset", {1, 2, 1, 3}, {0, 0, 0, -0.5, 0, 5})
      .Input("Mask", {1, 1, 1, 3}, {-1, 1, 1})
      .Expect("Output", {1, 1, 1, 3}, {-inf, nan, 0});
  for (const bool of_mask : {false, true}) {
    const auto values = [&](int64_t n, bool broken) {
      std::vector<double> all(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) {
        all[static_cast<size_t>(i)] = broken && i % 61 == 5    ? inf
                                      : broken && i % 173 == 9 ? nan
                                                               : 0.1 * double(i * 7 % 19) - 0.85;
      }
      return all;
    };
    OpTest("deformable_conv")
        .Attr("groups", 1)
        .Attr("deformable_groups", 2)
        .Attr("paddings", Ints{1, 1})
        .Input("Input", {2, 4, 9, 17}, values(2 * 4 * 9 * 17, !of_mask))
        .RandomInput("Offset", {2, 36, 9, 17}, -2, 2, 0.01)
        .Input("Mask", {2, 18, 9, 17}, values(2 * 18 * 9 * 17, of_mask))
        .RandomInput("Filter", {3, 4, 3, 3})
        .CheckFast();
  }
}

TEST(DeformableConv, Constraints) {
  for (const std::string type : {"deformable_conv", "deformable_conv_v1"}) {
    const auto op = [&](const std::string& name, const Shape& input, const Shape& filter,
                        const Shape& offset = {1, 2, 2, 2}) {
      OpTest test(name);
      test.RandomInput("Input", input).RandomInput("Filter", filter).RandomInput("Offset", offset);
      if (type == "deformable_conv") test.RandomInput("Mask", {1, 1, 2, 2});
      return test;
    };
    const Shape image{1, 2, 2, 2}, filter{2, 2, 1, 1};
    op(type, {1, 2, 2}, filter).ExpectError(type + ".C1");
    op(type, image, filter).Attr("strides", Ints{0, 1}).ExpectError(type + ".C2");
    op(type, image, filter).Attr("paddings", Ints{0, 0, 0, 0}).ExpectError(type + ".C2");
    op(type, image, filter).Attr("dilations", Ints{1}).ExpectError(type + ".C2");
    op(type, image, filter).Attr("groups", 0).ExpectError(type + ".C3");
    op(type, image, filter).Attr("deformable_groups", 3).ExpectError(type + ".C3");
    op(type, image, {2, 1, 1, 1}).ExpectError(type + ".C3");
    op(type, image, {2, 2, 3, 1}).ExpectError(type + ".C4");
    op(type, image, filter, {1, 1, 2, 2}).ExpectError(type + ".C5");
    OpTest wrong(type);
    wrong.RandomInput("Input", {1, 1, 1, 1}).RandomInput("Offset", {1, 2, 1, 1});
    if (type == "deformable_conv") wrong.RandomInput("Mask", {1, 1, 1, 1});
    wrong.TensorInput("Filter", Tensor::Zeros(DType::kFloat16, {1, 1, 1, 1}))
        .ExpectError(type + ".C6");
    op(type + "_grad", image, filter)
        .RandomInput("Output@GRAD", {1, 2, 2, 3})
        .ExpectError(type + "_grad.C7");
  }
}

}  // namespace coracle::deformable_conv_test
