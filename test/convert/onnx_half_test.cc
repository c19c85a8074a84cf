// Floats of 16 bits: a node computes in float32 and rounds once, however many ops it becomes.
#include <coracle/framework/base/error.h>
#include <coracle/framework/tensor/half_array.h>
#include <coracle/test/convert/any_node.h>
#include <coracle/test/convert/one_node.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

namespace coracle::onnx::onnx_half_test {

// Ops whose results are elements of their inputs, or exact.
bool Moves(const std::string& type) {
  static const std::set<std::string> types = {"abs",
                                              "argsort",
                                              "assign",
                                              "broadcast_tensors",
                                              "ceil",
                                              "clip",
                                              "concat",
                                              "expand_v2",
                                              "feed",
                                              "fetch",
                                              "fill_any_like",
                                              "fill_constant",
                                              "fill_zeros_like",
                                              "flatten2",
                                              "flip",
                                              "floor",
                                              "gather",
                                              "gather_nd",
                                              "index_sample",
                                              "lookup_table_v2",
                                              "elementwise_max",
                                              "elementwise_min",
                                              "one_hot_v2",
                                              "pad",
                                              "pixel_shuffle",
                                              "range",
                                              "reduce_max",
                                              "reduce_min",
                                              "relu",
                                              "reshape2",
                                              "sign",
                                              "slice",
                                              "split",
                                              "squeeze2",
                                              "stack",
                                              "strided_slice",
                                              "tile",
                                              "top_k_v2",
                                              "transpose2",
                                              "tril_triu",
                                              "unique",
                                              "unsqueeze2",
                                              "where",
                                              "while",
                                              "conditional_block",
                                              "write_to_array",
                                              "tensor_array_to_tensor"};
  return types.count(type) > 0;
}

// The ops of a program that round to 16 bits; a cast of bools or small integers is none.
std::vector<std::string> Roundings(const ProgramDesc& program) {
  std::vector<std::string> types;
  const auto is_wide = [&](const std::string& name) {
    const VarDesc* var = program.Root().FindVarRecursive(name);
    return var && (var->dtype() == DType::kFloat32 || var->dtype() == DType::kFloat64);
  };
  program.ForEachOp([&](const OpDesc& op) {
    if (op.type() == "cast" && !op.AnyInput(is_wide)) return;
    bool half = false;
    op.ForEachOutput([&](const std::string& name) {
      const VarDesc* var = program.Root().FindVarRecursive(name);
      half |= var && IsHalf(var->dtype());
    });
    if (half && !Moves(op.type())) types.push_back(op.type());
  });
  return types;
}

// A row whose importer appends several ops that round says so by `composed`.
TEST(OnnxHalf, NodesRoundOnce) {
  int seen = 0;
  for (const NodeImporter& row : AllNodeImporters().rows()) {
    for (int rank : {-1, 1, 2, 3, 4, 5}) {
      std::vector<Given> inputs = UsualInputs(row);
      for (Given& given : inputs) {
        if (given.dtype == DType::kFloat32) given.dtype = DType::kFloat16;
        if (rank >= 0) given.rank = rank;
      }
      Scope scope;
      InferenceModel model;
      try {
        model = ParseOnnx(ModelOf(row, inputs).SerializeAsString(), "m.onnx", scope);
      } catch (const Error&) {
        continue;
      }
      const std::vector<std::string> roundings = Roundings(model.program);
      seen += roundings.empty() ? 0 : 1;
      std::string types;
      for (const std::string& type : roundings) types += " " + type;
      EXPECT_LE(roundings.size(), 1u) << row.op_type << " of rank " << rank << ":" << types;
    }
  }
  EXPECT_GT(seen, 80);
}

Tensor Rounded(const Tensor& tensor, DType dtype) {
  return tensor.dtype() == DType::kFloat32 ? tensor.Cast(dtype) : tensor;
}

struct Case {
  std::string type;
  std::vector<Tensor> inputs;  // float32 ones are given in 16 bits
  std::function<void(OneNode&)> set = [](OneNode&) {};
  int opset = 17;
};

// The result in 16 bits equals the float32 result of the same numbers, rounded once.
void ExpectRoundedOnce(const Case& c, DType dtype, bool fed) {
  std::vector<std::optional<Tensor>> half, wide;
  for (const Tensor& input : c.inputs) {
    half.push_back(Rounded(input, dtype));
    wide.push_back(half.back()->dtype() == dtype ? half.back()->Cast(DType::kFloat32) : input);
  }
  OneNode narrow(c.type, c.opset, half), reference(c.type, c.opset, wide);
  for (OneNode* node : {&narrow, &reference}) {
    c.set(*node);
    if (fed) node->Feed(0);
  }
  const Tensor got = narrow.Result(), wanted = reference.Result().Cast(dtype);
  ASSERT_EQ(got.dtype(), dtype) << c.type;
  ASSERT_EQ(got.shape(), wanted.shape()) << c.type;
  const Tensor a = got.Cast(DType::kFloat32), b = wanted.Cast(DType::kFloat32);
  for (int64_t i = 0; i < a.numel(); ++i) {
    EXPECT_FALSE(std::isnan(a.data<float>()[i])) << c.type;
    EXPECT_EQ(a.data<float>()[i], b.data<float>()[i]) << c.type << " element " << i;
  }
}

Tensor Ramp(const Shape& shape, float from, float step) {
  Tensor tensor(DType::kFloat32, shape);
  for (int64_t i = 0; i < tensor.numel(); ++i)
    tensor.data<float>()[i] = from + step * static_cast<float>(i);
  return tensor;
}

std::vector<Case> Cases() {
  const Tensor x = Ramp({2, 3, 4}, -2.7f, 0.23f), y = Ramp({2, 3, 4}, 0.11f, 0.37f);
  const Tensor image = Ramp({1, 2, 5, 5}, -3.3f, 0.137f), row = Ramp({3}, 0.7f, 0.31f);
  const auto axes = [](OneNode& n) { n.Set("axes", Integers{1}); };
  const auto kernel = [](OneNode& n) { n.Set("kernel_shape", Integers{2, 2}); };
  std::vector<Case> cases = {
      {"ReduceL1", {x}, axes},
      {"ReduceL2", {x}, axes},
      {"ReduceSumSquare", {x}, axes},
      {"ReduceLogSum", {y}, axes},
      {"ReduceLogSumExp", {x}, axes},
      {"ReduceMean", {x}, axes},
      {"LpPool", {image}, kernel},
      {"GlobalLpPool", {image}},
      {"Mean", {x, y, x}},
      {"Sum", {x, y, x}},
      {"Celu", {x}},
      {"Asinh", {x}},
      {"Atanh", {Ramp({7}, -0.9f, 0.27f)}},
      {"Acosh", {Ramp({7}, 1.1f, 0.77f)}},
      {"HardSwish", {x}},
      {"Mish", {x}, {}, 18},
      {"Softplus", {x}},
      {"Softmax", {x}},
      {"LogSoftmax", {x}},
      {"Gelu", {x}, {}, 20},
      {"LpNormalization", {x}},
      {"MeanVarianceNormalization", {image}},
      {"LayerNormalization", {x, Ramp({4}, 0.7f, 0.31f), Ramp({4}, -0.2f, 0.17f)}},
      {"RMSNormalization", {x, Ramp({4}, 0.7f, 0.31f)}, {}, 23},
      {"InstanceNormalization", {image, Ramp({2}, 0.7f, 0.31f), Ramp({2}, -0.2f, 0.17f)}},
      {"PRelu", {x, Ramp({3, 1}, 0.13f, 0.21f)}},
      {"Shrink", {x}},
      {"Round", {x}},
      {"Einsum",
       {Ramp({3, 4}, -1.3f, 0.21f), Ramp({4, 5}, 0.3f, 0.113f)},
       [](OneNode& n) { n.Set("equation", std::string("ij,jk->ki")); }},
      {"Gemm",
       {Ramp({3, 4}, -1.3f, 0.21f), Ramp({4, 5}, 0.3f, 0.113f), Ramp({5}, 0.9f, 0.7f)},
       [](OneNode& n) { n.Set("alpha", 0.3f).Set("beta", 0.7f); }},
      {"Conv", {image, Ramp({3, 2, 3, 3}, -0.7f, 0.031f), row}},
      {"ConvTranspose", {image, Ramp({2, 3, 3, 3}, -0.7f, 0.031f), row}},
      {"LRN", {image}, [](OneNode& n) { n.Set("size", int64_t{2}).Set("alpha", 0.3f); }},
      {"DFT", {Ramp({1, 6, 1}, 0.3f, 0.7f)}},
      {"AveragePool",
       {image},
       [](OneNode& n) {
         n.Set("kernel_shape", Integers{2, 2}).Set("dilations", Integers{2, 2});
       },
       19},
  };
  for (Case& c : cases)
    if (!c.set) c.set = [](OneNode&) {};
  return cases;
}

TEST(OnnxHalf, ResultsAreThoseOfFloat32RoundedOnce) {
  for (const Case& c : Cases()) {
    for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
      ExpectRoundedOnce(c, dtype, true);
      ExpectRoundedOnce(c, dtype, false);
    }
  }
}

float InFloat16(
    const std::string& type, const std::vector<Tensor>& inputs,
    const std::function<void(OneNode&)>& set = [](OneNode&) {}) {
  std::vector<std::optional<Tensor>> half;
  for (const Tensor& input : inputs) half.push_back(input.Cast(DType::kFloat16));
  OneNode node(type, 17, half);
  set(node);
  return node.Feed(0).Run().at(0);
}

// Steps in between are beyond float16.
TEST(OnnxHalf, StepsInBetweenDoNotOverflow) {
  const Tensor four = F({1, 1, 2, 2}, {300, 300, 300, 300}), big = F({1}, {40000});
  EXPECT_EQ(InFloat16("ReduceL2", {four}), 600);
  EXPECT_EQ(InFloat16("GlobalLpPool", {four}), 600);
  EXPECT_EQ(InFloat16("LpPool", {four},
                      [](OneNode& n) {
                        n.Set("kernel_shape", Integers{2, 2});
                      }),
            600);
  EXPECT_EQ(InFloat16("ReduceLogSum", {F({3}, {40000, 40000, 40000})}), 11.6953125f);
  EXPECT_EQ(InFloat16("Mean", {big, big, F({1}, {-40000})}), 13336);
  EXPECT_EQ(InFloat16("Gemm", {F({1, 1}, {600}), F({1, 1}, {600})},
                      [](OneNode& n) { n.Set("alpha", 0.1f); }),
            36000);
}

// Half of an ulp and a little: by way of float32 the little would be lost, and the tie go to even.
TEST(OnnxHalf, CastsOfDoublesRoundOnce) {
  const std::vector<double> values = {1 + 0x1p-11 + 0x1p-40, 1 + 3 * 0x1p-11 - 0x1p-40,
                                      -(1 + 0x1p-11 + 0x1p-40), 1 + 0x1p-11};
  const Tensor x = Tensor::Of<double>({4}, values);
  for (bool fed : {false, true}) {
    OneNode node("Cast", 17, {x});
    node.Set("to", int64_t{10});
    if (fed) node.Feed(0);
    EXPECT_EQ(node.Run(), (Numbers{1 + 0x1p-10f, 1 + 0x1p-10f, -(1 + 0x1p-10f), 1}));
  }
}

}  // namespace coracle::onnx::onnx_half_test
