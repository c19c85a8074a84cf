// Inference in bfloat16 and weights in 16 bits as a user gets them: --precision, opt --weights, and
// what is refused.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/operators/kernels/bfloat16_products.h>
#include <coracle/test/tools/cli.h>

#include <cmath>
#include <filesystem>

namespace coracle::precision_cli_test {

class PrecisionCli : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    WriteFileAtomic(Path("net.pbtxt"), R"(
      data { name: "x" shape: [-1, 1, 28, 28] }
      layer { conv2d { input: "x" num_filters: 16 filter_size: 5 act: "relu" output: "c" } }
      layer { pool2d { input: "c" pool_size: 4 pool_stride: 4 output: "p" } }
      layer { fc { input: "p" size: 100 act: "relu" output: "f" } }
      layer { fc { input: "f" size: 50 output: "h" } }
    )");
    Expect(
        "coracle build net.pbtxt --out=m/net.pdmodel --startup_out=s.pb && "
        "coracle run s.pb --save_params=m/net.pdiparams",
        0, {});
    Tensor x(DType::kFloat32, {20, 1, 28, 28});
    for (int64_t i = 0; i < x.numel(); ++i)
      x.data<float>()[i] = static_cast<float>(std::sin(static_cast<double>(i * i % 1009)));
    WriteNpz({{"x", x}}, Path("x.npz"));
  }

  // Checks that a model gives nearly the results of the float32 model, and returns the largest
  // difference in units of the largest result.
  double Difference(const std::string& run) {
    Expect("coracle run m/net.pdmodel --feed=x.npz --fetch=h --out=want.npz", 0, {});
    Expect("coracle run " + run + " --feed=x.npz --fetch=h --out=got.npz", 0, {});
    const Tensor want = ReadNpz(Path("want.npz"))[0].second;
    const Tensor got = ReadNpz(Path("got.npz"))[0].second;
    EXPECT_EQ(got.ToString(), want.ToString());
    if (got.shape() != want.shape()) return 1;
    double difference = 0, largest = 0;
    for (size_t i = 0; i < want.span<float>().size(); ++i) {
      const auto a = static_cast<double>(want.span<float>()[i]);
      largest = std::max(largest, std::abs(a));
      difference = std::max(difference, std::abs(a - static_cast<double>(got.span<float>()[i])));
    }
    return difference / largest;
  }

  double SizeOf(const std::string& file) {
    return static_cast<double>(std::filesystem::file_size(Path(file)));
  }
};

TEST_F(PrecisionCli, RunsInBFloat16) {
  const double difference = Difference("m/net.pdmodel --precision=bfloat16");
  EXPECT_LE(difference, 0.02);
  EXPECT_EQ(difference > 0, BFloat16ProductsPay());
  EXPECT_LE(Difference("m/net.pdmodel --precision=bfloat16 --kernels=reference"), 0.02);
  Expect("coracle bench m/net.pdmodel --precision=bfloat16 --seconds=0.1", 0, {"after the passes"});
}

TEST_F(PrecisionCli, SavesWeightsInBFloat16) {
  Expect("coracle opt m/net.pdmodel --fetch=h --precision=bfloat16 -o o/net.pdmodel", 0,
         {"use_bfloat16", "o/net.pdmodel, o/net.pdiparams"});
  EXPECT_LE(Difference("o/net.pdmodel"), 0.02);
  const double size = SizeOf("m/net.pdiparams");
  if (BFloat16ProductsPay()) {
    EXPECT_LT(SizeOf("o/net.pdiparams"), 0.55 * size);
  }
  Expect(
      "coracle opt m/net.pdmodel --fetch=h --precision=bfloat16 --weights=bfloat16 "
      "-o p/net.pdmodel",
      0, {"weights: "});
  EXPECT_LT(SizeOf("p/net.pdiparams"), 0.55 * size);
  EXPECT_LE(Difference("p/net.pdmodel"), 0.02);
}

TEST_F(PrecisionCli, MeasuresLayers) {
  Expect("coracle opt m/net.pdmodel --fetch=h --precision=bfloat16 --feed=x.npz -o o/net.pdmodel",
         0,
         {"layer  op      computes   own SNR  total SNR  weight\n", "conv2d  bfloat16 ",
          "mul     bfloat16 ", " dB  "});
  Expect(
      "coracle opt m/net.pdmodel --fetch=h --precision=bfloat16 --feed=x.npz --samples=7 "
      "--min_snr=90 -o o/net.pdmodel",
      0,
      {"conv2d  float32 ",
       "3 of 3 layers stay in float32, because bfloat16 leaves less than 90 dB"});
  EXPECT_LE(Difference("o/net.pdmodel"), 1e-5);
  Expect(
      "coracle opt m/net.pdmodel --fetch=h --precision=bfloat16 --float32_vars=c,f,h "
      "-o o/net.pdmodel",
      0, {});
  EXPECT_LE(Difference("o/net.pdmodel"), 1e-5);
}

TEST_F(PrecisionCli, StoresWeights) {
  Expect("coracle opt m/net.pdmodel --fetch=h --weights=float16 -o o/net.pdmodel", 0,
         {"weights: 2 in float16, "});
  EXPECT_LT(SizeOf("o/net.pdiparams"), 0.55 * SizeOf("m/net.pdiparams"));
  EXPECT_LE(Difference("o/net.pdmodel"), 1e-3);
  EXPECT_LE(Difference("o/net.pdmodel --disabled_passes=all"), 1e-3);
  // For Paddle, too.
  Expect("coracle opt m/net.pdmodel --fetch=h --weights=float16 --compat=paddle -o q/net.pdmodel",
         0, {"weights: 2 in float16, "});
  EXPECT_LE(Difference("q/net.pdmodel"), 1e-3);
  Expect("coracle opt m/net.pdmodel --fetch=h --weights=bfloat16 --json -o r/net.pdmodel", 0,
         {"["});
  EXPECT_LE(Difference("r/net.pdmodel"), 0.01);
}

TEST_F(PrecisionCli, Refusals) {
  const std::string opt = "coracle opt m/net.pdmodel --fetch=h ";
  Expect("coracle run m/net.pdmodel --feed=x.npz --precision=float16", 2, {"precision"});
  Expect(opt + "--feed=x.npz", 2,
         {"--feed measures what bfloat16 loses: it needs --precision=bfloat16"});
  Expect(opt + "--precision=bfloat16 --min_snr=20", 2, {"--min_snr needs samples: --feed=FILES"});
  Expect(opt + "--weights=float16", 2, {"--weights needs --out=FILE"});
  Expect(opt + "--weights=int8 -o o.pdmodel", 2, {"weights"});
  Expect(opt + "--precision=bfloat16 --compat=paddle", 2, {"Paddle does not know"});
  Expect(opt + "--precision=bfloat16 --float32_vars=nothing", 1,
         {"cannot keep in float32 'nothing': the program has no such var"});
  WriteFileAtomic(Path("bare.pbtxt"), R"(
    data { name: "x" shape: [-1, 3] }
    layer { relu { input: "x" output: "h" } }
  )");
  Expect("coracle opt bare.pbtxt --for=inference --precision=bfloat16 --feed=x.npz", 1,
         {"the program has no layer to compute in bfloat16"});
}

}  // namespace coracle::precision_cli_test
