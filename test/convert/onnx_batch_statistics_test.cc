// Norms by the statistics of the batch, written as ONNX and read again.

#include <coracle/convert/models.h>
#include <coracle/framework/base/file.h>
#include <coracle/framework/ir/feed_fetch.h>
#include <coracle/proto/onnx.pb.h>
#include <coracle/test/convert/ort_peer.h>
#include <coracle/test/error_of.h>
#include <coracle/test/passes/op_program.h>
#include <coracle/test/test_data.h>

namespace coracle::onnx_batch_statistics_test {

class Norm : public OpProgram {
 public:
  // Results: y, and the statistics m and v.
  Norm(const Shape& x, int64_t channels, const std::string& layout, const AttrList& more = {}) {
    Data("x", x);
    for (const char* name : {"scale", "bias", "mean", "variance"}) Parameter(name, {channels});
    AttrList attrs = {{"data_layout", layout}, {"momentum", 0.75f}, {"epsilon", 0.01f}};
    attrs.insert(attrs.end(), more.begin(), more.end());
    Append("batch_norm",
           {{"X", {"x"}},
            {"Scale", {"scale"}},
            {"Bias", {"bias"}},
            {"Mean", {"mean"}},
            {"Variance", {"variance"}}},
           {{"Y", {"y"}},
            {"MeanOut", {"m"}},
            {"VarianceOut", {"v"}},
            {"SavedMean", {"saved_m"}},
            {"SavedVariance", {"saved_v"}}},
           attrs);
    SetFeedsAndFetches(program, {"x"}, {"y", "m", "v"});
  }
  std::string ErrorOfExport(int opset = 0) const {
    TemporaryDirectory directory;
    return ErrorOf([&] { ExportOnnx(directory.File("m.onnx"), program, scope, {.opset = opset}); });
  }
};

std::vector<Tensor> Results(const ProgramDesc& program, const Scope& parameters, const Tensor& x) {
  Scope scope = parameters.Clone();
  PreparedProgram net = Executor().PrepareOwning(program, scope);
  std::vector<Tensor> results;
  for (const Tensor& result : net.Run(scope, {x})) results.push_back(result.Clone());
  return results;
}

void ExpectSame(const Norm& norm) {
  TemporaryDirectory directory;
  const std::string path = directory.File("m.onnx");
  ExportOnnx(path, norm.program, norm.scope);
  Scope read;
  const InferenceModel again = ImportOnnx(path, read);
  const Tensor& x = norm.feeds.at("x");
  const auto want = Results(norm.program, norm.scope, x), got = Results(again.program, read, x);
  ASSERT_EQ(got.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_LE(RelativeDifference(want[i], got[i]), 1e-5) << i;
  if (WhyNoOrt().empty()) {
    EXPECT_EQ(CompareWithOrt(directory.File("peer"), norm.program, norm.scope, norm.feeds, 1e-5),
              "");
  }
}

TEST(OnnxBatchStatistics, TheSameAfterReading) {
  ExpectSame(Norm({2, 3, 4, 5}, 3, "NCHW"));
  ExpectSame(Norm({2, 4, 5, 3}, 3, "NHWC"));
  ExpectSame(Norm({6, 3}, 3, "NCHW"));
  ExpectSame(Norm({-1, 3, 4, 5}, 3, "NCHW"));
  ExpectSame(Norm({2, 3, 4}, 3, "NCHW", {{"is_test", true}, {"trainable_statistics", true}}));
}

// The batch's mean of a channel, and its variance divided by the number of elements.
TEST(OnnxBatchStatistics, RunningStatistics) {
  const Norm norm({6, 3}, 3, "NCHW");
  TemporaryDirectory directory;
  const std::string path = directory.File("m.onnx");
  ExportOnnx(path, norm.program, norm.scope);
  proto::onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(ReadFile(path)));
  ASSERT_EQ(model.graph().node_size(), 1);
  EXPECT_EQ(model.graph().node(0).output_size(), 3);
  Scope read;
  const InferenceModel again = ImportOnnx(path, read);
  const Tensor& x = norm.feeds.at("x");
  const std::vector<Tensor> got = Results(again.program, read, x);
  for (int64_t c = 0; c < 3; ++c) {
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < 6; ++i) mean += double{x.data<float>()[3 * i + c]} / 6;
    for (int64_t i = 0; i < 6; ++i)
      variance += std::pow(double{x.data<float>()[3 * i + c]} - mean, 2) / 6;
    const auto old = [&](const char* name) {
      return double{norm.scope.Get(name).data<float>()[c]};
    };
    EXPECT_NEAR(got[1].data<float>()[c], 0.75 * old("mean") + 0.25 * mean, 1e-5);
    EXPECT_NEAR(got[2].data<float>()[c], 0.75 * old("variance") + 0.25 * variance, 1e-5);
  }
}

TEST(OnnxBatchStatistics, Refusals) {
  const std::string one = Norm({1, 3, 1, 1}, 3, "NCHW").ErrorOfExport();
  EXPECT_NE(one.find("one element for each channel"), std::string::npos) << one;
  const std::string open = Norm({-1, 3}, 3, "NCHW").ErrorOfExport();
  EXPECT_NE(open.find("one element for each channel"), std::string::npos) << open;
  const std::string early = Norm({6, 3}, 3, "NCHW").ErrorOfExport(13);
  EXPECT_NE(early.find("needs opset 14 or later, got 13"), std::string::npos) << early;
  Norm in_place({6, 3}, 3, "NCHW");
  OpDesc& norm = in_place.root().op(1);
  ASSERT_EQ(norm.type(), "batch_norm");
  norm.SetOutput("MeanOut", {"mean"});
  norm.SetOutput("VarianceOut", {"variance"});
  SetFeedsAndFetches(in_place.program, {"x"}, {"y"});
  const std::string trains = in_place.ErrorOfExport();
  EXPECT_NE(trains.find("it updates its statistics, as in training"), std::string::npos) << trains;
}

}  // namespace coracle::onnx_batch_statistics_test
