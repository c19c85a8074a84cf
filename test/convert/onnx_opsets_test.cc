// Ops whose meaning changed from one operator set to another: a case for each form.
#include <coracle/test/convert/one_node.h>

namespace coracle::onnx::onnx_opsets_test {

const float kHalf = 0.5f, kQuarter = 0.25f;

Tensor X(const Shape& shape) {
  Numbers values;
  for (int64_t i = 0; i < shape.numel(); ++i) values.push_back(static_cast<float>(i));
  return F(shape, values);
}

TEST(OnnxOpsets, BinaryOpsBroadcastByAttributesBefore7) {
  const Tensor x = F({2, 2}, {1, 2, 3, 4}), y = F({2}, {10, 20});
  EXPECT_EQ(OneNode("Add", 6, {x, y}).Set("broadcast", int64_t{1}).Run(),
            (Numbers{11, 22, 13, 24}));
  EXPECT_EQ(OneNode("Add", 6, {x, y}).Set("broadcast", int64_t{1}).Set("axis", int64_t{0}).Run(),
            (Numbers{11, 12, 23, 24}));
  EXPECT_EQ(OneNode("Add", 1, {x, x}).Set("consumed_inputs", Integers{0, 0}).Run(),
            (Numbers{2, 4, 6, 8}));
  EXPECT_NE(OneNode("Add", 6, {x, y}).Refusal().find("one shape unless attribute broadcast is 1"),
            std::string::npos);
  EXPECT_EQ(OneNode("Add", 7, {x, y}).Run(), (Numbers{11, 22, 13, 24}));
  EXPECT_EQ(OneNode("Pow", 1, {x, F({1}, {2})}).Set("broadcast", int64_t{1}).Run(),
            (Numbers{1, 4, 9, 16}));
  EXPECT_EQ(OneNode("Less", 1, {x, F({2}, {2, 3})}).Set("broadcast", int64_t{1}).Run(),
            (Numbers{1, 1, 0, 0}));
}

TEST(OnnxOpsets, SquaresOfPow) {
  const Numbers values = {-3, 0.1f, 1e-30f, 1e30f};
  const Tensor x = F({4}, {-3, 0.1f, 1e-30f, 1e30f});
  Numbers wanted;
  for (double v : values) wanted.push_back(static_cast<float>(v * v));
  EXPECT_EQ(OneNode("Pow", 13, {x, F({1}, {2})}).FeedInput(0).Run(), wanted);
  EXPECT_EQ(OneNode("Pow", 13, {x, F({1, 1}, {2})}).FeedInput(0).Results()[0].shape(),
            Shape({1, 4}));
}

TEST(OnnxOpsets, VariadicOpsBroadcastFrom8) {
  const Tensor x = F({2, 2}, {1, 2, 3, 4}), y = F({2}, {2, 3});
  EXPECT_NE(OneNode("Max", 6, {x, y}).Refusal().find("one shape before operator set 8"),
            std::string::npos);
  EXPECT_EQ(OneNode("Max", 8, {x, y}).Run(), (Numbers{2, 3, 3, 4}));
  EXPECT_EQ(OneNode("Sum", 6, {x, x}).Run(), (Numbers{2, 4, 6, 8}));
}

TEST(OnnxOpsets, SoftmaxIsOfAllBehindTheAxisBefore13) {
  const Tensor x = F({1, 2, 2}, {0, 0, 0, 0});
  for (const char* type : {"Softmax", "Hardmax"}) {
    const bool soft = type[0] == 'S';
    EXPECT_EQ(OneNode(type, 11, {x}).Run(), soft ? Numbers(4, kQuarter) : (Numbers{1, 0, 0, 0}));
    EXPECT_EQ(OneNode(type, 13, {x}).Set("axis", int64_t{1}).Run(),
              soft ? Numbers(4, kHalf) : (Numbers{1, 1, 0, 0}));
    EXPECT_EQ(OneNode(type, 13, {x}).Run(), soft ? Numbers(4, kHalf) : (Numbers{1, 0, 1, 0}));
  }
  ExpectNear(OneNode("LogSoftmax", 1, {x}).Run(), Numbers(4, -1.3862944f));
  ExpectNear(OneNode("LogSoftmax", 13, {x}).Run(), Numbers(4, -0.6931472f));
}

TEST(OnnxOpsets, BatchNormalization) {
  const Tensor x = F({2, 1, 2}, {1, 2, 3, 4}), one = F({1}, {1}), zero = F({1}, {0});
  const auto node = [&](int64_t opset) {
    OneNode made("BatchNormalization", opset, {x, one, one, zero, F({1}, {3.99999f})});
    return made.Set("epsilon", 1e-5f);
  };
  const Numbers wanted = {1.5, 2, 2.5, 3};
  ExpectNear(node(1).Set("is_test", int64_t{1}).Set("consumed_inputs", Integers{0, 0}).Run(),
             wanted);
  ExpectNear(node(6).Set("is_test", int64_t{1}).Run(), wanted);
  ExpectNear(node(7).Set("spatial", int64_t{1}).Run(), wanted);
  ExpectNear(node(9).Run(), wanted);
  ExpectNear(node(14).Run(), wanted);
  // The batch has the mean 2.5 and the variance 1.25.
  const Numbers batch = {-0.341640f, 0.552786f, 1.447214f, 2.341640f};
  ExpectNear(node(6).Run(), batch);
  ExpectNear(node(15).Set("training_mode", int64_t{1}).Outputs(3).Run(), batch);
  // Each element of a sample is a channel of its own.
  const Tensor two = F({2}, {1, 1}), mean = F({2}, {0, 1});
  ExpectNear(OneNode("BatchNormalization", 7, {x, two, F({2}, {0, 0}), mean, two})
                 .Set("spatial", int64_t{0})
                 .Set("epsilon", 0.0f)
                 .Run(),
             {1, 1, 3, 3});
}

TEST(OnnxOpsets, ClipByAttributesAndInputs) {
  const Tensor x = F({3}, {-2, 0, 2});
  EXPECT_EQ(OneNode("Clip", 6, {x}).Set("min", -1.0f).Set("max", 1.0f).Run(), (Numbers{-1, 0, 1}));
  EXPECT_EQ(OneNode("Clip", 1, {x}).Set("max", 1.0f).Run(), (Numbers{-2, 0, 1}));
  EXPECT_EQ(OneNode("Clip", 11, {x, kAbsent, F({}, {1})}).Run(), (Numbers{-2, 0, 1}));
  EXPECT_EQ(OneNode("Clip", 12, {I({-5, 5}), I({-1}).Reshaped({}), I({1}).Reshaped({})}).Run(),
            (Numbers{-1, 1}));
}

TEST(OnnxOpsets, UpsampleAndResize) {
  const Tensor x = F({1, 1, 1, 2}, {1, 2}), scales = F({4}, {1, 1, 1, 2});
  const Tensor none = Tensor(DType::kFloat32, {0});
  const Numbers twice = {1, 1, 2, 2};
  EXPECT_EQ(OneNode("Upsample", 7, {x}).Set("scales", Numbers{1, 1, 1, 2}).Run(), twice);
  EXPECT_EQ(OneNode("Upsample", 9, {x, scales}).Run(), twice);
  EXPECT_EQ(OneNode("Resize", 10, {x, scales}).Run(), twice);
  EXPECT_EQ(OneNode("Resize", 11, {x, none, scales}).Run(), twice);
  EXPECT_EQ(OneNode("Resize", 13, {x, kAbsent, kAbsent, I({1, 1, 1, 4})}).Run(), twice);
  EXPECT_EQ(OneNode("Resize", 18, {x, kAbsent, F({1}, {2})}).Set("axes", Integers{3}).Run(), twice);
  // In opset 10 pixels begin at 0; in opset 11 their centres are at halves.
  ExpectNear(OneNode("Resize", 10, {x, scales}).Set("mode", std::string("linear")).Run(),
             {1, 1.5, 2, 2});
  ExpectNear(OneNode("Resize", 11, {x, none, scales}).Set("mode", std::string("linear")).Run(),
             {1, 1.25, 1.75, 2});
  ExpectNear(OneNode("Resize", 19, {x, kAbsent, scales})
                 .Set("mode", std::string("linear"))
                 .Set("coordinate_transformation_mode", std::string("half_pixel_symmetric"))
                 .Run(),
             {1, 1.25, 1.75, 2});
  // Both axes by the larger factor.
  EXPECT_EQ(OneNode("Resize", 18, {x, kAbsent, kAbsent, I({1, 4})})
                .Set("axes", Integers{2, 3})
                .Set("keep_aspect_ratio_policy", std::string("not_smaller"))
                .Run(),
            (Numbers{1, 1, 2, 2, 1, 1, 2, 2}));
  ExpectNear(
      OneNode("Resize", 18, {F({1, 1, 1, 4}, {1, 2, 3, 4}), kAbsent, F({4}, {1, 1, 1, kHalf})})
          .Set("mode", std::string("linear"))
          .Set("antialias", int64_t{1})
          .Run(),
      {1.625f, 3.375f});
}

TEST(OnnxOpsets, Dropout) {
  const Tensor x = F({2}, {1, 2});
  EXPECT_EQ(OneNode("Dropout", 1, {x}).Set("is_test", int64_t{1}).Run(), (Numbers{1, 2}));
  EXPECT_NE(OneNode("Dropout", 6, {x}).Refusal().find("is_test of 0"), std::string::npos);
  EXPECT_EQ(OneNode("Dropout", 7, {x}).Set("ratio", 0.9f).Run(), (Numbers{1, 2}));
  const std::vector<Tensor> ten = OneNode("Dropout", 10, {x}).Outputs(2).Results();
  EXPECT_EQ(ten[1].dtype(), DType::kBool);
  EXPECT_EQ(OneNode("Dropout", 12, {x, F({}, {0.9f})}).Run(), (Numbers{1, 2}));
}

TEST(OnnxOpsets, SlicesAndAxes) {
  const Tensor x = F({4}, {0, 1, 2, 3});
  EXPECT_EQ(OneNode("Slice", 1, {x}).Set("starts", Integers{1}).Set("ends", Integers{-1}).Run(),
            (Numbers{1, 2}));
  EXPECT_EQ(OneNode("Slice", 10, {x, I({1}), I({9}), I({0}), I({2})}).Run(), (Numbers{1, 3}));
  EXPECT_EQ(OneNode("Slice", 13, {x, I({-1}), I({-9}), I({-1}), I({-1})}).Run(),
            (Numbers{3, 2, 1, 0}));
  const Tensor y = X({1, 2});
  EXPECT_EQ(OneNode("Squeeze", 1, {y}).Set("axes", Integers{0}).Result().shape(), (Shape{2}));
  EXPECT_EQ(OneNode("Squeeze", 11, {y}).Set("axes", Integers{-2}).Result().shape(), (Shape{2}));
  EXPECT_EQ(OneNode("Squeeze", 13, {y, I({-2})}).Result().shape(), (Shape{2}));
  EXPECT_EQ(OneNode("Unsqueeze", 1, {x}).Set("axes", Integers{0, 2}).Result().shape(),
            (Shape{1, 4, 1}));
  EXPECT_EQ(OneNode("Unsqueeze", 13, {x, I({-1})}).Result().shape(), (Shape{4, 1}));
}

TEST(OnnxOpsets, Reductions) {
  const Tensor x = X({2, 2});
  EXPECT_EQ(OneNode("ReduceSum", 11, {x}).Set("axes", Integers{-1}).Run(), (Numbers{1, 5}));
  EXPECT_EQ(OneNode("ReduceSum", 13, {x, I({1})}).Run(), (Numbers{1, 5}));
  EXPECT_EQ(OneNode("ReduceSum", 13, {x}).Run(), (Numbers{6}));
  EXPECT_EQ(OneNode("ReduceSum", 13, {x}).Set("noop_with_empty_axes", int64_t{1}).Run(),
            (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(OneNode("ReduceMax", 13, {x}).Set("axes", Integers{0}).Run(), (Numbers{2, 3}));
  EXPECT_EQ(OneNode("ReduceMax", 18, {x, I({0})}).Run(), (Numbers{2, 3}));
  const Tensor flags = Tensor::Of<bool>({2, 2}, {false, true, false, false});
  EXPECT_EQ(OneNode("ReduceMax", 20, {flags, I({1})}).Run(), (Numbers{1, 0}));
  EXPECT_EQ(OneNode("ArgMax", 1, {F({3}, {1, 3, 3})}).Set("axis", int64_t{0}).Run(), (Numbers{1}));
  EXPECT_EQ(OneNode("ArgMax", 12, {F({3}, {1, 3, 3})}).Set("select_last_index", int64_t{1}).Run(),
            (Numbers{2}));
}

TEST(OnnxOpsets, Pad) {
  const Tensor x = F({3}, {1, 2, 3});
  EXPECT_EQ(OneNode("Pad", 1, {x}).Set("paddings", Integers{1, 0}).Run(), (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(OneNode("Pad", 2, {x}).Set("pads", Integers{0, 1}).Set("value", 9.0f).Run(),
            (Numbers{1, 2, 3, 9}));
  EXPECT_EQ(OneNode("Pad", 11, {x, I({1, 1})}).Set("mode", std::string("reflect")).Run(),
            (Numbers{2, 1, 2, 3, 2}));
  EXPECT_EQ(OneNode("Pad", 13, {x, I({1, 1}), F({}, {7})}).Run(), (Numbers{7, 1, 2, 3, 7}));
  EXPECT_EQ(OneNode("Pad", 18, {X({1, 2}), I({1, 0}), kAbsent, I({-1})})
                .Set("mode", std::string("edge"))
                .Run(),
            (Numbers{0, 0, 1}));
  EXPECT_EQ(OneNode("Pad", 19, {x, I({2, 1})}).Set("mode", std::string("wrap")).Run(),
            (Numbers{2, 3, 1, 2, 3, 1}));
}

TEST(OnnxOpsets, TopKAndSplit) {
  const Tensor x = F({4}, {1, 4, 2, 3});
  EXPECT_EQ(OneNode("TopK", 1, {x}).Set("k", int64_t{2}).Outputs(2).Run(), (Numbers{4, 3}));
  EXPECT_EQ(OneNode("TopK", 10, {x, I({2})}).Outputs(2).Run(), (Numbers{4, 3}));
  EXPECT_EQ(OneNode("TopK", 11, {x, I({2})}).Set("largest", int64_t{0}).Outputs(2).Run(),
            (Numbers{1, 2}));
  EXPECT_EQ(OneNode("Split", 2, {x}).Set("split", Integers{1, 3}).Outputs(2).Run(), (Numbers{1}));
  EXPECT_EQ(OneNode("Split", 1, {x, I({3, 1})}).Outputs(2).Run(), (Numbers{1, 4, 2}));
  EXPECT_EQ(OneNode("Split", 11, {x}).Outputs(2).Run(), (Numbers{1, 4}));
  EXPECT_EQ(OneNode("Split", 13, {x, I({1, 3})}).Outputs(2).Run(), (Numbers{1}));
  EXPECT_EQ(OneNode("Split", 18, {x}).Set("num_outputs", int64_t{3}).Outputs(3).Run(),
            (Numbers{1, 4}));
}

TEST(OnnxOpsets, GroupNormalizationHasScalesOfGroupsThenOfChannels) {
  const Tensor x = F({1, 4, 1}, {-1, 1, -1, 1});
  const auto node = [&](int64_t opset, const Tensor& scale, const Tensor& bias) {
    OneNode made("GroupNormalization", opset, {x, scale, bias});
    return made.Set("num_groups", int64_t{2}).Set("epsilon", 1e-9f).Run();
  };
  ExpectNear(node(18, F({2}, {1, 2}), F({2}, {0, 10})), {-1, 1, 8, 12});
  ExpectNear(node(21, F({4}, {1, 2, 3, 4}), F({4}, {0, 0, 0, 0})), {-1, 2, -3, 4});
}

TEST(OnnxOpsets, Casts) {
  const Tensor x = F({2}, {1.7f, -1.7f});
  EXPECT_EQ(OneNode("Cast", 1, {x}).Set("to", std::string("INT32")).Result().dtype(),
            DType::kInt32);
  EXPECT_NE(OneNode("Cast", 1, {x}).Set("to", std::string("int")).Refusal().find("names no type"),
            std::string::npos);
  EXPECT_EQ(OneNode("Cast", 6, {x}).Set("to", int64_t{6}).Run(), (Numbers{1, -1}));
  EXPECT_EQ(OneNode("Cast", 19, {x}).Set("to", int64_t{6}).Set("saturate", int64_t{0}).Run(),
            (Numbers{1, -1}));
  EXPECT_NE(OneNode("Cast", 19, {x}).Set("to", int64_t{99}).Refusal().find("a cast to 99"),
            std::string::npos);
}

TEST(OnnxOpsets, Reshape) {
  const Tensor x = X({2, 3});
  EXPECT_EQ(OneNode("Reshape", 1, {x}).Set("shape", Integers{3, -1}).Result().shape(),
            (Shape{3, 2}));
  EXPECT_EQ(OneNode("Reshape", 5, {x, I({0, -1, 1})}).Result().shape(), (Shape{2, 3, 1}));
  const Tensor none(DType::kFloat32, {0, 3});
  EXPECT_EQ(OneNode("Reshape", 14, {none, I({3, 0})}).Set("allowzero", int64_t{1}).Result().shape(),
            (Shape{3, 0}));
  EXPECT_EQ(OneNode("Tile", 1, {x, I({2}).Reshaped({}), I({1}).Reshaped({})}).Result().shape(),
            (Shape{2, 6}));
  EXPECT_EQ(OneNode("Tile", 6, {x, I({2, 1})}).Result().shape(), (Shape{4, 3}));
  EXPECT_EQ(OneNode("Concat", 1, {x, x}).Result().shape(), (Shape{2, 6}));
  EXPECT_EQ(OneNode("Concat", 4, {x, x}).Set("axis", int64_t{0}).Result().shape(), (Shape{4, 3}));
  EXPECT_EQ(OneNode("Flatten", 1, {x}).Set("axis", int64_t{0}).Result().shape(), (Shape{1, 6}));
  EXPECT_EQ(OneNode("Flatten", 11, {x}).Set("axis", int64_t{-1}).Result().shape(), (Shape{2, 3}));
  EXPECT_EQ(OneNode("Shape", 1, {x}).Run(), (Numbers{2, 3}));
  EXPECT_EQ(OneNode("Shape", 15, {x}).Set("start", int64_t{-1}).Run(), (Numbers{3}));
}

TEST(OnnxOpsets, Pools) {
  const Tensor x = F({1, 1, 4}, {1, 2, 3, 4});
  const auto pool = [&](const char* type, int64_t opset) {
    OneNode made(type, opset, {x});
    return made.Set("kernel_shape", Integers{2});
  };
  EXPECT_EQ(pool("AveragePool", 1).Set("pads", Integers{1, 0}).Run(), (Numbers{1, 1.5, 2.5, 3.5}));
  EXPECT_EQ(
      pool("AveragePool", 7).Set("pads", Integers{1, 0}).Set("count_include_pad", int64_t{1}).Run(),
      (Numbers{kHalf, 1.5, 2.5, 3.5}));
  EXPECT_EQ(pool("AveragePool", 10).Set("strides", Integers{3}).Set("ceil_mode", int64_t{1}).Run(),
            (Numbers{1.5, 4}));
  EXPECT_EQ(pool("AveragePool", 19).Set("dilations", Integers{2}).Run(), (Numbers{2, 3}));
  EXPECT_EQ(pool("LpPool", 2).Set("p", int64_t{1}).Run(), (Numbers{3, 5, 7}));
  EXPECT_EQ(pool("LpPool", 11).Set("p", int64_t{1}).Set("pads", Integers{1, 0}).Run(),
            (Numbers{1, 3, 5, 7}));
  EXPECT_EQ(pool("LpPool", 18).Set("p", int64_t{1}).Set("dilations", Integers{2}).Run(),
            (Numbers{4, 6}));
  EXPECT_EQ(pool("MaxPool", 1).Run(), (Numbers{2, 3, 4}));
  EXPECT_EQ(pool("MaxPool", 8).Outputs(2).Results()[1].data<int64_t>()[0], 1);
}

TEST(OnnxOpsets, RecurrentNetsHaveBatchesFirstByLayout) {
  // One step of two sequences: h = tanh(x), weights 1, no recurrence.
  const Tensor w = F({1, 1, 1}, {1}), r = F({1, 1, 1}, {0});
  const auto run = [&](int64_t opset, const Shape& shape, int64_t layout) {
    OneNode made("RNN", opset, {F(shape, {1, 2, 3, 4}), w, r});
    made.Set("hidden_size", int64_t{1});
    if (layout >= 0) made.Set("layout", layout);
    return made.Result();
  };
  EXPECT_EQ(run(7, {1, 4, 1}, -1).shape(), (Shape{1, 1, 4, 1}));
  EXPECT_EQ(run(1, {1, 4, 1}, -1).shape(), (Shape{1, 1, 4, 1}));
  EXPECT_EQ(run(14, {1, 4, 1}, 0).shape(), (Shape{1, 1, 4, 1}));
  EXPECT_EQ(run(14, {4, 1, 1}, 1).shape(), (Shape{4, 1, 1, 1}));
  const Tensor gru =
      OneNode("GRU", 1, {F({1, 1, 1}, {1}), F({1, 3, 1}, {0, 0, 1}), F({1, 3, 1}, {0, 0, 0})})
          .Set("hidden_size", int64_t{1})
          .Set("output_sequence", int64_t{1})
          .Result();
  EXPECT_NEAR(gru.Item<float>(), 0.5f * 0.7615942f, 1e-5f);  // (1 - sigmoid(0)) tanh(1)
}

TEST(OnnxOpsets, RegionsAndGrids) {
  const Tensor x = F({1, 1, 2, 2}, {0, 1, 2, 3}), roi = F({1, 4}, {0, 0, 2, 2});
  const Tensor of = I({0});
  const auto align = [&](int64_t opset) {
    OneNode made("RoiAlign", opset, {x, roi, of});
    return made.Set("output_height", int64_t{1})
        .Set("output_width", int64_t{1})
        .Set("sampling_ratio", int64_t{1});
  };
  // The only sample is at 1 before opset 16 (the last pixel), and at 0.5 from opset 16 on.
  ExpectNear(align(10).Run(), {3});
  ExpectNear(align(16).Run(), {1.5});
  ExpectNear(
      align(16).Set("coordinate_transformation_mode", std::string("output_half_pixel")).Run(), {3});
  const Tensor grid = F({1, 1, 1, 2}, {0, 0});
  ExpectNear(OneNode("GridSample", 16, {x, grid}).Set("mode", std::string("bilinear")).Run(),
             {1.5});
  ExpectNear(OneNode("GridSample", 20, {x, grid}).Set("mode", std::string("linear")).Run(), {1.5});
  EXPECT_NE(OneNode("GridSample", 20, {x, grid}).Set("mode", std::string("bilinear")).Refusal(),
            "");
}

TEST(OnnxOpsets, Scatters) {
  const Tensor x = F({3}, {1, 2, 3}), at = I({1, 1}), u = F({2}, {5, 7});
  EXPECT_EQ(OneNode("Scatter", 9, {x, I({0, 2}), u}).Run(), (Numbers{5, 2, 7}));
  EXPECT_EQ(OneNode("ScatterElements", 11, {x, I({0, -1}), u}).Run(), (Numbers{5, 2, 7}));
  EXPECT_EQ(OneNode("ScatterElements", 16, {x, at, u}).Set("reduction", std::string("add")).Run(),
            (Numbers{1, 14, 3}));
  EXPECT_EQ(OneNode("ScatterElements", 18, {x, at, u}).Set("reduction", std::string("max")).Run(),
            (Numbers{1, 7, 3}));
  const Tensor places = I({1, 1}).Reshaped({2, 1});
  EXPECT_EQ(OneNode("ScatterND", 11, {x, I({0, 2}).Reshaped({2, 1}), u}).Run(), (Numbers{5, 2, 7}));
  EXPECT_EQ(OneNode("ScatterND", 16, {x, places, u}).Set("reduction", std::string("mul")).Run(),
            (Numbers{1, 70, 3}));
  EXPECT_EQ(OneNode("ScatterND", 18, {x, places, u}).Set("reduction", std::string("min")).Run(),
            (Numbers{1, 2, 3}));
  EXPECT_EQ(OneNode("GatherND", 12, {X({2, 2}), I({1, 0}).Reshaped({2, 1})})
                .Set("batch_dims", int64_t{1})
                .Run(),
            (Numbers{1, 2}));
}

TEST(OnnxOpsets, QuantizeAlongAxesAndInBlocks) {
  const Tensor x = F({1, 4}, {2, 4, 6, 8});
  EXPECT_EQ(OneNode("QuantizeLinear", 10, {x, F({}, {2})}).Run(), (Numbers{1, 2, 3, 4}));
  EXPECT_EQ(OneNode("QuantizeLinear", 13, {x, F({4}, {1, 2, 3, 4})}).Run(), (Numbers{2, 2, 2, 2}));
  EXPECT_EQ(
      OneNode("QuantizeLinear", 21, {x, F({1, 2}, {1, 2})}).Set("block_size", int64_t{2}).Run(),
      (Numbers{2, 4, 3, 4}));
}

TEST(OnnxOpsets, Others) {
  const Tensor x = F({1, 2, 1}, {-1, -2}), slope = F({2}, {10, 100});
  EXPECT_EQ(OneNode("PRelu", 6, {x, slope}).Run(), (Numbers{-10, -200}));
  EXPECT_EQ(OneNode("PRelu", 7, {x, slope.Reshaped({2, 1})}).Run(), (Numbers{-10, -200}));
  ExpectNear(OneNode("Selu", 1, {F({1}, {1})}).Run(), {1.0507f});
  ExpectNear(OneNode("Selu", 6, {F({1}, {1})}).Run(), {1.050701f});
  const Tensor a = X({2, 2}), c = F({2}, {1, 2});
  EXPECT_EQ(OneNode("Gemm", 6, {a, a, c}).Set("broadcast", int64_t{1}).Run(),
            (Numbers{3, 5, 7, 13}));
  EXPECT_NE(OneNode("Gemm", 6, {a, a, c}).Refusal().find("unless attribute broadcast is 1"),
            std::string::npos);
  EXPECT_EQ(OneNode("Gemm", 7, {a, a, c}).Run(), (Numbers{3, 5, 7, 13}));
  EXPECT_EQ(OneNode("Gemm", 11, {a, a}).Run(), (Numbers{2, 3, 6, 11}));
}
}  // namespace coracle::onnx::onnx_opsets_test
