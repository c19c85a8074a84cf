// Models that Paddle exported, against results of an independent interpreter.

#include <coracle/executor/executor.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/operators.h>
#include <gtest/gtest.h>

#include <cmath>

#include "../test_data.h"

namespace coracle {
namespace {

// Largest difference of the model's first result from `golden`.
double Difference(const std::string& model, const std::string& input, const std::string& golden,
                  const CompileOptions& options) {
  const std::string data = TestDataDirectory() + "/paddle/";
  Scope scope;
  InferenceModel loaded = LoadInferenceModel(data + model + "/inference.pdmodel", scope);
  // The size of the images that it was exported with does not bind it.
  VarDesc* image = loaded.program.Root().FindVarRecursive(loaded.feed_names[0]);
  image->SetShape({-1, 3, -1, -1});
  PreparedProgram program = Executor(options).Prepare(loaded.program);
  const Tensor& out = program.Run(scope, {ReadNpy(data + "golden/" + input)})[0];
  const Tensor expected = ReadNpy(data + "golden/" + golden);
  EXPECT_EQ(expected.numel(), out.numel());
  double largest = 0;
  for (int64_t i = 0; i < std::min(expected.numel(), out.numel()); ++i) {
    const double difference = std::abs(expected.data<float>()[i] - out.data<float>()[i]);
    largest = std::isnan(difference) ? INFINITY : std::max(largest, difference);
  }
  return largest;
}

bool Absent() { return TestDataDirectory().empty(); }

}  // namespace

TEST(RealModel, TextDirection) {
  if (Absent()) GTEST_SKIP() << "the exported models are not there";
  const std::string model = "ch_ppocr_mobile_v2.0_cls", golden = model + "_out_";
  EXPECT_LT(Difference(model, "cls_in_rot0.npy", golden + "rot0.npy", {}), 1e-4);
  EXPECT_LT(Difference(model, "cls_in_rot180.npy", golden + "rot180.npy", {}), 1e-4);
  EXPECT_LT(Difference(model, "cls_in_rot0.npy", golden + "rot0.npy",
                       {.kernels = KernelMode::kReference}),
            1e-4);
}

// At the size that the program declares, where a pooling window sticks out of its image.
TEST(RealModel, DeclaredSize) {
  if (Absent()) GTEST_SKIP() << "the exported models are not there";
  Scope scope;
  InferenceModel loaded = LoadInferenceModel(
      TestDataDirectory() + "/paddle/ch_ppocr_mobile_v2.0_cls/inference.pdmodel", scope);
  PreparedProgram program = Executor().Prepare(loaded.program);
  const Tensor& out = program.Run(scope, {Tensor::Zeros(DType::kFloat32, {2, 3, 32, 100})})[0];
  ASSERT_EQ("[2, 2]", out.shape().ToString());
  EXPECT_NEAR(1, out.data<float>()[0] + out.data<float>()[1], 1e-5);
}

TEST(RealModel, TextDetection) {
  if (Absent()) GTEST_SKIP() << "the exported models are not there";
  EXPECT_LT(Difference("ch_PP-OCRv3_det", "det_in.npy", "ch_PP-OCRv3_det_out.npy", {}), 2e-3);
}

}  // namespace coracle
