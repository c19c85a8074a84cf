// Threads that run copies of one prepared program for the first time, each with another number of
// rows: plans are made, and weights are packed, while other threads run.

#include <coracle/test/quantize/quantize_programs.h>

#include <atomic>
#include <cstring>
#include <thread>

namespace coracle::first_runs_test {

constexpr int kThreads = 8;

// Convolutions of several kinds, products, and a lookup.
constexpr const char* kNet = R"(
data  { name: "x" shape: [-1, 16, 12, 12] }
layer { conv2d { input: "x" num_filters: 32 filter_size: 3 padding: 1 act: "relu" output: "c1" } }
layer { conv2d { input: "c1" num_filters: 32 filter_size: 3 padding: 1 groups: 32 output: "c2" } }
layer { batch_norm { input: "c2" act: "relu" output: "c3" } }
layer { conv2d { input: "c3" num_filters: 24 filter_size: 1 act: "relu" output: "c4" } }
layer { pool2d { input: "c4" pool_size: 2 pool_stride: 2 pool_type: "avg" output: "p" } }
layer { fc { input: "p" size: 64 act: "relu" output: "h" } }
layer { fc { input: "h" size: 10 output: "y" } }
)";

Tensor InputOf(int rows) { return Drawn({rows, 16, 12, 12}, static_cast<uint64_t>(rows)); }

void ExpectEqualBits(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  EXPECT_EQ(std::memcmp(std::as_const(a).raw(), std::as_const(b).raw(), a.nbytes()), 0);
}

void ExpectFirstRuns(const ProgramDesc& program, const Scope& parameters,
                     const CompileOptions& options = {}) {
  const Executor executor(options);
  std::vector<Tensor> want;
  for (int t = 0; t < kThreads; ++t) {
    Scope scope = SharedCopy(parameters);
    want.push_back(executor.PrepareFrozen(program, scope, {"x"}, {"y"})
                       .Run(scope, {InputOf(t + 1)})[0]
                       .Clone());
  }
  for (int round = 0; round < 3; ++round) {
    Scope frozen = SharedCopy(parameters);
    const PreparedProgram shared = executor.PrepareFrozen(program, frozen, {"x"}, {"y"});
    std::atomic<int> waiting{kThreads};
    std::vector<Tensor> got(kThreads);
    std::vector<std::string> errors(kThreads);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t, own = PreparedProgram(shared)]() mutable {
        const auto at = static_cast<size_t>(t);
        Scope scope = SharedCopy(parameters);
        const Tensor x = InputOf(t + 1);
        --waiting;
        while (waiting > 0) std::this_thread::yield();
        try {
          for (int run = 0; run < 2; ++run) got[at] = own.Run(scope, {x})[0].Clone();
        } catch (const std::exception& e) {
          errors[at] = e.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t t = 0; t < kThreads; ++t) {
      SCOPED_TRACE(testing::Message() << "round " << round << ", thread " << t);
      ASSERT_EQ(errors[t], "");
      ExpectEqualBits(got[t], want[t]);
    }
  }
}

TEST(FirstRuns, InFloatingPoint) {
  const TestNet net = NetOf(kNet);
  ExpectFirstRuns(net.program, net.scope);
}

TEST(FirstRuns, InIntegers) {
  const TestNet net = NetOf(kNet);
  for (const QuantForm form : {QuantForm::kOnnx, QuantForm::kPaddle}) {
    for (const QuantScheme scheme : {QuantScheme::kStatic, QuantScheme::kDynamic}) {
      QuantizeOptions options;
      options.form = form;
      options.scheme = scheme;
      options.equalization = Equalization::kNone;
      const QuantizedModel model =
          QuantizeModel(net.program, net.scope, SamplesOf({2, 16, 12, 12}), options);
      ExpectFirstRuns(model.program, model.parameters);
    }
  }
}

TEST(FirstRuns, OfWeightsAlone) {
  const TestNet net = NetOf(kNet);
  for (const int bits : {8, 4}) {
    QuantizeOptions options;
    options.scheme = QuantScheme::kWeightOnly;
    options.weight_bits = bits;
    options.block_size = 16;
    const QuantizedModel model = QuantizeModel(net.program, net.scope, {}, options);
    ExpectFirstRuns(model.program, model.parameters);
  }
}

TEST(FirstRuns, InBfloat16) {
  const TestNet net = NetOf(kNet);
  QuantizeOptions options;
  options.scheme = QuantScheme::kWeightOnly;
  options.exclude = "^(c1|c2|c4|h|y)$";
  options.bfloat16 = true;
  const QuantizedModel model = QuantizeModel(net.program, net.scope, {}, options);
  ExpectFirstRuns(model.program, model.parameters);
}

}  // namespace coracle::first_runs_test
