// Whole networks of the ONNX project, whose weights ConstantOfShape makes, with their outputs for
// an input of ones.
#include <coracle/convert/models.h>
#include <coracle/convert/onnx/tensors.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/base/file.h>
#include <coracle/test/test_data.h>
#include <gtest/gtest.h>

#include <cmath>

namespace coracle::onnx::onnx_networks_test {

class OnnxNetworks : public testing::TestWithParam<const char*> {};

TEST_P(OnnxNetworks, GiveTheirOutputs) {
  const std::string folder = TestDataDirectory() + "/onnx/models/";
  if (TestDataDirectory().empty() || !IsDirectory(folder))
    GTEST_SKIP() << "ONNX's networks are not here";
  Scope scope;
  const InferenceModel model = ImportOnnx(folder + GetParam() + ".onnx", scope);
  const VarDesc& input = *model.program.Root().FindVar(model.feed_names.at(0));
  const std::vector<Tensor> results =
      Executor().Run(model.program, scope, {{input.name(), Tensor::Full<float>(input.shape(), 1)}});
  proto::onnx::TensorProto proto;
  ASSERT_TRUE(proto.ParseFromString(ReadFile(folder + GetParam() + "_output_0.pb")));
  const Tensor wanted = ParseTensorProto(proto, TensorSource());
  ASSERT_EQ(results.at(0).shape(), wanted.shape());
  for (int64_t i = 0; i < wanted.numel(); ++i) {
    const float a = results[0].data<float>()[i], b = wanted.data<float>()[i];
    ASSERT_LE(std::abs(a - b), 1e-7f + 1e-3f * std::abs(b)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Light, OnnxNetworks,
                         testing::Values("light_inception_v1", "light_resnet50", "light_shufflenet",
                                         "light_squeezenet"));
}  // namespace coracle::onnx::onnx_networks_test
