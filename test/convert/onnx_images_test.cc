// Importers of ops on images and of norms, on small tensors whose results are plain.
#include <coracle/convert/onnx/dtypes.h>
#include <coracle/convert/onnx_import.h>
#include <coracle/executor/executor.h>
#include <coracle/proto/onnx.pb.h>
#include <gtest/gtest.h>

namespace coracle::onnx::onnx_images_test {

using proto::onnx::AttributeProto;
using Numbers = std::vector<float>;
using Integers = std::vector<int64_t>;

Tensor F(const Shape& shape, const Numbers& values) { return Tensor::Of<float>(shape, values); }
Tensor I(const Integers& values) {
  return Tensor::Of<int64_t>({static_cast<int64_t>(values.size())}, values);
}

// A model of one node, all of whose inputs are given.
class OneNode {
 public:
  OneNode(const std::string& op_type, int64_t opset, const std::vector<Tensor>& inputs) {
    model_.add_opset_import()->set_version(opset);
    node_ = model_.mutable_graph()->add_node();
    node_->set_op_type(op_type);
    node_->add_output("y");
    model_.mutable_graph()->add_output()->set_name("y");
    for (size_t i = 0; i < inputs.size(); ++i) {
      const std::string name = "x" + std::to_string(i);
      node_->add_input(name);
      auto& info = *model_.mutable_graph()->add_input();
      info.set_name(name);
      auto& type = *info.mutable_type()->mutable_tensor_type();
      type.set_elem_type(ToDataType(inputs[i].dtype()));
      type.mutable_shape();
      for (int64_t dim : inputs[i].shape()) type.mutable_shape()->add_dim()->set_dim_value(dim);
      options_.input_values[name] = inputs[i];
    }
  }

  OneNode& Set(const std::string& name, const Integers& values) {
    AttributeProto& attr = Add(name, AttributeProto::INTS);
    for (int64_t value : values) attr.add_ints(value);
    return *this;
  }
  OneNode& Set(const std::string& name, int64_t value) {
    Add(name, AttributeProto::INT).set_i(value);
    return *this;
  }
  OneNode& Set(const std::string& name, float value) {
    Add(name, AttributeProto::FLOAT).set_f(value);
    return *this;
  }
  OneNode& Set(const std::string& name, const std::string& value) {
    Add(name, AttributeProto::STRING).set_s(value);
    return *this;
  }

  Numbers Run() {
    Scope scope;
    const InferenceModel model = ParseOnnx(model_.SerializeAsString(), "m.onnx", scope, options_);
    PreparedProgram prepared = Executor().Prepare(model.program);
    const Tensor result = prepared.Run(scope, std::vector<Tensor>{}).at(0).Clone();
    const auto values = result.span<float>();
    return {values.begin(), values.end()};
  }

 private:
  AttributeProto& Add(const std::string& name, AttributeProto::AttributeType type) {
    AttributeProto& attr = *node_->add_attribute();
    attr.set_name(name);
    attr.set_type(type);
    return attr;
  }

  proto::onnx::ModelProto model_;
  proto::onnx::NodeProto* node_;
  OnnxImportOptions options_;
};

void ExpectNear(const Numbers& got, const Numbers& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-5f) << "element " << i;
}

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
  // Of an even number the channel itself and the next one.
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
}  // namespace coracle::onnx::onnx_images_test
