// Factors and shifts in filters and biases: the same numbers, and where they must stay.

#include <coracle/test/passes/op_program.h>

namespace coracle::fold_scales_test {

class Scaled : public OpProgram {
 public:
  // A parameter with factors that are not near 0.
  std::string Factor(const std::string& name, const Shape& shape) {
    Parameter(name, shape);
    Tensor value = scope.Get(name).Clone();
    for (float& x : value.span<float>()) x = x < 0 ? x - 0.5f : x + 0.5f;
    scope.Set(name, std::move(value));
    return name;
  }
  std::string Binary(const std::string& type, const std::string& x, const std::string& y,
                     const std::string& out, int axis = -1) {
    Append("elementwise_" + type, {{"X", {x}}, {"Y", {y}}}, {{"Out", {out}}},
           {{"axis", int32_t{axis}}});
    return out;
  }
  std::string Conv(const std::string& x, const std::string& out, const Shape& filter,
                   AttrList attrs = {}, const std::string& bias = "") {
    SlotList in = {{"Input", {x}}, {"Filter", {Parameter(out + ".w", filter)}}};
    for (float& w : scope.GetMutable(out + ".w").span<float>()) w *= 0.1f;
    if (!bias.empty()) in.push_back({"Bias", {Parameter(bias, {filter[0]})}});
    const std::string type = filter[1] == 1 && filter[0] > 1 ? "depthwise_conv2d" : "conv2d";
    Append(type, std::move(in), {{"Output", {out}}}, std::move(attrs));
    return out;
  }
  std::string Folded(const std::vector<std::string>& fetches = {"y"}) const {
    return After({"fold_scales"}, fetches, true);
  }
  // Data without LoD, which an op whose first input is a constant would drop.
  std::string Image(const Shape& shape) {
    Data("images", {shape[0], shape[2], shape[3], shape[1]});
    return Transpose("images", "x", {0, 3, 1, 2}, false);
  }
  bool Has(const std::string& type) const {
    return Folded().find("elementwise_" + type) != std::string::npos;
  }
};

TEST(FoldScales, AfterAConvolution) {
  for (const Shape& shape : {Shape{1}, Shape{4, 1, 1}, Shape{1, 4, 1, 1}, Shape{}}) {
    for (const std::string bias : {"", "b"}) {
      Scaled p;
      p.Data("x", {-1, 3, 6, 5});
      p.Conv("x", "c", {4, 3, 3, 3}, {{"paddings", std::vector<int32_t>{1, 1}}}, bias);
      p.Binary("mul", "c", p.Factor("f", shape), "m");
      p.Binary("sub", "m", p.Parameter("s", {1}), "a");
      p.Binary("div", "a", p.Factor("d", shape), "y");
      EXPECT_EQ(p.Folded().find("elementwise"), std::string::npos) << shape.ToString();
      EXPECT_EQ(p.Folded().find("Output=y = conv2d(Input=x, Filter=c.w@FOLDED"), 0u) << p.Folded();
      p.ExpectSame({"y"});
    }
  }
}

TEST(FoldScales, ConstantsMayBeTheFirstOperand) {
  Scaled p;
  p.Image({-1, 3, 6, 5});
  p.Conv("x", "c", {4, 3, 3, 3});
  p.Binary("mul", p.Factor("f", {1}), "c", "m");
  p.Binary("sub", p.Parameter("s", {1, 4, 1, 1}), "m", "y");
  EXPECT_FALSE(p.Has("mul") || p.Has("sub"));
  p.ExpectSame({"y"});
  Scaled quotient;
  quotient.Data("x", {-1, 3, 6, 5});
  quotient.Conv("x", "c", {4, 3, 3, 3});
  quotient.Binary("div", quotient.Factor("f", {1}), "c", "y");
  EXPECT_TRUE(quotient.Has("div"));
}

TEST(FoldScales, AlongChannelsByAxisAndInNhwc) {
  Scaled p;
  p.Data("x", {-1, 3, 6, 5});
  p.Conv("x", "c", {4, 3, 3, 3});
  p.Binary("mul", "c", p.Factor("f", {4}), "y", 1);
  EXPECT_FALSE(p.Has("mul"));
  p.ExpectSame({"y"});
  Scaled last;
  last.Data("x", {-1, 6, 5, 3});
  last.Conv("x", "c", {4, 3, 3, 3}, {{"data_format", std::string("NHWC")}});
  last.Binary("mul", "c", last.Factor("f", {4}), "y");
  EXPECT_FALSE(last.Has("mul"));
  last.ExpectSame({"y"});
}

TEST(FoldScales, BeforeAConvolution) {
  for (const int groups : {1, 2}) {
    for (const Shape& shape : {Shape{1}, Shape{1, 4, 1, 1}}) {
      Scaled p;
      p.Image({-1, 4, 6, 5});
      p.Conv("x", "c", {4, 4, 1, 1});
      p.Unary("relu", "c", "r");
      p.Binary("mul", p.Factor("f", {1}), "r", "m");
      p.Binary("add", "m", p.Factor("s", shape), "a");
      p.Conv("a", "y", {6, 4 / groups, 3, 3},
             {{"groups", int32_t{groups}}, {"paddings", std::vector<int32_t>{0, 0}}}, "b");
      EXPECT_EQ(p.Folded().find("elementwise"), std::string::npos) << p.Folded();
      p.ExpectSame({"y"});
    }
  }
}

// Padding is 0, not the shift.
TEST(FoldScales, ShiftsStayBeforePadding) {
  Scaled p;
  p.Image({-1, 4, 6, 5});
  p.Conv("x", "c", {4, 4, 1, 1});
  p.Unary("relu", "c", "r");
  p.Binary("mul", p.Factor("f", {1}), "r", "m");
  p.Binary("add", "m", p.Factor("s", {1}), "a");
  p.Conv("a", "y", {4, 1, 3, 3},
         {{"groups", int32_t{4}}, {"paddings", std::vector<int32_t>{1, 1}}});
  EXPECT_FALSE(p.Has("mul"));
  EXPECT_TRUE(p.Has("add"));
  p.ExpectSame({"y"});
  Scaled factor;  // a factor alone needs no shift
  factor.Data("in", {-1, 4, 6, 5});
  factor.Unary("relu", "in", "r");
  factor.Binary("mul", "r", factor.Factor("f", {1, 4, 1, 1}), "m");
  factor.Conv("m", "y", {4, 4, 3, 3}, {{"paddings", std::vector<int32_t>{1, 1}}});
  EXPECT_EQ(factor.Has("mul"), factor.Folded().find("@FOLDED") == std::string::npos);
  factor.ExpectSame({"y"});
  Scaled same;
  same.Data("in", {-1, 4, 6, 5});
  same.Conv("in", "c", {4, 4, 1, 1});
  same.Unary("relu", "c", "r");
  same.Binary("add", "r", same.Factor("s", {1}), "a");
  same.Conv("a", "y", {4, 4, 3, 3}, {{"padding_algorithm", std::string("SAME")}});
  EXPECT_TRUE(same.Has("add"));
  same.ExpectSame({"y"});
}

// x - 1e4 is exact where x is near 1e4, and sums over w x are not.
TEST(FoldScales, LargeShiftsStay) {
  for (const float shift : {10000.0f, 4.0f}) {
    Scaled p;
    p.Image({-1, 4, 6, 5});
    for (float& x : p.feeds["images"].span<float>()) x += shift;
    p.Parameter("s", {1});
    p.scope.Set("s", Tensor::Of<float>({1}, {shift}));
    p.Binary("sub", "x", "s", "a");
    p.Binary("mul", "a", p.Factor("f", {1}), "m");
    p.Conv("m", "y", {6, 4, 3, 3});
    EXPECT_FALSE(p.Has("mul"));
    EXPECT_EQ(p.Has("add"), shift > 16) << p.Folded();
    p.ExpectSame({"y"});
  }
}

TEST(FoldScales, AroundMatrixProducts) {
  for (const bool trans : {false, true}) {
    Scaled p;
    p.Data("in", {-1, 3, 4, 4});
    p.Conv("in", "c", {4, 3, 1, 1});
    p.Unary("relu", "c", "r");
    p.Binary("mul", "r", p.Factor("f", {4}), "m");
    p.Append("matmul_v2",
             {{"X", {"m"}}, {"Y", {p.Parameter("w", trans ? Shape{5, 4} : Shape{4, 5})}}},
             {{"Out", {"z"}}}, {{"trans_y", trans}});
    p.Binary("add", "z", p.Parameter("b", {5}), "a");
    p.Binary("mul", "a", p.Factor("g", {1, 1, 5}), "y");
    EXPECT_FALSE(p.Has("mul")) << p.Folded();
    EXPECT_TRUE(p.Has("add"));
    p.ExpectSame({"y"});
  }
}

TEST(FoldScales, LeavesWhatOthersReadAndWhatBroadcasts) {
  Scaled seen;
  seen.Data("x", {-1, 3, 6, 5});
  seen.Conv("x", "c", {4, 3, 3, 3});
  seen.Binary("mul", "c", seen.Factor("f", {1}), "y");
  EXPECT_NE(seen.Folded({"y", "c"}).find("elementwise_mul"), std::string::npos);
  Scaled wide;  // one channel becomes four
  wide.Data("x", {-1, 3, 6, 5});
  wide.Conv("x", "c", {1, 3, 3, 3});
  wide.Binary("mul", "c", wide.Factor("f", {1, 4, 1, 1}), "y");
  EXPECT_TRUE(wide.Has("mul"));
  wide.ExpectSame({"y"});
  Scaled more_axes;
  more_axes.Data("x", {-1, 3, 6, 5});
  more_axes.Conv("x", "c", {4, 3, 3, 3});
  more_axes.Binary("mul", "c", more_axes.Factor("f", {1, 1, 1, 1, 1}), "y");
  EXPECT_TRUE(more_axes.Has("mul"));
  Scaled columns;  // along the width
  columns.Data("x", {-1, 3, 6, 6});
  columns.Conv("x", "c", {4, 3, 3, 3});
  columns.Binary("mul", "c", columns.Factor("f", {4}), "y");
  EXPECT_TRUE(columns.Has("mul"));
  columns.ExpectSame({"y"});
  Scaled huge;  // the filter would overflow
  huge.Data("x", {-1, 3, 6, 5});
  huge.Conv("x", "c", {4, 3, 3, 3});
  huge.Parameter("f", {1});
  huge.scope.Set("f", Tensor::Of<float>({1}, {3e38f}));
  huge.Binary("mul", "c", "f", "m");
  huge.Binary("mul", "m", "f", "y");
  EXPECT_TRUE(huge.Has("mul"));
  Scaled bad;
  bad.Data("x", {-1, 3, 6, 5});
  bad.Conv("x", "c", {4, 3, 3, 3});
  bad.Parameter("f", {1});
  bad.scope.Set("f", Tensor::Of<float>({1}, {std::nanf("")}));
  bad.Binary("mul", "c", "f", "y");
  EXPECT_TRUE(bad.Has("mul"));
}

// The op would have the LoD of the constant: none.
TEST(FoldScales, KeepsTheLodOfConstants) {
  Scaled p;
  p.Data("x", {-1, 3, 6, 5});
  p.Conv("x", "c", {4, 3, 3, 3});
  p.Binary("mul", p.Factor("f", {1}), "c", "y");
  EXPECT_TRUE(p.Has("mul"));
}

// A lone bias along the channels is left to fuse_conv_bias.
TEST(FoldScales, LeavesLoneBiases) {
  Scaled p;
  p.Data("x", {-1, 3, 6, 5});
  p.Conv("x", "c", {4, 3, 3, 3});
  p.Binary("add", "c", p.Parameter("b", {4}), "y", 1);
  EXPECT_EQ(p.Folded().find("@FOLDED"), std::string::npos);
}

}  // namespace coracle::fold_scales_test
