#pragma once
// Nets and samples for the tests of quantize/.

#include <coracle/executor/executor.h>
#include <coracle/layers/layer.h>
#include <coracle/operators/operators.h>
#include <coracle/quantize/calibration.h>
#include <coracle/quantize/quantize.h>
#include <coracle/test/error_of.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace coracle {

struct TestNet {
  ProgramDesc program;
  Scope scope;
};

// The net of a model text with its parameters as its startup program draws them, for inference.
inline TestNet NetOf(const std::string& text) {
  TestNet net;
  BuiltModel model = ParseModelText(text, "text");
  Executor().Run(model.startup, net.scope, {}, {});
  net.program = model.main.CloneForTest();
  return net;
}

inline Tensor Drawn(const Shape& shape, uint64_t seed, double low = -1, double high = 1) {
  std::mt19937_64 engine(seed);
  std::uniform_real_distribution<float> uniform(static_cast<float>(low), static_cast<float>(high));
  Tensor tensor(DType::kFloat32, shape);
  for (float& x : tensor.span<float>()) x = uniform(engine);
  return tensor;
}

// Batches of one input.
inline CalibrationFeeds SamplesOf(const Shape& shape, int batches = 3, double low = -1,
                                  double high = 1) {
  return [=](const std::function<void(const std::vector<Tensor>&)>& use) {
    for (int b = 0; b < batches; ++b)
      use({Drawn(shape, static_cast<uint64_t>(100 + b), low, high)});
  };
}

inline std::vector<Tensor> RunOn(const ProgramDesc& program, const Scope& parameters,
                                 const std::map<std::string, Tensor>& feeds,
                                 const std::vector<std::string>& fetches) {
  Scope scope = SharedCopy(parameters);
  std::vector<Tensor> results;
  for (const Tensor& each : Executor().Run(program, scope, feeds, fetches))
    results.push_back(each.Clone());
  return results;
}

// 10 log10(sum y^2 / sum (y - y')^2), by a plain loop.
inline double RatioOf(const Tensor& exact, const Tensor& other) {
  double signal = 0, noise = 0;
  for (size_t i = 0; i < exact.span<float>().size(); ++i) {
    const double x = static_cast<double>(exact.span<float>()[i]);
    const double y = static_cast<double>(other.span<float>()[i]);
    signal += x * x;
    noise += (x - y) * (x - y);
  }
  return 10 * std::log10(signal / noise);
}

inline std::map<std::string, int> OpCounts(const ProgramDesc& program) {
  std::map<std::string, int> counts;
  program.ForEachOp([&](const OpDesc& op) { ++counts[op.type()]; });
  return counts;
}

// Convolutions with batch_norm, a residual sum, pools and a classifier.
inline const std::string& ResidualNet() {
  static const std::string text = R"(
    data  { name: "x" shape: [-1, 3, 12, 12] }
    layer { conv2d { input: "x" num_filters: 8 filter_size: 3 padding: 1 output: "c1" } }
    layer { batch_norm { input: "c1" act: "relu" output: "a1" } }
    layer { pool2d { input: "a1" pool_size: 2 pool_stride: 2 pool_type: "max" output: "p1" } }
    layer { conv2d { input: "p1" num_filters: 8 filter_size: 3 padding: 1 output: "c2" } }
    layer { elementwise_add { x: "c2" y: "p1" output: "s" } }
    layer { relu { input: "s" output: "a2" } }
    layer { pool2d { input: "a2" pool_size: 6 pool_type: "avg" output: "p2" } }
    layer { fc { input: "p2" size: 5 output: "logits" } }
    layer { softmax { input: "logits" output: "prob" } }
  )";
  return text;
}

}  // namespace coracle
