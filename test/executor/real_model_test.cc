// Models that Paddle exported, against results of an independent interpreter.

#include <coracle/executor/executor.h>
#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/operators.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

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

// Values for what a program without its parameters reads: of the size at which activations keep
// theirs, and positive where they may be variances.
void DrawParameters(const ProgramDesc& program, Scope& scope) {
  uint64_t state = 1;
  const auto draw = [&](double low, double high) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<float>(low + (high - low) * static_cast<double>(state >> 40) / (1 << 24));
  };
  for (const std::string& name : PersistableNames(program)) {
    const VarMeta& meta = program.Root().FindVar(name)->meta();
    ASSERT_EQ(meta.dtype, DType::kFloat32) << name;
    Tensor value(meta.dtype, meta.shape);
    const int64_t outputs = meta.shape.rank() > 1 ? std::max<int64_t>(meta.shape[0], 1) : 1;
    const double limit = 0.5 * std::sqrt(6.0 * static_cast<double>(outputs) /
                                         static_cast<double>(std::max<int64_t>(value.numel(), 1)));
    for (float& v : value.span<float>())
      v = meta.shape.rank() > 1 ? draw(-limit, limit) : draw(0.5, 1.5);
    scope.Set(name, std::move(value));
  }
}

// The input of a program: dims that it leaves open are small.
Tensor DrawInput(const VarMeta& meta) {
  Shape shape;
  for (int i = 0; i < meta.shape.rank(); ++i)
    shape.Append(meta.shape[i] >= 0 ? meta.shape[i] : i == 0 ? 1 : 64);
  if (meta.lod_level > 0) {  // ids of two sentences
    Tensor ids(meta.dtype, {7, 1});
    for (int64_t i = 0; i < 7; ++i) ids.data<int64_t>()[i] = 11 * i % 17;
    ids.lod() = {{0, 3, 7}};
    return ids;
  }
  Tensor x(meta.dtype, shape);
  if (meta.dtype == DType::kInt64) {  // lengths
    for (int64_t& n : x.span<int64_t>()) n = 7;
    return x;
  }
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] = static_cast<float>((i * 37) % 101) / 50 - 1;
  return x;
}

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

// All of them, with drawn parameters where the saved ones are not there: fast kernels give what the
// reference ones do.
TEST(RealModel, FastAgainstReference) {
  if (Absent()) GTEST_SKIP() << "the exported models are not there";
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TestDataDirectory() + "/paddle")) {
    const std::string path = entry.path().string() + "/inference.pdmodel";
    if (!std::filesystem::exists(path)) continue;
    SCOPED_TRACE(path);
    ++models;
    ProgramDesc program = ReadProgram(path);
    Scope scope;
    if (std::filesystem::exists(entry.path() / "inference.pdiparams"))
      LoadParameters(program, entry.path().string() + "/inference.pdiparams", scope);
    else
      DrawParameters(program, scope);
    const BlockDesc& root = program.Root();
    std::map<std::string, Tensor> feeds;
    std::vector<std::string> fetches;
    root.ForEachOp([&](const OpDesc& op) {
      if (op.type() == "feed")
        feeds[op.Output("Out")[0]] = DrawInput(root.FindVar(op.Output("Out")[0])->meta());
      if (op.type() == "fetch") fetches.push_back(op.Input("X")[0]);
    });
    const auto fast = Executor().Run(program, scope, feeds, fetches);
    const auto reference =
        Executor({.kernels = KernelMode::kReference}).Run(program, scope, feeds, fetches);
    ASSERT_FALSE(fast.empty());
    for (size_t k = 0; k < fast.size(); ++k) {
      ASSERT_EQ(fast[k].shape(), reference[k].shape());
      if (fast[k].dtype() != DType::kFloat32) {
        EXPECT_EQ(std::memcmp(fast[k].raw(), reference[k].raw(), fast[k].nbytes()), 0);
        continue;
      }
      double largest = 0, difference = 0;
      for (int64_t i = 0; i < fast[k].numel(); ++i) {
        const double a = fast[k].data<float>()[i], b = reference[k].data<float>()[i];
        ASSERT_TRUE(std::isfinite(b));
        largest = std::max(largest, std::abs(b));
        difference = std::max(difference, std::abs(a - b));
      }
      EXPECT_LE(difference, 1e-5 * largest);
    }
  }
  EXPECT_EQ(models, 12);
}

}  // namespace coracle
