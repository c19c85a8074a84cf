// Decision trees and support vector machines: ai.onnx.ml.
#include <coracle/convert/narrow.h>
#include <coracle/convert/onnx/export/program_exporter.h>
#include <coracle/convert/onnx/export/rows.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

namespace coracle::onnx {
namespace {

using Int32s = std::vector<int32_t>;
using Floats = std::vector<float>;
using Doubles = std::vector<double>;
using Strings = std::vector<std::string>;

constexpr int32_t kMemberMode = 6;
constexpr std::array kModes = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE",
                               "BRANCH_GT",  "BRANCH_EQ", "BRANCH_NEQ"};

std::string UpperCase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

// --- trees ---

// The attrs of tree_ensemble.
struct Ensemble {
  explicit Ensemble(const OpContext& op)
      : features(op.Attr<Int32s>("nodes_features")),
        modes(op.Attr<Int32s>("nodes_modes")),
        yes(op.Attr<Int32s>("nodes_true")),
        no(op.Attr<Int32s>("nodes_false")),
        missing(op.Attr<Int32s>("nodes_missing_true")),
        roots(op.Attr<Int32s>("roots")),
        member_counts(op.Attr<Int32s>("member_counts")),
        leaf_counts(op.Attr<Int32s>("leaf_counts")),
        leaf_targets(op.Attr<Int32s>("leaf_targets")),
        splits(op.Attr<Doubles>("nodes_splits")),
        members(op.Attr<Doubles>("members")),
        leaf_weights(op.Attr<Doubles>("leaf_weights")),
        base_values(op.Attr<Doubles>("base_values")),
        targets(op.Attr<int64_t>("targets")),
        aggregate(UpperCase(op.Attr<std::string>("aggregate"))) {}

  Int32s features, modes, yes, no, missing, roots, member_counts, leaf_counts, leaf_targets;
  Doubles splits, members, leaf_weights, base_values;
  int64_t targets;
  std::string aggregate;
};

bool AreFloats(const Doubles& values) {
  return std::all_of(values.begin(), values.end(), [](double value) {
    return std::isnan(value) || static_cast<double>(static_cast<float>(value)) == value;
  });
}

// Whether the older TreeEnsembleRegressor, whose numbers are float32, can hold the trees.
bool IsRegressor(const Ensemble& e, DType dtype) {
  return dtype == DType::kFloat32 && AreFloats(e.splits) && AreFloats(e.leaf_weights) &&
         std::find(e.modes.begin(), e.modes.end(), kMemberMode) == e.modes.end();
}

// The lists of TreeEnsembleRegressor: leaves are nodes, and a tree's nodes count from 0.
class RegressorLists {
 public:
  explicit RegressorLists(const Ensemble& e) : e_(e), starts_(1, 0) {
    const size_t leaves = e.leaf_counts.empty() ? e.leaf_weights.size() : e.leaf_counts.size();
    for (size_t i = 0; i < leaves; ++i)
      starts_.push_back(starts_[i] +
                        static_cast<size_t>(e.leaf_counts.empty() ? 1 : e.leaf_counts[i]));
    for (size_t tree = 0; tree < e.roots.size(); ++tree) AddTree(static_cast<int64_t>(tree));
  }

  NodeAttrs Attrs() const {
    NodeAttrs attrs = {{"nodes_treeids", trees_},
                       {"nodes_nodeids", ids_},
                       {"nodes_featureids", features_},
                       {"nodes_modes", modes_},
                       {"nodes_values", splits_},
                       {"nodes_truenodeids", yes_},
                       {"nodes_falsenodeids", no_},
                       {"target_treeids", target_trees_},
                       {"target_nodeids", target_nodes_},
                       {"target_ids", target_ids_},
                       {"target_weights", weights_},
                       {"n_targets", e_.targets},
                       {"aggregate_function", e_.aggregate},
                       {"post_transform", "NONE"}};
    if (!e_.missing.empty()) attrs.emplace_back("nodes_missing_value_tracks_true", missing_);
    if (!e_.base_values.empty())
      attrs.emplace_back("base_values", Floats(e_.base_values.begin(), e_.base_values.end()));
    return attrs;
  }

 private:
  void AddTree(int64_t tree) {
    Int32s open = {e_.roots[static_cast<size_t>(tree)]};
    for (size_t i = 0; i < open.size(); ++i) {
      const bool leaf = open[i] < 0;
      const auto node = static_cast<size_t>(leaf ? 0 : open[i]);
      trees_.push_back(tree);
      ids_.push_back(static_cast<int64_t>(i));
      features_.push_back(leaf ? 0 : e_.features[node]);
      modes_.emplace_back(leaf ? "LEAF" : kModes[static_cast<size_t>(e_.modes[node])]);
      splits_.push_back(leaf ? 0 : static_cast<float>(e_.splits[node]));
      missing_.push_back(leaf || e_.missing.empty() ? 0 : e_.missing[node]);
      const auto next = static_cast<int64_t>(open.size());
      yes_.push_back(leaf ? 0 : next);
      no_.push_back(leaf ? 0 : next + 1);
      if (leaf) {
        AddWeights(tree, static_cast<int64_t>(i), static_cast<size_t>(-1 - open[i]));
      } else {
        open.push_back(e_.yes[node]);
        open.push_back(e_.no[node]);
      }
    }
  }

  void AddWeights(int64_t tree, int64_t node, size_t leaf) {
    for (size_t i = starts_[leaf]; i < starts_[leaf + 1]; ++i) {
      target_trees_.push_back(tree);
      target_nodes_.push_back(node);
      target_ids_.push_back(e_.leaf_targets[i]);
      weights_.push_back(static_cast<float>(e_.leaf_weights[i]));
    }
  }

  const Ensemble& e_;
  std::vector<size_t> starts_;  // where the weights of each leaf begin
  Ints trees_, ids_, features_, yes_, no_, missing_, target_trees_, target_nodes_, target_ids_;
  Strings modes_;
  Floats splits_, weights_;
};

// The sets, with a nan between two of them.
Doubles SetsOf(const Ensemble& e) {
  Doubles sets;
  size_t at = 0;
  for (size_t set = 0; set < e.member_counts.size(); ++set) {
    if (set > 0) sets.push_back(std::nan(""));
    for (int32_t i = 0; i < e.member_counts[set]; ++i) sets.push_back(e.members[at++]);
  }
  return sets;
}

int64_t NumberOf(const std::string& aggregate) {
  constexpr std::array kNames = {"AVERAGE", "SUM", "MIN", "MAX"};
  return std::find(kNames.begin(), kNames.end(), aggregate) - kNames.begin();
}

// Roots of TreeEnsemble are nodes: a tree of one leaf becomes a node with that leaf twice.
void RootsAsNodes(Ensemble* e) {
  for (int32_t& root : e->roots) {
    if (root >= 0) continue;
    e->features.push_back(0);
    e->modes.push_back(0);
    e->splits.push_back(0);
    e->yes.push_back(root);
    e->no.push_back(root);
    if (!e->missing.empty()) e->missing.push_back(0);
    root = ToInt32(static_cast<int64_t>(e->features.size()) - 1, "a node");
  }
}

NodeAttrs EnsembleAttrs(Ensemble e, DType dtype) {
  RootsAsNodes(&e);
  const auto longs = [](const Int32s& list) { return Ints(list.begin(), list.end()); };
  const auto numbers = [&](const Doubles& list) {
    return Tensor::Of<double>({static_cast<int64_t>(list.size())}, list).Cast(dtype);
  };
  const auto ids = [](const Int32s& children) {
    Ints ids;
    for (int32_t child : children) ids.push_back(child < 0 ? -1 - int64_t{child} : child);
    return ids;
  };
  const auto leafs = [](const Int32s& children) {
    Ints flags;
    for (int32_t child : children) flags.push_back(child < 0);
    return flags;
  };
  const Ints modes = longs(e.modes);
  NodeAttrs attrs = {
      {"nodes_featureids", longs(e.features)},
      {"nodes_modes",
       Tensor::Of<int64_t>({static_cast<int64_t>(modes.size())}, modes).Cast(DType::kUInt8)},
      {"nodes_splits", numbers(e.splits)},
      {"nodes_truenodeids", ids(e.yes)},
      {"nodes_trueleafs", leafs(e.yes)},
      {"nodes_falsenodeids", ids(e.no)},
      {"nodes_falseleafs", leafs(e.no)},
      {"tree_roots", longs(e.roots)},
      {"leaf_targetids", longs(e.leaf_targets)},
      {"leaf_weights", numbers(e.leaf_weights)},
      {"n_targets", e.targets},
      {"aggregate_function", NumberOf(e.aggregate)},
      {"post_transform", 0}};
  if (!e.missing.empty()) attrs.emplace_back("nodes_missing_value_tracks_true", longs(e.missing));
  if (!e.member_counts.empty()) attrs.emplace_back("membership_values", numbers(SetsOf(e)));
  return attrs;
}

// A model has one operator set of ai.onnx.ml. The set that has TreeEnsemble lacks
// TreeEnsembleRegressor, which is older.
void RequireMl(OpContext& op, int version) {
  Graph& graph = op.exporter().graph();
  const int before = graph.ml_version();
  op.Require(version == 1 || before <= 1 || before == version,
             "the model has trees of float32 and others, for which ai.onnx.ml has no operator set "
             "together");
  graph.RequireMl(std::max(before, version));
}

void ExportTrees(OpContext& op) {
  const Ensemble e(op);
  const DType dtype = op.InType("X");
  if (IsRegressor(e, dtype)) {
    RequireMl(op, 3);
    return op.Out("Out", op.Node("ai.onnx.ml.TreeEnsembleRegressor", {op.In("X")},
                                 RegressorLists(e).Attrs()));
  }
  op.Require(e.leaf_counts.empty(),
             "ONNX's TreeEnsemble has one weight for each leaf, and its older ops only float32");
  RequireMl(op, 5);
  // float32 numbers are compared with splits of float64 as float64.
  const Value x = op.Cast(op.In("X"), dtype, DType::kFloat64);
  Value y = op.Node("ai.onnx.ml.TreeEnsemble", {x}, EnsembleAttrs(e, DType::kFloat64));
  if (!e.base_values.empty()) {
    const Tensor base = Tensor::Of<double>({e.targets}, e.base_values);
    y = op.Node("Add", {y, op.Constant(base)});
  }
  op.Out("Out", op.Cast(y, DType::kFloat64, dtype));
}

// --- support vector machines ---

void ExportSvm(OpContext& op) {
  op.Require(op.InType("X") == DType::kFloat32, "ONNX's support vector machines are of float32");
  NodeAttrs attrs = {{"kernel_type", UpperCase(op.Attr<std::string>("kernel"))},
                     {"kernel_params", Floats{op.Attr<float>("gamma"), op.Attr<float>("coef0"),
                                              op.Attr<float>("degree")}},
                     {"post_transform", "NONE"}};
  for (const char* name : {"support_vectors", "coefficients", "rho"})
    attrs.emplace_back(name, op.Attr<Floats>(name));
  RequireMl(op, 1);
  const Ints per_class = op.IntsAttr("vectors_per_class");
  if (per_class.empty()) {
    op.Require(!op.Wants("Label"), "the output Label has no counterpart without classes");
    attrs.emplace_back("n_supports", op.Attr<int64_t>("vectors"));
    return op.Out("Out", op.Node("ai.onnx.ml.SVMRegressor", {op.In("X")}, attrs));
  }
  Ints classes;
  for (size_t i = 0; i < per_class.size(); ++i) classes.push_back(static_cast<int64_t>(i));
  attrs.emplace_back("vectors_per_class", per_class);
  attrs.emplace_back("classlabels_ints", classes);
  const auto prob_a = op.Attr<Floats>("prob_a");
  if (!prob_a.empty()) {
    attrs.emplace_back("prob_a", prob_a);
    attrs.emplace_back("prob_b", op.Attr<Floats>("prob_b"));
  }
  const Values results = op.Nodes("ai.onnx.ml.SVMClassifier", {op.In("X")}, 2, attrs);
  op.exporter().graph().SetType(results[0], DType::kInt64);
  op.Out("Label", results[0]);
  // The decision of one pair has the opposite number before it.
  const bool one_pair = per_class.size() == 2 && prob_a.empty();
  op.Out("Out", one_pair ? op.Slice(results[1], 1, 1, 2) : results[1]);
}

constexpr ExportRow kRows[] = {
    {"svm", ExportSvm, "SVMClassifier or SVMRegressor (ai.onnx.ml)"},
    {"tree_ensemble", ExportTrees, "TreeEnsembleRegressor or TreeEnsemble (ai.onnx.ml)"},
};

}  // namespace

ExportRows MlRows() { return kRows; }

}  // namespace coracle::onnx
