// ai.onnx.ml: trees, linear models, support vector machines and the steps around them, against the
// formulas of the operator set written out here.
#include <coracle/framework/tensor/rng.h>
#include <coracle/test/convert/one_node.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace coracle::onnx::onnx_ml_test {

using Texts = std::vector<std::string>;
using Doubles = std::vector<double>;

constexpr const char* kMl = "ai.onnx.ml";

OneNode Ml(const std::string& op_type, const std::vector<std::optional<Tensor>>& inputs,
           int64_t version = 3) {
  return OneNode(op_type, version, inputs, kMl);
}

Doubles WideOf(const Tensor& tensor) {
  const Tensor wide = tensor.Cast(DType::kFloat64);
  return {wide.span<double>().begin(), wide.span<double>().end()};
}

void ExpectClose(const Tensor& got, const Doubles& wanted, double tolerance = 1e-5) {
  const Doubles values = WideOf(got);
  ASSERT_EQ(values.size(), wanted.size());
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(values[i], wanted[i], tolerance * (1 + std::abs(wanted[i]))) << "element " << i;
}

void ExpectRefusal(OneNode node, const std::string& text) {
  EXPECT_NE(node.Refusal().find(text), std::string::npos) << node.Refusal();
}

// --- trees ---

// The lists of TreeEnsembleClassifier and TreeEnsembleRegressor.
struct Forest {
  Integers trees, ids, features, yes, no, missing;
  Texts modes;
  Numbers splits;
  Integers vote_trees, vote_nodes, vote_ids;
  Numbers weights;

  void Node(int64_t tree, int64_t id, const std::string& mode, int64_t feature, float split,
            int64_t on_true, int64_t on_false, int64_t track = 0) {
    trees.push_back(tree);
    ids.push_back(id);
    modes.push_back(mode);
    features.push_back(feature);
    splits.push_back(split);
    yes.push_back(on_true);
    no.push_back(on_false);
    missing.push_back(track);
  }
  void Leaf(int64_t tree, int64_t id) { Node(tree, id, "LEAF", 0, 0, 0, 0); }
  void Vote(int64_t tree, int64_t id, int64_t target, float weight) {
    vote_trees.push_back(tree);
    vote_nodes.push_back(id);
    vote_ids.push_back(target);
    weights.push_back(weight);
  }

  // With the votes' prefix: "class" or "target".
  OneNode& Write(OneNode& node, const std::string& prefix) const {
    return node.Set("nodes_treeids", trees)
        .Set("nodes_nodeids", ids)
        .Set("nodes_featureids", features)
        .Set("nodes_truenodeids", yes)
        .Set("nodes_falsenodeids", no)
        .Set("nodes_missing_value_tracks_true", missing)
        .Set("nodes_modes", modes)
        .Set("nodes_values", splits)
        .Set("nodes_hitrates", Numbers(ids.size(), 1))
        .Set(prefix + "_treeids", vote_trees)
        .Set(prefix + "_nodeids", vote_nodes)
        .Set(prefix + "_ids", vote_ids)
        .Set(prefix + "_weights", weights);
  }

  size_t Find(int64_t tree, int64_t id) const {
    for (size_t i = 0; i < ids.size(); ++i)
      if (trees[i] == tree && ids[i] == id) return i;
    ADD_FAILURE() << "no node";
    return 0;
  }
  bool Holds(size_t i, double x) const {
    const double split = splits[i];
    const bool holds = modes[i] == "BRANCH_LEQ"   ? x <= split
                       : modes[i] == "BRANCH_LT"  ? x < split
                       : modes[i] == "BRANCH_GTE" ? x >= split
                       : modes[i] == "BRANCH_GT"  ? x > split
                       : modes[i] == "BRANCH_EQ"  ? x == split
                                                  : x != split;
    return holds || (std::isnan(x) && missing[i] == 1);
  }
  // The votes of the leaf that a row reaches in a tree, as (target, weight).
  std::vector<std::pair<int64_t, double>> VotesOf(int64_t tree, const double* row) const {
    size_t at = static_cast<size_t>(std::find(trees.begin(), trees.end(), tree) - trees.begin());
    while (modes[at] != "LEAF") at = Find(tree, Holds(at, row[features[at]]) ? yes[at] : no[at]);
    std::vector<std::pair<int64_t, double>> votes;
    for (size_t i = 0; i < weights.size(); ++i)
      if (vote_trees[i] == tree && vote_nodes[i] == ids[at])
        votes.emplace_back(vote_ids[i], weights[i]);
    return votes;
  }
};

// A tree with leaves that vote for one target each. Ids are scattered.
int64_t Grow(Forest& forest, int64_t tree, const Philox& random, uint64_t& draws, int depth,
             int64_t targets, const Texts& modes) {
  const auto pick = [&](int64_t n) {
    return std::min(n - 1,
                    static_cast<int64_t>(random.UniformFloat(draws++) * static_cast<float>(n)));
  };
  const auto id = static_cast<int64_t>(3 * forest.ids.size() % 1000 + 7 * (tree + 1));
  if (depth == 0 || pick(6) == 0) {
    forest.Leaf(tree, id);
    forest.Vote(tree, id, pick(targets), random.UniformFloat(draws++) - 0.4f);
    return id;
  }
  const size_t at = forest.ids.size();
  const float split = std::floor(random.UniformFloat(draws++) * 8) / 4 - 1;
  forest.Node(tree, id, modes[static_cast<size_t>(pick(static_cast<int64_t>(modes.size())))],
              pick(4), split, 0, 0, pick(2));
  const int64_t yes = Grow(forest, tree, random, draws, depth - 1, targets, modes);
  const int64_t no = Grow(forest, tree, random, draws, depth - 1, targets, modes);
  forest.yes[at] = yes;
  forest.no[at] = no;
  return id;
}

constexpr int64_t kTrees = 9;

Forest RandomForest(uint64_t seed, int64_t targets, const Texts& modes) {
  const Philox random(seed, 3, 0);
  uint64_t draws = 0;
  Forest forest;
  for (int64_t tree = 0; tree < kTrees; ++tree)
    Grow(forest, tree, random, draws, static_cast<int>(tree), targets, modes);
  return forest;
}

// Rows whose elements often equal a split.
Tensor RandomRows(int64_t rows, bool nans) {
  const Philox random(5, 5, 5);
  Numbers x;
  for (int64_t i = 0; i < rows * 4; ++i) {
    const float value = std::floor(random.UniformFloat(static_cast<uint64_t>(2 * i)) * 8) / 4 - 1;
    const bool nan = nans && random.UniformFloat(static_cast<uint64_t>(2 * i + 1)) < 0.2f;
    x.push_back(nan ? NAN : value);
  }
  return F({rows, 4}, x);
}

const Texts kAllModes = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE",
                         "BRANCH_GT",  "BRANCH_EQ", "BRANCH_NEQ"};

// Sums of votes by row and target.
Doubles Scores(const Forest& forest, const Tensor& x, int64_t targets) {
  const Doubles rows = WideOf(x);
  Doubles scores;
  for (size_t row = 0; row < rows.size() / 4; ++row) {
    Doubles sums(static_cast<size_t>(targets), 0);
    for (int64_t tree = 0; tree < kTrees; ++tree)
      for (const auto& [target, weight] : forest.VotesOf(tree, &rows[4 * row]))
        sums[static_cast<size_t>(target)] += weight;
    scores.insert(scores.end(), sums.begin(), sums.end());
  }
  return scores;
}

Doubles Softmax(const Doubles& scores, size_t columns) {
  Doubles results;
  for (size_t row = 0; row < scores.size() / columns; ++row) {
    double sum = 0;
    for (size_t k = 0; k < columns; ++k) sum += std::exp(scores[row * columns + k]);
    for (size_t k = 0; k < columns; ++k)
      results.push_back(std::exp(scores[row * columns + k]) / sum);
  }
  return results;
}

double Logistic(double x) { return 1 / (1 + std::exp(-x)); }

Doubles Each(Doubles values, const std::function<double(double)>& f) {
  for (double& value : values) value = f(value);
  return values;
}

Doubles TopOf(const Doubles& scores, size_t columns, const Doubles& labels) {
  Doubles tops;
  for (size_t i = 0; i < scores.size(); i += columns) {
    const auto begin = scores.begin() + static_cast<int64_t>(i);
    tops.push_back(labels[static_cast<size_t>(
        std::max_element(begin, begin + static_cast<int64_t>(columns)) - begin)]);
  }
  return tops;
}

TEST(OnnxMlTrees, Classifier) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const Texts modes = seed % 3 == 0   ? Texts{"BRANCH_LEQ"}
                        : seed % 3 == 1 ? Texts{"BRANCH_LT", "BRANCH_GTE"}
                                        : kAllModes;
    const Forest forest = RandomForest(seed, 3, modes);
    const Tensor x = RandomRows(70, true);
    const Doubles scores = Scores(forest, x, 3);
    for (const std::string transform : {"NONE", "LOGISTIC", "SOFTMAX"}) {
      OneNode node = Ml("TreeEnsembleClassifier", {x});
      forest.Write(node, "class")
          .Set("classlabels_int64s", Integers{5, -7, 9})
          .Set("post_transform", transform)
          .Outputs(2);
      const std::vector<Tensor> results = node.Feed(0, true).Results();
      EXPECT_EQ(WideOf(results[0]), TopOf(scores, 3, {5, -7, 9}));
      EXPECT_EQ(results[0].dtype(), DType::kInt64);
      ExpectClose(results[1], transform == "NONE"       ? scores
                              : transform == "LOGISTIC" ? Each(scores, Logistic)
                                                        : Softmax(scores, 3));
    }
  }
}

// Integers and doubles are compared exactly; 0, 1 and 7 rows.
TEST(OnnxMlTrees, Types) {
  const Forest forest = RandomForest(1, 3, kAllModes);
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt64}) {
    for (const int64_t rows : {0, 1, 7}) {
      const Tensor x = RandomRows(rows, false).Cast(dtype);
      OneNode node = Ml("TreeEnsembleRegressor", {x});
      forest.Write(node, "target").Set("n_targets", int64_t{3});
      const Tensor y = node.Feed(0, true).Result();
      EXPECT_EQ(y.dtype(), DType::kFloat32);
      EXPECT_EQ(y.shape(), Shape({rows, 3}));
      ExpectClose(y, Scores(forest, x, 3));
    }
  }
}

// A row without a batch dim.
TEST(OnnxMlTrees, OneRow) {
  const Forest forest = RandomForest(2, 1, kAllModes);
  const Tensor x = RandomRows(1, false);
  OneNode node = Ml("TreeEnsembleRegressor", {x.Reshaped({4})});
  forest.Write(node, "target").Set("n_targets", int64_t{1});
  ExpectClose(node.Result(), Scores(forest, x, 1));
}

// The order of the lists has no meaning, but that a tree begins with its root.
TEST(OnnxMlTrees, NodesInAnyOrder) {
  const Forest forest = RandomForest(3, 2, kAllModes);
  Forest mixed;
  const auto add = [&](size_t i) {
    mixed.Node(forest.trees[i], forest.ids[i], forest.modes[i], forest.features[i],
               forest.splits[i], forest.yes[i], forest.no[i], forest.missing[i]);
  };
  for (size_t i = forest.ids.size(); i-- > 0;) add(i);
  for (size_t i = forest.weights.size(); i-- > 0;)
    mixed.Vote(forest.vote_trees[i], forest.vote_nodes[i], forest.vote_ids[i], forest.weights[i]);
  const Tensor x = RandomRows(20, true);
  OneNode node = Ml("TreeEnsembleRegressor", {x});
  mixed.Write(node, "target").Set("n_targets", int64_t{2});
  ExpectClose(node.Result(), Scores(forest, x, 2));
}

TEST(OnnxMlTrees, Aggregates) {
  const Forest forest = RandomForest(4, 2, {"BRANCH_LEQ", "BRANCH_GT"});
  const Tensor x = RandomRows(20, true);
  const Doubles rows = WideOf(x);
  for (const std::string aggregate : {"SUM", "AVERAGE", "MIN", "MAX"}) {
    Doubles wanted;
    for (size_t row = 0; row < 20; ++row) {
      std::vector<Doubles> votes(2);
      for (int64_t tree = 0; tree < kTrees; ++tree)
        for (const auto& [target, weight] : forest.VotesOf(tree, &rows[4 * row]))
          votes[static_cast<size_t>(target)].push_back(weight);
      for (size_t k = 0; k < 2; ++k) {
        double value = 0;
        for (double vote : votes[k]) value += vote;
        if (aggregate == "AVERAGE") value /= kTrees;
        if (aggregate == "MIN" && !votes[k].empty())
          value = *std::min_element(votes[k].begin(), votes[k].end());
        if (aggregate == "MAX" && !votes[k].empty())
          value = *std::max_element(votes[k].begin(), votes[k].end());
        wanted.push_back(value + (k == 0 ? 0.5 : -2));
      }
    }
    OneNode node = Ml("TreeEnsembleRegressor", {x});
    forest.Write(node, "target")
        .Set("n_targets", int64_t{2})
        .Set("aggregate_function", aggregate)
        .Set("base_values", Numbers{0.5f, -2});
    ExpectClose(node.Result(), wanted);
  }
}

// One node that gives `low` for x <= 0, else `high`, to class `id`.
Forest Stump(float low, float high, int64_t id = 0) {
  Forest forest;
  forest.Node(0, 0, "BRANCH_LEQ", 0, 0, 1, 2);
  forest.Leaf(0, 1);
  forest.Leaf(0, 2);
  forest.Vote(0, 1, id, low);
  forest.Vote(0, 2, id, high);
  return forest;
}

struct Binary {
  float low, high;
  Numbers base;
  const char* transform;
  Doubles labels, scores;
};

// One column of weights and two classes, as XGBoost, LightGBM and gradient boosting are exported.
TEST(OnnxMlTrees, Binary) {
  const std::vector<Binary> cases = {
      {0.2f, 0.7f, {}, "NONE", {5, 7}, {0.8, 0.2, 0.3, 0.7}},
      {0.2f, 0.5f, {}, "NONE", {5, 5}, {0.8, 0.2, 0.5, 0.5}},
      {0.2f, 0.5f, {0.25f}, "SOFTMAX", {5, 7}, {0.55, 0.45, 0.25, 0.75}},
      {-2, 1, {}, "NONE", {5, 7}, {2, -2, -1, 1}},
      {-2, 1, {}, "LOGISTIC", {5, 7}, {Logistic(2), Logistic(-2), Logistic(-1), Logistic(1)}},
      {-2,
       1,
       {2.5f},
       "LOGISTIC",
       {7, 7},
       {Logistic(-0.5), Logistic(0.5), Logistic(-3.5), Logistic(3.5)}},
  };
  for (const Binary& one : cases) {
    for (const bool texts : {false, true}) {
      OneNode node = Ml("TreeEnsembleClassifier", {F({2, 1}, {-1, 1})});
      Stump(one.low, one.high)
          .Write(node, "class")
          .Set("post_transform", std::string(one.transform));
      if (texts)
        node.Set("classlabels_strings", Texts{"5", "7"});
      else
        node.Set("classlabels_int64s", Integers{5, 7});
      if (!one.base.empty()) node.Set("base_values", one.base);
      const std::vector<Tensor> results = node.Outputs(2).Feed(0, true).Results();
      if (texts) {
        Texts labels;
        for (double label : one.labels) labels.push_back(label == 5 ? "5" : "7");
        EXPECT_EQ(results[0].Strings(), labels);
      } else {
        EXPECT_EQ(WideOf(results[0]), one.labels);
      }
      ExpectClose(results[1], one.scores);
    }
  }
}

// Votes for the second class only, and for both.
TEST(OnnxMlTrees, TwoClasses) {
  OneNode second = Ml("TreeEnsembleClassifier", {F({2, 1}, {-1, 1})});
  Stump(0.25f, 0.75f, 1).Write(second, "class").Set("classlabels_int64s", Integers{0, 1});
  std::vector<Tensor> results = second.Outputs(2).Results();
  EXPECT_EQ(WideOf(results[0]), (Doubles{0, 1}));
  ExpectClose(results[1], {0, 0.25, 0, 0.75});
  Forest forest = Stump(0.25f, 0.75f);
  forest.Vote(0, 1, 1, 0.75f);
  forest.Vote(0, 2, 1, 0.25f);
  OneNode both = Ml("TreeEnsembleClassifier", {F({2, 1}, {-1, 1})});
  forest.Write(both, "class").Set("classlabels_int64s", Integers{3, 4});
  results = both.Outputs(2).Results();
  EXPECT_EQ(WideOf(results[0]), (Doubles{4, 3}));
  ExpectClose(results[1], {0.25, 0.75, 0.75, 0.25});
}

TEST(OnnxMlTrees, OneClass) {
  OneNode node = Ml("TreeEnsembleClassifier", {F({2, 1}, {-1, 1})});
  Stump(0.25f, 0.75f).Write(node, "class").Set("classlabels_strings", Texts{"only"});
  const std::vector<Tensor> results = node.Outputs(2).Results();
  EXPECT_EQ(results[0].Strings(), (Texts{"only", "only"}));
  ExpectClose(results[1], {0.25, 0.75});
}

double ProbitOf(double x) {  // with Winitzki's approximation, as in ONNX's reference
  const double y = 2 * x - 1, log = std::log((1 - y) * (1 + y));
  const double v = 2 / (3.14159 * 0.147) + 0.5 * log;
  return 1.41421356 * (y < 0 ? -1 : 1) * std::sqrt(-v + std::sqrt(v * v - log / 0.147));
}

TEST(OnnxMlTrees, Transforms) {
  const auto run = [](const char* transform) {
    OneNode node = Ml("TreeEnsembleRegressor", {F({2, 1}, {-1, 1})});
    Forest forest = Stump(0.25f, 0.75f);
    forest.Vote(0, 1, 1, 0.5f);
    forest.Write(node, "target")
        .Set("n_targets", int64_t{2})
        .Set("post_transform", std::string(transform));
    return node.Result();
  };
  ExpectClose(run("SOFTMAX"), Softmax({0.25, 0.5, 0.75, 0}, 2));
  const Doubles both = Softmax({0.25, 0.5}, 2);
  ExpectClose(run("SOFTMAX_ZERO"), {both[0], both[1], 1, 0});
  ExpectClose(run("LOGISTIC"), Each({0.25, 0.5, 0.75, 0}, Logistic));
  const Doubles probits = WideOf(run("PROBIT"));
  EXPECT_NEAR(probits[0], ProbitOf(0.25), 1e-4);
  EXPECT_NEAR(probits[1], 0, 1e-4);
  EXPECT_NEAR(probits[2], ProbitOf(0.75), 1e-4);
}

// Lists whose elements do not fit together.
TEST(OnnxMlTrees, LyingLists) {
  const auto refuse = [](const std::function<void(Forest&)>& change, const std::string& text) {
    Forest forest = Stump(1, 2);
    change(forest);
    OneNode node = Ml("TreeEnsembleRegressor", {F({2, 1}, {-1, 1})});
    forest.Write(node, "target").Set("n_targets", int64_t{1});
    ExpectRefusal(node, text);
  };
  refuse([](Forest& f) { f.Leaf(0, 2); }, "node 2 of tree 0 is given twice");
  refuse([](Forest& f) { f.yes[0] = 0; },
         "tree 0 is no tree: 1 of its nodes have no parent, and 0 of 1 branches");
  refuse([](Forest& f) { f.yes[0] = 9; }, "node 0 of tree 0 leads to node 9, which the tree does");
  refuse([](Forest& f) { f.yes[0] = INT64_MAX; }, "leads to node 9223372036854775807");
  refuse([](Forest& f) { f.features[0] = -1; }, "reads the feature -1");
  refuse([](Forest& f) { f.features[0] = 1; }, "[tree_ensemble.C8]");
  refuse([](Forest& f) { f.modes[0] = "BRANCH"; }, "unknown mode 'BRANCH'");
  refuse([](Forest& f) { f.splits.pop_back(); }, "nodes_values has 2 elements for 3 nodes");
  refuse([](Forest& f) { f.missing.pop_back(); }, "tracks_true has 2 elements for 3 nodes");
  refuse([](Forest& f) { f.vote_nodes[0] = 7; }, "a weight is of node 7 of tree 0");
  refuse([](Forest& f) { f.vote_ids[0] = 1; }, "a weight is of target 1 of 1");
  refuse([](Forest& f) { f.vote_ids[0] = -1; }, "attribute target_ids has -1");
  refuse([](Forest& f) { f.weights.pop_back(); }, "must have one length");
  refuse(
      [](Forest& f) {
        f.Node(0, 3, "BRANCH_LEQ", 0, 0, 4, 5);
        f.Node(0, 4, "BRANCH_LEQ", 0, 0, 1, 2);
        f.Leaf(0, 5);
        f.yes[0] = 4;
      },
      "node 4 of tree 0 is the child of several nodes");
  refuse(
      [](Forest& f) {
        f.Node(1, 0, "BRANCH_LEQ", 0, 0, 1, 1);
        f.Node(1, 1, "BRANCH_LEQ", 0, 0, 0, 0);
      },
      "is the child of several nodes");
  refuse(
      [](Forest& f) {
        f.Node(1, 0, "BRANCH_LEQ", 0, 0, 1, 2);
        f.Node(1, 1, "BRANCH_LEQ", 0, 0, 0, 2);
        f.Leaf(1, 2);
      },
      "tree 1 is no tree: 0 of its nodes have no parent");
}

// As deep as it has nodes: time and stack do not grow with the square.
TEST(OnnxMlTrees, Chain) {
  Forest forest;
  const int64_t length = 60000;
  for (int64_t i = 0; i < length; ++i)
    forest.Node(0, i, "BRANCH_LEQ", 0, static_cast<float>(i), length, i + 1);
  forest.Leaf(0, length);
  forest.Vote(0, length, 0, 3);
  OneNode node = Ml("TreeEnsembleRegressor", {F({2, 1}, {-1, 1e9f})});
  forest.Write(node, "target").Set("n_targets", int64_t{1});
  ExpectClose(node.Result(), {3, 3});
}

// --- TreeEnsemble of operator set 5 ---

proto::onnx::TensorProto Numbers64(const Doubles& values) {
  proto::onnx::TensorProto proto;
  proto.set_data_type(proto::onnx::TensorProto::DOUBLE);
  proto.add_dims(static_cast<int64_t>(values.size()));
  for (double value : values) proto.add_double_data(value);
  return proto;
}

proto::onnx::TensorProto Bytes(const std::string& bytes) {
  proto::onnx::TensorProto proto;
  proto.set_data_type(proto::onnx::TensorProto::UINT8);
  proto.add_dims(static_cast<int64_t>(bytes.size()));
  proto.set_raw_data(bytes);
  return proto;
}

// The first tree tests membership of {1.2, 3.7, 8, 9}, then of {12, 7}; the second is one leaf.
OneNode Members(const Tensor& x) {
  OneNode node = Ml("TreeEnsemble", {x}, 5);
  node.Set("nodes_featureids", Integers{0, 0, 0, 0})
      .Set("nodes_modes", Bytes(std::string("\0\6\6\0", 4)))
      .Set("nodes_splits", Numbers64({11, 0, 0, 0}))
      .Set("membership_values", Numbers64({1.2, 3.7, 8, 9, NAN, 12, 7}))
      .Set("nodes_truenodeids", Integers{1, 0, 2, 4})
      .Set("nodes_trueleafs", Integers{0, 1, 1, 1})
      .Set("nodes_falsenodeids", Integers{2, 1, 3, 4})
      .Set("nodes_falseleafs", Integers{0, 1, 1, 1})
      .Set("tree_roots", Integers{0, 3})
      .Set("leaf_targetids", Integers{0, 1, 2, 3, 0})
      .Set("leaf_weights", Numbers64({1, 10, 1000, 100, 0.5}))
      .Set("n_targets", int64_t{4})
      .Set("post_transform", int64_t{0})
      .Set("aggregate_function", int64_t{1});
  return node;
}

TEST(OnnxMlTrees, Members) {
  const Doubles x = {1.2, 3.4, 12, 77, 7, NAN};
  const Doubles wanted = {1.5, 0, 0, 0,   0.5, 10, 0, 0, 0.5, 0, 1000, 0,
                          0.5, 0, 0, 100, 0.5, 10, 0, 0, 0.5, 0, 0,    100};
  OneNode node = Members(Tensor::Of<double>({6, 1}, x));
  const Tensor y = node.Feed(0, true).Result();
  EXPECT_EQ(y.dtype(), DType::kFloat64);
  ExpectClose(y, wanted, 1e-12);
}

TEST(OnnxMlTrees, LyingIndices) {
  const Tensor x = Tensor::Of<double>({1, 1}, {0});
  ExpectRefusal(Members(x).Set("nodes_hitrates", Numbers64({1})).Set("tree_roots", Integers{0}),
                "given twice");
  const auto refuse = [&](const std::string& name, const Integers& values,
                          const std::string& text) {
    OneNode node = Members(x);
    node.Clear(name).Set(name, values);
    ExpectRefusal(node, text);
  };
  refuse("tree_roots", {4}, "attribute tree_roots names node 4 of 4");
  refuse("tree_roots", {-1}, "attribute tree_roots names node -1 of 4");
  refuse("tree_roots", {0, 0}, "[tree_ensemble.C7]");
  refuse("nodes_truenodeids", {0, 0, 2, 4}, "[tree_ensemble.C7]");
  refuse("nodes_truenodeids", {1, 5, 2, 4}, "names leaf 5 of 5");
  refuse("leaf_targetids", {0, 1, 2, 4, 0}, "[tree_ensemble.C5]");
  refuse("nodes_featureids", {0, 0, 0}, "elements for 3 nodes");
}

}  // namespace coracle::onnx::onnx_ml_test
