#pragma once
// Nets of Caffe in tests: converted, fed and run.

#include <coracle/convert/caffe/import.h>
#include <coracle/executor/executor.h>
#include <coracle/layers/layer.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace coracle::caffe {

inline ImportedNet Import(const std::string& text, const ImportOptions& options = {}) {
  return ImportNet(ParseNet(text, "net.prototxt"), options);
}

// A net that is converted, with its parameters drawn.
class TestNet {
 public:
  explicit TestNet(const std::string& text, bool train = false, const ImportOptions& options = {})
      : imported(Import(text, options)) {
    ModelState state;
    state.train = train;
    model = ParseModelText(imported.text, "net.pbtxt", ".", DefaultOps(), state);
    if (!train) model.main = model.main.CloneForTest();
    model.startup.random_seed = 3;
    Executor().Run(model.startup, scope, {}, {});
  }

  Tensor Run(const std::map<std::string, Tensor>& feeds, const std::string& fetch) {
    return Executor().Run(model.main, scope, feeds, {fetch})[0];
  }

  ImportedNet imported;
  BuiltModel model;
  Scope scope;
};

// Numbers without a pattern, in [-1, 1).
inline Tensor Drawn(const Shape& shape, uint32_t seed = 1) {
  Tensor tensor(DType::kFloat32, shape);
  uint32_t state = seed * 2654435761u + 12345;
  for (float& value : tensor.span<float>()) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8) / static_cast<float>(1 << 23) - 1;
  }
  return tensor;
}

inline void ExpectNear(const Tensor& got, const std::vector<double>& want,
                       double tolerance = 1e-5) {
  ASSERT_EQ(got.numel(), static_cast<int64_t>(want.size())) << got.ToString();
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(static_cast<double>(got.data<float>()[i]), want[i], tolerance) << "element " << i;
}

// A net with one input `data` of these dims and one layer, whose text follows.
inline std::string OneLayer(const std::string& dims, const std::string& layer) {
  return "layer { name: 'data' type: 'Input' top: 'data' input_param { shape { " + dims +
         " } } } layer { " + layer + " }";
}

}  // namespace coracle::caffe
