// Importers of ops on images and of norms, on small tensors whose results are plain.
#include <coracle/test/convert/one_node.h>
#include <coracle/test/error_of.h>

namespace coracle::onnx::onnx_images_test {

TEST(OnnxImages, Col2ImAddsWhatOverlaps) {
  const Tensor ones = F({1, 4, 4}, Numbers(16, 1));
  EXPECT_EQ(OneNode("Col2Im", 18, {ones, I({3, 3}), I({2, 2})}).Run(),
            (Numbers{1, 2, 1, 2, 4, 2, 1, 2, 1}));
  // Blocks that begin in the padding.
  EXPECT_EQ(OneNode("Col2Im", 18, {F({1, 2, 3}, Numbers(6, 1)), I({1, 3}), I({1, 2})})
                .Set("pads", Integers{0, 1, 0, 0})
                .Run(),
            (Numbers{2, 2, 1}));
}

TEST(OnnxImages, ImageScaler) {
  const Tensor x = F({1, 2, 1, 2}, {1, 2, 3, 4});
  EXPECT_EQ(OneNode("ImageScaler", 9, {x}).Set("scale", 2.0f).Set("bias", Numbers{10, -1}).Run(),
            (Numbers{12, 14, 5, 7}));
  const std::string refusal =
      OneNode("ImageScaler", 9, {x}).Set("bias", Numbers{1, 2, 3}).Refusal();
  EXPECT_NE(refusal.find("bias must have 2 numbers, got 3"), std::string::npos) << refusal;
}

TEST(OnnxImages, CenterCropPadHasTheLargerPartBehind) {
  const Tensor x = F({5}, {1, 2, 3, 4, 5});
  EXPECT_EQ(OneNode("CenterCropPad", 18, {x, I({2})}).Run(), (Numbers{2, 3}));
  EXPECT_EQ(OneNode("CenterCropPad", 18, {x, I({8})}).Run(), (Numbers{0, 1, 2, 3, 4, 5, 0, 0}));
}

TEST(OnnxImages, AffineGridOfAVolume) {
  const Tensor identity = F({1, 3, 4}, {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0});
  ExpectNear(OneNode("AffineGrid", 20, {identity, I({1, 1, 1, 1, 2})}).Run(),
             {-0.5f, 0, 0, 0.5f, 0, 0});
  ExpectNear(OneNode("AffineGrid", 20, {identity, I({1, 1, 2, 1, 1})})
                 .Set("align_corners", int64_t{1})
                 .Run(),
             {-1, -1, -1, -1, -1, 1});
}

TEST(OnnxImages, RegionsOfImagesInAnyOrder) {
  const Tensor x = F({2, 1, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(OneNode("MaxRoiPool", 9, {x, F({3, 5}, {1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0})})
                .Set("pooled_shape", Integers{1, 1})
                .Run(),
            (Numbers{8, 4, 5}));
  const Tensor flat = F({2, 1, 2, 2}, {1, 1, 1, 1, 2, 2, 2, 2});
  const Tensor regions = F({3, 4}, {0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1});
  ExpectNear(OneNode("RoiAlign", 16, {flat, regions, I({1, 0, 1})}).Run(), {2, 1, 2});
}

TEST(OnnxImages, RoiAlignTakesTheLargest) {
  const Tensor x = F({1, 1, 3, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8});
  const auto align = [&](int64_t ratio) {
    return OneNode("RoiAlign", 16, {x, F({1, 4}, {0, 0, 2, 2}), I({0})})
        .Set("mode", std::string("max"))
        .Set("sampling_ratio", ratio)
        .Set("coordinate_transformation_mode", std::string("output_half_pixel"))
        .Run();
  };
  ExpectNear(align(1), {4});
  // Samples at 0.5 and 1.5: a quarter of the largest cell, 8.
  ExpectNear(align(2), {2});
  EXPECT_THROW(align(0), Error);
}

TEST(OnnxImages, DeformConvShiftsItsTaps) {
  const Tensor x = F({1, 1, 2, 2}, {1, 2, 3, 4}), one = F({1, 1, 1, 1}, {1});
  const Tensor right = F({1, 2, 2, 2}, {0, 0, 0, 0, 1, 1, 1, 1});
  EXPECT_EQ(OneNode("DeformConv", 19, {x, one, right}).Run(), (Numbers{2, 0, 4, 0}));
  const Tensor wider = F({1, 2, 2, 3}, {0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1});
  EXPECT_EQ(OneNode("DeformConv", 19, {x, one, wider, F({1}, {10})})
                .Set("pads", Integers{0, 1, 0, 0})
                .Run(),
            (Numbers{11, 12, 10, 13, 14, 10}));
}

TEST(OnnxImages, CubicSamplesOfLines) {
  // At an element, and halfway between two of them.
  const Tensor x = F({1, 1, 1, 1, 6}, {0, 1, 2, 3, 4, 5});
  const Tensor grid = F({1, 1, 1, 2, 3}, {0, 0, 0, 0.2f, 0, 0});
  ExpectNear(OneNode("GridSample", 20, {x, grid})
                 .Set("mode", std::string("cubic"))
                 .Set("padding_mode", std::string("border"))
                 .Set("align_corners", int64_t{1})
                 .Run(),
             {2.5f, 3});
}

TEST(OnnxImages, TheFirstResize) {
  const Tensor x = F({1, 1, 2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  const Tensor scales = F({4}, {1, 1, 0.6f, 0.6f});
  EXPECT_EQ(OneNode("Resize", 10, {x, scales}).Run(), (Numbers{1, 3}));
  ExpectNear(OneNode("Resize", 10, {x, scales}).Set("mode", std::string("linear")).Run(),
             {1, 2.6666665f});
}

TEST(OnnxNorms, Lrn) {
  // An even size covers the channel itself and the next one.
  ExpectNear(OneNode("LRN", 13, {F({1, 3, 1}, {1, 2, 3})})
                 .Set("size", int64_t{2})
                 .Set("bias", 0.0f)
                 .Set("alpha", 2.0f)
                 .Set("beta", 1.0f)
                 .Run(),
             {1.0f / 5, 2.0f / 13, 3.0f / 9});
}

TEST(OnnxNorms, RowsOfZeros) {
  ExpectNear(OneNode("LpNormalization", 22, {F({2, 2}, {0, 0, 3, 4})}).Run(), {0, 0, 0.6f, 0.8f});
}

TEST(OnnxNorms, RootMeanSquare) {
  ExpectNear(OneNode("RMSNormalization", 23, {F({1, 2}, {3, 4}), F({2}, {1, 2})})
                 .Set("epsilon", 0.0f)
                 .Run(),
             {0.8485281f, 2.2627417f});
}

// One element for each channel: Paddle's op leaves it as it is.
TEST(OnnxNorms, BatchOfOne) {
  ExpectNear(
      OneNode("BatchNormalization", 14,
              {F({1, 2}, {3, 4}), F({2}, {1, 1}), F({2}, {5, 6}), F({2}, {0, 0}), F({2}, {1, 1})})
          .Set("training_mode", int64_t{1})
          .Run(),
      {5, 6});
}
// Numbers that no element's place or number can be made of.
TEST(OnnxImages, ResizesThatAreRefused) {
  const Tensor x = F({1, 1, 1, 2}, {1, 2});
  const auto error = [](OneNode node) { return ErrorOf([&] { node.Run(); }); };
  EXPECT_NE(error(OneNode("Resize", 13, {x, kAbsent, F({4}, {1, 1, 1, 1e27f})})).find("2^31"),
            std::string::npos);
  EXPECT_NE(error(OneNode("Resize", 13,
                          {x, F({8}, {0, 0, 0, 0, 1, 1, 1, 1e30f}), kAbsent, I({1, 1, 1, 4})})
                      .Set("coordinate_transformation_mode", std::string("tf_crop_and_resize")))
                .find("roi must hold"),
            std::string::npos);
  EXPECT_NE(error(OneNode("Resize", 13, {F({1, 1, 1, 0}, {}), kAbsent, kAbsent, I({1, 1, 1, 4})})
                      .Set("mode", std::string("linear")))
                .find("without elements"),
            std::string::npos);
}

}  // namespace coracle::onnx::onnx_images_test
