// Tensors without elements, and reductions over none: what ONNX says of them.
#include <coracle/test/convert/one_node.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

namespace coracle::onnx::onnx_zero_size_test {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Case {
  std::string type;
  std::vector<std::optional<Tensor>> inputs;
  std::function<void(OneNode&)> set;
  Shape shape;
  Numbers values;
  int opset = 17;
};

std::function<void(OneNode&)> With(const std::string& name, int64_t value) {
  return [=](OneNode& node) { node.Set(name, value); };
}
std::function<void(OneNode&)> With(const std::string& name, const Integers& values) {
  return [=](OneNode& node) { node.Set(name, values); };
}

// Each with its inputs as constants, and with the first one fed.
void Expect(const Case& c) {
  for (bool fed : {false, true}) {
    OneNode node(c.type, c.opset, c.inputs);
    if (c.set) c.set(node);
    if (fed) node.Feed(0);
    SCOPED_TRACE(c.type + (fed ? " fed" : " constant"));
    Tensor result;
    try {
      result = node.Result();
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
      continue;
    }
    EXPECT_EQ(result.shape(), c.shape) << result.shape().ToString();
    const Tensor wide = result.Cast(DType::kFloat32);
    const auto values = wide.span<float>();
    EXPECT_EQ(Numbers(values.begin(), values.end()), c.values);
  }
}

const Tensor none = F({0, 3}, {}), wide = F({2, 0}, {}), two = F({2, 3}, {1, 2, 3, 4, 5, 6});

TEST(OnnxZeroSize, ReductionsOverNone) {
  for (const auto& [type, value] :
       std::vector<std::pair<std::string, float>>{{"ReduceSum", 0.0f},
                                                  {"ReduceProd", 1.0f},
                                                  {"ReduceL1", 0.0f},
                                                  {"ReduceL2", 0.0f},
                                                  {"ReduceSumSquare", 0.0f},
                                                  {"ReduceLogSum", -kInf},
                                                  {"ReduceLogSumExp", -kInf},
                                                  {"ReduceMax", -kInf},
                                                  {"ReduceMin", kInf}})
    Expect({type, {none, I({0})}, With("keepdims", int64_t{0}), {3}, {value, value, value}, 20});
}

TEST(OnnxZeroSize, ExtremaOfNoIntegersAreTheLimitsOfTheirType) {
  const Tensor x = Tensor(DType::kInt32, {0, 1});
  OneNode max("ReduceMax", 20, {x, I({0})}), min("ReduceMin", 20, {x, I({0})});
  EXPECT_EQ(max.Feed(0).Result().Item<int32_t>(), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(min.Feed(0).Result().Item<int32_t>(), std::numeric_limits<int32_t>::max());
}

TEST(OnnxZeroSize, TopKOfNone) {
  Expect({"TopK", {two, I({0})}, {}, {2, 0}, {}});
  Expect({"TopK", {two, I({0})}, With("axis", int64_t{0}), {0, 3}, {}});
  Expect({"TopK", {none, I({2})}, {}, {0, 2}, {}});
  OneNode node("TopK", 17, {two, I({0})});
  const std::vector<Tensor> results = node.Outputs(2).Feed(0, true).Results();
  EXPECT_EQ(results[0].shape(), Shape({2, 0}));
  EXPECT_EQ(results[1].shape(), Shape({2, 0}));
  EXPECT_EQ(results[1].dtype(), DType::kInt64);
}

TEST(OnnxZeroSize, PartsAndJoins) {
  Expect({"Concat", {none, two}, With("axis", int64_t{0}), {2, 3}, {1, 2, 3, 4, 5, 6}});
  Expect({"Concat", {none, none}, With("axis", int64_t{0}), {0, 3}, {}});
  Expect({"Slice", {two, I({1}), I({1}), I({1})}, {}, {2, 0}, {}});
  Expect({"Slice", {none, I({0}), I({2}), I({1})}, {}, {0, 2}, {}});
  Expect({"Expand", {F({1, 3}, {1, 2, 3}), I({0, 3})}, {}, {0, 3}, {}});
  Expect({"Expand", {none, I({0, 3})}, {}, {0, 3}, {}});
  Expect({"Tile", {two, I({0, 1})}, {}, {0, 3}, {}});
  Expect({"Tile", {none, I({2, 1})}, {}, {0, 3}, {}});
  Expect({"Transpose", {none}, {}, {3, 0}, {}});
  Expect({"Reshape", {none, I({3, 0})}, With("allowzero", int64_t{1}), {3, 0}, {}});
  Expect({"Flatten", {none}, {}, {0, 3}, {}});
  Expect({"Unsqueeze", {none, I({0})}, {}, {1, 0, 3}, {}});
  Expect({"Squeeze", {F({1, 0}, {}), I({0})}, {}, {0}, {}});
  Expect({"Pad", {wide, I({0, 1, 0, 1})}, {}, {2, 2}, {0, 0, 0, 0}});
  OneNode split("Split", 17, {two, I({0, 3})});
  split.Set("axis", int64_t{1}).Outputs(2);
  const std::vector<Tensor> parts = split.Feed(0).Results();
  EXPECT_EQ(parts[0].shape(), Shape({2, 0}));
  EXPECT_EQ(parts[1].shape(), Shape({2, 3}));
}

TEST(OnnxZeroSize, Indices) {
  Expect({"Gather", {two, Tensor(DType::kInt64, {0})}, {}, {0, 3}, {}});
  Expect({"Gather", {two, Tensor(DType::kInt64, {0})}, With("axis", int64_t{1}), {2, 0}, {}});
  Expect({"GatherElements", {two, Tensor(DType::kInt64, {0, 3})}, {}, {0, 3}, {}});
  Expect({"GatherND", {two, Tensor(DType::kInt64, {0, 1})}, {}, {0, 3}, {}});
  Expect({"ScatterND",
          {two, Tensor(DType::kInt64, {0, 1}), none},
          {},
          {2, 3},
          {1, 2, 3, 4, 5, 6},
          18});
  Expect({"ScatterElements",
          {two, Tensor(DType::kInt64, {0, 3}), none},
          {},
          {2, 3},
          {1, 2, 3, 4, 5, 6},
          18});
  Expect({"Compress",
          {two, Tensor::Of<bool>({2}, {false, false})},
          With("axis", int64_t{0}),
          {0, 3},
          {}});
  Expect({"NonZero", {none}, {}, {2, 0}, {}});
  Expect({"OneHot", {Tensor(DType::kInt64, {0}), I({3}), F({2}, {0, 1})}, {}, {0, 3}, {}});
}

TEST(OnnxZeroSize, Arithmetic) {
  Expect({"Add", {none, F({1, 3}, {1, 2, 3})}, {}, {0, 3}, {}});
  Expect({"Add", {none, F({1}, {1})}, {}, {0, 3}, {}});
  Expect({"Relu", {none}, {}, {0, 3}, {}});
  Expect({"Where", {Tensor(DType::kBool, {0, 1}), F({3}, {1, 2, 3}), F({1}, {0})}, {}, {0, 3}, {}});
  Expect({"Softmax", {none}, {}, {0, 3}, {}});
  Expect({"CumSum", {none, I({0})}, {}, {0, 3}, {}});
  Expect({"MatMul", {none, F({3, 2}, {1, 2, 3, 4, 5, 6})}, {}, {0, 2}, {}});
  Expect({"MatMul", {wide, F({0, 3}, {})}, {}, {2, 3}, {0, 0, 0, 0, 0, 0}});
  Expect({"Gemm", {wide, F({0, 3}, {}), F({3}, {1, 2, 3})}, {}, {2, 3}, {1, 2, 3, 1, 2, 3}});
  Expect({"Clip", {none, F({1}, {0}), F({1}, {1})}, {}, {0, 3}, {}});
  Expect({"Cast", {none}, With("to", int64_t{7}), {0, 3}, {}});
}

}  // namespace coracle::onnx::onnx_zero_size_test
