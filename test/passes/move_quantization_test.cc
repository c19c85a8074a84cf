// Ops that move elements work on integers: the program before and after, where nothing may move,
// and the same numbers.

#include <coracle/test/passes/quantized_program.h>

namespace coracle::move_quantization_test {

using Ints = std::vector<int32_t>;
using Program = QuantizedProgram;
constexpr DType kS8 = DType::kInt8, kU8 = DType::kUInt8;

std::string Moved(const Program& p, const std::vector<std::string>& fetches = {"y"}) {
  return p.After({"move_quantization"}, fetches, true);
}

TEST(MoveQuantization, DequantizesAfterMoves) {
  Program p;
  p.ByteData("q", {-1, 4, 2, 3}, kU8);
  p.Dequantize("q", "x", {0.5f}, {128});
  p.Unary("reshape2", "x", "r", {{"shape", Ints{0, 4, 6}}});
  p.Transpose("r", "t", {0, 2, 1});
  p.Unary("softmax", "t", "y");
  EXPECT_EQ(Moved(p),
            "Out=r@QUANTIZED = reshape2(X=q) shape=[0, 4, 6]\n"
            "Out=t@QUANTIZED = transpose2(X=r@QUANTIZED) axis=[0, 2, 1]\n"
            "Out=t = affine_dequantize(X=t@QUANTIZED, Scale=x.s, ZeroPoint=x.z) axis=0\n"
            "Out=y = softmax(X=t)\n");
  p.ExpectNear({"y"});
}

// Another op reads the numbers, and no op that could use the integers follows.
TEST(MoveQuantization, ReadersOfNumbersKeepThem) {
  Program p;
  p.ByteData("q", {-1, 4}, kU8);
  p.Dequantize("q", "x", {0.5f}, {128});
  p.Unary("reshape2", "x", "r", {{"shape", Ints{0, 2, 2}}});
  p.Unary("softmax", "r", "y");
  p.Unary("softmax", "x", "z");
  EXPECT_EQ(Moved(p, {"y", "z"}), p.Listing());
  p.Quantize("r", "w", 0.25f, 0, kS8);
  EXPECT_NE(Moved(p, {"y", "z", "w"}), p.Listing());
  p.ExpectNear({"y", "z", "w"});
}

// The scales of a weight follow its axis, and the weight is moved once, at compile time.
TEST(MoveQuantization, WeightsWithTheirScales) {
  Program p;
  p.Data("x", {-1, 3});
  p.Weight("w", {4, 3});
  p.Dequantize("w", "d", {0.1f, 0.2f, 0.3f, 0.4f}, {}, 0);
  p.Transpose("d", "t", {1, 0});
  p.Append("mul", {{"X", {"x"}}, {"Y", {"t"}}}, {{"Out", {"y"}}});
  EXPECT_EQ(Moved(p),
            "Out=t = affine_dequantize(X=t@QUANTIZED@FOLDED, Scale=d.s) axis=1\n"
            "Out=y = mul(X=x, Y=t)\n");
  p.ExpectNear({"y"});
}

// A reshape that divides the axis of the scales.
TEST(MoveQuantization, ScalesThatCannotFollow) {
  Program p;
  p.Data("x", {-1, 3});
  p.Weight("w", {4, 3});
  p.Dequantize("w", "d", {0.1f, 0.2f, 0.3f, 0.4f}, {}, 0);
  p.Unary("reshape2", "d", "t", {{"shape", Ints{3, 4}}});
  p.Append("mul", {{"X", {"x"}}, {"Y", {"t"}}}, {{"Out", {"y"}}});
  EXPECT_EQ(Moved(p), p.Listing());
  p.ExpectNear({"y"});
}

TEST(MoveQuantization, QuantizesBeforeMoves) {
  Program p;
  p.Data("x", {-1, 4});
  p.Unary("softmax", "x", "s");
  p.Unary("reshape2", "s", "r", {{"shape", Ints{0, 2, 2}}});
  p.Transpose("r", "t", {0, 2, 1});
  p.Quantize("t", "y", 0.01f, 0, kU8);
  EXPECT_EQ(Moved(p),
            "Out=s = softmax(X=x)\n"
            "Out=s@QUANTIZED = affine_quantize(X=s, Scale=y.s, ZeroPoint=y.z) axis=0\n"
            "Out=r@QUANTIZED = reshape2(X=s@QUANTIZED) shape=[0, 2, 2]\n"
            "Out=y = transpose2(X=r@QUANTIZED) axis=[0, 2, 1]\n");
  p.ExpectNear({"y"});
  EXPECT_EQ(Moved(p, {"y", "t"}), p.Listing());  // the numbers are fetched
}

// Each branch can give integers itself.
TEST(MoveQuantization, QuantizesBeforeConcat) {
  Program p;
  p.Data("x", {-1, 4});
  p.Unary("relu", "x", "a");
  p.Unary("tanh", "x", "b");
  p.Append("concat", {{"X", {"a", "b"}}}, {{"Out", {"c"}}}, {{"axis", 1}});
  p.Quantize("c", "y", 0.02f, 3, kS8);
  EXPECT_EQ(Moved(p),
            "Out=a = relu(X=x)\n"
            "Out=b = tanh(X=x)\n"
            "Out=a@QUANTIZED = affine_quantize(X=a, Scale=y.s, ZeroPoint=y.z) axis=0\n"
            "Out=b@QUANTIZED = affine_quantize(X=b, Scale=y.s, ZeroPoint=y.z) axis=0\n"
            "Out=y = concat(X=a@QUANTIZED+b@QUANTIZED) axis=1\n");
  p.ExpectNear({"y"});
}

TEST(MoveQuantization, RoundTripsDisappear) {
  Program p;
  p.ByteData("q", {-1, 4}, kU8);
  p.Dequantize("q", "x", {0.5f}, {128});
  p.Unary("reshape2", "x", "r", {{"shape", Ints{0, 2, 2}}});
  p.Quantize("r", "w", 0.5f, 128, kU8);
  p.Dequantize("w", "d", {0.5f}, {128});
  p.Unary("softmax", "d", "y");
  EXPECT_EQ(Moved(p),
            "Out=r@QUANTIZED = reshape2(X=q) shape=[0, 2, 2]\n"
            "Out=d = affine_dequantize(X=r@QUANTIZED, Scale=d.s, ZeroPoint=d.z) axis=0\n"
            "Out=y = softmax(X=d)\n");
  p.ExpectNear({"y"});
}

// A maximum with a nan is nan, but integers have no nan: the quantization stays after the pool
// unless its input is finite in each run.
TEST(MoveQuantization, MaximaOfNan) {
  const AttrList window = {{"pooling_type", std::string("max")}, {"ksize", Ints{2, 2}}};
  Program p;
  p.Data("x", {1, 2, 4, 4});
  p.Unary("relu", "x", "r");
  p.Unary("pool2d", "r", "m", window);
  p.Quantize("m", "y", 0.02f, 3, kU8);
  EXPECT_EQ(Moved(p), p.Listing());
  p.feeds["x"].data<float>()[5] = std::nanf("");
  p.ExpectNear({"y"}, 0, 0);
  Program q;
  q.ByteData("q", {1, 2, 4, 4}, kU8);
  q.Dequantize("q", "x", {0.02f}, {117});
  q.Weight("w", {2, 2, 3, 3});
  q.Dequantize("w", "f", {0.01f});
  q.Conv("x", "f", "c", 1, q.Floats("b", {1, -1}));
  q.Unary("relu", "c", "r");
  q.Unary("pool2d", "r", "m", window);
  q.Quantize("m", "y", 0.25f, 3, kU8);
  EXPECT_NE(Moved(q), q.Listing());
  q.ExpectNear({"y"});
  q.Floats("b", {std::nanf(""), -1});
  EXPECT_EQ(Moved(q), q.Listing());
}

// Another scale, zero point, dtype or range.
TEST(MoveQuantization, OtherIntegersStay) {
  const auto after = [](float scale, int32_t zero, DType dtype, AttrList attrs = {}) {
    Program p;
    p.ByteData("q", {-1, 4}, kU8);
    p.Dequantize("q", "x", {0.5f}, {128});
    p.Quantize("x", "y", scale, zero, dtype, std::move(attrs));
    p.Dequantize("y", "z", {1.0f}, {0});
    p.ExpectNear({"z"});
    return Moved(p, {"z"}).find("affine_quantize") != std::string::npos;
  };
  EXPECT_FALSE(after(0.5f, 128, kU8));
  EXPECT_TRUE(after(std::nextafter(0.5f, 1.0f), 128, kU8));
  EXPECT_TRUE(after(0.5f, 127, kU8));
  EXPECT_FALSE(after(0.5f, 0, kS8));  // 128 less for each integer, and for the zero point
  EXPECT_TRUE(after(0.5f, 1, kS8));
  EXPECT_TRUE(after(0.5f, 128, kU8, {{"qmin", int64_t{0}}, {"qmax", int64_t{15}}}));
}

// 128 is added to integers and zero points, which means the same.
TEST(MoveQuantization, SignedBytesBecomeUnsigned) {
  Program p;
  p.Data("x", {-1, 4});
  p.Quantize("x", "q", 0.02f, -5, kS8, {{"qmin", int64_t{-127}}, {"qmax", int64_t{127}}});
  p.Dequantize("q", "d", {0.02f}, {-5});
  p.Dequantize("q", "e", {0.5f});
  p.Unary("softmax", "d", "y");
  p.Unary("softmax", "e", "z");
  EXPECT_EQ(Moved(p, {"y", "z"}),
            "Out=q = affine_quantize(X=x, Scale=q.s, ZeroPoint=q.s@ZERO) axis=0\n"
            "Out=d = affine_dequantize(X=q, Scale=d.s, ZeroPoint=q.s@ZERO) axis=0\n"
            "Out=e = affine_dequantize(X=q, Scale=e.s, ZeroPoint=e.s@ZERO) axis=0\n"
            "Out=y = softmax(X=d)\n"
            "Out=z = softmax(X=e)\n");
  p.ExpectNear({"y", "z"}, 1e-6);
  EXPECT_EQ(Moved(p, {"y", "z", "q"}), p.Listing());  // the integers are fetched
  p.Unary("cast", "q", "c", {{"out_dtype", static_cast<int32_t>(DType::kInt32)}});
  EXPECT_EQ(Moved(p, {"y", "z", "c"}), p.Listing());  // or read
}

// The scale is an input of the program.
TEST(MoveQuantization, ScalesOfARunStay) {
  Program p;
  p.ByteData("q", {-1, 4}, kU8);
  p.Data("s", {1});
  p.Append("affine_dequantize", {{"X", {"q"}}, {"Scale", {"s"}}}, {{"Out", {"x"}}},
           {{"axis", int32_t{0}}});
  p.Unary("reshape2", "x", "r", {{"shape", Ints{0, 2, 2}}});
  p.Unary("softmax", "r", "y");
  EXPECT_EQ(Moved(p), p.Listing());
  p.ExpectNear({"y"});
}

}  // namespace coracle::move_quantization_test
