// uint64, and types of 2, 4 and 8 bits that a wider dtype holds.
#include <coracle/convert/onnx/tensors.h>
#include <coracle/test/convert/one_node.h>

#include <cmath>

namespace coracle::onnx::onnx_small_types_test {

using proto::onnx::TensorProto;

constexpr uint64_t kBig = uint64_t{1} << 63;

Tensor U(const std::vector<uint64_t>& values) {
  return Tensor::Of<uint64_t>({static_cast<int64_t>(values.size())}, values);
}

void ExpectU(OneNode node, const std::vector<uint64_t>& wanted) {
  const Tensor result = node.Result();
  ASSERT_EQ(result.dtype(), DType::kUInt64);
  const auto values = result.span<uint64_t>();
  EXPECT_EQ(std::vector<uint64_t>(values.begin(), values.end()), wanted);
}

void ExpectRefusal(OneNode node, const std::string& text) {
  EXPECT_NE(node.Refusal().find(text), std::string::npos) << node.Refusal();
}

TEST(OnnxUInt64, Arithmetic) {
  const Tensor x = U({kBig + 1, 7, UINT64_MAX}), y = U({kBig, 2, 3});
  ExpectU(OneNode("Add", 14, {x, y}), {1, 9, 2});
  ExpectU(OneNode("Sub", 14, {y, x}), {UINT64_MAX, UINT64_MAX - 4, 4});
  ExpectU(OneNode("Mul", 14, {x, y}), {kBig, 14, UINT64_MAX - 2});
  ExpectU(OneNode("Div", 14, {x, y}), {1, 3, UINT64_MAX / 3});
  for (int64_t fmod : {0, 1}) ExpectU(OneNode("Mod", 13, {x, y}).Set("fmod", fmod), {1, 1, 0});
  ExpectU(OneNode("Max", 13, {x, y}), {kBig + 1, 7, UINT64_MAX});
  ExpectU(OneNode("Min", 13, {x, y}), {kBig, 2, 3});
  ExpectU(OneNode("Abs", 13, {x}), {kBig + 1, 7, UINT64_MAX});
  ExpectU(OneNode("Sign", 13, {U({kBig, 0, 3})}), {1, 0, 1});
  ExpectU(OneNode("BitShift", 11, {x, U({1, 1, 64})}).Set("direction", std::string("LEFT")),
          {2, 14, 0});
  ExpectU(OneNode("BitShift", 11, {x, U({63, 1, 1})}).Set("direction", std::string("RIGHT")),
          {1, 3, UINT64_MAX >> 1});
  ExpectU(OneNode("BitwiseAnd", 18, {x, y}), {kBig, 2, 3});
  ExpectU(OneNode("BitwiseNot", 18, {x}), {kBig - 2, UINT64_MAX - 7, 0});
  ExpectU(OneNode("Clip", 13, {x, U({8}).Reshaped({}), U({kBig}).Reshaped({})}), {kBig, 8, kBig});
  ExpectU(OneNode("ReduceSum", 13, {x, I({0})}).Set("keepdims", int64_t{1}), {kBig + 7});
  ExpectU(OneNode("ReduceMax", 18, {x, I({0})}), {UINT64_MAX});
  ExpectU(OneNode("ReduceMin", 18, {y, I({0})}), {2});
}

TEST(OnnxUInt64, Comparisons) {
  const Tensor x = U({kBig, 1, 5}), y = U({1, kBig, 5});
  EXPECT_EQ(OneNode("Less", 13, {x, y}).Run(), (Numbers{0, 1, 0}));
  EXPECT_EQ(OneNode("LessOrEqual", 16, {x, y}).Run(), (Numbers{0, 1, 1}));
  EXPECT_EQ(OneNode("Greater", 13, {x, y}).Run(), (Numbers{1, 0, 0}));
  EXPECT_EQ(OneNode("GreaterOrEqual", 16, {x, y}).Run(), (Numbers{1, 0, 1}));
  EXPECT_EQ(OneNode("Equal", 13, {x, y}).Run(), (Numbers{0, 0, 1}));
}

TEST(OnnxUInt64, CastsAndMoves) {
  const Tensor x = U({UINT64_MAX, 3});
  const auto cast = [](const Tensor& from, int to) {
    return std::move(OneNode("Cast", 19, {from}).Set("to", int64_t{to}));
  };
  EXPECT_EQ(cast(x, TensorProto::FLOAT).Run(), (Numbers{0x1p64f, 3}));
  EXPECT_TRUE(BitEqual(cast(x, TensorProto::INT64).Result(), I({-1, 3})));
  EXPECT_TRUE(BitEqual(cast(x, TensorProto::UINT32).Result(), I({UINT32_MAX, 3})));
  ExpectU(cast(I({-1, 3}), TensorProto::UINT64), {UINT64_MAX, 3});
  ExpectU(cast(F({3}, {0x1p63f, 2.7f, INFINITY}), TensorProto::UINT64), {kBig, 2, UINT64_MAX});
  ExpectU(OneNode("Gather", 13, {x, I({1, 0})}).Feed(0), {3, UINT64_MAX});
  ExpectU(OneNode("Concat", 13, {x, x}).Set("axis", int64_t{0}), {UINT64_MAX, 3, UINT64_MAX, 3});
}

// An op that would compute in a type of fewer digits is refused.
TEST(OnnxUInt64, Refused) {
  const Tensor x = U({UINT64_MAX, 3});
  ExpectRefusal(OneNode("MatMul", 13, {x, x}), "has no kernel for uint64");
  ExpectRefusal(OneNode("Softplus", 1, {x}), "input 0");
  ExpectRefusal(OneNode("CumSum", 14, {x, I({0})}), "input 0 is UINT64");
  ExpectRefusal(OneNode("ReduceMean", 18, {x}), "input 0 is UINT64");
}

// --- small types ---

TensorProto Proto(int type, const std::vector<int64_t>& dims, const std::string& raw) {
  TensorProto proto;
  proto.set_name("w");
  proto.set_data_type(type);
  for (int64_t dim : dims) proto.add_dims(dim);
  proto.set_raw_data(raw);
  return proto;
}

Numbers Elements(const TensorProto& proto) {
  const Tensor wide = ParseTensorProto(proto, TensorSource()).Cast(DType::kFloat32);
  const auto values = wide.span<float>();
  return {values.begin(), values.end()};
}

TEST(OnnxSmallTypes, Packed) {
  EXPECT_EQ(Elements(Proto(TensorProto::INT4, {3}, "\x87\x0f")), (Numbers{7, -8, -1}));
  EXPECT_EQ(Elements(Proto(TensorProto::UINT4, {3}, "\x87\x0f")), (Numbers{7, 8, 15}));
  EXPECT_EQ(Elements(Proto(TensorProto::INT2, {5}, "\xe4\x02")), (Numbers{0, 1, -2, -1, -2}));
  EXPECT_EQ(Elements(Proto(TensorProto::UINT2, {4}, "\xe4")), (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(Elements(Proto(TensorProto::FLOAT4E2M1, {2, 2}, "\x71\xa9")),
            (Numbers{0.5f, 6, -0.5f, -1}));
  TensorProto listed = Proto(TensorProto::INT4, {3}, "");
  listed.clear_raw_data();
  listed.add_int32_data(0x87);
  listed.add_int32_data(0x0f);
  EXPECT_EQ(Elements(listed), (Numbers{7, -8, -1}));
}

TEST(OnnxSmallTypes, Floats) {
  const std::string bits("\x00\x01\x38\x7e\x7f\x80\xb8\xff", 8);
  const auto expect = [&](int type, const Numbers& wanted) {
    const Numbers got = Elements(Proto(type, {8}, bits));
    for (size_t i = 0; i < 8; ++i)
      EXPECT_TRUE(got[i] == wanted[i] || (std::isnan(got[i]) && std::isnan(wanted[i])))
          << DataTypeName(type) << " " << i << " " << got[i];
  };
  expect(TensorProto::FLOAT8E4M3FN, {0, 0x1p-9f, 1, 448, NAN, 0, -1, NAN});
  expect(TensorProto::FLOAT8E4M3FNUZ, {0, 0x1p-10f, 0.5f, 224, 240, NAN, -0.5f, -240});
  expect(TensorProto::FLOAT8E5M2, {0, 0x1p-16f, 0.5f, NAN, NAN, 0, -0.5f, NAN});
  expect(TensorProto::FLOAT8E5M2FNUZ, {0, 0x1p-17f, 0.25f, 49152, 57344, NAN, -0.25f, -57344});
  expect(TensorProto::FLOAT8E8M0, {0x1p-127f, 0x1p-126f, 0x1p-71f, 0.5f, 1, 2, 0x1p57f, NAN});
  EXPECT_EQ(Elements(Proto(TensorProto::FLOAT8E5M2, {1}, "\x7c"))[0], INFINITY);
}

TEST(OnnxSmallTypes, HostileSizes) {
  const auto code = [](const TensorProto& proto) {
    try {
      ParseTensorProto(proto, TensorSource());
    } catch (const Error& e) {
      return e.code();
    }
    return ErrorCode::kInternal;
  };
  EXPECT_EQ(code(Proto(TensorProto::INT4, {4}, "a")), ErrorCode::kDataLoss);
  EXPECT_EQ(code(Proto(TensorProto::INT4, {1}, "ab")), ErrorCode::kDataLoss);
  EXPECT_EQ(code(Proto(TensorProto::STRING, {1}, std::string(16, 'x'))), ErrorCode::kDataLoss);
  EXPECT_EQ(code(Proto(TensorProto::STRING, {int64_t{1} << 40}, "")), ErrorCode::kDataLoss);
}

TEST(OnnxSmallTypes, Cast) {
  const auto cast = [](const Tensor& x, int to) {
    return std::move(OneNode("Cast", 25, {x}).Set("to", int64_t{to}));
  };
  const Tensor x = F({5}, {-9, -8, 7.9f, 8, 15});
  EXPECT_EQ(cast(x, TensorProto::INT4).Run(), (Numbers{7, -8, 7, -8, -1}));
  EXPECT_EQ(cast(x, TensorProto::UINT4).Run(), (Numbers{7, 8, 7, 8, 15}));
  EXPECT_EQ(cast(I({-3, 2, 1}), TensorProto::INT2).Run(), (Numbers{1, -2, 1}));
  EXPECT_EQ(cast(I({-3, 2, 5}), TensorProto::UINT2).Run(), (Numbers{1, 2, 1}));
  EXPECT_EQ(cast(F({3}, {0.47892547f, 1e6f, -1e-7f}), TensorProto::FLOAT8E4M3FN).Run(),
            (Numbers{0.46875f, 448, 0}));
  const Numbers open =
      cast(F({2}, {1e6f, 464}), TensorProto::FLOAT8E4M3FN).Set("saturate", int64_t{0}).Run();
  EXPECT_TRUE(std::isnan(open[0]));
  EXPECT_EQ(open[1], 448);
  EXPECT_EQ(cast(I({INT64_MAX, 3}), TensorProto::FLOAT8E5M2).Run(), (Numbers{57344, 3}));
  EXPECT_EQ(cast(F({3}, {1.1f, 0, 3}), TensorProto::FLOAT8E8M0)
                .Set("round_mode", std::string("down"))
                .Run(),
            (Numbers{1, 0x1p-127f, 2}));
}

TEST(OnnxSmallTypes, Quantize) {
  const Tensor x = F({4}, {-100, 2.5f, 3.5f, 1000}), scale = F({}, {1});
  const auto quantize = [&](int type) {
    return OneNode("QuantizeLinear", 25, {x, scale}).Set("output_dtype", int64_t{type}).Run();
  };
  EXPECT_EQ(quantize(TensorProto::INT4), (Numbers{-8, 2, 4, 7}));
  EXPECT_EQ(quantize(TensorProto::UINT4), (Numbers{0, 2, 4, 15}));
  EXPECT_EQ(quantize(TensorProto::INT2), (Numbers{-2, 1, 1, 1}));
  EXPECT_EQ(quantize(TensorProto::FLOAT8E4M3FN), (Numbers{-96, 2.5f, 3.5f, 448}));
  EXPECT_EQ(quantize(TensorProto::FLOAT4E2M1), (Numbers{-6, 2, 4, 6}));
}

// A model whose initializer has the type; DequantizeLinear multiplies it by 2.
Numbers Dequantized(int type, const std::string& raw, int64_t count) {
  proto::onnx::ModelProto model;
  model.add_opset_import()->set_version(25);
  auto& graph = *model.mutable_graph();
  *graph.add_initializer() = Proto(type, {count}, raw);
  TensorProto scale = Proto(TensorProto::FLOAT, {}, std::string("\0\0\0\x40", 4));
  scale.set_name("scale");
  *graph.add_initializer() = scale;
  auto& node = *graph.add_node();
  node.set_op_type("DequantizeLinear");
  node.add_input("w");
  node.add_input("scale");
  node.add_output("y");
  graph.add_output()->set_name("y");
  Scope scope;
  const InferenceModel imported = ParseOnnx(model.SerializeAsString(), "m.onnx", scope);
  const Tensor y = Executor().Prepare(imported.program).Run(scope, std::vector<Tensor>()).at(0);
  const auto values = y.span<float>();
  return {values.begin(), values.end()};
}

TEST(OnnxSmallTypes, DequantizedInitializers) {
  EXPECT_EQ(Dequantized(TensorProto::INT4, "\x87\x0f", 3), (Numbers{14, -16, -2}));
  EXPECT_EQ(Dequantized(TensorProto::FLOAT8E5M2, "\x38\x7b", 2), (Numbers{1, 114688}));
  EXPECT_EQ(Dequantized(TensorProto::FLOAT4E2M1, "\x71", 2), (Numbers{1, 12}));
}

}  // namespace coracle::onnx::onnx_small_types_test
