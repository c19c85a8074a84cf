// Equalisation changes no result, and gives the ranges of its formulas.

#include <coracle/quantize/equalize.h>
#include <coracle/test/quantize/quantize_programs.h>

namespace coracle::equalize_test {

struct Prepared {
  FloatModel model;
  std::vector<QuantLayer> products;
  Calibration calibration;
};

Prepared PreparedOf(const std::string& text, const Shape& input) {
  const TestNet net = NetOf(text);
  Prepared prepared;
  prepared.model = PrepareFloatModel(net.program, net.scope, DefaultOps());
  prepared.products = FindProducts(prepared.model, {});
  prepared.calibration =
      Calibrate(prepared.model, {}, prepared.products, SamplesOf(input), {}, DefaultOps());
  return prepared;
}

// Applies one choice wherever it can act, and returns in how many places that is.
size_t EqualizeAll(const EqualizationChoice& choice, const Prepared& p, FloatModel* model) {
  const EqualizationPlan plan = PlanOf(choice, p.products, p.calibration, *model);
  Equalize(plan, p.products, p.calibration, model);
  return plan.size();
}

void ExpectSameResults(const FloatModel& a, const FloatModel& b, const Shape& input) {
  const Tensor x = Drawn(input, 5);
  const Tensor y = RunOn(a.program, a.parameters, {{"x", x}}, a.fetches)[0];
  const Tensor z = RunOn(b.program, b.parameters, {{"x", x}}, b.fetches)[0];
  EXPECT_GT(RatioOf(y, z), 90);
}

const char* const kConvolutions = R"(
  data  { name: "x" shape: [-1, 3, 8, 8] }
  layer { conv2d { input: "x" num_filters: 6 filter_size: 3 act: "relu" output: "a" } }
  layer { conv2d { input: "a" num_filters: 6 filter_size: 3 groups: 6 act: "relu" output: "b" } }
  layer { conv2d { input: "b" num_filters: 4 filter_size: 1 output: "y" } }
)";

double MagnitudeOf(const Tensor& w, const std::function<bool(int64_t)>& belongs) {
  double magnitude = 0;
  for (int64_t i = 0; i < w.numel(); ++i) {
    if (belongs(i))
      magnitude = std::max(magnitude,
                           std::abs(static_cast<double>(w.span<float>()[static_cast<size_t>(i)])));
  }
  return magnitude;
}

TEST(Equalize, CrossLayerGivesNeighboursEqualRanges) {
  const Prepared p = PreparedOf(kConvolutions, {4, 3, 8, 8});
  FloatModel model = p.model.Copy();
  EXPECT_EQ(EqualizeAll({Equalization::kCrossLayer}, p, &model), 2u);
  ExpectSameResults(p.model, model, {4, 3, 8, 8});
  const Tensor& depthwise = model.parameters.Get(p.products[1].weight[0].name);  // [6, 1, 3, 3]
  const Tensor& last = model.parameters.Get(p.products[2].weight[0].name);       // [4, 6, 1, 1]
  for (int64_t c = 0; c < 6; ++c) {
    const double r1 = MagnitudeOf(depthwise, [&](int64_t i) { return i / 9 == c; });
    const double r2 = MagnitudeOf(last, [&](int64_t i) { return i % 6 == c; });
    EXPECT_NEAR(r1, r2, 0.01 * r1);
  }
}

const char* const kNorm = R"(
  data  { name: "x" shape: [-1, 5, 8] }
  layer { layer_norm { input: "x" begin_norm_axis: 2 output: "n" } }
  layer { fc { input: "n" size: 6 num_flatten_dims: 2 output: "q" } }
  layer { fc { input: "n" size: 7 num_flatten_dims: 2 output: "k" } }
  layer { concat { input: "q" input: "k" axis: 2 output: "y" } }
)";

TEST(Equalize, SmoothDividesByPowersOfBothRanges) {
  const Prepared p = PreparedOf(kNorm, {4, 5, 8});
  ASSERT_EQ(p.products.size(), 2u);
  FloatModel model = p.model.Copy();
  EXPECT_EQ(EqualizeAll({Equalization::kSmooth, 0.75}, p, &model), 1u);
  ExpectSameResults(p.model, model, {4, 5, 8});
  const ChannelValues& data = *ChannelsOf(p.calibration, p.products[0]);
  const std::string &q = p.products[0].weight[0].name, &k = p.products[1].weight[0].name;
  for (int64_t c = 0; c < 8; ++c) {
    const double w =
        std::max(MagnitudeOf(p.model.parameters.Get(q), [&](int64_t i) { return i / 6 == c; }),
                 MagnitudeOf(p.model.parameters.Get(k), [&](int64_t i) { return i / 7 == c; }));
    const double factor =
        std::pow(data.magnitude[static_cast<size_t>(c)], 0.75) / std::pow(w, 0.25);
    const auto i = static_cast<size_t>(c * 6);
    EXPECT_NEAR(model.parameters.Get(q).span<float>()[i],
                static_cast<double>(p.model.parameters.Get(q).span<float>()[i]) * factor, 1e-5);
  }
}

TEST(Equalize, MixesChoices) {
  const Prepared p = PreparedOf(kConvolutions, {4, 3, 8, 8});
  FloatModel model = p.model.Copy();
  EqualizationPlan plan = {{"a", {Equalization::kCrossLayer}}};
  EXPECT_EQ(ToString(plan), "cross_layer");
  plan["b"] = {Equalization::kSmooth, 0.75};
  EXPECT_EQ(ToString(plan), "1 of cross_layer, 1 of smooth 0.75");
  EXPECT_EQ(ToString(EqualizationPlan()), "none");
  Equalize(plan, p.products, p.calibration, &model);
  ExpectSameResults(p.model, model, {4, 3, 8, 8});
  for (size_t i = 0; i < 3; ++i) {
    const std::string& w = p.products[i].weight[0].name;
    EXPECT_NE(model.parameters.Get(w).span<float>()[0], p.model.parameters.Get(w).span<float>()[0]);
  }
}

TEST(Equalize, LeavesActivationsThatOthersRead) {
  const std::string text = std::string(kConvolutions) +
                           R"(layer { sigmoid { input: "a" output: "also" } }
                              layer { reduce_sum { input: "also" output: "sum" } })";
  const Prepared p = PreparedOf(text, {4, 3, 8, 8});
  FloatModel model = p.model.Copy();
  EXPECT_EQ(EqualizeAll({Equalization::kCrossLayer}, p, &model), 1u);
}

}  // namespace coracle::equalize_test
