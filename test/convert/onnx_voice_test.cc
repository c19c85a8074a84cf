// The voice detectors Silero v4, v5 and v6, which choose between two nets by an input.
// $CORACLE_ORT is a folder node_modules with onnxruntime-node and with @ricky0123/vad-web, which
// has the model files.
#include <coracle/convert/models.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/test/convert/ort_peer.h>
#include <coracle/test/test_data.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace coracle::onnx_voice_test {

std::string ModelFile(const std::string& version) {
  return fmt::format("{}/@ricky0123/vad-web/dist/silero_vad_{}.onnx",
                     std::getenv("CORACLE_ORT") ? std::getenv("CORACLE_ORT") : "", version);
}

// With noise: the logarithm of a spectrum without any would be that of rounding errors.
Tensor Wave(const Shape& shape, float step) {
  Tensor wave(DType::kFloat32, shape);
  const Philox random(7, 0, 0);
  for (int64_t i = 0; i < wave.numel(); ++i) {
    const float noise = random.UniformFloat(static_cast<uint64_t>(i)) - 0.5f;
    wave.data<float>()[i] = 0.5f * std::sin(step * static_cast<float>(i)) + 0.5f * noise;
  }
  return wave;
}

std::map<std::string, Tensor> Feeds(const std::string& version, int64_t rate, int64_t samples) {
  std::map<std::string, Tensor> feeds = {{"input", Wave({1, samples}, 0.07f)},
                                         {"sr", Tensor::Full<int64_t>({}, rate)}};
  if (version == "legacy")
    feeds["h"] = feeds["c"] = Wave({2, 1, 64}, 0.3f);
  else
    feeds["state"] = Wave({2, 1, 128}, 0.3f);
  return feeds;
}

// The results of ONNX Runtime, by name.
std::map<std::string, Tensor> RunPeer(const std::string& folder, const std::string& model,
                                      const std::map<std::string, Tensor>& feeds) {
  MakeDirectories(folder);
  std::filesystem::copy_file(model, folder + "/model.onnx");
  std::string names;
  int count = 0;
  for (const auto& [name, tensor] : feeds) {
    WriteNpy(tensor, fmt::format("{}/in_{}.npy", folder, count++));
    names += name + "\n";
  }
  WriteFileAtomic(folder + "/inputs.txt", names);
  const std::string run =
      fmt::format("node {}/test/convert/peer/ort_run.js {} {}", std::getenv("CORACLE_SOURCE_DIR"),
                  std::getenv("CORACLE_ORT"), folder);
  EXPECT_EQ(std::system(run.c_str()), 0) << run;
  EXPECT_FALSE(FileExists(folder + "/error.txt"));
  std::map<std::string, Tensor> results;
  const std::vector<std::string> outputs = Split(ReadFile(folder + "/outputs.txt"), '\n');
  for (size_t i = 0; i < outputs.size(); ++i)
    if (!outputs[i].empty()) results[outputs[i]] = ReadNpy(fmt::format("{}/out_{}.npy", folder, i));
  return results;
}

void Compare(const InferenceModel& model, Scope& scope, const std::map<std::string, Tensor>& feeds,
             const std::map<std::string, Tensor>& want) {
  std::vector<Tensor> in_order;
  for (const std::string& name : model.feed_names) in_order.push_back(feeds.at(name));
  PreparedProgram net = Executor().Prepare(model.program);
  const std::vector<Tensor>& got = net.Run(scope, in_order);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_LE(RelativeDifference(want.at(model.fetch_names[i]), got[i]), 1e-4);
}

TEST(OnnxVoice, AsOnnxRuntime) {
  if (const std::string why = WhyNoOrt(); !why.empty()) GTEST_SKIP() << why;
  if (!FileExists(ModelFile("v5"))) GTEST_SKIP() << "no @ricky0123/vad-web in $CORACLE_ORT";
  TemporaryDirectory directory;
  for (const std::string version : {"v5", "v6", "legacy"}) {
    for (const auto& [rate, samples] : {std::pair(16000, 512), std::pair(8000, 256)}) {
      SCOPED_TRACE(fmt::format("{} at {} Hz", version, rate));
      std::map<std::string, Tensor> feeds = Feeds(version, rate, samples);
      const auto want =
          RunPeer(directory.File(fmt::format("{}_{}", version, rate)), ModelFile(version), feeds);
      feeds["sr"] = feeds["sr"].Reshaped({1});
      Scope scope;
      Compare(ImportOnnxFor(ModelFile(version), feeds, scope), scope, feeds, want);
      // One program for both rates and any number of samples, with branches inside of branches.
      Scope open;
      Compare(ImportOnnx(ModelFile(version), open), open, feeds, want);
    }
  }
}

}  // namespace coracle::onnx_voice_test
