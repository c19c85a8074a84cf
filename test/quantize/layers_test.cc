// Which ops become layers, and which variables they read as integers.

#include <coracle/quantize/layers.h>
#include <coracle/test/quantize/quantize_programs.h>

namespace coracle::quantize_layers_test {

using Strings = std::vector<std::string>;

FloatModel ModelOf(const std::string& text) {
  const TestNet net = NetOf(text);
  return PrepareFloatModel(net.program, net.scope, DefaultOps());
}

Strings OutputsOf(const std::vector<QuantLayer>& layers) {
  Strings names;
  for (const QuantLayer& layer : layers) names.push_back(layer.output);
  return names;
}

TEST(FindProducts, JoinsBiasAndActivation) {
  const FloatModel model = ModelOf(ResidualNet());
  const std::vector<QuantLayer> products = FindProducts(model, {});
  EXPECT_EQ(OutputsOf(products), (Strings{"a1", "c2", "logits"}));
  EXPECT_EQ(OpCounts(model.program).count("batch_norm"), 0u);
  EXPECT_TRUE(products[0].bias_in_slot);
  EXPECT_EQ(products[0].channels, 8);
  EXPECT_EQ(products[2].ops.size(), 2u);
  EXPECT_FALSE(products[2].bias_in_slot);
  EXPECT_FALSE(products[2].bias.empty());
  EXPECT_EQ(products[2].weight[0].axes.channel, 1);
  EXPECT_FALSE(products[0].is_last);
  EXPECT_FALSE(products[1].is_last);
  EXPECT_TRUE(products[2].is_last);
}

TEST(SelectLayers, ConnectsProductsByIntegers) {
  const FloatModel model = ModelOf(ResidualNet());
  const LayerRules rules;
  const QuantSelection selection = SelectLayers(model, FindProducts(model, rules), rules);
  EXPECT_EQ(OutputsOf(selection.layers), (Strings{"a1", "c2", "a2", "p2", "logits"}));
  Strings names;
  for (const auto& [name, range] : selection.range_of) names.push_back(name);
  EXPECT_EQ(names, (Strings{"a1", "a2", "c2", "p1", "p2", "x"}));
  EXPECT_EQ(selection.range_of.at("p1"), "a1");  // the pool moves its values
  EXPECT_EQ(selection.range_of.at("p2"), "p2");
}

TEST(SelectLayers, LeavesASummandToTheConvolution) {
  const FloatModel model = ModelOf(ResidualNet());
  LayerRules rules;
  rules.with_sums = false;
  const QuantSelection selection = SelectLayers(model, FindProducts(model, rules), rules);
  EXPECT_EQ(selection.range_of.count("c2"), 0u);
  EXPECT_EQ(selection.range_of.count("p1"), 1u);
}

TEST(SelectLayers, ConnectsNothingThatStaysInFloat) {
  const FloatModel model = ModelOf(ResidualNet());
  const LayerRules rules;
  std::vector<QuantLayer> products = FindProducts(model, rules);
  products.pop_back();  // the classifier
  const QuantSelection selection = SelectLayers(model, products, rules);
  EXPECT_EQ(OutputsOf(selection.layers), (Strings{"a1", "c2"}));
  EXPECT_EQ(selection.range_of.count("a2"), 0u);
}

TEST(FindProducts, SkipsProductsOfActivations) {
  const std::string text = R"(
    data  { name: "x" shape: [-1, 4, 6] }
    layer { matmul { x: "x" y: "x" transpose_y: true output: "scores" } }
    layer { softmax { input: "scores" output: "p" } }
    layer { matmul { x: "p" y: "x" output: "y" } }
    layer { fc { input: "y" size: 3 num_flatten_dims: 2 output: "z" } }
  )";
  const FloatModel model = ModelOf(text);
  EXPECT_EQ(OutputsOf(FindProducts(model, {})), Strings{"z"});
  LayerRules rules;
  rules.without_weight = true;
  EXPECT_EQ(OutputsOf(FindProducts(model, rules)), (Strings{"scores", "y", "z"}));
}

TEST(PrepareFloatModel, RefusesWhatIsNoFloatInference) {
  TestNet net = NetOf(ResidualNet());
  ProgramDesc quantised = net.program;
  quantised.Root().AppendOp("fake_quantize_abs_max", {{"X", {"x"}}},
                            {{"Out", {"q"}}, {"OutScale", {"t"}}});
  EXPECT_EQ(ErrorOf([&] { PrepareFloatModel(quantised, net.scope, DefaultOps()); }),
            "the program is quantised already: it has the op 'fake_quantize_abs_max', which "
            "writes 'q'");
  ProgramDesc trains = net.program;
  trains.Root().op(0).SetAttr("op_role", int32_t{kBackward});
  EXPECT_TRUE(ErrorOf([&] {
                PrepareFloatModel(trains, net.scope, DefaultOps());
              }).starts_with("the program trains"));
}

}  // namespace coracle::quantize_layers_test
