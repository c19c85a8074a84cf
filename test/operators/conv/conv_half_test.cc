// Convolutions of 16-bit images: with oneDNN's products of bfloat16, and by the float32 kernels in
// parts. The sizes are cut into parts of images and of rows.

#include <coracle/executor/executor.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/operators/kernels/bfloat16_products.h>
#include <coracle/test/op_test.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace coracle::conv_half_test {

struct Size {
  Shape input;  // NCHW
  int64_t filters;
  int32_t kernel, stride = 1, groups = 1;
  std::string act = "";
  bool residual = false;
};

std::vector<Size> Sizes() {
  return {{{1, 8, 7, 9}, 6, 3},
          {{1, 16, 130, 72}, 16, 3, 1, 1, "relu", true},
          {{1, 3, 131, 160}, 32, 7, 2, 1, "relu"},
          {{1, 32, 96, 96}, 48, 1, 1, 1, "hard_swish", true},
          {{5, 24, 56, 44}, 20, 3, 2, 1, "", true},
          {{7, 32, 50, 50}, 32, 3, 1, 32, "relu6"},
          {{6, 4, 90, 100}, 8, 3, 1, 2}};
}

class ConvHalf : public ::testing::TestWithParam<bool> {
 protected:
  Tensor Random(const Shape& shape, DType half) {
    Tensor tensor(DType::kFloat32, shape);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (float& v : tensor.span<float>()) v = uniform(random_);
    return tensor.Cast(half);
  }

  // Rounded once to 16 bits, except for sums that cancel.
  static void Compare(const Tensor& low, const Tensor& exact, DType half) {
    ASSERT_EQ(low.ToString(), exact.Cast(half).ToString());
    const double unit = half == DType::kFloat16 ? 0x1p-11 : 0x1p-8;
    const Tensor wide = low.Cast(DType::kFloat32);
    const std::span<const float> want = exact.span<float>(), got = wide.span<float>();
    double largest = 0;
    for (const float v : want) largest = std::max(largest, std::fabs(static_cast<double>(v)));
    for (size_t i = 0; i < want.size(); ++i) {
      const auto e = static_cast<double>(want[i]);
      ASSERT_NEAR(static_cast<double>(got[i]), e, unit * std::fabs(e) + 2e-5 * largest) << i;
    }
  }

  static Shape InLayout(const Shape& s, bool last) {
    return last ? Shape{s[0], s[2], s[3], s[1]} : s;
  }

  static OpTest Conv(const std::string& type, const Size& s, bool last) {
    OpTest op(type);
    op.Attr("strides", std::vector<int32_t>{s.stride, s.stride})
        .Attr("paddings", std::vector<int32_t>{s.kernel / 2, s.kernel / 2})
        .Attr("groups", s.groups)
        .Attr("data_format", std::string(last ? "NHWC" : "NCHW"));
    return op;
  }

  std::mt19937 random_{5};
};

TEST_P(ConvHalf, Forward) {
  const ScopedBFloat16Products products(GetParam());
  for (const Size& s : Sizes()) {
    for (const DType half : {DType::kBFloat16, DType::kFloat16}) {
      for (const bool last : {false, true}) {
        if (half == DType::kFloat16 && GetParam()) continue;  // the parameter is bfloat16's
        SCOPED_TRACE(::testing::Message() << s.input.ToString() << ToString(half) << last);
        const Tensor x = Random(InLayout(s.input, last), half);
        const Tensor w = Random({s.filters, s.input[1] / s.groups, s.kernel, s.kernel}, half);
        const Tensor b = Random({s.filters}, half);
        Tensor r;
        const auto with = [&](DType dtype) {
          OpTest op = Conv("conv2d", s, last);
          if (!s.act.empty()) op.Attr("fuse_activation", s.act).Attr("fuse_alpha", 6.0f);
          op.TensorInput("Input", x.Cast(dtype)).TensorInput("Filter", w.Cast(dtype));
          op.TensorInput("Bias", b.Cast(dtype));
          if (!r.empty()) op.TensorInput("ResidualData", r.Cast(dtype));
          return op;
        };
        if (s.residual) r = Random(with(DType::kFloat32).Output("Output").shape(), half);
        const Tensor exact = with(DType::kFloat32).Output("Output", KernelMode::kReference);
        Compare(with(half).Output("Output"), exact, half);
      }
    }
  }
}

TEST_P(ConvHalf, Gradient) {
  const ScopedBFloat16Products products(GetParam());
  for (const Size& s : Sizes()) {
    for (const int form : {0, 1, 2, 3}) {
      const bool last = form % 2 == 1;
      const DType half = form < 2 ? DType::kBFloat16 : DType::kFloat16;
      if (half == DType::kFloat16 && GetParam()) continue;
      SCOPED_TRACE(::testing::Message() << s.input.ToString() << ToString(half) << last);
      const Tensor x = Random(InLayout(s.input, last), half);
      const Tensor w = Random({s.filters, s.input[1] / s.groups, s.kernel, s.kernel}, half);
      const Tensor b = Random({s.filters}, half);
      const Shape out = Conv("conv2d", s, last)
                            .TensorInput("Input", x.Cast(DType::kFloat32))
                            .TensorInput("Filter", w.Cast(DType::kFloat32))
                            .Output("Output")
                            .shape();
      const Tensor g = Random(out, half);
      const auto with = [&](DType dtype) {
        OpTest op = Conv("conv2d_grad", s, last);
        op.TensorInput("Input", x.Cast(dtype)).TensorInput("Filter", w.Cast(dtype));
        op.TensorInput("Bias", b.Cast(dtype)).TensorInput("Output@GRAD", g.Cast(dtype));
        return op;
      };
      for (const char* slot : {"Input@GRAD", "Filter@GRAD", "Bias@GRAD"}) {
        SCOPED_TRACE(slot);
        Compare(with(half).Output(slot), with(DType::kFloat32).Output(slot, KernelMode::kReference),
                half);
      }
    }
  }
}

// Frozen filters, which kernels pack: parts of two and three images, of one and two, and of rows at
// both ends of an image, each with a kernel of its own that wants the filter.
TEST_P(ConvHalf, FrozenFilters) {
  const ScopedBFloat16Products products(GetParam());
  const std::vector<Size> sizes = {{{5, 24, 56, 44}, 20, 3, 2},
                                   {{5, 16, 64, 60}, 16, 3, 1, 1, "relu"},
                                   {{5, 32, 64, 44}, 32, 1},
                                   {{5, 32, 64, 44}, 32, 3, 1, 32},
                                   {{1, 16, 130, 72}, 16, 3}};
  for (const Size& s : sizes) {
    for (const DType half : {DType::kBFloat16, DType::kFloat16}) {
      for (const bool last : {false, true}) {
        if (half == DType::kFloat16 && GetParam()) continue;
        SCOPED_TRACE(::testing::Message() << s.input.ToString() << ToString(half) << last);
        const Tensor x = Random(InLayout(s.input, last), half);
        const Tensor w = Random({s.filters, s.input[1] / s.groups, s.kernel, s.kernel}, half);
        OpTest plain = Conv("conv2d", s, last);
        if (!s.act.empty()) plain.Attr("fuse_activation", s.act);
        const Tensor exact = plain.TensorInput("Input", x.Cast(DType::kFloat32))
                                 .TensorInput("Filter", w.Cast(DType::kFloat32))
                                 .Output("Output", KernelMode::kReference);
        ProgramDesc program;
        Scope scope;
        BlockDesc& root = program.Root();
        root.Var("x").SetMeta({VarType::kLoDTensor, half, x.shape(), 0});
        root.Var("w").SetMeta({VarType::kLoDTensor, half, w.shape(), 0});
        root.FindVar("w")->SetPersistable(true);
        scope.Set("w", w);
        AttrList attrs = {{"strides", std::vector<int32_t>{s.stride, s.stride}},
                          {"paddings", std::vector<int32_t>{s.kernel / 2, s.kernel / 2}},
                          {"groups", s.groups},
                          {"data_format", std::string(last ? "NHWC" : "NCHW")}};
        if (!s.act.empty()) attrs.push_back({"fuse_activation", s.act});
        InferOp(root,
                root.AppendOp("conv2d", {{"Input", {"x"}}, {"Filter", {"w"}}}, {{"Output", {"y"}}},
                              std::move(attrs)),
                DefaultOps());
        PreparedProgram frozen = Executor().PrepareFrozen(program, scope, {"x"}, {"y"});
        for (int run = 0; run < 2; ++run) Compare(frozen.Run(scope, {x})[0], exact, half);
      }
    }
  }
}

// A float32 bias is added to the float32 sums: it is not rounded, however large.
TEST_P(ConvHalf, FloatBias) {
  const ScopedBFloat16Products products(GetParam());
  for (const bool last : {false, true}) {
    SCOPED_TRACE(last);
    const Size s{{2, 16, 9, 7}, 32, 3};
    const Tensor x = Random(InLayout(s.input, last), DType::kBFloat16);
    const Tensor w = Random({32, 16, 3, 3}, DType::kBFloat16);
    Tensor bias(DType::kFloat32, {32});
    for (int64_t i = 0; i < 32; ++i) bias.data<float>()[i] = 1000.5f + static_cast<float>(i) / 7;
    const Tensor exact = Conv("conv2d", s, last)
                             .TensorInput("Input", x.Cast(DType::kFloat32))
                             .TensorInput("Filter", w.Cast(DType::kFloat32))
                             .TensorInput("Bias", bias)
                             .Output("Output", KernelMode::kReference);
    for (const KernelMode mode : {KernelMode::kReference, KernelMode::kAuto}) {
      const Tensor got = Conv("conv2d", s, last)
                             .TensorInput("Input", x)
                             .TensorInput("Filter", w)
                             .TensorInput("Bias", bias)
                             .Output("Output", mode);
      Compare(got, exact, DType::kBFloat16);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Products, ConvHalf, ::testing::Bool());
}  // namespace coracle::conv_half_test
