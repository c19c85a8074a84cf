// Fast kernels of float32 at numbers whose products or factors leave the range of float32, against
// the reference kernels of float64.

#include <coracle/framework/tensor/rng.h>
#include <coracle/test/op_test.h>
#include <coracle/test/operators/gradient_of.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace coracle::extreme_values_test {

using Inputs = std::vector<std::pair<std::string, Tensor>>;

Tensor Drawn(const Shape& shape, double size, uint64_t seed) {
  Philox random(seed, 0, 0);
  Tensor wide(DType::kFloat64, shape);
  for (int64_t i = 0; i < wide.numel(); ++i)
    wide.data<double>()[i] = size * random.Normal(static_cast<uint64_t>(i));
  return wide.Cast(DType::kFloat32);
}

Inputs InDouble(const Inputs& inputs) {
  Inputs wide;
  for (const auto& [slot, tensor] : inputs)
    wide.emplace_back(slot, IsFloating(tensor.dtype()) ? tensor.Cast(DType::kFloat64) : tensor);
  return wide;
}

// The outputs of one op by fast and by reference kernels in float32 are those by reference kernels
// in float64.
void ExpectRight(const std::string& type, const Inputs& inputs, const AttrList& attrs,
                 const std::vector<std::string>& slots, double tolerance) {
  const auto run = [&](const Inputs& given, KernelMode kernels) {
    ProgramDesc program;
    VarValues values = {given.begin(), given.end()};
    const SlotList ins = DeclareInputs(program.Root(), given);
    SlotList outs;
    for (const SlotDef& slot : DefaultOps().Get(type).outputs) {
      const bool wanted = std::find(slots.begin(), slots.end(), slot.name) != slots.end();
      if (wanted || !slot.optional) outs.push_back({slot.name, {slot.name}});
    }
    Writer(program.Root(), DefaultOps()).Append(type, ins, outs, attrs);
    InterpretOptions options;
    options.kernels = kernels;
    Interpret(program.Root(), DefaultOps(), values, options);
    return values;
  };
  const VarValues truth = run(InDouble(inputs), KernelMode::kReference);
  for (const KernelMode kernels : {KernelMode::kAuto, KernelMode::kReference}) {
    const VarValues found = run(inputs, kernels);
    for (const std::string& slot : slots) {
      SCOPED_TRACE(type + " " + slot + (kernels == KernelMode::kAuto ? ", fast" : ""));
      const std::vector<double> got = NumbersOf(std::get<Tensor>(found.at(slot)));
      const std::vector<double> want = NumbersOf(std::get<Tensor>(truth.at(slot)));
      double largest = 0;
      for (const double x : want) largest = std::max(largest, std::abs(x));
      ASSERT_GT(largest, 0);
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_NEAR(got[i], want[i], tolerance * largest) << "at " << i;
    }
  }
}

// The term of X - mean in the gradient of a norm has a factor that falls with the square of X.
TEST(ExtremeValues, GradientsOfNorms) {
  struct Size {
    double x, dy;
  };
  for (const Size size : {Size{1, 1}, Size{1e23, 1}, Size{1e27, 1e10}, Size{1e32, 1e9}}) {
    SCOPED_TRACE(testing::Message() << "X of " << size.x << ", gradient of " << size.dy);
    const Tensor x = Drawn({3, 4, 5, 7}, size.x, 1), dy = Drawn({3, 4, 5, 7}, size.dy, 2);
    const Tensor scale = Drawn({4}, 1, 3), bias = Drawn({4}, 1, 4), mean = Drawn({4}, 1, 5);
    const Tensor variance = Tensor::Full<float>({4}, 1);
    const Inputs common = {{"X", x}, {"Y@GRAD", dy}, {"Scale", scale}};
    const std::vector<std::string> slots = {"X@GRAD", "Scale@GRAD", "Bias@GRAD"};
    ExpectRight("group_norm_grad", common, {{"groups", int32_t{2}}}, slots, 1e-5);
    ExpectRight("instance_norm_grad", common, {}, slots, 1e-5);
    ExpectRight("batch_norm_grad", common, {}, slots, 1e-5);
    ExpectRight("sync_batch_norm_grad", common, {}, slots, 1e-5);
    const Tensor last = Drawn({3, 5, 7, 4}, size.x, 6), dlast = Drawn({3, 5, 7, 4}, size.dy, 7);
    ExpectRight("batch_norm_grad", {{"X", last}, {"Y@GRAD", dlast}, {"Scale", scale}},
                {{"data_layout", std::string("NHWC")}}, slots, 1e-5);
  }
}

// `around` (1 + spread z) with normal z.
Tensor DrawnAround(const Shape& shape, double around, double spread, uint64_t seed) {
  Tensor wide = Drawn(shape, spread, seed).Cast(DType::kFloat64);
  for (double& x : wide.span<double>()) x = around * (1 + x);
  return wide.Cast(DType::kFloat32);
}

// The gradients of all norms of channels for these sizes of X, and for Y@GRAD around a number.
void ExpectGradientsOfNorms(double x_size, double dy, double spread, const Tensor& scale,
                            int32_t groups = 2) {
  SCOPED_TRACE(testing::Message() << "X of " << x_size << ", gradient around " << dy << ", Scale "
                                  << scale.data<float>()[0]);
  const Inputs first = {{"X", Drawn({3, 4, 5, 7}, x_size, 1)},
                        {"Y@GRAD", DrawnAround({3, 4, 5, 7}, dy, spread, 2)},
                        {"Scale", scale}};
  const Inputs last = {{"X", Drawn({3, 5, 7, 4}, x_size, 3)},
                       {"Y@GRAD", DrawnAround({3, 5, 7, 4}, dy, spread, 4)},
                       {"Scale", scale}};
  // Where the gradients differ by a thousandth, their rounding is this part of the result.
  constexpr double kTolerance = 2e-4;
  const NamedAttr nhwc = {"data_layout", std::string("NHWC")};
  for (const char* type :
       {"group_norm_grad", "instance_norm_grad", "batch_norm_grad", "sync_batch_norm_grad"}) {
    AttrList attrs;
    if (std::string(type) == "group_norm_grad") attrs.push_back({"groups", groups});
    ExpectRight(type, first, attrs, {"X@GRAD"}, kTolerance);
    if (std::string(type) == "instance_norm_grad") continue;
    attrs.push_back(nhwc);
    ExpectRight(type, last, attrs, {"X@GRAD"}, kTolerance);
  }
}

// The terms of a gradient overflow a float and cancel, or their factors are below the least one.
TEST(ExtremeValues, TermsOfGradientsOfNorms) {
  ExpectGradientsOfNorms(1e3, 1e36, 1e-3, Tensor::Full<float>({4}, 1e6f));
  ExpectGradientsOfNorms(1e15, 1e37, 1, Tensor::Full<float>({4}, 1e-30f));
  ExpectGradientsOfNorms(1e30, 1e37, 1, Tensor::Full<float>({4}, 1e-9f));
  // One channel only, whose neighbours are ordinary.
  ExpectGradientsOfNorms(1, 1e36, 1e-3, Tensor::Of<float>({4}, {1, 1e4f, 1e-39f, 2}), 4);
}

TEST(ExtremeValues, GradientOfLayerNormWithLargeTerms) {
  struct Size {
    double x, dy, spread;
    float scale;
  };
  for (const Size size : {Size{1e3, 1e36, 1e-3, 1e6f}, Size{1e15, 1e37, 1, 1e-30f},
                          Size{1e-3, 1e36, 1, 1}, Size{1e30, 1, 1, 1e20f}}) {
    SCOPED_TRACE(testing::Message() << "X of " << size.x << ", gradient of " << size.dy);
    for (const int64_t columns : {9, 40}) {
      const Inputs inputs = {{"X", Drawn({7, columns}, size.x, 1)},
                             {"Y@GRAD", DrawnAround({7, columns}, size.dy, size.spread, 2)},
                             {"Scale", Tensor::Full<float>({columns}, size.scale)}};
      const bool fits = size.x > 1;  // Scale@GRAD and X@GRAD are in the range of a float
      ExpectRight("layer_norm_grad", inputs, {}, {fits ? "X@GRAD" : "Bias@GRAD"}, 1e-5);
    }
  }
}

// Factors of outputs leave the range of a float, or squares of X do.
TEST(ExtremeValues, Norms) {
  struct Size {
    double x;
    float scale, epsilon;
  };
  for (const Size size : {Size{1e30, 1e-10f, 1e-5f}, Size{1e-22, 1, 0}, Size{1e-28, 1e15f, 0},
                          Size{1e30, 1e30f, 0}}) {
    SCOPED_TRACE(testing::Message() << "X of " << size.x << ", Scale " << size.scale);
    const Inputs inputs = {{"X", Drawn({3, 4, 5, 7}, size.x, 1)},
                           {"Scale", Tensor::Full<float>({4}, size.scale)},
                           {"Bias", Tensor::Zeros(DType::kFloat32, {4})}};
    const NamedAttr epsilon = {"epsilon", size.epsilon};
    ExpectRight("instance_norm", inputs, {epsilon}, {"Y"}, 1e-5);
    ExpectRight("group_norm", inputs, {{"groups", int32_t{2}}, epsilon}, {"Y"}, 1e-5);
    Inputs with_running = inputs;
    with_running.emplace_back("Mean", Tensor::Zeros(DType::kFloat32, {4}));
    with_running.emplace_back("Variance", Tensor::Full<float>({4}, 1));
    ExpectRight("batch_norm", with_running, {epsilon}, {"Y"}, 1e-5);
    ExpectRight("sync_batch_norm", with_running, {epsilon}, {"Y"}, 1e-5);
    const Inputs rows = {{"X", Drawn({7, 40}, size.x, 2)},
                         {"Scale", Tensor::Full<float>({40}, size.scale)}};
    ExpectRight("layer_norm", rows, {epsilon}, {"Y"}, 1e-5);
  }
}

// The variance of the forward op is a float32, which overflows for X of 1e20 and is 0 for 1e-25.
TEST(ExtremeValues, GradientOfLayerNorm) {
  const Tensor scale = Drawn({9}, 1, 2);
  for (const double size : {1.0, 1e20, 1e30, 1e-25}) {
    const Inputs inputs = {{"X", Drawn({4, 9}, size, 1)}, {"Scale", scale}};
    const AttrList attrs = {{"epsilon", size < 1 ? 0.f : 1e-5f}};
    const Tensor want =
        Differentiate("layer_norm", attrs, InDouble(inputs), "X", "Y", KernelMode::kReference)
            .gradient;
    double largest = 0;
    for (const double x : NumbersOf(want)) largest = std::max(largest, std::abs(x));
    for (const KernelMode kernels : {KernelMode::kReference, KernelMode::kAuto}) {
      SCOPED_TRACE(testing::Message()
                   << "X of " << size << (kernels == KernelMode::kAuto ? ", fast" : ""));
      const std::vector<double> got =
          NumbersOf(Differentiate("layer_norm", attrs, inputs, "X", "Y", kernels).gradient);
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_NEAR(got[i], NumbersOf(want)[i], 1e-5 * largest) << "at " << i;
    }
  }
}

// Sums that overflow a float on the way to a result that does not.
TEST(ExtremeValues, SumsAndMeans) {
  Tensor x = Tensor::Full<float>({8, 24}, 3e38f);
  for (int64_t i = 0; i < x.numel(); i += 2) x.data<float>()[i] = i % 48 < 24 ? -3e38f : 2e38f;
  ExpectRight("mean", {{"X", x}}, {}, {"Out"}, 1e-6);
  for (const std::vector<int32_t>& dims : {std::vector<int32_t>{0}, std::vector<int32_t>{1}})
    ExpectRight("reduce_mean", {{"X", x}}, {{"dim", dims}}, {"Out"}, 1e-6);
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = i / 24 < 4 ? 2e38f : -1.9e38f;
  ExpectRight("reduce_sum", {{"X", x}}, {{"dim", std::vector<int32_t>{0}}}, {"Out"}, 1e-6);
}

// Products and quotients of the running means leave the range of a float32 before the update does.
TEST(ExtremeValues, Updates) {
  const Tensor rate = Tensor::Full<float>({1}, 0.1f), param = Drawn({20}, 1, 1);
  ExpectRight("adadelta",
              {{"Param", param},
               {"Grad", Drawn({20}, 1e18, 2)},
               {"AvgSquaredGrad", Tensor::Full<float>({20}, 1e36f)},
               {"AvgSquaredUpdate", Tensor::Zeros(DType::kFloat32, {20})},
               {"LearningRate", Tensor::Full<float>({1}, 1e3f)}},
              {{"epsilon", 1e-7f}}, {"ParamOut"}, 1e-6);
  ExpectRight("lamb",
              {{"Param", param},
               {"Grad", Drawn({20}, 1e19, 2)},
               {"Moment1", Drawn({20}, 1e18, 3)},
               {"Moment2", Tensor::Full<float>({20}, 3e37f)},
               {"LearningRate", rate},
               {"Beta1Pow", Tensor::Full<float>({1}, 0.9f)},
               {"Beta2Pow", Tensor::Full<float>({1}, 0.999f)}},
              {{"weight_decay", 0.01f}}, {"ParamOut"}, 1e-6);
}

// A logarithm's slope overflows next to 0 where its product with the arriving gradient does not.
TEST(ExtremeValues, GradientsOfLogarithms) {
  const Inputs inputs = {{"X", Tensor::Of<float>({3}, {1e-40f, 2e-39f, 3.f})},
                         {"Out@GRAD", Tensor::Of<float>({3}, {1e-20f, -1e-3f, 2.f})}};
  for (const char* type : {"log_grad", "log2_grad", "log10_grad"})
    ExpectRight(type, inputs, {}, {"X@GRAD"}, 1e-4);
  // The quotient overflows where its product with 1 / ln 10 does not.
  ExpectRight("log10_grad",
              {{"X", Tensor::Of<float>({2}, {0.5f, -0.5f})},
               {"Out@GRAD", Tensor::Of<float>({2}, {3e38f, 3e38f})}},
              {}, {"X@GRAD"}, 1e-6);
}

// MidOut overflows where Out and the gradient do not.
TEST(ExtremeValues, LocalResponseNorm) {
  const Inputs inputs = {{"X", Drawn({2, 7, 2, 3}, 1e25, 1)}};
  ExpectRight("lrn", inputs, {}, {"Out"}, 1e-5);
  const Tensor want =
      Differentiate("lrn", {}, InDouble(inputs), "X", "Out", KernelMode::kReference).gradient;
  const Tensor got = Differentiate("lrn", {}, inputs, "X", "Out", KernelMode::kAuto).gradient;
  double largest = 0;
  for (const double x : NumbersOf(want)) largest = std::max(largest, std::abs(x));
  ASSERT_GT(largest, 1e-36);
  for (size_t i = 0; i < NumbersOf(want).size(); ++i)
    EXPECT_NEAR(NumbersOf(got)[i], NumbersOf(want)[i], 1e-5 * largest) << "at " << i;
}

// `rows` rows of 40 numbers: a few large ones first, then as large negative ones, so that partial
// sums of columns overflow a float. The sums are `rest`.
Tensor Cancelling(int64_t rows, float rest) {
  Tensor x = Tensor::Zeros(DType::kFloat32, {rows, 40});
  for (int64_t j = 0; j < 40; ++j) {
    for (int64_t i = 0; i < 6; ++i) x.data<float>()[i * 40 + j] = i < 3 ? 3e38f : -3e38f;
    x.data<float>()[6 * 40 + j] = rest;
  }
  return x;
}

// Sums of gradients of a broadcast operand overflow a float on the way.
TEST(ExtremeValues, SummedGradients) {
  const Tensor dout = Cancelling(9, 1e37f), bias = Drawn({40}, 1, 1), x = Drawn({9, 40}, 1, 2);
  for (const char* type : {"elementwise_add_grad", "elementwise_sub_grad"})
    ExpectRight(type, {{"Y", bias}, {"Out@GRAD", dout}}, {}, {"Y@GRAD"}, 1e-6);
  const Tensor large = Tensor::Full<float>({9, 40}, 1e3f);
  ExpectRight("elementwise_mul_grad",
              {{"X", large}, {"Y", bias}, {"Out@GRAD", Cancelling(9, 1e30f)}}, {}, {"Y@GRAD"},
              1e-6);
  // The sum of products is next to 0, or infinite in a float, before Y divides it.
  for (const float size : {1e-25f, 1e25f}) {
    ExpectRight("elementwise_div_grad",
                {{"X", x},
                 {"Y", Tensor::Full<float>({40}, size)},
                 {"Out", Tensor::Full<float>({9, 40}, size)},
                 {"Out@GRAD", DrawnAround({9, 40}, size, 0.1, 3)}},
                {}, {"Y@GRAD"}, 1e-6);
  }
  ExpectRight("fc_gradients",
              {{"Input", Drawn({9, 3}, 1e-9, 4)}, {"W", Drawn({3, 40}, 1, 5)}, {"Out@GRAD", dout}},
              {}, {"Bias@GRAD"}, 1e-6);
  ExpectRight("layer_norm_grad",
              {{"X", x}, {"Y@GRAD", dout}, {"Scale", Tensor::Full<float>({40}, 1e-3f)}}, {},
              {"Bias@GRAD"}, 1e-6);
}

// The same for embeddings, whose rows are added one by one.
TEST(ExtremeValues, GradientsOfRows) {
  const Tensor ids = Tensor::Of<int64_t>({9}, {2, 2, 2, 2, 2, 2, 2, 0, 4});
  ExpectRight("lookup_table_v2_grad",
              {{"W", Drawn({5, 40}, 1, 1)}, {"Ids", ids}, {"Out@GRAD", Cancelling(9, 1e37f)}}, {},
              {"W@GRAD"}, 1e-6);
}

// Running sums leave the range of a float and come back.
TEST(ExtremeValues, RunningSums) {
  const Tensor x = Tensor::Of<float>({6}, {3e38f, 3e38f, 3e38f, -3e38f, -3e38f, -2.9e38f});
  ProgramDesc program;
  VarValues values = {{"X", x}};
  const SlotList ins = DeclareInputs(program.Root(), {{"X", x}});
  Writer(program.Root(), DefaultOps()).Append("cumsum", ins, {{"Out", {"Out"}}}, {});
  Interpret(program.Root(), DefaultOps(), values, {});
  const std::vector<double> got = NumbersOf(std::get<Tensor>(values.at("Out")));
  EXPECT_TRUE(std::isinf(got[1]) && std::isinf(got[2]) && std::isinf(got[3]));
  EXPECT_NEAR(got[4], 3e38, 1e32);
  EXPECT_NEAR(got[5], 1e37, 1e32);
}

// Terms of a loss overflow, and its sum does not.
TEST(ExtremeValues, Losses) {
  const Tensor x = Tensor::Of<float>({1, 4}, {-1e38f, 5e37f, 0, 1e38f});
  const Tensor soft = Tensor::Of<float>({1, 4}, {3, -8, 1, 2});
  ExpectRight("softmax_with_cross_entropy", {{"Logits", x}, {"Label", soft}},
              {{"soft_label", true}}, {"Loss"}, 1e-5);
  ExpectRight("softmax_with_cross_entropy_grad",
              {{"Softmax", Tensor::Full<float>({1, 4}, 0.25f)},
               {"Label", Tensor::Of<float>({1, 4}, {3e38f, 3e38f, -3e38f, -3e38f})},
               {"Loss@GRAD", Tensor::Full<float>({1, 1}, 0.5f)}},
              {{"soft_label", true}}, {"Logits@GRAD"}, 1e-5);
  ExpectRight("cross_entropy_grad",
              {{"X", Tensor::Full<float>({1, 4}, 1e20f)},
               {"Label", Tensor::Full<float>({1, 4}, 1e25f)},
               {"Y@GRAD", Tensor::Full<float>({1, 1}, 1e20f)}},
              {{"soft_label", true}}, {"X@GRAD"}, 1e-5);
  ExpectRight(
      "hinge_loss",
      {{"Logits", Tensor::Full<float>({3}, 1e-10f)}, {"Labels", Tensor::Full<float>({3}, -2e38f)}},
      {}, {"Loss"}, 1e-5);
  ExpectRight("nll_loss",
              {{"X", Tensor::Full<float>({2, 3}, -1e30f)},
               {"Label", Tensor::Of<int64_t>({2}, {0, 1})},
               {"Weight", Tensor::Full<float>({3}, 1e10f)}},
              {{"reduction", std::string("mean")}}, {"Out"}, 1e-5);
  ExpectRight("data_norm",
              {{"X", Tensor::Full<float>({2, 3}, 2e30f)},
               {"BatchSize", Tensor::Full<float>({3}, 1e20f)},
               {"BatchSum", Tensor::Full<float>({3}, 1e20f)},
               {"BatchSquareSum", Tensor::Full<float>({3}, 1e-25f)}},
              {}, {"Scales"}, 1e-5);
}

// A row's sum overflows a float, and differences with it do.
TEST(ExtremeValues, GradientsOfSoftmax) {
  const Tensor y = Tensor::Full<float>({2, 40}, 1.f / 40);
  Tensor dy = Tensor::Full<float>({2, 40}, 3e38f);
  for (int64_t i = 0; i < 80; i += 2) dy.data<float>()[i] = i < 40 ? -3e38f : 1e38f;
  ExpectRight("softmax_grad", {{"Out", y}, {"Out@GRAD", dy}}, {}, {"X@GRAD"}, 1e-5);
  Tensor some = Tensor::Full<float>({2, 40}, 3e38f);
  for (int64_t i = 0; i < 80; ++i) some.data<float>()[i] = i % 40 < 20 ? 3e38f : -2.9e38f;
  ExpectRight("log_softmax_grad",
              {{"Out", Tensor::Full<float>({2, 40}, std::log(1.f / 40))}, {"Out@GRAD", some}}, {},
              {"X@GRAD"}, 1e-5);
}

// The sum of a window overflows a float where its average does not.
TEST(ExtremeValues, AveragePools) {
  const std::vector<int32_t> three = {3, 3}, one = {1, 1};
  for (const char* layout : {"NCHW", "NHWC"}) {
    SCOPED_TRACE(layout);
    const bool last = std::string(layout) == "NHWC";
    const Shape image = last ? Shape{2, 6, 6, 20} : Shape{2, 20, 6, 6};
    const Tensor x = DrawnAround(image, 2e38, 0.1, 1);
    AttrList attrs = {{"pooling_type", std::string("avg")},
                      {"ksize", three},
                      {"strides", one},
                      {"paddings", one},
                      {"data_format", std::string(layout)}};
    ExpectRight("pool2d", {{"X", x}}, attrs, {"Out"}, 1e-5);
    attrs.push_back({"global_pooling", true});
    ExpectRight("pool2d", {{"X", x}}, attrs, {"Out"}, 1e-5);
  }
  ExpectRight("spp", {{"X", DrawnAround({2, 3, 6, 6}, 2e38, 0.1, 2)}},
              {{"pyramid_height", int32_t{2}}, {"pooling_type", std::string("avg")}}, {"Out"},
              1e-5);
}

// An element gets shares of nine windows, whose sum of eight overflows.
TEST(ExtremeValues, GradientsOfAveragePools) {
  for (const char* layout : {"NCHW", "NHWC"}) {
    SCOPED_TRACE(layout);
    const bool last = std::string(layout) == "NHWC";
    Tensor dout = Tensor::Zeros(DType::kFloat32, {1, 6, 6, 1});
    for (int64_t y = 0; y < 3; ++y)
      for (int64_t x = 0; x < 3; ++x)
        dout.data<float>()[y * 6 + x] = y * x == 4 ? -2.9e38f : 2.9e38f;
    const Shape image = last ? Shape{1, 6, 6, 1} : Shape{1, 1, 6, 6};
    dout = dout.Reshaped(image);
    const Tensor zeros = Tensor::Zeros(DType::kFloat32, image);
    ExpectRight("pool2d_grad", {{"X", zeros}, {"Out", zeros}, {"Out@GRAD", dout}},
                {{"pooling_type", std::string("avg")},
                 {"ksize", std::vector<int32_t>{3, 3}},
                 {"strides", std::vector<int32_t>{1, 1}},
                 {"paddings", std::vector<int32_t>{1, 1}},
                 {"data_format", std::string(layout)}},
                {"X@GRAD"}, 1e-5);
  }
}

// The gradient of the bias of a convolution is the sum over all pixels.
TEST(ExtremeValues, GradientsOfBiases) {
  for (const char* layout : {"NCHW", "NHWC"}) {
    for (const int64_t kernel : {1, 3}) {
      SCOPED_TRACE(testing::Message() << layout << ", kernel " << kernel);
      const bool last = std::string(layout) == "NHWC";
      const Shape out = last ? Shape{2, 8, 8, 16} : Shape{2, 16, 8, 8};
      const Shape in = last ? Shape{2, 8, 8, 16} : Shape{2, 16, 8, 8};
      Tensor dout = Tensor::Zeros(DType::kFloat32, out);
      // The first image's gradients are large, and the second one's too, with the other sign.
      for (int64_t i = 0; i < dout.numel(); ++i)
        dout.data<float>()[i] = i < dout.numel() / 2 ? 2e38f : -2e38f;
      dout.data<float>()[0] = 1e38f;
      const auto pad = static_cast<int32_t>(kernel / 2);
      ExpectRight(
          "conv2d_grad",
          {{"Input", Drawn(in, 1e-30, 1)},
           {"Filter", Drawn({16, 16, kernel, kernel}, 1e-30, 2)},
           {"Bias", Tensor::Zeros(DType::kFloat32, {16})},
           {"Output@GRAD", dout}},
          {{"paddings", std::vector<int32_t>{pad, pad}}, {"data_format", std::string(layout)}},
          {"Bias@GRAD", "Filter@GRAD"}, 1e-4);
    }
  }
}

TEST(ExtremeValues, AffineChannel) {
  ExpectRight("affine_channel",
              {{"X", Tensor::Full<float>({1, 2, 3, 3}, 4e28f)},
               {"Scale", Tensor::Full<float>({2}, 1e10f)},
               {"Bias", Tensor::Full<float>({2}, -3e38f)}},
              {}, {"Out"}, 1e-5);
}

// Fast kernels of float32 do not take elements of 16 bits for floats.
TEST(ExtremeValues, TreesOfHalfFloats) {
  const Tensor x = Drawn({33, 2}, 1, 1).Cast(DType::kFloat16);
  const AttrList attrs = {{"nodes_features", std::vector<int32_t>{0, 1}},
                          {"nodes_modes", std::vector<int32_t>{0, 0}},
                          {"nodes_splits", std::vector<double>{0, 0.5}},
                          {"nodes_true", std::vector<int32_t>{1, -1}},
                          {"nodes_false", std::vector<int32_t>{-1, -2}},
                          {"roots", std::vector<int32_t>{0}},
                          {"leaf_targets", std::vector<int32_t>{0, 1, 0}},
                          {"leaf_weights", std::vector<double>{1, 2, 3}},
                          {"targets", int64_t{2}}};
  ExpectRight("tree_ensemble", {{"X", x}}, attrs, {"Out"}, 0);
}

// Ops that only declare something give no bytes of fresh memory away.
TEST(ExtremeValues, HandlesAreZero) {
  for (const auto& [type, slot] : std::vector<std::pair<std::string, std::string>>{
           {"c_gen_nccl_id", "Out"}, {"ncclInit", "Communicator"}, {"get_places", "Out"}}) {
    const Tensor handle = ValueOf(type, {}, {}, slot);
    EXPECT_TRUE(BitEqual(handle, Tensor::Zeros(handle.dtype(), handle.shape()))) << type;
  }
}

}  // namespace coracle::extreme_values_test
