// Compares a training step of an MLP in bfloat16 (mixed precision, level O1) with one in float32.
// The two alternate, so that a busy machine slows both. On a machine without instructions for
// bfloat16, prints that and measures nothing.
//   mixed_precision_bench [--width=2048] [--batch=512] [--rounds=15] [--threads=2]

#include <coracle/bench/measure.h>
#include <coracle/coracle.h>

#include <cstdio>
#include <memory>

namespace coracle {
namespace {

bool HasNativeBFloat16() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

class Mlp {
 public:
  Mlp(int width, int batch, bool mixed) : feeds_{Tensor(DType::kFloat32, {batch, 784}), Tensor()} {
    Builder net(main_, startup_);
    Variable h = net.Data("x", {-1, 784});
    Variable label = net.Data("label", {-1, 1}, DType::kInt64);
    for (int i = 0; i < 2; ++i) h = net.Fc(h, {.size = width, .act = "relu"});
    Variable loss = net.Mean(net.SoftmaxWithCrossEntropy(net.Fc(h, {.size = 10}), label));
    MixedPrecisionOptions precision;
    precision.dtype = DType::kBFloat16;
    if (mixed) DecorateMixedPrecision(main_, startup_, precision);
    Momentum({.learning_rate = 0.01}).Minimize(loss, startup_);
    Executor executor;
    executor.Run(startup_, scope_);
    step_ =
        std::make_unique<PreparedProgram>(executor.Prepare(main_, {"x", "label"}, {loss.name()}));
    const Philox random(1, 0, 0);
    for (int64_t i = 0; i < feeds_[0].numel(); ++i)
      feeds_[0].data<float>()[i] = random.UniformFloat(static_cast<uint64_t>(i));
    feeds_[1] = Tensor::Zeros(DType::kInt64, {batch, 1});
    for (int64_t i = 0; i < batch; ++i) feeds_[1].data<int64_t>()[i] = i % 10;
  }

  void Run() {
    const double begin = Now(), processor = ProcessorTime();
    loss_ = step_->Run(scope_, feeds_)[0].Item<float>();
    times_.push_back(Now() - begin);
    processor_times_.push_back(ProcessorTime() - processor);
  }
  void Forget() {
    times_.clear();
    processor_times_.clear();
  }
  double Seconds() const { return MedianOf(times_); }
  double ProcessorSeconds() const { return MedianOf(processor_times_); }
  float loss() const { return loss_; }

 private:
  ProgramDesc main_, startup_;
  Scope scope_;
  std::unique_ptr<PreparedProgram> step_;
  std::vector<Tensor> feeds_;
  std::vector<double> times_, processor_times_;
  float loss_ = 0;
};

int Main(const Arguments& arguments) {
  if (!HasNativeBFloat16()) {
    std::printf("mixed_precision_bench: skipped: this machine has no AVX512_BF16 instructions\n");
    return 0;
  }
  const int width = arguments.Whole("width", 2048), batch = arguments.Whole("batch", 512);
  const int rounds = arguments.Whole("rounds", 15);
  SetNumThreads(arguments.Whole("threads", 2));
  Mlp wide(width, batch, false), low(width, batch, true);
  for (int i = 0; i < 3; ++i) {
    wide.Run();
    low.Run();
  }
  wide.Forget();
  low.Forget();
  for (int i = 0; i < rounds; ++i) {
    wide.Run();
    low.Run();
  }
  std::printf("MLP 784-%d-%d-10, batch %d, %d threads, momentum; medians of %d steps\n", width,
              width, batch, NumThreads(), rounds);
  const auto line = [](const char* name, const Mlp& mlp) {
    std::printf("  %-9s %8.2f ms  (processor %8.2f ms)  loss %.4f\n", name, mlp.Seconds() * 1e3,
                mlp.ProcessorSeconds() * 1e3, static_cast<double>(mlp.loss()));
  };
  line("float32", wide);
  line("bfloat16", low);
  std::printf("  float32 / bfloat16: %.2f by the clock, %.2f by processor time\n",
              wide.Seconds() / low.Seconds(), wide.ProcessorSeconds() / low.ProcessorSeconds());
  return 0;
}

}  // namespace
}  // namespace coracle

int main(int argc, char** argv) { return coracle::RunMain(argc, argv, coracle::Main); }
