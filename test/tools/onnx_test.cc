// ONNX models as a user of the command meets them: made by convert, run, listed, trained, refused.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/tools/cli.h>

#include <filesystem>

namespace coracle::onnx_test {

namespace fs = std::filesystem;

class OnnxCommand : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    WriteFileAtomic(Path("net.pbtxt"), R"(
      data { name: "image" shape: [-1, 1, 28, 28] }
      data { name: "label" shape: [-1, 1] dtype: INT64 }
      layer { conv2d { input: "image" num_filters: 4 filter_size: 5 stride: 4 act: "relu"
                       output: "c" } }
      layer { fc { input: "c" size: 10 output: "logits" } }
      layer { softmax { input: "logits" output: "prob" } }
      layer { softmax_with_cross_entropy { logits: "logits" label: "label" output: "ce" } }
      layer { mean { input: "ce" output: "loss" } }
    )");
    WriteFileAtomic(Path("job.pbtxt"), Job("net.pbtxt"));
    Expect("coracle train job.pbtxt --out=base && coracle convert base/model.pdmodel net.onnx", 0,
           {"final: loss="});
  }
  static std::string Job(const std::string& model) {
    return R"(model: ")" + model + R"("
      train { digits { count: 64 } }
      loss: "loss"
      optimizer { momentum { learning_rate: 0.01 } }
      batch_size: 16
      epochs: 1
      deploy { input: "image" output: "prob" }
    )";
  }
};

TEST_F(OnnxCommand, ConvertRunDump) {
  WriteSafetensors({{"image", Tensor::Full<float>({2, 1, 28, 28}, 0.5f)}}, Path("in.safetensors"));
  Expect("coracle dump net.onnx", 0,
         {"image  float32[-1,1,28,28]", "prob  float32[-1,10]", "conv2d(Input=image", "softmax("});
  Expect("coracle run base --feed=in.safetensors --out=want.npz", 0, {"prob: float32[2, 10]"});
  Expect("coracle run net.onnx --feed=in.safetensors --check=want.npz --rtol=1e-5", 0, {});
  Expect(
      "coracle convert net.onnx back.pdmodel && coracle run back.pdmodel --feed=in.safetensors "
      "--check=want.npz --rtol=1e-5",
      0, {});
  // Its weights by name, out and in again.
  Expect(
      "coracle convert net.onnx w.safetensors && coracle convert base/model.pdmodel "
      "w.onnx --params=w.safetensors && cmp w.onnx net.onnx",
      0, {});
  Expect("coracle convert net.onnx w.npz && coracle compare w.npz w.safetensors", 0, {});
  Expect("coracle compare net.onnx w.npz --rtol=0 --atol=0", 0, {"all elements are equal"});
  Expect("coracle dump w.safetensors", 1, {"'w.safetensors' holds tensors, but a program"});
  Expect("coracle time net.onnx --iterations=2", 0, {"whole step"});
}

// A job takes an ONNX model as a layer, or its weights.
TEST_F(OnnxCommand, Train) {
  WriteFileAtomic(Path("tune.pbtxt"), R"(
    data { name: "image" shape: [-1, 1, 28, 28] }
    data { name: "label" shape: [-1, 1] dtype: INT64 }
    layer { program { file: "net.onnx" input: "image" fetch: "logits" output: "logits" } }
    layer { softmax { input: "logits" output: "prob" } }
    layer { softmax_with_cross_entropy { logits: "logits" label: "label" output: "ce" } }
    layer { mean { input: "ce" output: "loss" } }
  )");
  WriteFileAtomic(Path("tune_job.pbtxt"), Job("tune.pbtxt"));
  // As many steps more are the same with and without ONNX between them.
  WriteFileAtomic(Path("own_job.pbtxt"),
                  Job("net.pbtxt") + R"(weights { file: "base/model.pdmodel" })");
  WriteFileAtomic(Path("weights_job.pbtxt"), Job("net.pbtxt") + R"(weights { file: "net.onnx" })");
  Expect("coracle train tune_job.pbtxt --out=tuned", 0, {"1554 parameters"});
  Expect("coracle train own_job.pbtxt --out=own", 0, {"4 of 4 variables loaded"});
  Expect("coracle train weights_job.pbtxt --out=weights", 0, {"4 of 4 variables loaded"});
  for (const char* run : {"tuned", "own", "weights"}) {
    const std::string name = run;
    Expect("coracle convert " + name + "/model.pdmodel " + name + ".onnx && coracle convert " +
               name + ".onnx " + name + ".npz",
           0, {});
  }
  Expect("coracle compare own.npz weights.npz", 0, {});
  Expect("coracle compare own.npz tuned.npz --rtol=1e-3 --atol=1e-5", 0, {});
  Expect(
      "coracle compare own.npz tuned.npz --rtol=1e-3 --atol=1e-5 && coracle convert net.onnx "
      "net.npz && coracle compare own.npz net.npz --rtol=1e-3 --atol=1e-5",
      1, {});
}

// One line and an exit code, and nothing is written.
TEST_F(OnnxCommand, WrongInput) {
  const std::string bytes = ReadFile(Path("net.onnx"));
  const auto expect = [&](const std::string& file, const std::string& part) {
    const Result result = Shell("cd " + dir_ + " && coracle convert " + file + " x.pdmodel");
    EXPECT_EQ(result.code, 1) << result.text;
    EXPECT_EQ(result.text.find('\n'), result.text.size() - 1) << result.text;
    EXPECT_NE(result.text.find("coracle: "), std::string::npos) << result.text;
    EXPECT_NE(result.text.find(part), std::string::npos) << result.text;
    EXPECT_FALSE(FileExists(Path("x.pdmodel"))) << file;
    EXPECT_FALSE(FileExists(Path("x.pdiparams"))) << file;
  };
  expect("missing.onnx", "cannot open 'missing.onnx'");
  for (const size_t size : {size_t{0}, size_t{9}, bytes.size() / 2, bytes.size() - 1}) {
    WriteFileAtomic(Path("cut.onnx"), bytes.substr(0, size));
    expect("cut.onnx", "cut.onnx: not an ONNX model");
  }
  fs::copy_file(Path("base/model.pdmodel"), Path("other.onnx"));
  expect("other.onnx", "other.onnx: not an ONNX model");
  WriteFileAtomic(Path("text.onnx"), "layer { mean { } }\n");
  expect("text.onnx", "text.onnx: not an ONNX model");
  Expect("coracle convert net.pbtxt x.onnx", 1, {"net.pbtxt has no parameters next to it"});
  Expect("coracle convert net.onnx", 2, {"takes IN and OUT"});
  Expect("coracle convert base/eval.pdmodel x.onnx --opset=12", 2, {"between 13 and 22, got 12"});
  Expect("coracle convert base/main.pb x.onnx --params=base/model.pdiparams", 1, {});
  EXPECT_FALSE(FileExists(Path("x.onnx")));
}

}  // namespace coracle::onnx_test
