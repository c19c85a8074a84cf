// The scenario that error clip was designed by: an MLP 784-128-64-10, and a copy of its program
// with an error clip on hidden1. With the same parameters and images the copy's hidden1 gradient is
// the other's, clipped element by element, exactly; hidden2's gradients are identical.

#include <coracle/clip/clip.h>
#include <coracle/executor/executor.h>
#include <coracle/framework/tensor/rng.h>
#include <coracle/layers/builder.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace coracle::reference_scenario_test {

constexpr int64_t kBatch = 128;
constexpr int kBatches = 5;
constexpr float kMax = 2e-6f, kMin = -1e-6f;

struct Batch {
  Tensor image, label;
};

std::string DataDir() {
  if (const char* dir = std::getenv("CORACLE_DATA")) return dir;
  const char* source = std::getenv("CORACLE_SOURCE_DIR");
  return std::string(source ? source : ".") + "/../shared/data";
}

// `size` bytes of a gzip file after `skip` bytes.
std::vector<uint8_t> ReadGzip(const std::string& path, int skip, int64_t size) {
  std::vector<uint8_t> bytes(static_cast<size_t>(skip + size));
  gzFile file = gzopen(path.c_str(), "rb");
  if (!file) return {};
  const int got = gzread(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
  if (got != skip + size) return {};
  bytes.erase(bytes.begin(), bytes.begin() + skip);
  return bytes;
}

std::vector<Batch> MnistBatches(const std::string& dir) {
  const int64_t n = kBatch * kBatches;
  auto pixels = ReadGzip(dir + "/train-images-idx3-ubyte.gz", 16, n * 784);
  auto labels = ReadGzip(dir + "/train-labels-idx1-ubyte.gz", 8, n);
  std::vector<Batch> batches;
  if (pixels.empty() || labels.empty()) return batches;
  for (int64_t b = 0; b < kBatches; ++b) {
    Batch batch{Tensor(DType::kFloat32, {kBatch, 784}), Tensor(DType::kInt64, {kBatch, 1})};
    for (int64_t i = 0; i < kBatch * 784; ++i) {
      const uint8_t pixel = pixels[static_cast<size_t>(b * kBatch * 784 + i)];
      batch.image.data<float>()[i] = static_cast<float>(pixel) / 127.5f - 1;
    }
    for (int64_t i = 0; i < kBatch; ++i)
      batch.label.data<int64_t>()[i] = labels[static_cast<size_t>(b * kBatch + i)];
    batches.push_back(batch);
  }
  return batches;
}

std::vector<Batch> RandomBatches() {
  std::vector<Batch> batches;
  for (uint64_t b = 0; b < kBatches; ++b) {
    Philox random(17, b, 0);
    Batch batch{Tensor(DType::kFloat32, {kBatch, 784}), Tensor(DType::kInt64, {kBatch, 1})};
    for (uint64_t i = 0; i < kBatch * 784; ++i)
      batch.image.data<float>()[i] = 2 * random.UniformFloat(i) - 1;
    for (uint64_t i = 0; i < kBatch; ++i)
      batch.label.data<int64_t>()[i] = static_cast<int64_t>(random.UniformDouble(i) * 10);
    batches.push_back(batch);
  }
  return batches;
}

Tensor Clipped(const Tensor& tensor) {
  Tensor clipped = tensor.Clone();
  for (float& x : clipped.span<float>()) x = std::clamp(x, kMin, kMax);
  return clipped;
}

void ExpectSame(const Tensor& a, const Tensor& b, const char* what) {
  ASSERT_EQ(a.shape().ToString(), b.shape().ToString());
  auto x = a.span<float>(), y = b.span<float>();
  EXPECT_TRUE(std::equal(x.begin(), x.end(), y.begin())) << what;
}

void CompareBoth(const std::vector<Batch>& batches) {
  ProgramDesc plain, startup;
  Builder net(plain, startup);
  Variable image = net.Data("image", {-1, 784});
  Variable label = net.Data("label", {-1, 1}, DType::kInt64);
  Variable hidden1 = net.Fc(image, {.size = 128, .act = "relu", .output = "hidden1"});
  Variable hidden2 = net.Fc(hidden1, {.size = 64, .act = "relu", .output = "hidden2"});
  Variable predict = net.Fc(hidden2, {.size = 10, .act = "softmax"});
  const std::string loss = net.Mean(net.CrossEntropy(predict, label)).name();

  ProgramDesc clipped = plain;
  clipped.Root().FindVar("hidden1")->SetErrorClip(ErrorClipByValue(kMax, kMin));
  for (ProgramDesc* program : {&plain, &clipped}) {
    BackwardOptions options;
    options.callbacks = {ErrorClipCallback};
    auto pairs = AppendBackward(Variable::Of(program->Root(), loss), options);
    EXPECT_EQ(pairs.size(), 6u);
  }
  Scope scope;
  Executor executor({.seed = 1});
  executor.Run(startup, scope);
  const std::vector<std::string> fetches = {"hidden1@GRAD", "hidden2@GRAD"};
  auto run_plain = executor.Prepare(plain, {"image", "label"}, fetches);
  auto run_clipped = executor.Prepare(clipped, {"image", "label"}, fetches);
  for (const Batch& batch : batches) {
    const std::vector<Tensor> a = run_plain.Run(scope, {batch.image, batch.label});
    const std::vector<Tensor> b = run_clipped.Run(scope, {batch.image, batch.label});
    ExpectSame(b[0], Clipped(a[0]), "hidden1@GRAD of the copy is the clipped one");
    ExpectSame(b[1], a[1], "hidden2@GRAD is the same");
    auto before = a[0].span<float>();
    EXPECT_GT(
        std::count_if(before.begin(), before.end(), [](float x) { return x > kMax || x < kMin; }),
        100)
        << "the clip was to act";
  }
}

TEST(ErrorClipReference, RandomImages) { CompareBoth(RandomBatches()); }

TEST(ErrorClipReference, Mnist) {
  const std::string dir = DataDir() + "/mnist";
  if (!std::filesystem::exists(dir)) GTEST_SKIP() << "no MNIST in " << dir;
  std::vector<Batch> batches = MnistBatches(dir);
  ASSERT_EQ(batches.size(), 5u);
  CompareBoth(batches);
}
}  // namespace coracle::reference_scenario_test
