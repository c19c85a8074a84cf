// 16-bit floats through ops that have loops for float32 only, and the native bfloat16 ones.

#include <coracle/framework/tensor/half_array.h>
#include <coracle/operators/kernels/bfloat16_products.h>
#include <coracle/test/op_test.h>

#include <cmath>
#include <limits>

namespace coracle::half_ops_test {

constexpr DType kHalves[] = {DType::kFloat16, DType::kBFloat16};

struct Case {
  std::string type;
  std::vector<std::pair<std::string, Shape>> inputs;
  std::vector<std::string> outputs;  // of 16 bits
  AttrList attrs = {};
};

// Ops of every kind: with a table of formulas, with a nest of loops, with their own gradient op.
std::vector<Case> Cases() {
  const Shape image{2, 3, 6, 5};
  return {
      {"relu", {{"X", {3, 37}}}, {"Out"}},
      {"tanh", {{"X", {1000}}}, {"Out"}},
      {"gelu", {{"X", {5, 7}}}, {"Out"}},
      {"softmax", {{"X", {4, 33}}}, {"Out"}},
      {"log_softmax", {{"X", {4, 33}}}, {"Out"}},
      {"elementwise_add", {{"X", {4, 33}}, {"Y", {33}}}, {"Out"}},
      {"elementwise_mul", {{"X", {4, 33}}, {"Y", {4, 33}}}, {"Out"}},
      {"elementwise_add_grad",
       {{"X", {4, 33}}, {"Y", {33}}, {"Out@GRAD", {4, 33}}},
       {"X@GRAD", "Y@GRAD"}},
      {"scale", {{"X", {100}}}, {"Out"}, {{"scale", 3.0f}, {"bias", 0.5f}}},
      {"sum", {{"X", {100}}, {"X", {100}}, {"X", {100}}}, {"Out"}},
      {"mean", {{"X", {9, 11}}}, {"Out"}},
      {"reduce_sum", {{"X", {9, 11}}}, {"Out"}, {{"dim", std::vector<int32_t>{1}}}},
      {"pool2d",
       {{"X", image}},
       {"Out"},
       {{"ksize", std::vector<int32_t>{2, 2}}, {"pooling_type", std::string("max")}}},
      {"square_error_cost", {{"X", {9, 1}}, {"Y", {9, 1}}}, {"Out"}},
      {"clip", {{"X", {50}}}, {"Out"}, {{"min", -0.5f}, {"max", 0.25f}}},
      {"clip_by_norm", {{"X", {50}}}, {"Out"}, {{"max_norm", 1.0f}}},
      {"squared_l2_norm", {{"X", {50}}}, {"Out"}},
      {"transpose2", {{"X", {4, 5}}}, {"Out"}, {{"axis", std::vector<int32_t>{1, 0}}}},
      {"sgd", {{"Param", {20}}, {"Grad", {20}}}, {"ParamOut"}},
  };
}

OpTest Make(const Case& c, DType dtype, const std::vector<Tensor>& inputs) {
  OpTest op(c.type);
  for (const NamedAttr& attr : c.attrs) op.Attr(attr.name, attr.value);
  for (size_t i = 0; i < inputs.size(); ++i)
    op.TensorInput(c.inputs[i].first, inputs[i].Cast(dtype));
  if (c.type == "sgd") op.TensorInput("LearningRate", Tensor::Of<float>({1}, {0.125f}));
  return op;
}

// In 16 bits an op gives what it gives in float32 for the same numbers, rounded once.
TEST(HalfOps, ComputeInFloatAndRoundOnce) {
  for (const Case& c : Cases()) {
    for (DType half : kHalves) {
      std::vector<Tensor> inputs;
      std::mt19937 random(11);
      std::uniform_real_distribution<float> uniform(-2, 2);
      for (const auto& [slot, shape] : c.inputs) {
        Tensor tensor(DType::kFloat32, shape);
        for (float& v : tensor.span<float>()) v = uniform(random);
        inputs.push_back(tensor.Cast(half).Cast(DType::kFloat32));
      }
      for (const std::string& output : c.outputs) {
        for (KernelMode mode : {KernelMode::kAuto, KernelMode::kReference}) {
          SCOPED_TRACE(c.type + " " + output + " " + ToString(half));
          const Tensor expected = Make(c, DType::kFloat32, inputs).Output(output, mode).Cast(half);
          const Tensor actual = Make(c, half, inputs).Output(output, mode);
          ASSERT_EQ(actual.ToString(), expected.ToString());
          const Tensor a = actual.Cast(DType::kFloat32), e = expected.Cast(DType::kFloat32);
          // A loop of its own for 16 bits may round at each step of a sum.
          const bool own = mode == KernelMode::kReference &&
                           (c.type == "sum" || c.type == "scale" || c.type == "elementwise_add");
          const float slack = own ? (half == DType::kFloat16 ? 0x1p-9f : 0x1p-6f) : 0;
          for (int64_t i = 0; i < a.numel(); ++i) {
            const float x = a.data<float>()[i], y = e.data<float>()[i];
            ASSERT_NEAR(x, y, slack * std::max(1.f, std::fabs(y))) << i;
          }
        }
      }
    }
  }
}

Tensor Random(const Shape& shape, unsigned seed, DType half) {
  Tensor tensor(DType::kFloat32, shape);
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (float& v : tensor.span<float>()) v = uniform(random);
  return tensor.Cast(half);
}

double At(const Tensor& tensor, int64_t i) {
  return static_cast<double>(tensor.Cast(DType::kFloat32).data<float>()[i]);
}

// Against a product in double: sums in float32, rounded once to the half's precision.
TEST(HalfOps, MatmulSumsInFloat) {
  const ScopedBFloat16Products products(true);
  struct Size {
    int m, n, k;
    bool tx, ty;
  };
  for (const Size& s :
       {Size{1, 1, 1, false, false}, Size{7, 5, 300, false, false}, Size{33, 17, 64, true, false},
        Size{16, 40, 65, false, true}, Size{64, 64, 2000, true, true}}) {
    for (DType half : kHalves) {
      const Tensor x = Random(s.tx ? Shape{s.k, s.m} : Shape{s.m, s.k}, 1, half);
      const Tensor y = Random(s.ty ? Shape{s.n, s.k} : Shape{s.k, s.n}, 2, half);
      const Tensor out = OpTest("matmul_v2")
                             .Attr("trans_x", s.tx)
                             .Attr("trans_y", s.ty)
                             .TensorInput("X", x)
                             .TensorInput("Y", y)
                             .Output("Out");
      ASSERT_EQ(out.dtype(), half);
      const Tensor a = x.Cast(DType::kFloat64), b = y.Cast(DType::kFloat64);
      const Tensor o = out.Cast(DType::kFloat64);
      const double unit = half == DType::kFloat16 ? 0x1p-11 : 0x1p-8;
      for (int i = 0; i < s.m; ++i) {
        for (int j = 0; j < s.n; ++j) {
          double sum = 0, size = 0;
          for (int p = 0; p < s.k; ++p) {
            const double u = a.data<double>()[s.tx ? p * s.m + i : i * s.k + p];
            const double v = b.data<double>()[s.ty ? j * s.k + p : p * s.n + j];
            sum += u * v;
            size += std::fabs(u * v);
          }
          ASSERT_NEAR(o.data<double>()[i * s.n + j], sum,
                      unit * std::fabs(sum) + 1e-6 * size + 1e-7);
        }
      }
    }
  }
}

TEST(HalfOps, MatmulOfBatchesAndItsGradient) {
  const ScopedBFloat16Products products(true);
  for (DType half : kHalves) {
    const Tensor x = Random({2, 3, 4, 5}, 1, half), y = Random({3, 5, 6}, 2, half);
    const Tensor g = Random({2, 3, 4, 6}, 3, half);
    const auto forward = [&](DType dtype, KernelMode mode) {
      return OpTest("matmul")
          .Attr("alpha", 0.5f)
          .TensorInput("X", x.Cast(dtype))
          .TensorInput("Y", y.Cast(dtype))
          .Output("Out", mode);
    };
    const auto backward = [&](DType dtype, const char* slot, KernelMode mode) {
      return OpTest("matmul_grad")
          .Attr("alpha", 0.5f)
          .TensorInput("X", x.Cast(dtype))
          .TensorInput("Y", y.Cast(dtype))
          .TensorInput("Out@GRAD", g.Cast(dtype))
          .Output(slot, mode);
    };
    const double unit = half == DType::kFloat16 ? 0x1p-11 : 0x1p-8;
    const auto compare = [&](const Tensor& low, const Tensor& wide) {
      ASSERT_EQ(low.dtype(), half);
      for (int64_t i = 0; i < wide.numel(); ++i)
        ASSERT_NEAR(At(low, i), wide.data<double>()[i],
                    unit * std::fabs(wide.data<double>()[i]) + 1e-6);
    };
    for (KernelMode mode : {KernelMode::kAuto, KernelMode::kReference}) {
      compare(forward(half, mode), forward(DType::kFloat64, KernelMode::kReference));
      for (const char* slot : {"X@GRAD", "Y@GRAD"})
        compare(backward(half, slot, mode),
                backward(DType::kFloat64, slot, KernelMode::kReference));
    }
  }
}

TEST(HalfOps, ConvolutionAndItsGradient) {
  const ScopedBFloat16Products products(true);
  struct Conv {
    int channels, filters, kernel, stride, pad, groups;
  };
  for (const Conv& c : {Conv{1, 4, 5, 1, 0, 1}, Conv{16, 32, 3, 1, 1, 1}, Conv{8, 8, 3, 2, 1, 2}}) {
    for (DType half : kHalves) {
      const Tensor x = Random({2, c.channels, 9, 8}, 1, half);
      const Tensor w = Random({c.filters, c.channels / c.groups, c.kernel, c.kernel}, 2, half);
      const auto with_attrs = [&](const char* type, DType dtype) {
        OpTest op(type);
        op.Attr("strides", std::vector<int32_t>{c.stride, c.stride})
            .Attr("paddings", std::vector<int32_t>{c.pad, c.pad})
            .Attr("groups", c.groups)
            .TensorInput("Input", x.Cast(dtype))
            .TensorInput("Filter", w.Cast(dtype));
        return op;
      };
      const Tensor wide =
          with_attrs("conv2d", DType::kFloat64).Output("Output", KernelMode::kReference);
      const double unit = half == DType::kFloat16 ? 0x1p-11 : 0x1p-8;
      const auto compare = [&](const Tensor& low, const Tensor& exact) {
        ASSERT_EQ(low.ToString(), exact.Cast(half).ToString());
        for (int64_t i = 0; i < exact.numel(); ++i)
          ASSERT_NEAR(At(low, i), exact.data<double>()[i],
                      unit * std::fabs(exact.data<double>()[i]) + 2e-5);
      };
      compare(with_attrs("conv2d", half).Output("Output"), wide);
      const Tensor g = Random(wide.shape(), 3, half);
      for (const char* slot : {"Input@GRAD", "Filter@GRAD"}) {
        compare(with_attrs("conv2d_grad", half).TensorInput("Output@GRAD", g).Output(slot),
                with_attrs("conv2d_grad", DType::kFloat64)
                    .TensorInput("Output@GRAD", g.Cast(DType::kFloat64))
                    .Output(slot, KernelMode::kReference));
      }
    }
  }
}

// Channels last, in several parts.
TEST(HalfOps, PoolsOfImages) {
  for (const Shape& shape : {Shape{5, 40, 40, 24}, Shape{2, 7, 9, 3}, Shape{3, 60, 50, 16}}) {
    for (const char* kind : {"max", "avg"}) {
      for (const DType half : kHalves) {
        SCOPED_TRACE(::testing::Message() << shape.ToString() << kind << ToString(half));
        const Tensor x = Random(shape, 1, half);
        const auto pool = [&](const char* type, DType dtype) {
          OpTest op(type);
          op.Attr("pooling_type", std::string(kind)).Attr("data_format", std::string("NHWC"));
          op.Attr("ksize", std::vector<int32_t>{3, 3}).Attr("strides", std::vector<int32_t>{2, 2});
          op.TensorInput("X", x.Cast(dtype));
          return op;
        };
        const Tensor out = pool("pool2d", DType::kFloat32).Output("Out", KernelMode::kReference);
        const auto compare = [&](const Tensor& low, const Tensor& exact) {
          ASSERT_EQ(low.ToString(), exact.Cast(half).ToString());
          const double unit = half == DType::kFloat16 ? 0x1p-10 : 0x1p-7;
          const Tensor wide = low.Cast(DType::kFloat64), want = exact.Cast(DType::kFloat64);
          for (int64_t i = 0; i < exact.numel(); ++i) {
            const double e = want.data<double>()[i];
            ASSERT_NEAR(wide.data<double>()[i], e, unit * std::fabs(e) + 1e-6);
          }
        };
        compare(pool("pool2d", half).Output("Out"), out);
        const Tensor g = Random(out.shape(), 2, half), y = out.Cast(half);
        const auto gradient = [&](DType dtype) {
          OpTest op = pool("pool2d_grad", dtype);
          op.TensorInput("Out", y.Cast(dtype)).TensorInput("Out@GRAD", g.Cast(dtype));
          return op;
        };
        compare(gradient(half).Output("X@GRAD"),
                gradient(DType::kFloat32).Output("X@GRAD", KernelMode::kReference));
      }
    }
  }
}

// float16 ends at 65504: a product beyond becomes infinite; bfloat16 has float32's range.
TEST(HalfOps, ResultsOverflowToInfinity) {
  for (DType half : kHalves) {
    const Tensor x = Tensor::Of<float>({1, 2}, {300, 300}).Cast(half);
    const Tensor y = Tensor::Of<float>({2, 2}, {300, 100, 300, 100}).Cast(half);
    const Tensor out = OpTest("mul").TensorInput("X", x).TensorInput("Y", y).Output("Out");
    const bool narrow = half == DType::kFloat16;
    EXPECT_EQ(At(out, 0), narrow ? std::numeric_limits<double>::infinity()
                                 : At(Tensor::Of<float>({1}, {180000}).Cast(half), 0));
    EXPECT_NEAR(At(out, 1), 60000, narrow ? 16 : 256);
    const Tensor nan =
        OpTest("relu").TensorInput("X", Tensor::Of<float>({1}, {NAN}).Cast(half)).Output("Out");
    EXPECT_TRUE(std::isnan(At(nan, 0)));
  }
}

// Statistics of an image in 16 bits stay float32, and so do scale and bias.
TEST(HalfOps, NormsKeepFloatStatistics) {
  for (DType half : kHalves) {
    const Tensor x = Random({4, 3, 5, 5}, 1, half);
    const auto make = [&](DType dtype) {
      OpTest op("batch_norm");
      op.TensorInput("X", x.Cast(dtype));
      for (const char* slot : {"Scale", "Bias", "Mean", "Variance"})
        op.TensorInput(slot, Tensor::Full<float>({3}, 1.0f));
      return op;
    };
    for (KernelMode mode : {KernelMode::kAuto, KernelMode::kReference}) {
      for (const char* slot : {"MeanOut", "SavedMean", "SavedVariance"}) {
        const Tensor low = make(half).Output(slot, mode);
        const Tensor wide = make(DType::kFloat32).Output(slot, mode);
        ASSERT_EQ(low.dtype(), DType::kFloat32);
        for (int i = 0; i < 3; ++i) EXPECT_EQ(low.data<float>()[i], wide.data<float>()[i]) << slot;
      }
      const Tensor low = make(half).Output("Y", mode);
      const Tensor wide = make(DType::kFloat32).Output("Y", mode).Cast(half);
      ASSERT_EQ(low.dtype(), half);
      for (int64_t i = 0; i < low.numel(); ++i) ASSERT_EQ(At(low, i), At(wide, i));
    }
    OpTest layer("layer_norm");
    layer.TensorInput("X", Random({4, 8}, 1, half))
        .TensorInput("Scale", Tensor::Full<float>({8}, 2.0f));
    EXPECT_EQ(layer.Output("Mean").dtype(), DType::kFloat32);
    EXPECT_EQ(layer.Output("Y").dtype(), half);
    OpTest("layer_norm")
        .TensorInput("X", Random({4, 8}, 1, half))
        .TensorInput("Scale", Tensor::Full<double>({8}, 2.0))
        .ExpectError("layer_norm.C3");
  }
}

// The accumulators of an optimizer may be float32 for a parameter of 16 bits.
TEST(HalfOps, OptimizerStateInFloat) {
  OpTest momentum("momentum");
  momentum.Attr("mu", 0.5f)
      .TensorInput("Param", Tensor::Of<float>({2}, {1, 2}).Cast(DType::kBFloat16))
      .TensorInput("Grad", Tensor::Of<float>({2}, {0.5f, 0.25f}).Cast(DType::kBFloat16))
      .TensorInput("Velocity", Tensor::Of<float>({2}, {1e-3f, 1}))
      .TensorInput("LearningRate", Tensor::Of<float>({1}, {1}));
  EXPECT_EQ(momentum.Output("ParamOut").dtype(), DType::kBFloat16);
  const Tensor velocity = momentum.Output("VelocityOut");
  ASSERT_EQ(velocity.dtype(), DType::kFloat32);
  EXPECT_EQ(velocity.data<float>()[0], 0.5f * 1e-3f + 0.5f);  // not rounded to 16 bits
  EXPECT_EQ(At(momentum.Output("ParamOut"), 1), 1.25);
}

TEST(HalfOps, SelectedRows) {
  ProgramDesc program;
  BlockDesc& root = program.Root();
  VarDesc& x = root.Var("x");
  x.SetMeta({VarType::kSelectedRows, DType::kFloat16, {5, 2}, 0});
  const OpDesc& op =
      root.AppendOp("clip", {{"X", {"x"}}}, {{"Out", {"y"}}}, {{"min", -1.0f}, {"max", 1.0f}});
  VarValues env;
  SelectedRows rows;
  rows.rows = {3, 1, 3};
  rows.height = 5;
  rows.value = Tensor::Of<float>({3, 2}, {0.5f, 4, -3, 0, 0.25f, 1}).Cast(DType::kFloat16);
  env["x"] = rows;
  InterpretOp(op, DefaultOps(), env);
  const auto& out = std::get<SelectedRows>(env.at("y"));
  EXPECT_EQ(out.rows, (std::vector<int64_t>{1, 3}));
  ASSERT_EQ(out.value.dtype(), DType::kFloat16);
  const double expected[] = {-1, 0, 0.75, 1};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(At(out.value, i), expected[i]);
}
}  // namespace coracle::half_ops_test
