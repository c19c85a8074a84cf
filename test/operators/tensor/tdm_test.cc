#include <coracle/test/op_test.h>

#include <map>
#include <set>

namespace coracle::tdm_test {

// Node 1 has the children 2 and 3, node 2 the child 4. 3 and 4 are the items 10 and 11.
OpTest Tree(const Shape& shape, const std::vector<int64_t>& x) {
  OpTest test("tdm_child");
  test.Attr("child_nums", 2).IntInput("X", shape, x);
  test.IntInput("TreeInfo", {5, 5},
                {0, 0, 0, 0, 0, 0, 0, 0, 2, 3, 0, 1, 1, 4, 0, 10, 1, 1, 0, 0, 11, 2, 2, 0, 0});
  return test;
}

TEST(TdmChild, Values) {
  Tree({5, 1}, {0, 1, 2, 3, 4})
      .Expect("Child", {5, 1, 2}, {0, 0, 2, 3, 4, 0, 0, 0, 0, 0})
      .Expect("LeafMask", {5, 1, 2}, {0, 0, 0, 1, 1, 0, 0, 0, 0, 0})
      .ExpectDType("Child", DType::kInt32);
  Tree({1}, {1})
      .Attr("dtype", static_cast<int32_t>(DType::kInt64))
      .Expect("Child", {1, 2}, {2, 3})
      .ExpectDType("LeafMask", DType::kInt64);
  Tree({0, 1}, {}).Expect("Child", {0, 1, 2}, {});
}

TEST(TdmChild, Constraints) {
  OpTest("tdm_child")
      .Attr("child_nums", 2)
      .RandomInput("X", {1})
      .IntInput("TreeInfo", {1, 5}, {0, 0, 0, 0, 0})
      .ExpectError("tdm_child.C1");
  OpTest("tdm_child")
      .Attr("child_nums", 3)
      .IntInput("X", {1}, {0})
      .IntInput("TreeInfo", {1, 5}, {0, 0, 0, 0, 0})
      .ExpectError("tdm_child.C2");
  Tree({1}, {1}).Attr("dtype", static_cast<int32_t>(DType::kFloat32)).ExpectError("tdm_child.C3");
  Tree({1, 1, 1, 1, 1, 1, 1, 1, 1}, {1}).ExpectError("tdm_child.C4");
  for (int64_t node : {int64_t{5}, int64_t{-1}, INT64_MAX})
    Tree({1}, {node}).ExpectError("tdm_child: X holds " + std::to_string(node));
  OpTest("tdm_child")
      .Attr("child_nums", 1)
      .IntInput("X", {1}, {1})
      .IntInput("TreeInfo", {2, 4}, {0, 0, 0, 0, 0, 0, 0, 2})
      .ExpectError("tdm_child: TreeInfo holds 2");
}

using Ints = std::vector<int32_t>;

// Layers of the nodes 1 and 2, and 3 to 6. Item 1 is at 3, item 2 at 2, item 0 nowhere.
OpTest Sampler(const Ints& negatives, const std::vector<int64_t>& x) {
  OpTest test("tdm_sampler");
  test.Attr("neg_samples_num_list", negatives).Attr("layer_offset_lod", Ints{0, 2, 6});
  test.IntInput("X", {static_cast<int64_t>(x.size()), 1}, x)
      .IntInput("Travel", {3, 2}, {0, 0, 1, 3, 2, 0})
      .IntInput("Layer", {6, 1}, {1, 2, 3, 4, 5, 6});
  return test;
}

TEST(TdmSampler, Values) {
  OpTest all = Sampler({1, 3}, {1, 0, 2});
  all.Expect("Labels", {3, 6}, {1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0})
      .Expect("Mask", {3, 6}, {1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0})
      .ExpectDType("Out", DType::kInt32);
  const Tensor out = all.Output("Out");
  const auto* nodes = out.data<int32_t>();
  EXPECT_EQ(Ints(nodes, nodes + 3), (Ints{1, 2, 3}));
  EXPECT_EQ(std::set<int32_t>(nodes + 3, nodes + 6), (std::set<int32_t>{4, 5, 6}));
  EXPECT_EQ(Ints(nodes + 6, nodes + 18), (Ints{0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0}));
  Sampler({1, 0}, {2, 1})
      .Attr("output_positive", false)
      .Attr("dtype", static_cast<int32_t>(DType::kInt64))
      .Expect("Out", {2, 1}, {1, 2})
      .Expect("Labels", {2, 1}, {0, 0})
      .ExpectDType("Mask", DType::kInt64);
  Sampler({1, 3}, {}).Expect("Out", {0, 6}, {});
  Sampler({0, 0}, {1}).NoOutput("Labels").Expect("Out", {1, 2}, {1, 3});
}

TEST(TdmSampler, EveryOtherNodeIsAsLikely) {
  const std::vector<int64_t> x(600, 1);
  const Tensor out = Sampler({0, 2}, x).Attr("output_positive", false).Output("Out");
  ASSERT_EQ(out.shape(), Shape({600, 2}));
  std::map<std::pair<int32_t, int32_t>, int> pairs;
  for (int i = 0; i < 600; ++i)
    ++pairs[{out.data<int32_t>()[2 * i], out.data<int32_t>()[2 * i + 1]}];
  EXPECT_EQ(pairs.size(), 6u);
  for (const auto& [pair, count] : pairs) {
    EXPECT_NE(pair.first, pair.second);
    EXPECT_TRUE(std::min(pair.first, pair.second) >= 4 && std::max(pair.first, pair.second) <= 6);
    EXPECT_NEAR(count, 100, 50);
  }
}

TEST(TdmSampler, Seeds) {
  const auto draw = [](int32_t seed, uint64_t program) {
    OpTest test = Sampler({1, 2}, std::vector<int64_t>(50, 1));
    const Tensor out = test.Attr("seed", seed).Seed(program).Output("Out");
    return Ints(out.data<int32_t>(), out.data<int32_t>() + out.numel());
  };
  EXPECT_EQ(draw(5, 1), draw(5, 2));
  EXPECT_NE(draw(5, 1), draw(6, 1));
  EXPECT_NE(draw(0, 1), draw(0, 2));
}

TEST(TdmSampler, Constraints) {
  const auto with = [](const Shape& x, int64_t columns, int64_t nodes, const Ints& negatives,
                       const Ints& offsets) {
    OpTest test("tdm_sampler");
    test.Attr("neg_samples_num_list", negatives).Attr("layer_offset_lod", offsets);
    test.IntInput("X", x, {0})
        .IntInput("Travel", {1, columns}, std::vector<int64_t>(static_cast<size_t>(columns), 7))
        .IntInput("Layer", {nodes, 1}, std::vector<int64_t>(static_cast<size_t>(nodes), 7));
    return test;
  };
  with({1}, 1, 3, {1}, {0, 3}).ExpectError("tdm_sampler.C1");
  with({1, 1}, 2, 3, {1}, {0, 3}).ExpectError("tdm_sampler.C2");
  for (const Ints& offsets : {Ints{}, {0}, {3, 0}, {-1, 3}, {0, 4}})
    with({1, 1}, 1, 3, {1}, offsets).ExpectError("tdm_sampler.C3");
  with({1, 1}, 0, 3, {}, {}).ExpectError("tdm_sampler.C3");
  for (const int32_t negatives : {-1, 3, INT32_MAX})
    with({1, 1}, 1, 3, {negatives}, {0, 3}).ExpectError("tdm_sampler.C4");
  // All nodes of the layer are the item's.
  with({1, 1}, 1, 3, {1}, {0, 3}).ExpectError("tdm_sampler.C4");
  Sampler({0, 0}, {1})
      .Attr("dtype", static_cast<int32_t>(DType::kFloat32))
      .ExpectError("tdm_sampler.C5");
  for (int64_t item : {int64_t{3}, int64_t{-1}})
    Sampler({0, 0}, {item}).ExpectError("tdm_sampler: X holds " + std::to_string(item));
}
}  // namespace coracle::tdm_test
