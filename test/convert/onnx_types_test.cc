// Types and ranks of inputs that some operator set allows and that models rarely have.
#include <coracle/convert/onnx/import/node_importers.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/test/convert/any_node.h>
#include <coracle/test/convert/one_node.h>

#include <cmath>

namespace coracle::onnx::onnx_types_test {

Tensor Bools(const Shape& shape, const std::vector<uint8_t>& values) {
  return Tensor::Of<uint8_t>(shape, values).Cast(DType::kBool);
}

void ExpectRefusal(OneNode node, const std::string& text) {
  EXPECT_NE(node.Refusal().find(text), std::string::npos) << node.Refusal();
}

TEST(OnnxTypes, PartsOfTheFirstSplitAreFloats) {
  const Tensor x = F({4}, {1, 4, 2, 3});
  EXPECT_EQ(OneNode("Split", 1, {x, F({2}, {3, 1})}).Outputs(2).Run(), (Numbers{1, 4, 2}));
  for (const Numbers& parts : {Numbers{2.5f, 1.5f}, Numbers{-1, 5}, Numbers{1e30f, 1}})
    ExpectRefusal(OneNode("Split", 1, {x, F({2}, parts)}).Outputs(2), "a whole number of elements");
  for (const Tensor& parts : {F({2}, {3, 1}), Bools({2}, {1, 1})})
    ExpectRefusal(OneNode("Split", 13, {x, parts}).Outputs(2), "must hold integers");
  for (const int64_t opset : {2, 11, 12})
    ExpectRefusal(OneNode("Split", opset, {x, I({3, 1})}).Outputs(2), "split is an attribute");
}

// IEEE 754: 1 is 0x3f800000; -0 has only the sign.
TEST(OnnxTypes, BitCast) {
  using proto::onnx::TensorProto;
  const auto cast = [](const Tensor& x, int to) {
    return OneNode("BitCast", 26, {x}).Set("to", int64_t{to});
  };
  const auto integers = [](const Tensor& tensor) {
    const Tensor wide = tensor.Cast(DType::kInt64);
    return Integers(wide.span<int64_t>().begin(), wide.span<int64_t>().end());
  };
  const Tensor x = F({3}, {1, -0.0f, 2});
  EXPECT_EQ(integers(cast(x, TensorProto::INT32).Result()),
            (Integers{0x3f800000, INT32_MIN, 0x40000000}));
  // uint16 and uint32 are held in wider dtypes.
  EXPECT_EQ(integers(cast(x, TensorProto::UINT32).Result()),
            (Integers{0x3f800000, 0x80000000, 0x40000000}));
  EXPECT_EQ(integers(cast(I({-1, 7}).Cast(DType::kInt16), TensorProto::UINT16).Feed(0).Result()),
            (Integers{65535, 7}));
  EXPECT_EQ(integers(cast(Bools({2}, {1, 0}), TensorProto::UINT8).Result()), (Integers{1, 0}));
  EXPECT_EQ(integers(cast(I({INT64_MIN}), TensorProto::UINT64).Result().Cast(DType::kFloat64)),
            (Integers{INT64_MAX}));  // 2^63, saturated
  EXPECT_EQ(cast(I({0x3ff0000000000000}), TensorProto::DOUBLE).Run(), Numbers{1});
  ExpectRefusal(cast(x, TensorProto::INT64), "FLOAT and INT64 have different numbers of bits");
  ExpectRefusal(cast(I({1}).Cast(DType::kUInt8), TensorProto::FLOAT8E5M2), "no dtype holds");
}

// From uint16 and uint32, through the constants that ONNX stores in them.
TEST(OnnxTypes, BitCastFromUnsigned) {
  using proto::onnx::TensorProto;
  proto::onnx::ModelProto model;
  model.add_opset_import()->set_version(26);
  auto& graph = *model.mutable_graph();
  const auto add = [&](const std::string& name, int from, const std::string& raw, int to) {
    auto& tensor = *graph.add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(from);
    tensor.add_dims(1);
    tensor.set_raw_data(raw);
    auto& node = *graph.add_node();
    node.set_op_type("BitCast");
    node.add_input(name);
    node.add_output(name + "_out");
    auto& attr = *node.add_attribute();
    attr.set_name("to");
    attr.set_type(proto::onnx::AttributeProto::INT);
    attr.set_i(to);
    graph.add_output()->set_name(name + "_out");
  };
  add("a", TensorProto::UINT16, "\xff\xff", TensorProto::INT16);
  add("b", TensorProto::UINT16, std::string("\x00\x3c", 2), TensorProto::FLOAT16);
  add("c", TensorProto::UINT32, std::string("\x00\x00\x80\xbf", 4), TensorProto::FLOAT);
  Scope scope;
  const InferenceModel imported = ParseOnnx(model.SerializeAsString(), "m.onnx", scope, {});
  PreparedProgram prepared = Executor().Prepare(imported.program);
  const std::vector<Tensor>& results = prepared.Run(scope, std::vector<Tensor>());
  ASSERT_EQ(results.size(), 3U);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(results[i].Cast(DType::kFloat32).data<float>()[0], (Numbers{-1, 1, -1}[i])) << i;
  EXPECT_EQ(results[1].dtype(), DType::kFloat16);
}

TEST(OnnxTypes, QuantizeLinearOfIntegers) {
  const Tensor floats = F({5}, {7, -7, 5, 9, 2e9f});
  const Tensor x = Tensor::Of<int32_t>({5}, {7, -7, 5, 9, 2000000001});
  const Tensor scale = Tensor::Of<int32_t>({}, {2}), large = Tensor::Of<int32_t>({}, {16000000});
  const Tensor zero = Tensor::Of<int8_t>({}, {0});
  for (int64_t opset : {19, 21, 23, 25})
    EXPECT_EQ(OneNode("QuantizeLinear", opset, {x, scale, zero}).Run(),
              (Numbers{4, -4, 2, 4, 127}));
  EXPECT_EQ(OneNode("QuantizeLinear", 21, {x, large}).Run(), (Numbers{0, 0, 0, 0, 125}));
  // From operator set 23 on the scale has a type of its own.
  EXPECT_EQ(OneNode("QuantizeLinear", 23, {floats, scale, zero}).Run(),
            (Numbers{4, -4, 2, 4, 127}));
  EXPECT_EQ(OneNode("QuantizeLinear", 23, {x, F({}, {2}), zero}).Run(),
            (Numbers{4, -4, 2, 4, 127}));
}

TEST(OnnxTypes, NearestSamplesOfAnyElements) {
  const Tensor grid = F({1, 1, 3, 2}, {-0.5f, -0.5f, 0.5f, -0.5f, 9, 9});
  const auto node = [&](const Tensor& x, const char* mode) {
    return std::move(OneNode("GridSample", 16, {x, grid}).Set("mode", std::string(mode)));
  };
  const Shape shape = {1, 1, 2, 2};
  const Tensor bools = Bools(shape, {1, 0, 0, 1});
  EXPECT_EQ(node(bools, "nearest").Run(), (Numbers{1, 0, 0}));
  EXPECT_EQ(node(bools, "nearest").Result().dtype(), DType::kBool);
  const int64_t odd = (int64_t{1} << 60) + 1;  // no double
  const Tensor integers = Tensor::Of<int64_t>(shape, {odd, -odd, 3, 4});
  const Tensor moved = node(integers, "nearest").Result();
  const auto values = moved.span<int64_t>();
  EXPECT_EQ(Integers(values.begin(), values.end()), (Integers{odd, -odd, 0}));
  const Tensor complex = Tensor::Of<complex64>(shape, {{1, 2}, {3, 4}, {5, 6}, {7, 8}});
  const Tensor pairs = node(complex, "nearest").Result();
  EXPECT_EQ(pairs.span<complex64>()[1], complex64(3, 4));
  EXPECT_EQ(pairs.span<complex64>()[2], complex64(0, 0));
  ExpectRefusal(node(bools, "bilinear"), "linear samples between elements of bool");
  ExpectRefusal(node(complex, "bicubic"), "cubic samples between elements of complex64");
  const Tensor bytes = Tensor::Of<uint8_t>(shape, {0, 3, 0, 3});
  EXPECT_EQ(OneNode("GridSample", 20, {bytes, F({1, 1, 1, 2}, {0, 0})}).Run(), (Numbers{1}));
}

TEST(OnnxTypes, Col2ImOfAnyNumbers) {
  const auto sums = [](const Tensor& x) {
    return OneNode("Col2Im", 18, {x, I({1, 3}), I({1, 2})});
  };
  const Shape shape = {1, 2, 2};
  EXPECT_EQ(sums(Bools(shape, {0, 1, 1, 0})).Run(), (Numbers{0, 1, 0}));
  EXPECT_EQ(sums(Bools(shape, {1, 0, 0, 1})).Run(), (Numbers{1, 0, 1}));
  EXPECT_EQ(sums(Bools(shape, {1, 0, 0, 1})).Result().dtype(), DType::kBool);
  for (DType dtype : {DType::kInt8, DType::kUInt8, DType::kInt16, DType::kInt32, DType::kInt64,
                      DType::kFloat16, DType::kFloat64}) {
    const Tensor x = F(shape, {1, 2, 3, 4}).Cast(dtype);
    EXPECT_EQ(sums(x).Run(), (Numbers{1, 5, 4})) << ToString(dtype);
    EXPECT_EQ(sums(x).Result().dtype(), dtype);
  }
  ExpectRefusal(sums(F(shape, {1, 2, 3, 4}).Cast(DType::kComplex64)), "sums of complex numbers");
}

TEST(OnnxTypes, IfAndLoopOfTheFirstOperatorSets) {
  for (const char* type : {"If", "Loop"}) {
    const NodeImporter& row = AllNodeImporters().Get("", type, 1);
    for (int64_t opset : {1, 6, 7}) {
      ModelProto model = ModelOf(row, UsualInputs(row));
      model.mutable_opset_import(0)->set_version(opset);
      Scope scope;
      EXPECT_NO_THROW(ParseOnnx(model.SerializeAsString(), "m.onnx", scope)) << type << opset;
    }
  }
}

// --- attention ---

constexpr int64_t kHeads = 2, kLength = 3, kSize = 2;

Tensor Waves(const Shape& shape, float phase) {
  Tensor tensor(DType::kFloat32, shape);
  for (int64_t i = 0; i < tensor.numel(); ++i)
    tensor.data<float>()[i] = std::sin(phase + 0.7f * static_cast<float>(i));
  return tensor;
}

// Tensors [1, length, heads * size] as one of [1, length, heads, how many, size].
Tensor Packed(const std::vector<Tensor>& parts) {
  const auto count = static_cast<int64_t>(parts.size());
  Tensor packed(DType::kFloat32, {1, kLength, kHeads, count, kSize});
  float* to = packed.data<float>();
  for (int64_t row = 0; row < kLength * kHeads; ++row) {
    for (const Tensor& part : parts) to = std::copy_n(part.data<float>() + row * kSize, kSize, to);
  }
  return packed;
}

TEST(OnnxTypes, PackedQueriesKeysAndValues) {
  const Shape shape = {1, kLength, kHeads * kSize};
  const Tensor q = Waves(shape, 0.1f), k = Waves(shape, 0.9f), v = Waves(shape, 2.3f);
  const Tensor bias = Waves({3 * kHeads * kSize}, 1.7f);
  const auto node = [](const std::vector<std::optional<Tensor>>& inputs) {
    OneNode attention("MultiHeadAttention", 1, inputs, "com.microsoft");
    return std::move(attention.Set("num_heads", kHeads));
  };
  for (const std::optional<Tensor>& b : {std::optional<Tensor>(), std::optional<Tensor>(bias)}) {
    const Numbers wanted = node({q, k, v, b}).Run();
    ExpectNear(node({Packed({q, k, v}), kAbsent, kAbsent, b}).Run(), wanted);
    ExpectNear(node({q, Packed({k, v}), kAbsent, b}).Run(), wanted);
  }
  ExpectRefusal(node({q}), "input 1 is missing");
  ExpectRefusal(node({q, k}), "input 2 is missing");
  ExpectRefusal(node({Packed({q, k})}), "must hold 3 tensors of 2 heads");
  ExpectRefusal(node({Packed({q, k, v}), k}), "input 1 is packed in input 0");
  ExpectRefusal(node({q, k.Reshaped({1, kHeads, kLength, kSize}), v}),
                "a key of rank 4 needs a value of rank 4");
}

TEST(OnnxTypes, AnAttentionMaskOfRank0) {
  const Tensor x = Waves({1, kHeads, kLength, kSize}, 0.1f);
  const Numbers wanted = OneNode("Attention", 23, {x, x, x}).Run();
  ExpectNear(OneNode("Attention", 23, {x, x, x, F({}, {1.5f})}).Run(), wanted);
  ExpectNear(OneNode("Attention", 23, {x, x, x, Bools({}, {1})}).Run(), wanted);
}

// ONNX Runtime's has images, and windows of states, too.
TEST(OnnxTypes, CausalConvolutionsOfOtherRanks) {
  const auto node = [](const std::vector<std::optional<Tensor>>& inputs) {
    return OneNode("CausalConvWithState", 1, inputs, "com.microsoft");
  };
  const Tensor x = Waves({1, 2, 3}, 0.1f), w = Waves({2, 1, 2}, 0.9f);
  EXPECT_EQ(node({x, w, kAbsent, Waves({1, 2, 1}, 0)}).Refusal(), "");
  ExpectRefusal(node({x, w, kAbsent, Waves({1, 1, 2, 1}, 0)}), "of another rank than 3");
  ExpectRefusal(node({Waves({1, 2, 3, 3}, 0), Waves({2, 1, 2, 2}, 0)}), "of another rank than 3");
  ExpectRefusal(node({x, w}).Set("channels_last", int64_t{1}), "channels_last");
}

}  // namespace coracle::onnx::onnx_types_test
