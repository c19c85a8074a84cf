// Quantized values in other forms than affine_quantize and affine_dequantize: which integer ops
// they become, what stays as it is, and the same numbers.

#include <coracle/test/passes/quantized_program.h>

#include <limits>

namespace coracle::unify_quantization_test {

using Ints = std::vector<int32_t>;
constexpr DType kS8 = DType::kInt8, kU8 = DType::kUInt8;

class Program : public QuantizedProgram {
 public:
  // A feed whose rank is certain.
  void Fed(const std::string& name, const Shape& shape) {
    Data(name, shape);
    root().Var(name).SetNeedCheckFeed(true);
  }
  // The integers x.q of x, with x.s and x.z of each run.
  void DynamicBytes(const std::string& x) {
    Append("dynamic_scale", {{"X", {x}}}, {{"Scale", {x + ".s"}}, {"ZeroPoint", {x + ".z"}}});
    root().Var(x + ".q").SetDType(kU8);
    Append("affine_quantize", {{"X", {x}}, {"Scale", {x + ".s"}}, {"ZeroPoint", {x + ".z"}}},
           {{"Out", {x + ".q"}}}, {{"out_dtype", static_cast<int32_t>(kU8)}});
  }
  void Cast(const std::string& x, const std::string& out) {
    Unary("cast", x, out, {{"in_dtype", int32_t{2}}, {"out_dtype", int32_t{5}}});
  }
  // y = x w by integers, with scales `factors` of the weight afterwards.
  void DynamicProduct(const std::string& x, const Shape& weight, const std::vector<float>& factors,
                      const std::vector<int32_t>& zeros) {
    DynamicBytes(x);
    Weight("w", weight);
    Append("quantized_matmul",
           {{"X", {x + ".q"}},
            {"XZeroPoint", {x + ".z"}},
            {"Y", {"w"}},
            {"YZeroPoint", {Zeros("w.z", zeros, kS8)}}},
           {{"Out", {"i"}}}, {{"out_dtype", int32_t{2}}});
    Cast("i", "f");
    Floats("ws", factors);
    Binary("elementwise_mul", x + ".s", "ws", "r");
    Binary("elementwise_mul", "f", "r", "m");
  }
  void DynamicConv(const std::string& x, const Shape& filter, int32_t groups, float factor) {
    DynamicBytes(x);
    Weight("w", filter);
    Append("quantized_conv2d",
           {{"Input", {x + ".q"}},
            {"InputZeroPoint", {x + ".z"}},
            {"Filter", {"w"}},
            {"FilterZeroPoint", {Zeros("w.z", {3}, kS8)}}},
           {{"Output", {"i"}}},
           {{"out_dtype", int32_t{2}}, {"paddings", Ints{1, 1}}, {"groups", groups}});
    Cast("i", "f");
    Floats("ws", {factor});
    Binary("elementwise_mul", x + ".s", "ws", "r");
    Binary("elementwise_mul", "f", "r", "m");
  }
  std::string Unified(const std::vector<std::string>& fetches = {"y"}) const {
    return After({"unify_quantization"}, fetches, true);
  }
  std::string All(const std::vector<std::string>& fetches = {"y"}) const {
    return After({"unify_quantization", "fold_constants", "move_quantization", "fuse_conv_bias",
                  "fuse_conv_epilogue", "fuse_fc", "fuse_quantized", "fold_dequantized"},
                 fetches, true);
  }
};

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(UnifyQuantization, ProductsOfDynamicIntegers) {
  for (const bool columns : {false, true}) {
    Program p;
    p.Fed("x", {-1, 6});
    p.DynamicProduct("x", {6, 3},
                     columns ? std::vector<float>{0.01f, 0.02f, 0.03f} : std::vector<float>{0.01f},
                     columns ? Ints{1, 0, -2} : Ints{5});
    p.Binary("elementwise_add", "m", p.Floats("b", {1, -1, 0.5f}), "a");
    p.Unary("relu", "a", "y");
    const std::string all = p.All();
    EXPECT_TRUE(Has(all,
                    "Out=y = quantized_matmul(X=x.q, Y=w, XScale=x.s, XZeroPoint=x.z, "
                    "YScale=ws"))
        << all;
    EXPECT_TRUE(Has(all, "Bias=b")) << all;
    EXPECT_FALSE(Has(all, "relu(")) << all;
    EXPECT_FALSE(Has(all, "cast(")) << all;
    p.ExpectNear({"y"});
  }
}

TEST(UnifyQuantization, ConvolutionsOfDynamicIntegers) {
  Program p;
  p.Fed("x", {-1, 3, 5, 5});
  p.DynamicConv("x", {4, 3, 3, 3}, 1, 0.02f);
  p.Parameter("b", {1, 4, 1, 1});
  p.Binary("elementwise_add", "m", "b", "a");
  p.Unary("relu", "a", "y");
  const std::string all = p.All();
  EXPECT_TRUE(Has(all,
                  "Output=y = quantized_conv2d(Input=x.q, Filter=w, InputScale=x.s, "
                  "InputZeroPoint=x.z, FilterScale=ws"))
      << all;
  EXPECT_FALSE(Has(all, "relu(")) << all;
  p.ExpectNear({"y"});
}

// Each channel by itself: the fast kernel of integers needs frozen scales.
TEST(UnifyQuantization, DynamicDepthwiseStaysFloat) {
  Program p;
  p.Fed("x", {-1, 4, 5, 5});
  p.DynamicConv("x", {4, 1, 3, 3}, 4, 0.02f);
  p.Unary("relu", "m", "y");
  EXPECT_FALSE(Has(p.All(), "quantized_conv2d"));
  p.ExpectNear({"y"});
}

TEST(UnifyQuantization, PairsOfDynamicScales) {
  Program p;
  p.Fed("x", {-1, 6});
  p.DynamicBytes("x");
  p.Append("affine_dequantize", {{"X", {"x.q"}}, {"Scale", {"x.s"}}, {"ZeroPoint", {"x.z"}}},
           {{"Out", {"d"}}});
  p.Dequantize(p.Weight("w", {6, 3}), "v", {0.01f, 0.02f, 0.03f}, {}, 1);
  p.Append("mul", {{"X", {"d"}}, {"Y", {"v"}}}, {{"Out", {"y"}}});
  EXPECT_TRUE(Has(p.All(), "quantized_matmul(X=x.q, Y=w, XScale=x.s, XZeroPoint=x.z, YScale=v.s)"))
      << p.All();
  p.ExpectNear({"y"});
}

TEST(UnifyQuantization, DynamicSpecialNumbers) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float value : {inf, -inf, std::nanf(""), 1e38f, 1e-42f, 0.0f}) {
    Program p;
    p.Fed("x", {2, 6});
    p.DynamicProduct("x", {6, 3}, {0.01f}, {0});
    p.Unary("relu", "m", "y");
    p.feeds["x"] = Tensor::Zeros(DType::kFloat32, {2, 6});
    p.feeds["x"].data<float>()[4] = value;
    SCOPED_TRACE(value);
    p.ExpectNear({"y"}, 1e-4, 1);
    Program q;
    q.Fed("x", {2, 3, 5, 5});
    q.DynamicConv("x", {4, 3, 3, 3}, 1, 0.02f);
    q.Unary("relu", "m", "y");
    q.feeds["x"].data<float>()[7] = value;
    q.ExpectNear({"y"}, 1e-4, 1);
  }
}

TEST(UnifyQuantization, SumsThatStay) {
  const auto program = [] {
    Program p;
    p.Fed("x", {-1, 6});
    p.DynamicProduct("x", {6, 3}, {0.01f}, {0});
    p.Unary("relu", "m", "y");
    return p;
  };
  EXPECT_FALSE(Has(program().Unified(), "quantized_matmul"));
  EXPECT_TRUE(Has(program().Unified({"y", "i"}), "quantized_matmul"));
  EXPECT_TRUE(Has(program().Unified({"y", "f"}), "quantized_matmul"));
  Program p;  // the factors lie along the rows
  p.Fed("x", {3, 6});
  p.DynamicBytes("x");
  p.Weight("w", {6, 3});
  p.Append("quantized_matmul", {{"X", {"x.q"}}, {"XZeroPoint", {"x.z"}}, {"Y", {"w"}}},
           {{"Out", {"i"}}}, {{"out_dtype", int32_t{2}}});
  p.Cast("i", "f");
  p.Binary("elementwise_mul", "f", p.Floats("ws", {1, 2, 3}), "m", 0);
  p.Binary("elementwise_mul", "m", "x.s", "y");
  EXPECT_TRUE(Has(p.Unified(), "quantized_matmul")) << p.Unified();
  p.ExpectNear({"y"});
}

// --- Paddle's forms ---

class PaddleProgram : public Program {
 public:
  // Integers in float32, with a scale that the op writes back.
  std::string FakeQuantize(const std::string& type, const std::string& x, const std::string& out,
                           float scale, bool test = true) {
    const std::string s = Floats(out + ".scale", {scale});
    Append(type, {{"X", {x}}, {"InScale", {s}}}, {{"Out", {out}}, {"OutScale", {s}}},
           {{"bit_length", int32_t{8}}, {"is_test", test}});
    return out;
  }
  // Numbers from -127 to 127 in float32.
  std::string IntegersInFloats(const std::string& name, const Shape& shape) {
    Weight(name, shape);
    Tensor value = Bytes(shape, kS8, 7).Cast(DType::kFloat32);
    for (float& v : value.span<float>()) v = std::max(v, -127.0f);
    root().Var(name).SetDType(DType::kFloat32);
    scope.Set(name, value);
    return name;
  }
};

TEST(UnifyQuantization, PaddleProducts) {
  for (const char* type : {"fake_quantize_range_abs_max", "fake_quantize_moving_average_abs_max"}) {
    PaddleProgram p;
    p.Fed("x", {-1, 6});
    p.FakeQuantize(type, "x", "q", 1.5f);
    p.IntegersInFloats("w", {6, 3});
    p.Append("mul", {{"X", {"q"}}, {"Y", {"w"}}}, {{"Out", {"m"}}});
    p.Append("fake_dequantize_max_abs", {{"X", {"m"}}, {"Scale", {"q.scale"}}}, {{"Out", {"y"}}},
             {{"max_range", 127.0f * 127.0f / 0.3f}});
    const std::string all = p.All();
    EXPECT_TRUE(Has(all, "quantized_matmul")) << all;
    EXPECT_FALSE(Has(all, "fake_")) << all;
    p.ExpectNear({"y"});
  }
}

TEST(UnifyQuantization, PaddleConvolutions) {
  PaddleProgram p;
  p.Fed("x", {-1, 3, 5, 5});
  p.FakeQuantize("fake_quantize_moving_average_abs_max", "x", "q", 1.5f);
  p.IntegersInFloats("w", {4, 3, 3, 3});
  p.Conv("q", "w", "c");
  p.Append("fake_channel_wise_dequantize_max_abs",
           {{"X", {"c"}}, {"Scales", {p.Floats("ws", {0.1f, 0.2f, 0.3f, 0.4f}), "q.scale"}}},
           {{"Out", {"d"}}}, {{"quant_bits", Ints{8, 8}}});
  p.Unary("relu", "d", "r");
  p.FakeQuantize("fake_quantize_moving_average_abs_max", "r", "k", 0.7f);
  p.IntegersInFloats("v", {2, 4, 3, 3});
  p.Conv("k", "v", "e");
  p.Append("fake_dequantize_max_abs", {{"X", {"e"}}, {"Scale", {"k.scale"}}}, {{"Out", {"y"}}},
           {{"max_range", 127.0f * 127.0f / 0.3f}});
  const std::string all = p.All();
  EXPECT_FALSE(Has(all, " = conv2d(")) << all;
  EXPECT_FALSE(Has(all, "fake_")) << all;
  EXPECT_FALSE(Has(all, "relu(")) << all;
  // The second quantization may differ by one integer of 127 v-weights.
  p.ExpectNear({"y"}, 0.05);
}

TEST(UnifyQuantization, PaddlePairsAndWeights) {
  PaddleProgram p;
  p.Fed("x", {-1, 6});
  p.FakeQuantize("fake_quantize_dequantize_moving_average_abs_max", "x", "q", 1.5f);
  p.Parameter("w", {6, 3});
  p.Append("fake_channel_wise_quantize_dequantize_abs_max", {{"X", {"w"}}},
           {{"Out", {"v"}}, {"OutScale", {"v.scale"}}},
           {{"bit_length", int32_t{8}}, {"quant_axis", int32_t{1}}});
  p.Append("matmul_v2", {{"X", {"q"}}, {"Y", {"v"}}}, {{"Out", {"m"}}});
  p.Parameter("u", {3, 2});
  p.Append("fake_quantize_dequantize_abs_max", {{"X", {"u"}}},
           {{"Out", {"t"}}, {"OutScale", {"t.scale"}}}, {{"bit_length", int32_t{8}}});
  p.FakeQuantize("fake_quantize_dequantize_moving_average_abs_max", "m", "n", 0.9f);
  p.Append("mul", {{"X", {"n"}}, {"Y", {"t"}}}, {{"Out", {"y"}}});
  const std::string all = p.All();
  EXPECT_FALSE(Has(all, "fake_")) << all;
  EXPECT_FALSE(Has(all, "matmul_v2(")) << all;
  EXPECT_FALSE(Has(all, " = mul(")) << all;
  p.ExpectNear({"y"}, 0.02);
}

TEST(UnifyQuantization, PaddleLinearOps) {
  for (const int32_t round_type : {0, 1}) {
    PaddleProgram p;
    p.Fed("x", {-1, 3, 5, 5});
    const AttrList one = {{"quant_axis", int32_t{-1}}, {"round_type", round_type}};
    const std::string s = p.Floats("s", {1.5f}), z = p.Floats("z", {0});
    p.Append("quantize_linear", {{"X", {"x"}}, {"Scale", {s}}, {"ZeroPoint", {z}}},
             {{"Y", {"q"}}, {"OutScale", {s}}}, one);
    p.Append("dequantize_linear", {{"X", {"q"}}, {"Scale", {s}}, {"ZeroPoint", {z}}},
             {{"Y", {"d"}}, {"OutScale", {s}}}, one);
    p.Weight("w", {4, 3, 3, 3});
    p.Append("dequantize_linear",
             {{"X", {"w"}}, {"Scale", {p.Floats("ws", {0.1f, 0.2f, 0.3f, 0.4f})}}}, {{"Y", {"v"}}},
             {{"quant_axis", int32_t{0}}});
    p.Conv("d", "v", "y");
    const std::string all = p.All();
    EXPECT_TRUE(Has(all, "quantized_conv2d")) << all;
    EXPECT_FALSE(Has(all, "_linear(")) << all;
    p.ExpectNear({"y"});
  }
}

// All integers and all ties: the integers are those of Paddle's op.
TEST(UnifyQuantization, PaddleRounding) {
  for (const bool linear : {false, true}) {
    PaddleProgram p;
    p.Fed("x", {1, 600});
    if (linear)
      p.Append("quantize_linear", {{"X", {"x"}}, {"Scale", {p.Floats("s", {127})}}}, {{"Y", {"y"}}},
               {{"quant_axis", int32_t{-1}}});
    else
      p.FakeQuantize("fake_quantize_range_abs_max", "x", "y", 127);
    for (int i = 0; i < 600; ++i) p.feeds["x"].data<float>()[i] = static_cast<float>(i - 300) / 2;
    const std::vector<Tensor> want =
        Executor(CompileOptions{.optimize = false}).Run(p.program, p.scope, p.feeds, {"y"});
    const std::vector<Tensor> got =
        Executor().PrepareFrozen(p.program, p.scope, {"x"}, {"y"}).Run(p.scope, {p.feeds["x"]});
    EXPECT_TRUE(Has(p.Unified(), "affine_quantize")) << p.Unified();
    for (int i = 0; i < 600; ++i) EXPECT_EQ(want[0].data<float>()[i], got[0].data<float>()[i]) << i;
  }
}

// A convolution whose quotients are exactly halfway between integers.
TEST(UnifyQuantization, PaddleTiesAfterProducts) {
  PaddleProgram p;
  p.Fed("x", {1, 1});
  p.FakeQuantize("fake_quantize_range_abs_max", "x", "q", 127);
  p.IntegersInFloats("w", {1, 3});
  p.scope.Set("w", Tensor::Of<float>({1, 3}, {1, 3, -5}));
  p.Append("mul", {{"X", {"q"}}, {"Y", {"w"}}}, {{"Out", {"m"}}});
  p.Append("fake_dequantize_max_abs", {{"X", {"m"}}, {"Scale", {p.Floats("k", {1})}}},
           {{"Out", {"d"}}}, {{"max_range", 2.0f}});
  p.FakeQuantize("fake_quantize_range_abs_max", "d", "y", 127);
  for (const float x : {1.0f, -1.0f, 3.0f, 5.0f, 2.0f, 7.0f}) {
    p.feeds["x"].data<float>()[0] = x;
    const std::vector<Tensor> want =
        Executor(CompileOptions{.optimize = false}).Run(p.program, p.scope, p.feeds, {"y"});
    const std::vector<Tensor> got =
        Executor().PrepareFrozen(p.program, p.scope, {"x"}, {"y"}).Run(p.scope, {p.feeds["x"]});
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(want[0].data<float>()[i], got[0].data<float>()[i]) << x << " " << i;
  }
}

TEST(UnifyQuantization, PaddleFormsThatStay) {
  const auto unified = [](bool test, float scale, int32_t bits) {
    PaddleProgram p;
    p.Fed("x", {-1, 6});
    p.FakeQuantize("fake_quantize_moving_average_abs_max", "x", "y", scale, test);
    p.root().op(0).SetAttr("bit_length", bits);
    return p.Unified();
  };
  EXPECT_TRUE(Has(unified(true, 1, 8), "affine_quantize"));
  EXPECT_FALSE(Has(unified(false, 1, 8), "affine_quantize"));
  EXPECT_FALSE(Has(unified(true, 0, 8), "affine_quantize"));
  EXPECT_FALSE(Has(unified(true, std::nanf(""), 8), "affine_quantize"));
  EXPECT_FALSE(Has(unified(true, 1, 4), "affine_quantize"));
  PaddleProgram p;  // weights that are no integers
  p.Fed("x", {-1, 6});
  p.FakeQuantize("fake_quantize_range_abs_max", "x", "q", 1.5f);
  p.Parameter("w", {6, 3});
  p.Append("mul", {{"X", {"q"}}, {"Y", {"w"}}}, {{"Out", {"m"}}});
  p.Append("fake_dequantize_max_abs", {{"X", {"m"}}, {"Scale", {"q.scale"}}}, {{"Out", {"y"}}},
           {{"max_range", 127.0f}});
  EXPECT_TRUE(Has(p.Unified(), "fake_dequantize_max_abs"));
  p.ExpectNear({"y"});
}

TEST(UnifyQuantization, OneDnnOps) {
  const auto program = [](float shift, bool negative) {
    Program p;
    p.Fed("x", {-1, 6});
    p.root().Var("q").SetDType(shift == 0 && negative ? kS8 : kU8);
    p.Append("quantize", {{"Input", {"x"}}}, {{"Output", {"q"}}},
             {{"Scale", 50.0f}, {"Shift", shift}, {"is_negative_input", negative}});
    p.Append("dequantize", {{"Input", {"q"}}}, {{"Output", {"y"}}},
             {{"Scale", 50.0f}, {"Shift", shift}});
    return p;
  };
  for (const float shift : {0.0f, 128.0f, 127.0f, 0.5f}) {
    Program p = program(shift, true);
    EXPECT_EQ(Has(p.Unified(), "affine_quantize"), std::fmod(shift, 2.0f) == 0) << shift;
    p.ExpectNear({"y", "q"});
  }
  Program p = program(0, false);
  p.root().Var("k").SetDType(kU8);
  p.Append("requantize", {{"Input", {"q"}}}, {{"Output", {"k"}}},
           {{"Scale_in", 50.0f}, {"Scale_out", 25.0f}, {"Shift_in", 0.0f}, {"Shift_out", 0.0f}});
  EXPECT_FALSE(Has(p.Unified({"y", "k"}), "requantize")) << p.Unified({"y", "k"});
  p.ExpectNear({"y", "k"});
}

}  // namespace coracle::unify_quantization_test
