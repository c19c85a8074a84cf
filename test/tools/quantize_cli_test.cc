// `coracle quantize` as a user runs it: its table, the saved models, and its refusals.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/test/tools/cli.h>

#include <cmath>

namespace coracle::quantize_cli_test {

class QuantizeCli : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    WriteFileAtomic(Path("net.pbtxt"), R"(
      data { name: "x" shape: [-1, 1, 28, 28] }
      layer { conv2d { input: "x" num_filters: 4 filter_size: 5 act: "relu" output: "c" } }
      layer { pool2d { input: "c" pool_size: 4 pool_stride: 4 output: "p" } }
      layer { fc { input: "p" size: 10 output: "h" } }
    )");
    Expect(
        "coracle build net.pbtxt --out=m/net.pdmodel --startup_out=s.pb && "
        "coracle run s.pb --save_params=m/net.pdiparams",
        0, {});
    WriteSamples("x.npz", 20);
    WriteSamples("y.npz", 5);
  }

  void WriteSamples(const std::string& file, int64_t rows) {
    Tensor x(DType::kFloat32, {rows, 1, 28, 28});
    for (int64_t i = 0; i < x.numel(); ++i)
      x.data<float>()[i] = static_cast<float>(std::sin(static_cast<double>(i * i % 1009)));
    WriteNpz({{"x", x}}, Path(file));
  }

  // Checks that a model gives nearly the results of the float model.
  void ExpectNear(const std::string& model, double tolerance) {
    Expect("coracle run m/net.pdmodel --feed=x.npz --fetch=h --out=want.npz", 0, {});
    Expect("coracle run " + model + " --feed=x.npz --fetch=h --out=got.npz", 0, {});
    const Tensor want = ReadNpz(Path("want.npz"))[0].second;
    const Tensor got = ReadNpz(Path("got.npz"))[0].second;
    ASSERT_EQ(got.shape(), want.shape());
    double difference = 0, largest = 0;
    for (size_t i = 0; i < want.span<float>().size(); ++i) {
      const double a = static_cast<double>(want.span<float>()[i]);
      largest = std::max(largest, std::abs(a));
      difference = std::max(difference, std::abs(a - static_cast<double>(got.span<float>()[i])));
    }
    EXPECT_LE(difference, tolerance * largest) << model;
    EXPECT_GT(difference, 0);
  }
};

TEST_F(QuantizeCli, WritesBothForms) {
  Expect("coracle quantize m/net.pdmodel --feed=x.npz,y.npz -o q/int8.pdmodel", 0,
         {"layer", "own SNR", "total SNR", "conv2d", "w8a8", "lose most: ", "weights: ",
          "samples: 25, equalisation: ", "q/int8.pdmodel: ", "q/int8.pdiparams: "});
  ExpectNear("q/int8.pdmodel", 0.03);
  Expect("coracle quantize m/net.pdmodel --feed=x.npz --samples=7 --method=mse -o int8.onnx", 0,
         {"samples: 7,", "int8.onnx: "});
  ExpectNear("int8.onnx", 0.03);
}

TEST_F(QuantizeCli, TakesEachMethodAndScheme) {
  for (const std::string flags :
       {"--method=percentile --percentile=0.999 --feed=x.npz", "--method=entropy --feed=x.npz",
        "--scheme=dynamic --feed=x.npz", "--scheme=dynamic", "--scheme=weight_only",
        "--scheme=weight_only --weights=4 --block_size=32", "--exclude=^c$ --feed=x.npz",
        "--equalize=cross_layer --feed=x.npz", "--equalize=none --nocorrect_bias --feed=x.npz",
        "--compat=paddle --feed=x.npz", "--keep_ends --bfloat16 --feed=x.npz"}) {
    Expect("coracle quantize m/net.pdmodel " + flags + " -o q.pdmodel", 0, {"weights: "});
    ExpectNear("q.pdmodel", 0.2);
  }
}

TEST_F(QuantizeCli, MeasuresTheTestSetAndKeepsLayersInFloat) {
  WriteFileAtomic(Path("digits.pbtxt"), R"(
    name: "digits"
    data  { name: "image" shape: [-1, 1, 28, 28] }
    data  { name: "label" shape: [-1, 1] dtype: INT64 }
    layer { fc { input: "image" size: 32 act: "relu" output: "h" } }
    layer { fc { input: "h" size: 10 output: "logits" } }
    layer { softmax_with_cross_entropy { logits: "logits" label: "label" output: "ce" } }
    layer { mean { input: "ce" output: "loss" } }
    layer { accuracy { input: "logits" label: "label" output: "acc" } }
  )");
  WriteFileAtomic(Path("job.pbtxt"), R"(
    model: "digits.pbtxt"
    train { digits { count: 1000 } }
    test { digits { count: 500 } }
    loss: "loss"
    metric { var: "acc" name: "accuracy" }
    optimizer { adam { learning_rate: 0.01 } }
    batch_size: 50
    epochs: 2
    random_seed: 1
    deploy { input: "image" output: "logits" }
  )");
  Expect("coracle train job.pbtxt --out=run", 0, {});
  Expect("coracle quantize run/model.pdmodel --job=job.pbtxt --samples=100 -o q.onnx", 0,
         {"samples: 100,", "test set: accuracy 0."});
  Expect("coracle quantize run/eval.pdmodel --job=job.pbtxt --samples=100 -o q.pdmodel", 0,
         {"test set: loss ", ", accuracy 0."});
  Expect("coracle quantize run/eval.pdmodel --job=job.pbtxt --max_drop=1 -o q.pdmodel", 0,
         {"w8a8"});
  // No quantised layer leaves the loss as it is to the last digit.
  Expect(
      "coracle quantize run/eval.pdmodel --job=job.pbtxt --metric=loss --method=percentile "
      "--percentile=0.6 --max_drop=0.0001 -o q.pdmodel",
      0, {"float"});
  Expect("coracle quantize run/eval.pdmodel --job=job.pbtxt --max_drop=1 --metric=acc -o q.pdmodel",
         1, {"--metric: the test set has no 'acc'; it has loss, accuracy"});
  Expect("coracle quantize run/eval.pdmodel --job=job.pbtxt --test_set=no -o q.pdmodel", 1,
         {"the job has no test set 'no'"});
}

TEST_F(QuantizeCli, DividesSamplesIntoBatchesOfTheModel) {
  Expect(
      "coracle set-shape m/net.pdmodel x:4x1x28x28 -o fixed/net.pdmodel && "
      "coracle quantize fixed/net.pdmodel --feed=x.npz,y.npz -o q.onnx",
      0, {"samples: 24,"});
  Expect("coracle quantize fixed/net.pdmodel --feed=y.npz --samples=1 -o q.onnx", 0,
         {"samples: 4,"});
  WriteSamples("few.npz", 3);
  Expect("coracle quantize fixed/net.pdmodel --feed=few.npz -o r.onnx", 1, {"3", "4"});
}

TEST_F(QuantizeCli, RefusesFlagsThatChangeNothing) {
  const auto refuses = [&](const std::string& flags, const std::string& message) {
    Expect("coracle quantize m/net.pdmodel -o q.onnx " + flags, 2, {message});
  };
  refuses("--feed=x.npz --percentile=0.99", "--percentile changes nothing without --method");
  refuses("--feed=x.npz --block_size=32", "--block_size changes nothing without --weights=4");
  refuses("--scheme=dynamic --method=mse", "--method changes nothing without --scheme=static");
  refuses("--scheme=weight_only --equalize=smooth", "--equalize changes nothing without --job or");
  refuses("--scheme=weight_only --samples=9", "--samples changes nothing without --job or --feed");
  refuses("--scheme=weight_only --attention", "--attention changes nothing without");
  refuses("--job=job.pbtxt --metric=loss", "--metric changes nothing without --max_drop");
  Expect("coracle quantize m/net.pdmodel --feed=x.npz --equalize=smooth -o q.onnx", 0,
         {"--equalize changed nothing: "});
}

TEST_F(QuantizeCli, RefusesBadInput) {
  Expect("coracle quantize m/net.pdmodel --feed=x.npz", 2, {"--out=FILE is missing"});
  Expect("coracle quantize m/net.pdmodel --feed=x.npz -o q.txt", 2, {"--out"});
  Expect("coracle quantize m/net.pdmodel -o q.onnx", 2, {"samples are missing"});
  Expect("coracle quantize m/net.pdmodel --feed=x.npz --job=j.pbtxt -o q.onnx", 2,
         {"--job and --feed both give samples"});
  Expect("coracle quantize m/net.pdmodel --feed=x.npz --max_drop=1 -o q.onnx", 2,
         {"need --job=JOB"});
  Expect("coracle quantize m/net.pdmodel --feed=x.npz --weights=5 -o q.onnx", 2,
         {"--weights is 8 or 4, got 5"});
  Expect(
      "coracle quantize m/net.pdmodel --feed=x.npz --method=percentile --percentile=99 -o q.onnx",
      2, {"--percentile lies above 0.5"});
  Expect("coracle quantize m/net.pdmodel --feed=x.npz --method=best -o q.onnx", 2, {"minmax"});
  Expect("coracle quantize m/net.pdmodel --feed=x.npz --opset=9 -o q.onnx", 2, {"--opset"});
  Expect("coracle quantize m/net.pdmodel --feed=x.npz --compat=paddle -o q.onnx", 2, {"--compat"});
  Expect("coracle quantize m/net.pdmodel --feed=x.npz -o m/net.pdmodel", 2,
         {"would overwrite an input file"});
  Expect("coracle quantize m/net.pdmodel --feed=no.npz -o q.onnx", 1, {"no.npz"});
  Expect("coracle quantize m/net.pdmodel --feed=x.npz '--exclude=(' -o q.onnx", 1, {"("});
  Expect("coracle quantize m/net.pdmodel --feed=x.npz --exclude=. -o q.onnx", 1,
         {"all 2 layers of the program are excluded"});
  Expect("coracle quantize net.pbtxt --feed=x.npz -o q.onnx", 1, {"no parameters"});
  Expect(
      "coracle quantize m/net.pdmodel --feed=x.npz -o q.pdmodel && "
      "coracle quantize q.pdmodel --feed=x.npz -o r.pdmodel",
      1, {"the program is quantised already"});
  EXPECT_FALSE(std::filesystem::exists(Path("q.onnx")));
}

}  // namespace coracle::quantize_cli_test
