#include <coracle/framework/tensor/rng.h>
#include <coracle/test/op_test.h>

#include <cmath>
#include <limits>

namespace coracle::tree_ensemble_test {

using Ints = std::vector<int32_t>;
using Doubles = std::vector<double>;

// Trees under construction. Children are those of the op: nodes, and leaves as -1 - leaf.
struct Trees {
  Ints features, modes, yes, no, missing, roots, member_counts, leaf_counts, leaf_targets;
  Doubles splits, members, leaf_weights, base_values;
  int64_t targets = 1;
  std::string aggregate = "sum";

  int32_t Leaf(double weight, int32_t target = 0) {
    leaf_targets.push_back(target);
    leaf_weights.push_back(weight);
    return -static_cast<int32_t>(leaf_weights.size());
  }
  int32_t Node(int32_t feature, int32_t mode, double split, int32_t on_true, int32_t on_false,
               bool missing_true = false) {
    features.push_back(feature);
    modes.push_back(mode);
    splits.push_back(split);
    yes.push_back(on_true);
    no.push_back(on_false);
    missing.push_back(missing_true);
    return static_cast<int32_t>(features.size()) - 1;
  }
  OpTest Op() const {
    OpTest op("tree_ensemble");
    op.Attr("nodes_features", features)
        .Attr("nodes_modes", modes)
        .Attr("nodes_splits", splits)
        .Attr("nodes_true", yes)
        .Attr("nodes_false", no)
        .Attr("nodes_missing_true", missing)
        .Attr("roots", roots)
        .Attr("member_counts", member_counts)
        .Attr("members", members)
        .Attr("leaf_counts", leaf_counts)
        .Attr("leaf_targets", leaf_targets)
        .Attr("leaf_weights", leaf_weights)
        .Attr("base_values", base_values)
        .Attr("targets", targets)
        .Attr("aggregate", aggregate);
    return op;
  }
};

// One node of each mode, all with the split 1 (the set {1, 3}); a true comparison gives 1, a false
// one 2.
Trees OneNode(int32_t mode, bool missing_true) {
  Trees trees;
  const int32_t yes = trees.Leaf(1), no = trees.Leaf(2);
  trees.roots = {trees.Node(0, mode, mode == 6 ? 0 : 1, yes, no, missing_true)};
  if (mode == 6) {
    trees.member_counts = {2};
    trees.members = {3, 1};
  }
  return trees;
}

TEST(TreeEnsemble, Modes) {
  const double nan = std::nan("");
  const Doubles x = {0, 1, 2, 3, -INFINITY, INFINITY, nan};
  const Doubles wanted[7] = {{1, 1, 2, 2, 1, 2, 2}, {1, 2, 2, 2, 1, 2, 2}, {2, 1, 1, 1, 2, 1, 2},
                             {2, 2, 1, 1, 2, 1, 2}, {2, 1, 2, 2, 2, 2, 2}, {1, 2, 1, 1, 1, 1, 1},
                             {2, 1, 2, 1, 2, 2, 2}};
  for (int32_t mode = 0; mode < 7; ++mode) {
    for (bool missing_true : {false, true}) {
      Doubles results = wanted[mode];
      if (missing_true) results[6] = 1;
      OneNode(mode, missing_true).Op().Input("X", {7, 1}, x).Expect("Out", {7, 1}, results);
    }
  }
}

// A split between two floats: the next smaller float is not above it.
TEST(TreeEnsemble, SplitsOfDouble) {
  const float below = 0.1f, next = std::nextafter(0.1f, 1.f);
  const double between = (static_cast<double>(below) + static_cast<double>(next)) / 2;
  for (int32_t mode : {0, 1, 2, 3}) {
    Trees trees;
    const int32_t yes = trees.Leaf(1), no = trees.Leaf(2);
    trees.roots = {trees.Node(0, mode, between, yes, no)};
    const double low = mode < 2 ? 1 : 2;
    for (KernelMode kernel : {KernelMode::kReference, KernelMode::kAuto}) {
      OpTest op = trees.Op();
      op.TensorInput("X", Tensor::Of<float>({2, 1}, {below, next}));
      const Tensor out = op.Output("Out", kernel);
      EXPECT_EQ(out.data<float>()[0], low);
      EXPECT_EQ(out.data<float>()[1], 3 - low);
    }
  }
  for (double huge : {1e300, -1e300}) {
    Trees trees;
    const int32_t yes = trees.Leaf(1), no = trees.Leaf(2);
    trees.roots = {trees.Node(0, 0, huge, yes, no)};
    const double finite = huge > 0 ? 1 : 2;
    trees.Op().Input("X", {3, 1}, {0, INFINITY, -INFINITY}).Expect("Out", {3, 1}, {finite, 2, 1});
  }
}

// Two trees vote for three targets, of which the last gets no vote.
Trees Voters() {
  Trees trees;
  trees.targets = 3;
  const int32_t a = trees.Leaf(1, 0), b = trees.Leaf(5, 1), c = trees.Leaf(-3, 0);
  trees.roots = {trees.Node(0, 0, 0, a, b), c};
  return trees;
}

TEST(TreeEnsemble, Aggregates) {
  const std::vector<std::pair<std::string, Doubles>> wanted = {
      {"sum", {-2, 0, 0, -3, 5, 0}},
      {"average", {-1, 0, 0, -1.5, 2.5, 0}},
      {"min", {-3, 0, 0, -3, 5, 0}},
      {"max", {1, 0, 0, -3, 5, 0}}};
  for (const auto& [aggregate, results] : wanted) {
    Trees trees = Voters();
    trees.aggregate = aggregate;
    trees.Op().Input("X", {2, 1}, {-1, 1}).Expect("Out", {2, 3}, results);
    trees.base_values = {10, 20, 30};
    Doubles shifted = results;
    for (size_t i = 0; i < 6; ++i) shifted[i] += 10 * static_cast<double>(i % 3 + 1);
    trees.Op().Input("X", {2, 1}, {-1, 1}).Expect("Out", {2, 3}, shifted);
  }
}

// A leaf may have any number of weights, also two for one target, and several parents.
TEST(TreeEnsemble, LeafWeights) {
  Trees trees;
  trees.targets = 2;
  trees.Leaf(1, 0);
  trees.Leaf(2, 0);
  trees.Leaf(4, 1);
  trees.leaf_counts = {0, 3};
  trees.roots = {trees.Node(0, 0, 0, -1, trees.Node(0, 0, 1, -2, -2))};
  trees.Op().Input("X", {3, 1}, {-1, 0.5, 2}).Expect("Out", {3, 2}, {0, 0, 3, 4, 3, 4});
}

TEST(TreeEnsemble, Edges) {
  Trees leaf;
  leaf.roots = {leaf.Leaf(7)};
  leaf.Op().Input("X", {2, 0}, {}).Expect("Out", {2, 1}, {7, 7});
  leaf.Op().Input("X", {0, 3}, {}).Expect("Out", {0, 1}, {});
  Trees none;
  none.targets = 2;
  none.base_values = {1, 2};
  for (const char* aggregate : {"sum", "average", "min"}) {
    none.aggregate = aggregate;
    none.Op().Input("X", {1, 1}, {0}).Expect("Out", {1, 2}, {1, 2});
  }
  Trees unknown = OneNode(0, true);
  unknown.splits = {std::nan("")};
  unknown.Op().Input("X", {2, 1}, {0, std::nan("")}).Expect("Out", {2, 1}, {2, 1});
}

// A tree of random shape: `budget` nodes, most of them on one side.
int32_t Grow(Trees& trees, const Philox& random, uint64_t& draws, int budget, int32_t family) {
  if (budget <= 0) {
    const auto target = static_cast<int32_t>(random.UniformFloat(draws++) * trees.targets);
    return trees.Leaf(random.UniformFloat(draws++) - 0.5, target);
  }
  const auto share = static_cast<int>(random.UniformFloat(draws++) * budget);
  const int32_t first = Grow(trees, random, draws, share, family);
  const int32_t second = Grow(trees, random, draws, budget - 1 - share, family);
  const auto feature = static_cast<int32_t>(random.UniformFloat(draws++) * 5);
  const int32_t modes[3][2] = {{0, 3}, {1, 2}, {0, 1}};
  const int32_t mode = modes[family][random.UniformFloat(draws++) < 0.5f];
  const float split = std::floor(8 * random.UniformFloat(draws++)) / 8;
  return trees.Node(feature, mode, split, first, second, random.UniformFloat(draws++) < 0.3f);
}

// Many rows, whose elements often equal a split, and some nans.
TEST(TreeEnsemble, FastEqualsReference) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    const Philox random(seed, 7, 0);
    uint64_t draws = 0;
    Trees trees;
    trees.targets = seed % 4 == 0 ? 3 : 1;
    const auto family = static_cast<int32_t>(seed % 3);
    for (int tree = 0; tree < 13; ++tree)
      trees.roots.push_back(Grow(trees, random, draws, tree * tree, family));
    if (seed % 2 == 0) trees.missing.clear();
    const auto rows = static_cast<int64_t>(random.UniformFloat(draws++) * 150);
    Doubles x;
    for (int64_t i = 0; i < rows * 5; ++i) {
      const float value = std::floor(8 * random.UniformFloat(draws++)) / 8;
      x.push_back(random.UniformFloat(draws++) < 0.1f ? std::nan("") : value);
    }
    trees.Op().Input("X", {rows, 5}, x).CheckFast(1e-5);
  }
}

TEST(TreeEnsemble, C1_Rank) {
  OneNode(0, false).Op().Input("X", {2}, {0, 0}).ExpectError("tree_ensemble.C1");
}

void ExpectFault(const Trees& trees, const char* constraint) {
  trees.Op().Input("X", {1, 1}, {0}).ExpectError(constraint);
}

TEST(TreeEnsemble, C2_Lengths) {
  Trees trees = OneNode(0, false);
  trees.modes.clear();
  ExpectFault(trees, "tree_ensemble.C2");
  trees = OneNode(0, false);
  trees.missing = {0, 0};
  ExpectFault(trees, "tree_ensemble.C2");
}

TEST(TreeEnsemble, C3_Numbers) {
  Trees trees = OneNode(0, false);
  trees.features = {-1};
  ExpectFault(trees, "tree_ensemble.C3");
  trees = OneNode(0, false);
  trees.modes = {7};
  ExpectFault(trees, "tree_ensemble.C3");
}

TEST(TreeEnsemble, C4_Weights) {
  for (const Ints& counts : {Ints{1}, Ints{1, 2}, Ints{-1, 3}, Ints{INT32_MAX, INT32_MAX}}) {
    Trees trees = OneNode(0, false);
    trees.leaf_counts = counts;
    ExpectFault(trees, "tree_ensemble.C4");
  }
  Trees trees = OneNode(0, false);
  trees.leaf_targets.pop_back();
  ExpectFault(trees, "tree_ensemble.C4");
}

TEST(TreeEnsemble, C5_Targets) {
  for (int32_t target : {-1, 1}) {
    Trees trees = OneNode(0, false);
    trees.leaf_targets[1] = target;
    ExpectFault(trees, "tree_ensemble.C5");
  }
  Trees trees = OneNode(0, false);
  trees.base_values = {1, 2};
  ExpectFault(trees, "tree_ensemble.C5");
  trees.base_values = {};
  trees.targets = 0;
  ExpectFault(trees, "tree_ensemble.C5");
}

TEST(TreeEnsemble, C6_Sets) {
  for (const Ints& counts : {Ints{}, Ints{3}, Ints{1}, Ints{-1}, Ints{1, 1}}) {
    Trees trees = OneNode(6, false);
    trees.member_counts = counts;
    ExpectFault(trees, "tree_ensemble.C6");
  }
}

TEST(TreeEnsemble, C7_Children) {
  for (int32_t child : {0, 1, -3, INT32_MIN, INT32_MAX}) {
    Trees trees = OneNode(0, false);
    trees.yes = {child};
    ExpectFault(trees, "tree_ensemble.C7");
  }
  Trees trees = OneNode(0, false);
  trees.roots = {0, 0};
  ExpectFault(trees, "tree_ensemble.C7");
}

TEST(TreeEnsemble, C8_Columns) {
  Trees trees = OneNode(0, false);
  trees.features = {1};
  ExpectFault(trees, "tree_ensemble.C8");
}

}  // namespace coracle::tree_ensemble_test
