// Ops between affine_dequantize and affine_quantize compute in integers: the program before and
// after, what must stay as it is, and the same numbers but for one step.

#include <coracle/test/passes/quantized_program.h>

#include <limits>

namespace coracle::fuse_quantized_test {

using Ints = std::vector<int32_t>;
constexpr DType kS8 = DType::kInt8, kU8 = DType::kUInt8, kF32 = DType::kFloat32;

// Also the attrs of integer ops.
std::string Listed(const ProgramDesc& program) {
  std::string text;
  for (size_t i = 0; i < program.Root().NumOps(); ++i) {
    const OpDesc& op = program.Root().op(i);
    for (const char* attr : {"fuse_activation", "fuse_alpha", "out_dtype", "trans_y"}) {
      if (const Attribute* value = op.FindAttr(attr))
        text += fmt::format("{}={} ", attr, ToString(*value));
    }
  }
  return text;
}

class Program : public QuantizedProgram {
 public:
  std::string FusedAttrs(const std::vector<std::string>& fetches = {"y"}) const {
    ProgramDesc copy = program;
    std::unordered_set<std::string> fed;
    for (const auto& [name, value] : feeds) fed.insert(name);
    FrozenValues values = Freeze(copy, scope, fed);
    PassContext context{DefaultOps(), fed, {fetches.begin(), fetches.end()}};
    context.frozen = &values;
    RunPasses(copy, context, {"fuse_quantized"});
    return Listed(copy);
  }
};

// y = Q(conv(DQ(x), DQ(w)) + bias), with 4 filters.
Program Convolution(std::vector<float> scales, DType x = kU8, DType out = kU8, int32_t axis = 0) {
  Program p;
  p.ByteData("q", {-1, 3, 5, 5}, x);
  p.Dequantize("q", "x", {0.02f}, {x == kU8 ? 117 : -3});
  p.Weight("w", {4, 3, 3, 3});
  p.Dequantize("w", "f", std::move(scales), {}, axis);
  p.Floats("b", {0.5f, -1.0f, 0.25f, 2.0f});
  p.Conv("x", "f", "c", 1, "b");
  p.Quantize("c", "y", 0.25f, out == kU8 ? 100 : 5, out);
  return p;
}

TEST(FuseQuantized, Convolutions) {
  for (const DType x : {kU8, kS8}) {
    for (const DType out : {kU8, kS8}) {
      Program p = Convolution({0.01f, 0.02f, 0.005f, 0.015f}, x, out);
      EXPECT_EQ(
          p.Fused(),
          "Output=y = quantized_conv2d(Input=q, Filter=w, InputScale=x.s, InputZeroPoint=x.z, "
          "FilterScale=f.s, Bias=b, OutScale=y.s, OutZeroPoint=y.z)\n");
      p.ExpectNear({"y"});
    }
  }
  Program p = Convolution({0.01f});
  p.ExpectNear({"y"});
}

// The sums are read as numbers, too.
TEST(FuseQuantized, ConvolutionsThatGiveNumbers) {
  Program p = Convolution({0.01f, 0.02f, 0.005f, 0.015f});
  EXPECT_EQ(p.Fused({"y", "c"}),
            "Output=c = quantized_conv2d(Input=q, Filter=w, InputScale=x.s, InputZeroPoint=x.z, "
            "FilterScale=f.s, Bias=b)\n"
            "Out=y = affine_quantize(X=c, Scale=y.s, ZeroPoint=y.z) axis=0\n");
  p.ExpectNear({"y", "c"});
}

TEST(FuseQuantized, ConvolutionsThatStay) {
  EXPECT_EQ(Convolution({0.01f, 0.02f, 0.005f}, kU8, kU8, 1).Fused().find("quantized_conv2d"),
            std::string::npos);
  const float infinite = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Convolution({0.01f, infinite, 0.005f, 1}).Fused().find("quantized_conv2d"),
            std::string::npos);
  // Numbers or sums of products that float32 cannot hold.
  for (const float huge : {2e30f, 2e29f})
    EXPECT_EQ(Convolution({huge}).Fused().find("quantized_conv2d"), std::string::npos);
  EXPECT_NE(Convolution({2e28f}).Fused().find("quantized_conv2d"), std::string::npos);
  Program p;  // of numbers
  p.Data("x", {-1, 3, 5, 5});
  p.Weight("w", {4, 3, 3, 3});
  p.Dequantize("w", "f", {0.01f});
  p.Conv("x", "f", "c");
  p.Quantize("c", "y", 0.25f, 0, kS8);
  EXPECT_EQ(p.Fused(), p.Listing());
  p.ExpectNear({"y"});
  const ScopedIntegerProducts none(false);
  Program slow = Convolution({0.01f});
  EXPECT_EQ(slow.Fused(), slow.Listing());
  slow.ExpectNear({"y"});
}

// The least integer stands for 0, so it is the least result also without relu.
TEST(FuseQuantized, ActivationsOfConvolutions) {
  const auto program = [](const char* type, AttrList attrs, float scale, int32_t zero, DType dtype,
                          AttrList range = {}) {
    Program p;
    p.ByteData("q", {-1, 3, 5, 5}, kU8);
    p.Dequantize("q", "x", {0.02f}, {117});
    p.Weight("w", {4, 3, 3, 3});
    p.Dequantize("w", "f", {0.01f});
    p.Conv("x", "f", "c");
    p.Unary(type, "c", "r", std::move(attrs));
    p.Quantize("r", "y", scale, zero, dtype, std::move(range));
    return p;
  };
  const auto attrs = [&](Program p) {
    p.ExpectNear({"y"});
    return p.FusedAttrs();
  };
  EXPECT_EQ(attrs(program("relu", {}, 0.1f, 0, kU8)), "out_dtype=20 ");
  EXPECT_EQ(attrs(program("relu", {}, 0.1f, -128, kS8)), "out_dtype=21 ");
  EXPECT_EQ(attrs(program("relu", {}, 0.1f, 1, kU8)), "fuse_activation=\"relu\" out_dtype=20 ");
  EXPECT_EQ(attrs(program("relu", {}, 0.1f, 0, kS8)), "fuse_activation=\"relu\" out_dtype=21 ");
  EXPECT_EQ(attrs(program("relu6", {}, 6.0f / 255, 0, kU8)), "out_dtype=20 ");
  EXPECT_EQ(attrs(program("relu6", {}, 6.0f / 200, 0, kU8)),
            "fuse_activation=\"relu6\" fuse_alpha=6 out_dtype=20 ");
  EXPECT_EQ(attrs(program("hard_swish", {}, 0.1f, 4, kU8)),
            "fuse_activation=\"hard_swish\" out_dtype=20 ");
  // Integers from -127 on, and from 0 to 15.
  const AttrList narrow = {{"qmin", int64_t{-127}}, {"qmax", int64_t{127}}};
  EXPECT_EQ(attrs(program("relu", {}, 0.125f, 0, kS8, narrow)),
            "fuse_activation=\"relu\" out_dtype=21 ");
  const AttrList four = {{"qmin", int64_t{0}}, {"qmax", int64_t{15}}};
  EXPECT_NE(attrs(program("relu", {}, 0.5f, 0, kU8, four)).find("clip"), std::string::npos);
  EXPECT_NE(attrs(program("hard_swish", {}, 0.5f, 0, kU8, four)).find("out_dtype=5"),
            std::string::npos);
}

TEST(FuseQuantized, Residuals) {
  const auto program = [](bool integers, bool relu) {
    Program p;
    p.ByteData("q", {2, 4, 5, 5}, kU8);
    p.Dequantize("q", "x", {0.02f}, {117});
    p.Weight("w", {4, 4, 3, 3});
    p.Dequantize("w", "f", {0.01f});
    p.Conv("x", "f", "c");
    if (integers)
      p.Dequantize(p.ByteData("p", {2, 4, 5, 5}, kS8), "r", {0.1f}, {3});
    else
      p.Data("r", {2, 4, 5, 5});
    p.Binary("elementwise_add", "c", "r", "s");
    if (relu) p.Unary("relu", "s", "t");
    p.Quantize(relu ? "t" : "s", "y", 0.25f, 0, kU8);
    return p;
  };
  Program p = program(true, true);
  EXPECT_EQ(
      p.Fused(),
      "Output=y = quantized_conv2d(Input=q, Filter=w, InputScale=x.s, InputZeroPoint=x.z, "
      "FilterScale=f.s, Residual=p, ResidualScale=r.s, ResidualZeroPoint=r.z, OutScale=y.s)\n");
  p.ExpectNear({"y"});
  Program q = program(false, false);
  EXPECT_EQ(q.Fused(),
            "Output=y = quantized_conv2d(Input=q, Filter=w, InputScale=x.s, InputZeroPoint=x.z, "
            "FilterScale=f.s, Residual=r, OutScale=y.s)\n");
  q.ExpectNear({"y"});
  q.ExpectNear({"y", "c"});
}

// Each of the two feeds may have a batch of 1.
TEST(FuseQuantized, ResidualsOfAnotherBatch) {
  Program p;
  p.Dequantize(p.ByteData("q", {-1, 4, 5, 5}, kU8), "x", {0.02f}, {117});
  p.Weight("w", {4, 4, 3, 3});
  p.Dequantize("w", "f", {0.01f});
  p.Conv("x", "f", "c");
  p.Dequantize(p.ByteData("p", {-1, 4, 5, 5}, kS8), "r", {0.1f}, {3});
  p.Binary("elementwise_add", "c", "r", "s");
  p.Quantize("s", "y", 0.25f, 0, kU8);
  EXPECT_EQ(p.Fused().find("Residual"), std::string::npos);
  p.ExpectNear({"y"});
}

// Whether a residual has as many rows as the product is known of the ops before it: relu gives
// each row, and a slice may give one of many. Another feed does not matter.
TEST(FuseQuantized, ResidualsOfRowsThatOnlyARunKnows) {
  for (const bool slice : {false, true}) {
    Program p;
    p.Data("d", {-1, 4});
    p.Data("e", {-1, 4});
    p.Pair("d", "x", 0.02f, 117, kU8);
    p.Weight("w", {4, 4});
    p.Dequantize("w", "f", {0.01f});
    p.Append("matmul_v2", {{"X", {"x"}}, {"Y", {"f"}}}, {{"Out", {"c"}}});
    const Ints zero = {0}, one = {1};
    if (slice)
      p.Append("slice", {{"Input", {"d"}}}, {{"Out", {"r"}}},
               {{"axes", zero}, {"starts", zero}, {"ends", one}});
    else
      p.Unary("relu", "d", "r");
    p.root().Var("r").SetShape({-1, 4});
    p.Binary("elementwise_add", "c", "r", "s");
    p.Quantize("s", "y", 0.25f, 0, kU8);
    p.Unary("relu", "e", "z");
    EXPECT_EQ(p.Fused({"y", "z"}).find("Residual=r") == std::string::npos, slice) << p.Fused();
    p.ExpectNear({"y", "z"});
  }
}

// A residual that would be broadcast.
TEST(FuseQuantized, OtherShapesAreNoResidual) {
  Program p;
  p.ByteData("q", {-1, 4, 5, 5}, kU8);
  p.Dequantize("q", "x", {0.02f}, {117});
  p.Weight("w", {4, 4, 3, 3});
  p.Dequantize("w", "f", {0.01f});
  p.Conv("x", "f", "c");
  p.Data("r", {-1, 4, 1, 1});
  p.Binary("elementwise_add", "c", "r", "s");
  p.Quantize("s", "y", 0.25f, 0, kU8);
  EXPECT_EQ(p.Fused().find("Residual"), std::string::npos);
  p.ExpectNear({"y"});
}

// A product with bias, activation and quantization. `type` has the slots X and Y.
Program Product(const std::string& type, AttrList attrs, const Shape& weight, int32_t axis,
                const Shape& x = {-1, 6}) {
  Program p;
  p.ByteData("q", x, kU8);
  p.Dequantize("q", "x", {0.02f}, {117});
  p.Weight("w", weight);
  p.Dequantize("w", "m", {0.01f, 0.02f, 0.005f, 0.015f}, {}, axis);
  p.Append(type, {{"X", {"x"}}, {"Y", {"m"}}}, {{"Out", {"c"}}}, std::move(attrs));
  p.Floats("b", {0.5f, -1.0f, 0.25f, 2.0f});
  p.Binary("elementwise_add", "c", "b", "s");
  p.Unary("relu", "s", "r");
  p.Quantize("r", "y", 0.25f, 10, kU8);
  return p;
}

TEST(FuseQuantized, Products) {
  const std::string made =
      "Out=y = quantized_matmul(X=q, Y=w, XScale=x.s, XZeroPoint=x.z, YScale=m.s, Bias=b, "
      "OutScale=y.s, OutZeroPoint=y.z)\n";
  Program a = Product("matmul_v2", {}, {6, 4}, 1);
  EXPECT_EQ(a.Fused(), made);
  a.ExpectNear({"y"});
  Program b = Product("matmul_v2", {{"trans_y", true}}, {4, 6}, 0);
  EXPECT_EQ(b.Fused(), made);
  b.ExpectNear({"y"});
  Program c = Product("mul", {}, {6, 4}, 1);
  EXPECT_EQ(c.Fused(), made);
  c.ExpectNear({"y"});
  Program d = Product("matmul", {{"alpha", 0.5f}}, {6, 4}, 1, {-1, 3, 6});
  EXPECT_EQ(d.Fused(),
            "Out=y = quantized_matmul(X=q, Y=w, XScale=x.s@QUANTIZED, XZeroPoint=x.z, YScale=m.s, "
            "Bias=b, OutScale=y.s, OutZeroPoint=y.z)\n");
  d.ExpectNear({"y"});
  Program e = Product("mul", {}, {6, 4}, 1, {-1, 2, 3});
  EXPECT_EQ(e.Fused(),
            "Out=q@QUANTIZED = reshape2(X=q) shape=[0, 6]\n"
            "Out=y = quantized_matmul(X=q@QUANTIZED, Y=w, XScale=x.s, XZeroPoint=x.z, YScale=m.s, "
            "Bias=b, OutScale=y.s, OutZeroPoint=y.z)\n");
  e.ExpectNear({"y"});
  // fuse_fc makes one op before.
  Program f = Product("mul", {}, {6, 4}, 1);
  EXPECT_EQ(f.After({"fuse_fc", "fuse_quantized"}, {"y"}, true), made);
}

// The result of a product is a matrix, whatever is fed: the next product need not see the feed.
TEST(FuseQuantized, ProductsInARow) {
  for (const bool fc : {false, true}) {
    Program p = Product("mul", {}, {6, 4}, 1);
    p.Dequantize("y", "x2", {0.25f}, {10});
    p.Weight("w2", {4, 3});
    p.Dequantize("w2", "m2", {0.01f, 0.02f, 0.005f}, {}, 1);
    p.Append("mul", {{"X", {"x2"}}, {"Y", {"m2"}}}, {{"Out", {"c2"}}});
    p.Floats("b2", {0.5f, -1.0f, 0.25f});
    p.Binary("elementwise_add", "c2", "b2", "s2");
    p.Unary("relu", "s2", "r2");
    p.Quantize("r2", "y2", 0.25f, 10, kU8);
    p.Dequantize("y2", "x3", {0.25f}, {10});
    p.Weight("w3", {3, 2});
    p.Dequantize("w3", "m3", {0.01f, 0.02f}, {}, 1);
    p.Append("mul", {{"X", {"x3"}}, {"Y", {"m3"}}}, {{"Out", {"z"}}});
    const std::string text =
        fc ? p.After({"fuse_fc", "fuse_quantized"}, {"z"}, true) : p.Fused({"z"});
    size_t products = 0;
    for (size_t at = 0; (at = text.find("quantized_matmul", at)) != text.npos; ++at) ++products;
    EXPECT_EQ(products, 3u) << text;
    p.ExpectNear({"z"});
  }
}

TEST(FuseQuantized, ProductsThatStay) {
  // Scales along the axis of the sums.
  Program p;
  p.ByteData("q", {-1, 4}, kU8);
  p.Dequantize("q", "x", {0.02f}, {117});
  p.Weight("w", {4, 4});
  p.Dequantize("w", "m", {0.01f, 0.02f, 0.005f, 0.015f}, {}, 0);
  p.Append("matmul_v2", {{"X", {"x"}}, {"Y", {"m"}}}, {{"Out", {"y"}}});
  EXPECT_EQ(p.Fused(), p.Listing());
  p.ExpectNear({"y"});
  // A factor of 0.
  Program zero;
  zero.ByteData("q", {-1, 4}, kU8);
  zero.Dequantize("q", "x", {0.02f}, {117});
  zero.Weight("w", {4, 4});
  zero.Dequantize("w", "m", {0.01f});
  zero.Append("matmul", {{"X", {"x"}}, {"Y", {"m"}}}, {{"Out", {"y"}}}, {{"alpha", 0.0f}});
  EXPECT_EQ(zero.Fused(), zero.Listing());
  zero.ExpectNear({"y"});
}

TEST(FuseQuantized, ProductsOfTwoActivations) {
  Program p;
  p.ByteData("q", {-1, 3, 6}, kU8);
  p.ByteData("k", {-1, 5, 6}, kS8);
  p.Dequantize("q", "x", {0.02f}, {117});
  p.Dequantize("k", "z", {0.03f}, {-4});
  p.Append("matmul_v2", {{"X", {"x"}}, {"Y", {"z"}}}, {{"Out", {"y"}}}, {{"trans_y", true}});
  EXPECT_EQ(p.Fused(),
            "Out=y = quantized_matmul(X=q, Y=k, XScale=x.s, XZeroPoint=x.z, YScale=z.s, "
            "YZeroPoint=z.z)\n");
  p.ExpectNear({"y"});
}

TEST(FuseQuantized, Sums) {
  for (const char* type : {"elementwise_add", "elementwise_mul"}) {
    Program p;
    p.ByteData("q", {-1, 4, 5}, kU8);
    p.ByteData("k", {-1, 4, 5}, kS8);
    p.Dequantize("q", "a", {0.0217f}, {117});
    p.Dequantize("k", "b", {0.0313f}, {-4});
    p.Binary(type, "a", "b", "c");
    p.Unary("relu", "c", "r");
    p.Quantize("r", "y", 0.0231f, 0, kU8);
    const std::string made = type == std::string("elementwise_add") ? "add" : "mul";
    EXPECT_EQ(p.Fused(), "Out=y = quantized_" + made +
                             "(X=q, Y=k, XScale=a.s, XZeroPoint=a.z, YScale=b.s, YZeroPoint=b.z, "
                             "OutScale=y.s) axis=-1\n");
    p.ExpectNear({"y"});
    EXPECT_EQ(p.Fused({"y", "c"}), p.Listing());
  }
}

TEST(FuseQuantized, Concat) {
  Program p;
  p.ByteData("q", {-1, 4}, kU8);
  p.ByteData("k", {-1, 3}, kS8);
  p.Dequantize("q", "a", {0.02f}, {0});
  p.Dequantize("k", "b", {0.03f}, {-4});
  p.Append("concat", {{"X", {"a", "b"}}}, {{"Out", {"c"}}}, {{"axis", 1}});
  p.Quantize("c", "y", 0.02f, 7, kU8);
  EXPECT_EQ(p.Fused(),
            "Out=y = quantized_concat(X=q+k, XScale=a.s+b.s, XZeroPoint=a.s@QUANTIZED+b.z, "
            "OutScale=y.s, OutZeroPoint=y.z) axis=1\n");
  p.ExpectNear({"y"});
}

TEST(FuseQuantized, AveragePools) {
  for (const bool global : {false, true}) {
    Program p;
    p.ByteData("q", {-1, 3, 6, 6}, kU8);
    p.Dequantize("q", "x", {0.0217f}, {117});
    p.Unary("pool2d", "x", "c",
            {{"pooling_type", std::string("avg")},
             {"ksize", Ints{3, 3}},
             {"strides", Ints{2, 2}},
             {"paddings", Ints{1, 1}},
             {"global_pooling", global}});
    p.Quantize("c", "y", 0.0231f, 7, kU8);
    EXPECT_EQ(p.Fused(),
              "Out=y = quantized_pool2d(X=q, XScale=x.s, XZeroPoint=x.z, OutScale=y.s, "
              "OutZeroPoint=y.z)\n");
    p.ExpectNear({"y"});
  }
}

// Functions of one value are exact.
TEST(FuseQuantized, Functions) {
  Program p;
  p.ByteData("q", {-1, 300}, kU8);
  p.Dequantize("q", "x", {0.04f}, {117});
  p.Unary("sigmoid", "x", "a");
  p.Binary("elementwise_mul", "x", "a", "b");
  p.Floats("two", {2.0f});
  p.Binary("elementwise_add", "b", "two", "c");
  p.Quantize("c", "y", 0.03f, 7, kS8);
  EXPECT_EQ(p.Fused(), "Out=y = quantized_lookup(X=q, Table=y@QUANTIZED)\n");
  p.ExpectNear({"y"}, 0, 0);
  Program other;  // only other steps
  other.ByteData("q", {-1, 300}, kS8);
  other.Dequantize("q", "x", {0.04f}, {-17});
  other.Quantize("x", "y", 0.03f, 7, kU8);
  EXPECT_EQ(other.Fused(), "Out=y = quantized_lookup(X=q, Table=y@QUANTIZED)\n");
  other.ExpectNear({"y"}, 0, 0);
}

// A number that is quantized, too.
TEST(FuseQuantized, FunctionsWithQuantizedNumbers) {
  Program p;
  p.ByteData("q", {-1, 300}, kU8);
  p.Dequantize("q", "x", {0.04f}, {117});
  p.Weight("n", {1}, kU8);
  p.Dequantize("n", "two", {0.5f}, {1});
  p.Binary("elementwise_div", "x", "two", "c");
  p.Quantize("c", "y", 0.03f, 7, kS8);
  EXPECT_EQ(p.Fused(), "Out=y = quantized_lookup(X=q, Table=y@QUANTIZED)\n");
  p.ExpectNear({"y"}, 0, 0);
}

TEST(FuseQuantized, NoFunctionsOfOneValue) {
  Program p;  // a number for each column
  p.ByteData("q", {-1, 3}, kU8);
  p.Dequantize("q", "x", {0.04f}, {117});
  p.Floats("v", {2.0f, 3.0f, 4.0f});
  p.Binary("elementwise_mul", "x", "v", "c");
  p.Quantize("c", "y", 0.03f, 7, kS8);
  EXPECT_EQ(p.Fused(), p.Listing());
  p.ExpectNear({"y"});
  Program s;  // of a row
  s.ByteData("q", {-1, 3}, kU8);
  s.Dequantize("q", "x", {0.04f}, {117});
  s.Unary("softmax", "x", "c");
  s.Quantize("c", "y", 0.01f, 0, kU8);
  EXPECT_EQ(s.Fused(), s.Listing());
  s.ExpectNear({"y"});
}

// batch_norm goes into the scales of the filter.
TEST(FuseQuantized, BatchNorm) {
  for (const bool zeros : {false, true}) {
    Program p;
    p.ByteData("q", {-1, 3, 5, 5}, kU8);
    p.Dequantize("q", "x", {0.02f}, {117});
    p.Weight("w", {4, 3, 3, 3});
    p.Dequantize("w", "f", {0.01f}, zeros ? Ints{5} : Ints{});
    p.Conv("x", "f", "c");
    p.Floats("scale", {1.0f, -0.5f, 0.0f, 2.0f});
    p.Floats("shift", {0.5f, 0.25f, 1.0f, -1.0f});
    p.Floats("mean", {0.1f, 0.2f, 0.3f, 0.4f});
    p.Floats("variance", {1.0f, 2.0f, 0.5f, 0.25f});
    p.Append("batch_norm",
             {{"X", {"c"}},
              {"Scale", {"scale"}},
              {"Bias", {"shift"}},
              {"Mean", {"mean"}},
              {"Variance", {"variance"}}},
             {{"Y", {"n"}}, {"MeanOut", {"mean"}}, {"VarianceOut", {"variance"}}},
             {{"is_test", true}});
    p.Quantize("n", "y", 0.25f, 100, kU8);
    EXPECT_EQ(p.After({"fold_batch_norm", "fuse_quantized"}, {"y"}, true),
              std::string("Output=y = quantized_conv2d(Input=q, Filter=w, InputScale=x.s, "
                          "InputZeroPoint=x.z, FilterScale=f.s@FOLDED, ") +
                  (zeros ? "FilterZeroPoint=f.z@FOLDED, " : "") +
                  "Bias=shift@FOLDED, OutScale=y.s, OutZeroPoint=y.z)\n");
    p.ExpectNear({"y"});
  }
}

// What no integer op takes is dequantized once.
TEST(FuseQuantized, WeightsOfFloatOps) {
  Program p;
  p.Data("x", {-1, 3, 5, 5});
  p.Weight("w", {4, 3, 3, 3});
  p.Dequantize("w", "f", {0.01f});
  p.Conv("x", "f", "y");
  EXPECT_EQ(p.After({"fold_constants"}, {"y"}, true), p.Listing());
  EXPECT_EQ(p.After({"fold_dequantized"}, {"y"}, true),
            "Output=y = conv2d(Input=x, Filter=f@FOLDED)\n");
  p.ExpectNear({"y"});
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// 1-D convolutions between unsqueeze and squeeze.
TEST(FuseQuantized, Signals) {
  Program p;
  p.Data("in", {-1, 3, 20});
  p.Pair("in", "x", 0.03f, 100, kU8);
  p.Unary("unsqueeze2", "x", "x4", {{"axes", Ints{2}}});
  p.Weight("w", {8, 3, 1, 3});
  p.Dequantize("w", "f", {0.01f});
  p.Append("conv2d", {{"Input", {"x4"}}, {"Filter", {"f"}}}, {{"Output", {"c4"}}},
           {{"paddings", Ints{0, 1}}});
  p.Unary("squeeze2", "c4", "c", {{"axes", Ints{2}}});
  p.Unary("relu", "c", "r");
  p.Pair("r", "d", 0.05f, 0, kU8);
  p.Unary("unsqueeze2", "d", "d4", {{"axes", Ints{2}}});
  p.Weight("v", {4, 8, 1, 3});
  p.Dequantize("v", "g", {0.02f});
  p.Append("conv2d", {{"Input", {"d4"}}, {"Filter", {"g"}}}, {{"Output", {"e4"}}},
           {{"paddings", Ints{0, 1}}});
  p.Unary("squeeze2", "e4", "e", {{"axes", Ints{2}}});
  p.Pair("e", "y", 0.5f, 120, kU8);
  const std::string after = p.After({}, {"y"}, true);
  EXPECT_EQ(after.find(" conv2d("), std::string::npos) << after;
  EXPECT_EQ(after.find("relu("), std::string::npos) << after;
  p.ExpectNear({"y"}, 0.6);
}

// A net of images: all ops work on integers with channels last. Only the net's ends convert.
TEST(FuseQuantized, Images) {
  Program p;
  const auto conv = [&](const std::string& x, const std::string& out, int64_t from, int64_t to) {
    p.Weight(out + ".w", {to, from, 3, 3});
    p.Dequantize(out + ".w", out + ".f", {0.004f});
    return p.Conv(x, out + ".f", out, 1);
  };
  p.Data("in", {-1, 3, 12, 12});
  p.Pair("in", "x", 0.03f, 100, kU8);
  conv("x", "a", 3, 8);
  p.Unary("hard_swish", "a", "b");
  p.Unary("pool2d", "b", "c",
          {{"pooling_type", std::string("max")}, {"ksize", Ints{2, 2}}, {"strides", Ints{2, 2}}});
  p.Pair("c", "d", 0.02f, 10, kU8);
  conv("d", "e", 8, 8);
  p.Pair("e", "f", 0.05f, 120, kU8);
  p.Binary("elementwise_add", "d", "f", "g");
  p.Unary("relu", "g", "h");
  p.Pair("h", "i", 0.04f, 0, kU8);
  p.Unary("sigmoid", "i", "j");
  p.Pair("j", "k", 1.0f / 256, 0, kU8);
  p.Binary("elementwise_mul", "i", "k", "l");
  p.Pair("l", "m", 0.03f, 0, kU8);
  p.Append("concat", {{"X", {"m", "f"}}}, {{"Out", {"n"}}}, {{"axis", 1}});
  p.Pair("n", "o", 0.06f, 110, kU8);
  conv("o", "r", 16, 4);
  p.Unary("pool2d", "r", "s",
          {{"pooling_type", std::string("avg")}, {"global_pooling", true}, {"ksize", Ints{1, 1}}});
  p.Pair("s", "y", 0.05f, 128, kU8);
  const std::string after = p.After({}, {"y"}, true);
  for (const char* type : {" conv2d(", "relu(", "hard_swish(", "sigmoid(", "elementwise_"})
    EXPECT_EQ(Count(after, type), 0u) << type << " in\n" << after;
  EXPECT_EQ(Count(after, "transpose2("), 2u) << after;
  EXPECT_EQ(Count(after, "affine_quantize("), 2u) << after;  // at the beginning, before the pool
  EXPECT_EQ(Count(after, "affine_dequantize("), 1u) << after;
  p.ExpectNear({"y"}, 0.2);
}

}  // namespace coracle::fuse_quantized_test
