// Compares a step of a deep convolutional net with and without recomputation: memory, time, and
// whether the gradients have the same bits. The variants alternate, so that a busy machine slows
// all of them; also prints processor time.
//   recompute_bench [--layers=50] [--channels=32] [--size=32] [--batch=8] [--rounds=9]
//   [--threads=2]

#include <coracle/bench/measure.h>
#include <coracle/coracle.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

namespace coracle {
namespace {

struct Net {
  int layers, channels, size, batch;
};

Tensor Draws(const Shape& shape, const std::string& name) {
  Tensor t(DType::kFloat32, shape);
  const Philox random(1, HashName(name), 0);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.data<float>()[i] = static_cast<float>(random.Normal(static_cast<uint64_t>(i)));
  return t;
}

// One way to run a step.
class Variant {
 public:
  Variant(std::string name, const Net& net, const RecomputeOptions& recompute)
      : name_(std::move(name)) {
    const Variable loss = Build(net);
    BackwardOptions options;
    options.recompute = recompute;
    std::vector<std::string> fetches = {loss.name()};
    for (const ParamAndGrad& pair : AppendBackward(loss, options)) fetches.push_back(pair.grad);
    Executor executor;
    executor.Run(startup_, scope_);
    step_ = std::make_unique<PreparedProgram>(executor.Prepare(main_, {"image", "label"}, fetches));
    feeds_ = {Draws({net.batch, 3, net.size, net.size}, "image"),
              Tensor::Zeros(DType::kInt64, {net.batch, 1})};
    for (int64_t i = 0; i < net.batch; ++i) feeds_[1].data<int64_t>()[i] = i % 10;
  }

  void Run() {
    const double begin = Now(), processor = ProcessorTime();
    const std::vector<Tensor>& results = step_->Run(scope_, feeds_);
    times_.push_back(Now() - begin);
    processor_times_.push_back(ProcessorTime() - processor);
    if (!first_.empty()) return;
    for (const Tensor& t : results) first_.push_back(t.Clone());
    times_.clear();  // the first run allocates
    processor_times_.clear();
  }

  double Median() const { return MedianOf(times_); }
  double Processor() const { return MedianOf(processor_times_); }
  double MiB() const { return static_cast<double>(step_->WorkspaceBytes()) / 1048576; }
  bool SameBits(const Variant& other) const {
    for (size_t i = 0; i < first_.size(); ++i) {
      if (!BitEqual(first_[i], other.first_[i])) return false;
    }
    return first_.size() == other.first_.size();
  }
  void Print(const Variant& plain) const {
    std::printf(
        "{\"variant\":\"%s\",\"median_ms\":%.2f,\"time_ratio\":%.3f,\"cpu_ms\":%.2f,"
        "\"cpu_ratio\":%.3f,\"workspace_mb\":%.2f,\"memory_ratio\":%.3f,\"same_bits\":%s}\n",
        name_.c_str(), Median() * 1e3, Median() / plain.Median(), Processor() * 1e3,
        Processor() / plain.Processor(), MiB(), MiB() / plain.MiB(),
        SameBits(plain) ? "true" : "false");
  }

 private:
  Variable Build(const Net& net) {
    Builder b(main_, startup_);
    Variable h = b.Data("image", {-1, 3, net.size, net.size});
    const Variable label = b.Data("label", {-1, 1}, DType::kInt64);
    for (int i = 0; i < net.layers; ++i) {
      h = b.Conv2d(h, {.num_filters = net.channels, .filter_size = 3, .padding = 1});
      h = b.BatchNorm(h, {.act = "relu", .output = "layer_" + std::to_string(i)});
    }
    h = b.Pool2d(h, {.pool_type = "avg", .global_pooling = true});
    return b.Mean(b.SoftmaxWithCrossEntropy(b.Fc(h, {.size = 10}), label));
  }

  std::string name_;
  ProgramDesc main_, startup_;
  Scope scope_;
  std::unique_ptr<PreparedProgram> step_;
  std::vector<Tensor> feeds_, first_;
  std::vector<double> times_, processor_times_;
};

int Main(const Arguments& arguments) {
  const Net net{arguments.Whole("layers", 50), arguments.Whole("channels", 32),
                arguments.Whole("size", 32), arguments.Whole("batch", 8)};
  SetNumThreads(arguments.Whole("threads", 2));
  RecomputeOptions none, named, half, least;
  for (int i = 6; i < net.layers; i += 7) named.checkpoints.push_back("layer_" + std::to_string(i));
  // Two images for each layer: the results of the convolution and of the activation.
  half.memory_budget = static_cast<uint64_t>(net.layers) * static_cast<uint64_t>(net.batch) *
                       static_cast<uint64_t>(net.channels * net.size * net.size) * sizeof(float);
  half.memory_budget = half.memory_budget * 9 / 10;
  half.batch_size = least.batch_size = net.batch;
  least.memory_budget = 1;
  std::vector<std::unique_ptr<Variant>> variants;
  variants.push_back(std::make_unique<Variant>("plain", net, none));
  variants.push_back(std::make_unique<Variant>("every_7th_layer", net, named));
  variants.push_back(std::make_unique<Variant>("budget_45_percent", net, half));
  variants.push_back(std::make_unique<Variant>("least_memory", net, least));
  for (int round = 0; round <= arguments.Whole("rounds", 9); ++round) {
    for (auto& variant : variants) variant->Run();
  }
  for (const auto& variant : variants) variant->Print(*variants[0]);
  return 0;
}

}  // namespace
}  // namespace coracle

int main(int argc, char** argv) { return coracle::RunMain(argc, argv, coracle::Main); }
