// Inputs of nodes that are known only when the program runs: shapes, axes, sizes, bounds. Each case
// is a node whose inputs are all fed, with dims that the model does not declare, and its result by
// the operator's definition.
#include <coracle/test/convert/one_node.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace coracle::onnx::onnx_late_values_test {

// Feeds all of `inputs`; the model declares the dims of those that `declared` lists.
OneNode Late(const std::string& op_type, int64_t opset,
             const std::vector<std::optional<Tensor>>& inputs,
             const std::vector<int>& declared = {}) {
  OneNode node(op_type, opset, inputs);
  int at = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i]) continue;
    const bool open =
        std::find(declared.begin(), declared.end(), static_cast<int>(i)) == declared.end();
    node.Feed(at++, open);
  }
  return node;
}

Tensor B(bool value) { return Tensor::Full<bool>({1}, value); }

Tensor Row(const Numbers& values) { return F({static_cast<int64_t>(values.size())}, values); }

void Expect(OneNode node, const Shape& shape, const Numbers& values) {
  const Tensor result = node.Result();
  EXPECT_EQ(result.shape(), shape);
  ExpectNear(node.Run(), values);
}

const Tensor kSix = F({2, 3}, {1, 2, 3, 4, 5, 6});

TEST(OnnxLateValues, Reshape) {
  Expect(Late("Reshape", 14, {kSix, I({3, -1})}, {1}), {3, 2}, {1, 2, 3, 4, 5, 6});
  Expect(Late("Reshape", 14, {kSix, I({0, 3, 1})}, {1}), {2, 3, 1}, {1, 2, 3, 4, 5, 6});
  Expect(Late("Reshape", 14, {kSix, I({3, -1})}, {1}).Set("allowzero", int64_t{1}), {3, 2},
         {1, 2, 3, 4, 5, 6});
  const Tensor none = F({4, 0}, {});
  Expect(Late("Reshape", 14, {none, I({0, 3})}, {1}).Set("allowzero", int64_t{1}), {0, 3}, {});
  // With elements, a dimension of 0 is an error, not a copy.
  EXPECT_NE(Late("Reshape", 14, {kSix, I({0, 3})}, {1}).Set("allowzero", int64_t{1}).Refusal(), "");
  EXPECT_NE(Late("Reshape", 14, {none, I({0, -1})}, {1}).Set("allowzero", int64_t{1}).Refusal(),
            "");
}

TEST(OnnxLateValues, KnownShapeOfAnInputThatIsNot) {
  OneNode node("Reshape", 14, {F({2, 0}, {}), I({0, 5})});
  node.Set("allowzero", int64_t{1}).Feed(0, true);
  EXPECT_EQ(node.Result().shape(), Shape({0, 5}));
}

TEST(OnnxLateValues, SqueezeAndUnsqueeze) {
  const Tensor x = F({1, 2, 1, 3}, {1, 2, 3, 4, 5, 6});
  Expect(Late("Squeeze", 13, {x, I({2})}, {1}), {1, 2, 3}, {1, 2, 3, 4, 5, 6});
  Expect(Late("Squeeze", 13, {x, I({-2, 0})}, {1}), {2, 3}, {1, 2, 3, 4, 5, 6});
  Expect(Late("Squeeze", 13, {F({1, 1}, {7}), I({1, 0})}, {1}), {1}, {7});
  Expect(Late("Unsqueeze", 13, {kSix, I({-1})}, {1}), {2, 3, 1}, {1, 2, 3, 4, 5, 6});
  Expect(Late("Unsqueeze", 13, {kSix, I({3, 0})}, {1}), {1, 2, 3, 1}, {1, 2, 3, 4, 5, 6});
  EXPECT_NE(Late("Squeeze", 13, {x, I({1})}, {1}).Refusal(), "");
}

TEST(OnnxLateValues, Slice) {
  const Tensor x = Row({0, 1, 2, 3, 4, 5});
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  // The number of bounds is not known either.
  Expect(Late("Slice", 13, {x, I({1}), I({4})}), {3}, {1, 2, 3});
  Expect(Late("Slice", 13, {x, I({-3}), I({kMost}), I({-1})}), {3}, {3, 4, 5});
  Expect(Late("Slice", 13, {x, I({0}), I({kMost}), I({0}), I({2})}), {3}, {0, 2, 4});
  Expect(Late("Slice", 13, {x, I({kMost}), I({-kMost - 1}), I({0}), I({-2})}), {3}, {5, 3, 1});
  // From the end to the last element: nothing.
  Expect(Late("Slice", 13, {x, I({5}), I({-1}), I({0}), I({-1})}), {0}, {});
  // A start before all elements is element 0 (the spec of Slice).
  Expect(Late("Slice", 13, {x, I({-9}), I({-10}), I({0}), I({-1})}), {1}, {0});
  Expect(Late("Slice", 13, {kSix, I({1, 0}), I({3, 1}), I({1, 0})}, {1, 2, 3}), {1, 2}, {2, 3});
}

TEST(OnnxLateValues, Split) {
  const auto parts = [](OneNode node) {
    std::vector<Numbers> all;
    for (const Tensor& part : node.Results()) {
      const auto values = part.span<float>();
      all.push_back({values.begin(), values.end()});
    }
    return all;
  };
  const Tensor x = Row({1, 2, 3, 4, 5});
  EXPECT_EQ(parts(Late("Split", 13, {x, I({1, 4})}, {1}).Outputs(2)),
            (std::vector<Numbers>{{1}, {2, 3, 4, 5}}));
  EXPECT_NE(Late("Split", 13, {x, I({1, 3})}, {1}).Outputs(2).Refusal(), "");
  // The last part is smaller, or empty.
  const auto equal = [&](const Tensor& all) {
    OneNode node = Late("Split", 18, {all});
    node.Outputs(3).Set("num_outputs", int64_t{3});
    return parts(node);
  };
  EXPECT_EQ(equal(x), (std::vector<Numbers>{{1, 2}, {3, 4}, {5}}));
  EXPECT_EQ(equal(Row({1, 2, 3, 4})), (std::vector<Numbers>{{1, 2}, {3, 4}, {}}));
}

TEST(OnnxLateValues, PadByEveryMode) {
  const Tensor x = Row({1, 2, 3});
  const auto pad = [&](const char* mode, const Integers& pads) {
    return Late("Pad", 18, {x, I(pads), kAbsent, kAbsent}, {1}).Set("mode", std::string(mode));
  };
  Expect(pad("constant", {2, 1}), {6}, {0, 0, 1, 2, 3, 0});
  Expect(pad("constant", {-1, 1}), {3}, {2, 3, 0});
  Expect(pad("reflect", {2, 1}), {6}, {3, 2, 1, 2, 3, 2});
  Expect(pad("reflect", {5, 0}), {8}, {2, 1, 2, 3, 2, 1, 2, 3});
  Expect(pad("edge", {1, 2}), {6}, {1, 1, 2, 3, 3, 3});
  Expect(pad("wrap", {1, 2}), {6}, {3, 1, 2, 3, 1, 2});
  Expect(pad("edge", {-1, -1}), {1}, {2});
  EXPECT_NE(
      Late("Pad", 18, {F({0}, {}), I({1, 0})}, {1}).Set("mode", std::string("edge")).Refusal(), "");
}

TEST(OnnxLateValues, PadAxesAndValue) {
  Expect(Late("Pad", 18, {kSix, I({1, 0}), F({}, {9}), I({-1})}), {2, 4}, {9, 1, 2, 3, 9, 4, 5, 6});
  const float most = std::numeric_limits<float>::infinity();
  Expect(Late("Pad", 13, {F({1, 2}, {1, 2}), I({0, 0, 1, 0}), F({}, {most})}, {1}), {2, 2},
         {1, 2, most, most});
  Expect(Late("Pad", 13, {F({0, 2}, {}), I({1, 0, 0, 0}), F({}, {5})}, {1}), {1, 2}, {5, 5});
  // Known paddings of a dim that is not known.
  OneNode node("Pad", 13, {Row({1, 2, 3}), I({2, 2})});
  node.Set("mode", std::string("reflect")).Feed(0, true);
  Expect(node, {7}, {3, 2, 1, 2, 3, 2, 1});
}

TEST(OnnxLateValues, OneHotAndHardmax) {
  const Tensor ends = Row({-1, 5});
  Expect(Late("OneHot", 11, {I({2, -1, 7}), I({3}), ends}, {1}), {3, 3},
         {-1, -1, 5, -1, -1, 5, -1, -1, -1});
  Expect(Late("OneHot", 11, {I({0, 1}), F({}, {2}), ends}, {1}).Set("axis", int64_t{0}), {2, 2},
         {5, -1, -1, 5});
  Expect(Late("Hardmax", 13, {F({2, 3}, {1, 3, 3, 2, 0, 1})}), {2, 3}, {0, 1, 0, 1, 0, 0});
}

TEST(OnnxLateValues, Gather) {
  const Tensor index = Tensor::Of<int64_t>({2, 2}, {0, 2, -1, 1});
  Expect(Late("Gather", 13, {Row({5, 6, 7}), index}), {2, 2}, {5, 7, 7, 6});
  Expect(Late("Gather", 13, {kSix, index}).Set("axis", int64_t{1}), {2, 2, 2},
         {1, 3, 3, 2, 4, 6, 6, 5});
  const Tensor none = Tensor::Of<int64_t>({2, 0}, {});
  Expect(Late("Gather", 13, {Row({5, 6, 7}), none}), {2, 0}, {});
}

TEST(OnnxLateValues, GatherElementsAndND) {
  Expect(Late("GatherElements", 13, {kSix, Tensor::Of<int64_t>({1, 3}, {1, 0, -1})}), {1, 3},
         {4, 2, 6});
  Expect(Late("GatherElements", 13, {kSix, Tensor::Of<int64_t>({2, 2}, {2, 0, -1, 1})})
             .Set("axis", int64_t{1}),
         {2, 2}, {3, 1, 6, 5});
  // The last dim of the indices must be known.
  OneNode node("GatherND", 13, {kSix, Tensor::Of<int64_t>({2, 1}, {2, 0})});
  node.Set("batch_dims", int64_t{1}).Feed(0, true).Feed(1);
  Expect(node, {2}, {3, 4});
  EXPECT_NE(
      Late("GatherND", 13, {kSix, Tensor::Of<int64_t>({2, 1}, {1, 0})}).Refusal().find("--shape"),
      std::string::npos);
}

TEST(OnnxLateValues, ReverseSequence) {
  Expect(Late("ReverseSequence", 10, {F({3, 2}, {1, 2, 3, 4, 5, 6}), I({3, 2})}), {3, 2},
         {5, 4, 3, 2, 1, 6});
}

TEST(OnnxLateValues, Scatter) {
  const Tensor at = Tensor::Of<int64_t>({1, 2}, {1, -2});
  const auto elements = [&](const char* reduction) {
    return Late("ScatterElements", 18, {kSix, at, F({1, 2}, {7, 8})})
        .Set("reduction", std::string(reduction));
  };
  Expect(elements("none"), {2, 3}, {1, 8, 3, 7, 5, 6});
  Expect(elements("add"), {2, 3}, {1, 10, 3, 11, 5, 6});
  Expect(elements("mul"), {2, 3}, {1, 16, 3, 28, 5, 6});
  Expect(elements("max"), {2, 3}, {1, 8, 3, 7, 5, 6});
  Expect(elements("min"), {2, 3}, {1, 2, 3, 4, 5, 6});
  const auto slices = [&](const char* reduction) {
    OneNode node("ScatterND", 18,
                 {kSix, Tensor::Of<int64_t>({2, 1}, {-1, 1}), F({2, 3}, {1, 1, 1, 2, 9, 2})});
    node.Set("reduction", std::string(reduction)).Feed(0, true).Feed(1).Feed(2, true);
    return node;
  };
  Expect(slices("add"), {2, 3}, {1, 2, 3, 7, 15, 9});
  Expect(slices("max"), {2, 3}, {1, 2, 3, 4, 9, 6});
  Expect(slices("mul"), {2, 3}, {1, 2, 3, 8, 45, 12});
  // No updates at all.
  Expect(Late("ScatterElements", 18, {kSix, Tensor::Of<int64_t>({0, 3}, {}), F({0, 3}, {})})
             .Set("reduction", std::string("max")),
         {2, 3}, {1, 2, 3, 4, 5, 6});
}

// An index outside of its axis is in another row of the flat data.
TEST(OnnxLateValues, ScatterOutsideOfAnAxis) {
  const auto elements = [&](int64_t index, bool open) {
    OneNode node("ScatterElements", 18,
                 {kSix, Tensor::Of<int64_t>({1, 1}, {index}), F({1, 1}, {9})});
    return node.Set("axis", int64_t{1}).Feed(0, open).Feed(1, open).Feed(2, open);
  };
  const auto slices = [&](const Integers& index, const char* reduction, bool open) {
    const auto depth = static_cast<int64_t>(index.size());
    const Tensor updates = depth == 1 ? F({1, 3}, {9, 9, 9}) : F({1}, {9});
    OneNode node("ScatterND", 18, {kSix, Tensor::Of<int64_t>({1, depth}, index), updates});
    return node.Set("reduction", std::string(reduction)).Feed(0, open).Feed(1).Feed(2, open);
  };
  for (const bool open : {false, true}) {
    Expect(elements(2, open), {2, 3}, {1, 2, 9, 4, 5, 6});
    Expect(elements(-3, open), {2, 3}, {9, 2, 3, 4, 5, 6});
    for (const int64_t index : {3, 5, -4}) {
      const std::string why = elements(index, open).Refusal();
      EXPECT_NE(why.find("outside [0, 3)"), std::string::npos) << index << ": " << why;
    }
    for (const char* reduction : {"none", "add", "mul", "max"}) {
      EXPECT_EQ(slices({1, 2}, reduction, open).Refusal(), "");
      EXPECT_EQ(slices({-2, -3}, reduction, open).Refusal(), "");
      for (const Integers& index : {Integers{0, 3}, {1, -4}, {-3, 5}, {2, -3}, {2}, {-3}})
        EXPECT_NE(slices(index, reduction, open).Refusal(), "") << reduction;
    }
    Expect(slices({-1, 1}, "none", open), {2, 3}, {1, 2, 3, 4, 9, 6});
  }
  // Indices that are longer than the data along another axis.
  const Tensor two = Tensor::Of<int64_t>({2, 1}, {0, 0});
  EXPECT_NE(Late("ScatterElements", 18, {F({1, 3}, {1, 2, 3}), two, F({2, 1}, {7, 8})})
                .Set("axis", int64_t{1})
                .Refusal(),
            "");
}

TEST(OnnxLateValues, PadThatRemovesTooMuch) {
  const auto pad = [](const Numbers& x, const Integers& pads) {
    return Late("Pad", 13, {Row(x), I(pads)}, {1});
  };
  const auto known = [](const Numbers& x, const Integers& pads) {
    return OneNode("Pad", 13, {Row(x), I(pads)}).Feed(0, true);
  };
  for (const auto& node : {+pad, +known}) {
    Expect(node({1, 2}, {-2, 3}), {3}, {0, 0, 0});
    Expect(node({1, 2}, {3, -2}), {3}, {0, 0, 0});
    Expect(node({1, 2, 3}, {-1, -1}), {1}, {2});
    Expect(node({1, 2}, {-1, -1}), {0}, {});
    EXPECT_NE(node({1}, {-2, 3}).Refusal(), "");
    EXPECT_NE(node({1}, {3, -2}).Refusal(), "");
    EXPECT_NE(node({1}, {-1, -1}).Refusal(), "");
  }
}

// Scans two inputs of these lengths, which the model declares unless they are `open`. Returns the
// shape of the result, or the first line of the error.
std::string ScanOf(int64_t first, int64_t second, bool open) {
  proto::onnx::ModelProto model;
  model.add_opset_import()->set_version(13);
  auto& graph = *model.mutable_graph();
  auto& node = *graph.add_node();
  node.set_op_type("Scan");
  const auto input = [](proto::onnx::GraphProto * to, const char* name) -> auto& {
    auto& info = *to->add_input();
    info.set_name(name);
    auto& type = *info.mutable_type()->mutable_tensor_type();
    type.set_elem_type(ToDataType(DType::kFloat32));
    return *type.mutable_shape();
  };
  std::map<std::string, Tensor> fed;
  for (const auto& [name, length] : {std::pair{"x0", first}, std::pair{"x1", second}}) {
    auto& dim = *input(&graph, name).add_dim();
    open ? dim.set_dim_param(name) : dim.set_dim_value(length);
    node.add_input(name);
    fed[name] = Tensor::Full<float>({length}, 1);
  }
  node.add_output("y");
  graph.add_output()->set_name("y");
  auto& count = *node.add_attribute();
  count.set_name("num_scan_inputs");
  count.set_type(proto::onnx::AttributeProto::INT);
  count.set_i(2);
  auto& body = *node.add_attribute();
  body.set_name("body");
  body.set_type(proto::onnx::AttributeProto::GRAPH);
  for (const char* name : {"a", "b"}) input(body.mutable_g(), name);
  auto& sum = *body.mutable_g()->add_node();
  sum.set_op_type("Add");
  sum.add_input("a");
  sum.add_input("b");
  sum.add_output("s");
  body.mutable_g()->add_output()->set_name("s");
  try {
    Scope scope;
    const InferenceModel read = ParseOnnx(model.SerializeAsString(), "m.onnx", scope);
    PreparedProgram prepared = Executor().Prepare(read.program);
    std::vector<Tensor> feeds;
    for (const std::string& name : prepared.feed_names()) feeds.push_back(fed.at(name));
    return prepared.Run(scope, feeds).at(0).shape().ToString();
  } catch (const Error& e) {
    return e.message().substr(0, e.message().find('\n'));
  }
}

TEST(OnnxLateValues, ScanOfInputsOfOneLength) {
  for (const bool open : {false, true}) {
    EXPECT_EQ(ScanOf(3, 3, open), Shape({3}).ToString());
    for (const auto& [first, second] : {std::pair{2, 3}, std::pair{3, 2}, std::pair{1, 4}}) {
      const std::string why = ScanOf(first, second, open);
      const char* part = open ? "must have the number of elements" : "the inputs to scan have";
      EXPECT_NE(why.find(part), std::string::npos) << why;
    }
  }
}

TEST(OnnxLateValues, CumSum) {
  Expect(Late("CumSum", 14, {kSix, I({1})}, {1}), {2, 3}, {1, 3, 6, 4, 9, 15});
  Expect(Late("CumSum", 14, {kSix, I({-2})}, {1}), {2, 3}, {1, 2, 3, 5, 7, 9});
  Expect(Late("CumSum", 14, {kSix, I({1})}, {1})
             .Set("exclusive", int64_t{1})
             .Set("reverse", int64_t{1}),
         {2, 3}, {5, 3, 0, 11, 6, 0});
  EXPECT_NE(Late("CumSum", 14, {kSix, I({2})}, {1}).Refusal().find("[cumsum.C1]"),
            std::string::npos);
}

TEST(OnnxLateValues, TriluAndEyeLike) {
  const Tensor x = F({3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  Expect(Late("Trilu", 14, {x, I({1})}, {1}), {3, 3}, {0, 2, 3, 0, 0, 6, 0, 0, 0});
  Expect(Late("Trilu", 14, {x, I({-1})}, {1}).Set("upper", int64_t{0}), {3, 3},
         {0, 0, 0, 4, 0, 0, 7, 8, 0});
  Expect(Late("EyeLike", 9, {kSix}).Set("k", int64_t{1}), {2, 3}, {0, 1, 0, 0, 0, 1});
}

TEST(OnnxLateValues, ResizeToSizes) {
  const Tensor x = F({1, 1, 2, 2}, {1, 2, 3, 4});
  const auto sizes = [&](const Integers& wanted, const char* mode, const char* place) {
    return Late("Resize", 18, {x, kAbsent, kAbsent, I(wanted)}, {3})
        .Set("mode", std::string(mode))
        .Set("coordinate_transformation_mode", std::string(place));
  };
  Expect(sizes({1, 1, 2, 4}, "linear", "half_pixel"), {1, 1, 2, 4},
         {1, 1.25, 1.75, 2, 3, 3.25, 3.75, 4});
  Expect(sizes({1, 1, 3, 3}, "linear", "align_corners"), {1, 1, 3, 3},
         {1, 1.5, 2, 2, 2.5, 3, 3, 3.5, 4});
  Expect(sizes({1, 1, 1, 1}, "linear", "half_pixel"), {1, 1, 1, 1}, {2.5});
  Expect(sizes({1, 1, 4, 2}, "nearest", "asymmetric").Set("nearest_mode", std::string("floor")),
         {1, 1, 4, 2}, {1, 2, 1, 2, 3, 4, 3, 4});
  // not_larger: 2 of {4, 6} and 2 of {2, 2} allow a factor of 1 for both.
  Expect(Late("Resize", 18, {x, kAbsent, kAbsent, I({2, 6})}, {3})
             .Set("axes", Integers{2, 3})
             .Set("keep_aspect_ratio_policy", std::string("not_larger")),
         {1, 1, 2, 2}, {1, 2, 3, 4});
}

TEST(OnnxLateValues, ResizeByScales) {
  const Tensor x = F({1, 1, 1, 4}, {1, 2, 3, 4});
  Expect(Late("Resize", 13, {x, kAbsent, F({4}, {1, 1, 1, 0.5})}, {2})
             .Set("mode", std::string("linear")),
         {1, 1, 1, 2}, {1.5, 3.5});
  // The first Resize takes the next element above where it shortens an axis.
  Expect(Late("Resize", 10, {x, F({4}, {1, 1, 1, 0.6f})}, {1}), {1, 1, 1, 2}, {1, 3});
  Expect(Late("Upsample", 9, {x, F({4}, {1, 1, 2, 1})}, {1}), {1, 1, 2, 4},
         {1, 2, 3, 4, 1, 2, 3, 4});
}

TEST(OnnxLateValues, ResizeOfOpenDims) {
  OneNode node("Resize", 13, {F({1, 1, 2, 2}, {1, 2, 3, 4}), kAbsent, F({4}, {1, 1, 1, 3})});
  node.Set("coordinate_transformation_mode", std::string("align_corners"))
      .Set("nearest_mode", std::string("floor"))
      .Feed(0, true);
  // Positions k / 5.
  Expect(node, {1, 1, 2, 6}, {1, 1, 1, 1, 1, 2, 3, 3, 3, 3, 3, 4});
}

// Boxes 0 and 1 overlap by 0.6 (heights 0 to 1 and 0.25 to 1.25), box 2 with neither.
TEST(OnnxLateValues, NonMaxSuppression) {
  const Tensor boxes = F({1, 3, 4}, {0, 0, 1, 1, 0.25f, 0, 1.25f, 1, 5, 5, 6, 6});
  const Tensor scores = F({1, 1, 3}, {0.9f, 0.8f, 0.3f});
  const auto nms = [&](int64_t most, float iou, float score) {
    return Late("NonMaxSuppression", 11, {boxes, scores, I({most}), F({1}, {iou}), F({1}, {score})},
                {2, 3, 4});
  };
  Expect(nms(5, 0.5f, 0), {2, 3}, {0, 0, 0, 0, 0, 2});
  Expect(nms(5, 0.7f, 0), {3, 3}, {0, 0, 0, 0, 0, 1, 0, 0, 2});
  Expect(nms(5, 0.7f, 0.5f), {2, 3}, {0, 0, 0, 0, 0, 1});
  Expect(nms(1, 0.7f, 0), {1, 3}, {0, 0, 0});
  Expect(nms(0, 0.7f, 0), {0, 3}, {});
}

TEST(OnnxLateValues, RecurrentStates) {
  // h = tanh(x w + h0 r): an RNN of one cell whose initial state comes from a late shape.
  OneNode node("RNN", 14,
               {F({1, 2, 1}, {1, 2}), F({1, 1, 1}, {0.5f}), F({1, 1, 1}, {1}), kAbsent, kAbsent,
                F({1, 2, 1}, {0.25f, -0.5f})});
  node.Set("hidden_size", int64_t{1}).Outputs(2);
  for (int i = 0; i < 4; ++i) node.Feed(i, true);
  const Tensor last = node.Results()[1];
  EXPECT_NEAR(last.data<float>()[0], std::tanh(0.75f), 1e-6f);
  EXPECT_NEAR(last.data<float>()[1], std::tanh(0.5f), 1e-6f);
}

TEST(OnnxLateValues, DropoutByMode) {
  const auto dropout = [&](float ratio, bool training) {
    return Late("Dropout", 13, {kSix, F({1}, {ratio}), B(training)}, {1, 2});
  };
  Expect(dropout(0.9f, false), {2, 3}, {1, 2, 3, 4, 5, 6});
  Expect(dropout(0, true), {2, 3}, {1, 2, 3, 4, 5, 6});
  Expect(dropout(1, true), {2, 3}, {0, 0, 0, 0, 0, 0});
}

TEST(OnnxLateValues, BlocksOfOpenImages) {
  // Two blocks of four channels: element i of a channel's image is channel 4 k + i.
  const Tensor x = F({1, 4, 1, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  Expect(Late("DepthToSpace", 13, {x}).Set("blocksize", int64_t{2}), {1, 1, 2, 4},
         {1, 3, 2, 4, 5, 7, 6, 8});
  Expect(Late("SpaceToDepth", 13, {F({1, 1, 2, 4}, {1, 3, 2, 4, 5, 7, 6, 8})})
             .Set("blocksize", int64_t{2}),
         {1, 4, 1, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
}

TEST(OnnxLateValues, CeilModeOfOpenDims) {
  // Windows of 2 with a stride of 3 and a padding of 1 begin at -1, 2 and 5; the last one is
  // outside of 5 elements, and not of 6.
  const auto pool = [](const Numbers& x) {
    OneNode node("MaxPool", 12, {F({1, 1, static_cast<int64_t>(x.size())}, x)});
    node.Set("kernel_shape", Integers{2})
        .Set("strides", Integers{3})
        .Set("pads", Integers{1, 1})
        .Set("ceil_mode", int64_t{1})
        .Feed(0, true);
    return node.Run();
  };
  EXPECT_EQ(pool({1, 2, 3, 4, 5}), (Numbers{1, 4}));
  EXPECT_EQ(pool({1, 2, 3, 4, 5, 6}), (Numbers{1, 4, 6}));
}

}  // namespace coracle::onnx::onnx_late_values_test
