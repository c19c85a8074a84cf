// Products with dequantized weights read the integers, and lookups select them first.

#include <coracle/test/passes/quantized_program.h>

#include <limits>

namespace coracle::fuse_weight_only_test {

constexpr DType kS8 = DType::kInt8, kU8 = DType::kUInt8;
using Names = std::vector<std::string>;

class Program : public QuantizedProgram {
 public:
  // Fed with the declared rank.
  void Data(const std::string& name, const Shape& shape, DType dtype = DType::kFloat32) {
    QuantizedProgram::Data(name, shape, dtype);
    root().Var(name).SetNeedCheckFeed(true);
  }
  std::string Fused(const Names& fetches = {"y"}) const {
    return After({"fold_constants", "fuse_weight_only"}, fetches, true);
  }
  // Integers of 4 bits in bytes.
  std::string Narrow(const std::string& name, const Shape& shape, DType dtype = kS8) {
    Weight(name, shape, dtype);
    Tensor value = Bytes(shape, dtype, 5);
    auto* bytes = static_cast<uint8_t*>(value.raw());
    for (int64_t i = 0; i < value.numel(); ++i)
      bytes[i] = static_cast<uint8_t>((bytes[i] & 15) - (dtype == kS8 ? 8 : 0));
    scope.Set(name, value);
    return name;
  }
  // w = affine_dequantize(q) with steps of this shape.
  std::string Steps(const std::string& q, const std::string& w, const Shape& shape, int32_t axis,
                    int64_t block = 0, bool zeros = false, DType dtype = DType::kFloat32) {
    Parameter(w + ".s", shape, dtype);
    SlotList in = {{"X", {q}}, {"Scale", {w + ".s"}}};
    if (zeros) {
      const DType integers = root().FindVar(q)->dtype();
      Parameter(w + ".z", shape, integers);
      scope.Set(w + ".z", Bytes(shape, integers, 9));
      in.push_back({"ZeroPoint", {w + ".z"}});
    }
    Append("affine_dequantize", in, {{"Out", {w}}}, {{"axis", axis}, {"block_size", block}});
    return w;
  }
  std::string Product(const std::string& type, AttrList attrs = {}) {
    Append(type, {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"y"}}}, std::move(attrs));
    return "y";
  }
  void ExpectFused(const std::string& type = "quantized_linear") {
    EXPECT_NE(Fused().find(type), std::string::npos) << Fused();
    EXPECT_EQ(Fused().find("matmul"), std::string::npos) << Fused();
    ExpectNear({"y"}, 3e-4);
  }
  void ExpectLeft() {
    EXPECT_EQ(Fused().find("quantized_linear"), std::string::npos) << Fused();
    ExpectNear({"y"}, 3e-4);
  }
};

TEST(FuseWeightOnly, ProductsOfEachKind) {
  for (const bool narrow : {false, true}) {
    for (const DType dtype : {kS8, kU8}) {
      for (const bool trans : {false, true}) {
        for (const bool zeros : {false, true}) {
          const Shape shape = trans ? Shape{5, 7} : Shape{7, 5};
          const int32_t out_axis = trans ? 0 : 1;
          struct Form {
            Shape shape;
            int32_t axis;
            int64_t block;
          };
          const Form forms[] = {{{1}, 0, 0},
                                {{5}, out_axis, 0},
                                {trans ? Shape{5, 3} : Shape{3, 5}, 1 - out_axis, 3}};
          for (const Form& form : forms) {
            Program p;
            p.Data("x", {-1, 7});
            narrow ? p.Narrow("q", shape, dtype) : p.Weight("q", shape, dtype);
            p.Steps("q", "w", form.shape, form.axis, form.block, zeros);
            p.Product("matmul_v2", {{"trans_y", trans}});
            p.ExpectFused();
          }
        }
      }
    }
  }
}

TEST(FuseWeightOnly, OpsOfOldPrograms) {
  Program mul;
  mul.Data("x", {-1, 7});
  mul.Weight("q", {7, 5});
  mul.Steps("q", "w", {5}, 1);
  mul.Product("mul", {{"x_num_col_dims", int32_t{1}}});
  mul.ExpectFused();
  Program scaled;
  scaled.Data("x", {-1, 3, 7});
  scaled.Narrow("q", {5, 7});
  scaled.Steps("q", "w", {5}, 0);
  scaled.Product("matmul", {{"transpose_Y", true}, {"alpha", -0.5f}});
  scaled.ExpectFused();
}

TEST(FuseWeightOnly, BiasAndActivation) {
  for (const char* act :
       {"", "relu", "relu6", "gelu", "gelu_tanh", "swish", "tanh", "hard_swish"}) {
    for (const bool matrix : {false, true}) {
      Program p;
      p.Data("x", {-1, 7});
      p.Narrow("q", {7, 5});
      p.Steps("q", "w", {5}, 1);
      p.Parameter("b", matrix ? Shape{1, 5} : Shape{5});
      p.Append("fc", {{"Input", {"x"}}, {"W", {"w"}}, {"Bias", {"b"}}}, {{"Out", {"y"}}},
               {{"in_num_col_dims", int32_t{1}}, {"activation_type", std::string(act)}});
      EXPECT_NE(p.Fused().find("quantized_linear"), std::string::npos) << act;
      p.ExpectNear({"y"}, 3e-4);
    }
  }
}

TEST(FuseWeightOnly, SixteenBits) {
  for (const DType half : {DType::kFloat16, DType::kBFloat16}) {
    Program p;
    p.Data("x", {-1, 7}, half);
    p.Weight("q", {7, 5});
    p.Steps("q", "w", {5}, 1, 0, false, half);
    // Small weights, so that the rounding of sums in 16 bits is small, too.
    p.scope.Set("w.s", Tensor::Of<float>({5}, {1e-3f, 2e-3f, 1e-3f, 5e-4f, 1e-3f}).Cast(half));
    p.Product("matmul_v2");
    EXPECT_NE(p.Fused().find("quantized_linear"), std::string::npos) << p.Fused();
    p.ExpectNear({"y"}, 0.05);
  }
}

TEST(FuseWeightOnly, OneWeightOfSeveralLayers) {
  Program p;
  p.Data("x", {-1, 5});
  p.Narrow("q", {5, 5});
  p.Steps("q", "w", {1}, 0);
  p.Append("matmul_v2", {{"X", {"x"}}, {"Y", {"w"}}}, {{"Out", {"h"}}});
  p.Append("matmul_v2", {{"X", {"h"}}, {"Y", {"w"}}}, {{"Out", {"z"}}}, {{"trans_y", true}});
  p.Append("elementwise_add", {{"X", {"z"}}, {"Y", {"w"}}}, {{"Out", {"y"}}});
  p.feeds["x"] = OpProgram::Drawn({5, 5}).Cast(DType::kFloat32);
  const std::string fused = p.Fused();
  EXPECT_NE(fused.find("affine_dequantize"), std::string::npos) << fused;
  EXPECT_EQ(fused.find("matmul"), std::string::npos) << fused;
  p.ExpectNear({"y"}, 3e-4);
}

TEST(FuseWeightOnly, WhatStaysInFloat) {
  const auto program = [](const Shape& steps, int32_t axis, int64_t block, AttrList attrs) {
    Program p;
    p.Data("x", {7, 7});
    p.Weight("q", {7, 7});
    p.Steps("q", "w", steps, axis, block);
    p.Product("matmul_v2", std::move(attrs));
    return p;
  };
  program({7}, 0, 0, {}).ExpectLeft();     // a scale for each column of X
  program({7, 4}, 1, 2, {}).ExpectLeft();  // blocks of columns of the result
  program({7}, 1, 0, {{"trans_x", true}}).ExpectLeft();
  Program fed = program({7}, 1, 0, {});
  EXPECT_EQ(fed.Fused({"y", "w"}).find("quantized_linear"), std::string::npos);
  Program wide;
  wide.Data("x", {-1, 7}, DType::kFloat64);
  wide.Weight("q", {7, 5});
  wide.Steps("q", "w", {5}, 1, 0, false, DType::kFloat64);
  wide.Product("matmul_v2");
  wide.ExpectLeft();
}

bool IsFused(const Program& p) { return p.Fused().find("quantized_linear") != std::string::npos; }

// The numbers of a weight may be infinite where sums of integers times the scale are not.
TEST(FuseWeightOnly, HugeScales) {
  const auto program = [](int64_t rows, float scale) {
    Program p;
    p.Data("x", {rows, 7});
    p.Weight("q", {7, 5});
    p.Steps("q", "w", {5}, 1);
    p.scope.Set("w.s", Tensor::Of<float>({5}, {0.01f, scale, 0.02f, 1, 3}));
    p.Product("matmul_v2");
    return p;
  };
  const float infinite = std::numeric_limits<float>::infinity();
  for (const int64_t rows : {1, 12}) {
    program(rows, 1e29f).ExpectFused();
    program(rows, 1e31f).ExpectLeft();
    EXPECT_FALSE(IsFused(program(rows, 1e38f)));
    EXPECT_FALSE(IsFused(program(rows, infinite)));
  }
}

// Those of a quantized_linear that the program has: few and many rows give the same numbers.
TEST(FuseWeightOnly, HugeScalesOfLayers) {
  for (const int64_t rows : {1, 12, 60}) {
    Program p;
    p.Data("x", {rows, 7});
    for (float& x : p.feeds["x"].span<float>()) x *= 1e-3f;
    p.Weight("q", {5, 7});
    p.Floats("s", {0.01f, 1e38f, 0.02f, 1, 3});
    p.Append("quantized_linear", {{"X", {"x"}}, {"Weight", {"q"}}, {"Scale", {"s"}}},
             {{"Out", {"y"}}});
    p.ExpectNear({"y"}, 3e-4);
  }
}

// Scales times alpha that lose digits or become infinite.
TEST(FuseWeightOnly, ExtremeFactors) {
  const auto program = [](float scale, float alpha) {
    Program p;
    p.Data("x", {3, 7});
    p.Weight("q", {7, 5});
    p.Steps("q", "w", {1}, 0);
    p.scope.Set("w.s", Tensor::Of<float>({1}, {scale}));
    p.Product("matmul", {{"alpha", alpha}});
    return p;
  };
  program(1e-20f, 1e-20f).ExpectLeft();
  EXPECT_FALSE(IsFused(program(1e20f, 1e20f)));
  program(1e-20f, 1e18f).ExpectFused();
  program(0.01f, 0.0f).ExpectFused();
}

TEST(FuseWeightOnly, PackedWeights) {
  Program p;
  p.Data("x", {-1, 6});
  p.Weight("packed", {5, 3});
  p.Append("unpack_integers", {{"X", {"packed"}}}, {{"Out", {"q"}}},
           {{"bits", int32_t{4}}, {"last_dim", int64_t{6}}});
  p.Steps("q", "w", {5, 3}, 1, 2);
  p.Product("matmul_v2", {{"trans_y", true}});
  p.ExpectFused();
}

TEST(FuseWeightOnly, Lookups) {
  for (const char* type : {"lookup_table", "lookup_table_v2"}) {
    for (const bool narrow : {false, true}) {
      for (const bool zeros : {false, true}) {
        for (const int64_t padding : {-1, 2}) {
          struct Form {
            Shape shape;
            int32_t axis;
            int64_t block;
          };
          for (const Form& form :
               {Form{{1}, 0, 0}, Form{{6}, 0, 0}, Form{{5}, 1, 0}, Form{{6, 2}, 1, 3}}) {
            Program p;
            narrow ? p.Narrow("q", {6, 5}) : p.Weight("q", {6, 5});
            p.Steps("q", "w", form.shape, form.axis, form.block, zeros);
            p.Data("ids", {-1, 1}, DType::kInt64);
            p.feeds["ids"] = Tensor::Of<int64_t>({4, 1}, {5, 2, 0, 2});
            p.Append(type, {{"W", {"w"}}, {"Ids", {"ids"}}}, {{"Out", {"y"}}},
                     {{"padding_idx", padding}});
            const std::string fused = p.Fused();
            const bool stays = zeros && padding == 2 && form.axis == 1 && form.block == 0;
            // The rows are selected before they are dequantized.
            EXPECT_EQ(fused.find("affine_dequantize") < fused.find(type), stays) << fused;
            p.ExpectNear({"y"}, 1e-6);
          }
        }
      }
    }
  }
}

}  // namespace coracle::fuse_weight_only_test
