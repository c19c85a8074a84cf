// ai.onnx.ml: decision trees.

#include <coracle/convert/onnx/import/families.h>
#include <coracle/convert/onnx/import/graph_importer.h>
#include <coracle/convert/onnx/import/ml_scores.h>
#include <coracle/framework/base/text.h>
#include <coracle/operators/operators.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace coracle::onnx {
namespace {

using Ints = std::vector<int64_t>;
using Doubles = std::vector<double>;

constexpr std::array kModes = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE",
                               "BRANCH_GT",  "BRANCH_EQ", "BRANCH_NEQ"};
constexpr int32_t kLeafMode = -1, kMemberMode = 6;

// The attrs of tree_ensemble.
struct Ensemble {
  std::vector<int32_t> features, modes, yes, no, missing, roots;
  std::vector<int32_t> member_counts, leaf_counts, leaf_targets;
  Doubles splits, members, leaf_weights, base_values;
  int64_t targets = 1;
  std::string aggregate = "sum";
};

Variable MakeEnsemble(NodeContext& node, const Variable& x, const Ensemble& e) {
  return node.Unary("tree_ensemble", x,
                    {{"nodes_features", e.features},
                     {"nodes_modes", e.modes},
                     {"nodes_splits", e.splits},
                     {"nodes_true", e.yes},
                     {"nodes_false", e.no},
                     {"nodes_missing_true", e.missing},
                     {"roots", e.roots},
                     {"member_counts", e.member_counts},
                     {"members", e.members},
                     {"leaf_counts", e.leaf_counts},
                     {"leaf_targets", e.leaf_targets},
                     {"leaf_weights", e.leaf_weights},
                     {"targets", e.targets},
                     {"aggregate", e.aggregate},
                     {"base_values", e.base_values}});
}

Tensor TensorAttr(NodeContext& node, const std::string& name) {
  const auto* proto = node.attributes().Tensor(name);
  node.Require(proto != nullptr, fmt::format("attribute {} is missing", name));
  return ParseTensorProto(*proto, node.graph().state().tensors);
}

Doubles DoublesOf(const Tensor& tensor) {
  const Tensor wide = tensor.Cast(DType::kFloat64);
  return {wide.span<double>().begin(), wide.span<double>().end()};
}

// Floats, or the elements of the tensor NAME_as_tensor.
Doubles NumbersAttr(NodeContext& node, const std::string& name) {
  const std::vector<float> floats = node.Floats(name, {});
  const std::string tensor = name + "_as_tensor";
  if (!node.HasAttr(tensor)) return {floats.begin(), floats.end()};
  node.Require(floats.empty(), fmt::format("attributes {} and {} are both given", name, tensor));
  return DoublesOf(TensorAttr(node, tensor));
}

void IgnoreHitRates(NodeContext& node) {
  node.attributes().Ignore("nodes_hitrates");
  node.attributes().Ignore("nodes_hitrates_as_tensor");
}

// Doubles hold most integers exactly, float32 does not.
DType RowType(NodeContext& node) {
  return IsFloating(node.dtype(0)) ? node.dtype(0) : DType::kFloat64;
}

// --- TreeEnsembleClassifier and TreeEnsembleRegressor ---

// The lists of nodes, and where the children are.
class NodeLists {
 public:
  explicit NodeLists(NodeContext& node)
      : node_(node),
        trees_(node.Ints("nodes_treeids", {})),
        ids_(node.Ints("nodes_nodeids", {})),
        features_(node.Ints("nodes_featureids", {})),
        true_ids_(node.Ints("nodes_truenodeids", {})),
        false_ids_(node.Ints("nodes_falsenodeids", {})),
        missing_(node.Ints("nodes_missing_value_tracks_true", {})),
        splits_(NumbersAttr(node, "nodes_values")) {
    IgnoreHitRates(node);
    ReadModes();
    CheckLengths();
    SortIds();
  }

  size_t size() const { return ids_.size(); }
  bool IsLeaf(size_t i) const { return modes_[i] == kLeafMode; }
  // The node of a tree with this id; size() if there is none.
  size_t Find(int64_t tree, int64_t id) const {
    const std::pair key(tree, id);
    const auto found = std::lower_bound(sorted_.begin(), sorted_.end(), key,
                                        [this](size_t i, const auto& k) { return KeyOf(i) < k; });
    return found == sorted_.end() || KeyOf(*found) != key ? size() : *found;
  }
  // Fills in nodes and roots; leaves are numbered in the order of the nodes.
  void FillIn(Ensemble* ensemble);
  const std::vector<int32_t>& leaves() const { return leaves_; }  // the leaf of each node, or -1

 private:
  std::pair<int64_t, int64_t> KeyOf(size_t i) const { return {trees_[i], ids_[i]}; }
  std::string NameOf(size_t i) const {
    return fmt::format("node {} of tree {}", ids_[i], trees_[i]);
  }

  void ReadModes() {
    for (const std::string& name :
         node_.attributes().Strings("nodes_modes").value_or(std::vector<std::string>())) {
      const auto found = std::find(kModes.begin(), kModes.end(), name);
      node_.Require(name == "LEAF" || found != kModes.end(),
                    fmt::format("attribute nodes_modes has the unknown mode {}", Quote(name)));
      modes_.push_back(name == "LEAF" ? kLeafMode : ToInt32(found - kModes.begin(), "a mode"));
    }
  }

  void CheckLengths() const {
    const size_t n = size();
    node_.Require(n > 0 && n < (size_t{1} << 30), fmt::format("there are {} nodes", n));
    const std::pair<const char*, size_t> lists[] = {
        {"nodes_treeids", trees_.size()},
        {"nodes_featureids", features_.size()},
        {"nodes_truenodeids", true_ids_.size()},
        {"nodes_falsenodeids", false_ids_.size()},
        {"nodes_missing_value_tracks_true", missing_.empty() ? n : missing_.size()},
        {"nodes_modes", modes_.size()},
        {"nodes_values", splits_.size()}};
    for (const auto& [name, length] : lists) {
      node_.Require(length == n,
                    fmt::format("attribute {} has {} elements for {} nodes", name, length, n));
    }
  }

  void SortIds() {
    sorted_.resize(size());
    std::iota(sorted_.begin(), sorted_.end(), size_t{0});
    std::stable_sort(sorted_.begin(), sorted_.end(),
                     [this](size_t a, size_t b) { return KeyOf(a) < KeyOf(b); });
    for (size_t i = 1; i < size(); ++i) {
      node_.Require(KeyOf(sorted_[i - 1]) != KeyOf(sorted_[i]),
                    NameOf(sorted_[i]) + " is given twice");
    }
  }

  size_t ChildOf(size_t i, int64_t id) const {
    const size_t child = Find(trees_[i], id);
    node_.Require(child < size(),
                  fmt::format("{} leads to node {}, which the tree does not have", NameOf(i), id));
    return child;
  }

  // In tree_ensemble: a node, or the leaf i as -1 - i.
  int32_t PlaceOf(size_t i) const { return IsLeaf(i) ? -1 - leaves_[i] : branches_[i]; }

  void Number() {
    leaves_.assign(size(), -1);
    branches_.assign(size(), -1);
    int32_t leaves = 0, branches = 0;
    for (size_t i = 0; i < size(); ++i)
      (IsLeaf(i) ? leaves_[i] = leaves++ : branches_[i] = branches++);
  }

  std::vector<int32_t> RootsOf(const std::vector<bool>& has_parent) const;

  NodeContext& node_;
  Ints trees_, ids_, features_, true_ids_, false_ids_, missing_;
  Doubles splits_;
  std::vector<int32_t> modes_, leaves_, branches_;
  std::vector<size_t> sorted_;                   // by tree and id
  std::vector<std::array<size_t, 2>> children_;  // of branches; size(): none
};

void NodeLists::FillIn(Ensemble* ensemble) {
  Number();
  children_.assign(size(), {size(), size()});
  std::vector<bool> has_parent(size());
  for (size_t i = 0; i < size(); ++i) {
    if (IsLeaf(i)) continue;
    const size_t yes = ChildOf(i, true_ids_[i]), no = ChildOf(i, false_ids_[i]);
    children_[i] = {yes, no};
    for (size_t child : {yes, no}) {
      node_.Require(!has_parent[child] || IsLeaf(child),
                    NameOf(child) + " is the child of several nodes");
      has_parent[child] = true;
    }
    node_.Require(features_[i] >= 0 && features_[i] <= INT32_MAX,
                  fmt::format("{} reads the feature {}", NameOf(i), features_[i]));
    ensemble->features.push_back(ToInt32(features_[i], "a feature"));
    ensemble->modes.push_back(modes_[i]);
    ensemble->splits.push_back(splits_[i]);
    ensemble->yes.push_back(PlaceOf(yes));
    ensemble->no.push_back(PlaceOf(no));
    if (!missing_.empty()) ensemble->missing.push_back(missing_[i] != 0);
  }
  ensemble->roots = RootsOf(has_parent);
}

// The root of a tree is its first node in the lists; if that is a child, its only node that is not.
std::vector<int32_t> NodeLists::RootsOf(const std::vector<bool>& has_parent) const {
  std::vector<size_t> roots;
  for (size_t begin = 0, end = 0; begin < size(); begin = end) {  // one tree
    size_t first = sorted_[begin];
    std::vector<size_t> reached;
    for (; end < size() && trees_[sorted_[end]] == trees_[sorted_[begin]]; ++end) {
      first = std::min(first, sorted_[end]);
      if (!has_parent[sorted_[end]]) reached.push_back(sorted_[end]);
    }
    if (has_parent[first]) {
      const size_t starts = reached.size();
      for (size_t i = 0; i < reached.size(); ++i) {
        for (size_t child : children_[reached[i]])
          if (child < size() && !IsLeaf(child)) reached.push_back(child);
      }
      const auto is_branch = [this](size_t i) { return !IsLeaf(i); };
      const auto branches = std::count_if(sorted_.begin() + static_cast<int64_t>(begin),
                                          sorted_.begin() + static_cast<int64_t>(end), is_branch);
      const auto met = std::count_if(reached.begin(), reached.end(), is_branch);
      node_.Require(starts == 1 && met == branches,
                    fmt::format("tree {} is no tree: {} of its nodes have no parent, and {} of {} "
                                "branches are reached from them",
                                trees_[first], starts, met, branches));
      first = reached[0];
    }
    roots.push_back(first);
  }
  std::sort(roots.begin(), roots.end());
  std::vector<int32_t> places;
  for (size_t root : roots) places.push_back(PlaceOf(root));
  return places;
}

// The weights of leaves, from the attributes class_* or target_*.
struct Votes {
  Votes(NodeContext& node, const std::string& prefix)
      : trees(node.Ints(prefix + "_treeids", {})),
        nodes(node.Ints(prefix + "_nodeids", {})),
        ids(node.Ints(prefix + "_ids", {})),
        weights(NumbersAttr(node, prefix + "_weights")) {
    node.Require(
        trees.size() == ids.size() && nodes.size() == ids.size() && weights.size() == ids.size(),
        fmt::format("attributes {0}_treeids, {0}_nodeids, {0}_ids and {0}_weights must "
                    "have one length",
                    prefix));
    for (int64_t id : ids)
      node.Require(id >= 0 && id < INT32_MAX, fmt::format("attribute {}_ids has {}", prefix, id));
  }

  Ints trees, nodes, ids;
  Doubles weights;
};

// Brings the weights into the order of the leaves. Those of inner nodes have no effect.
void AddVotes(NodeContext& node, const NodeLists& lists, const Votes& votes, Ensemble* ensemble) {
  std::vector<std::pair<int32_t, size_t>> order;  // leaf, index of the weight
  for (size_t i = 0; i < votes.ids.size(); ++i) {
    const size_t at = lists.Find(votes.trees[i], votes.nodes[i]);
    node.Require(at < lists.size(), fmt::format("a weight is of node {} of tree {}, which is none "
                                                "of the nodes",
                                                votes.nodes[i], votes.trees[i]));
    if (lists.IsLeaf(at)) order.emplace_back(lists.leaves()[at], i);
  }
  std::sort(order.begin(), order.end());
  size_t leaves = 0;
  for (size_t i = 0; i < lists.size(); ++i) leaves += lists.IsLeaf(i);
  ensemble->leaf_counts.assign(leaves, 0);
  for (const auto& [leaf, i] : order) {
    ++ensemble->leaf_counts[static_cast<size_t>(leaf)];
    ensemble->leaf_targets.push_back(ToInt32(votes.ids[i], "a target"));
    ensemble->leaf_weights.push_back(votes.weights[i]);
  }
  const auto is_one = [](int32_t count) { return count == 1; };
  if (std::all_of(ensemble->leaf_counts.begin(), ensemble->leaf_counts.end(), is_one))
    ensemble->leaf_counts.clear();
}

Ensemble ReadEnsemble(NodeContext& node, const Votes& votes, int64_t targets) {
  Ensemble ensemble;
  NodeLists lists(node);
  lists.FillIn(&ensemble);
  AddVotes(node, lists, votes, &ensemble);
  ensemble.targets = targets;
  for (int64_t id : votes.ids)
    node.Require(id < targets, fmt::format("a weight is of target {} of {}", id, targets));
  ensemble.base_values = NumbersAttr(node, "base_values");
  return ensemble;
}

void RequireBaseValues(NodeContext& node, const Ensemble& ensemble) {
  const auto given = static_cast<int64_t>(ensemble.base_values.size());
  node.Require(
      given == 0 || given == ensemble.targets,
      fmt::format("attribute base_values has {} elements for {} targets", given, ensemble.targets));
}

void ImportRegressor(NodeContext& node) {
  const Votes votes(node, "target");
  const int64_t most =
      votes.ids.empty() ? 0 : *std::max_element(votes.ids.begin(), votes.ids.end());
  Ensemble ensemble = ReadEnsemble(node, votes, node.Int("n_targets", most + 1));
  RequireBaseValues(node, ensemble);
  ensemble.aggregate =
      LowerCase(node.OneOf("aggregate_function", "SUM", {"AVERAGE", "SUM", "MIN", "MAX"}));
  const PostTransform transform = PostTransformAttr(node);
  const Variable scores = MakeEnsemble(node, RowsIn(node, RowType(node)), ensemble);
  node.Set(0, node.Cast(Transformed(node, transform, scores), DType::kFloat32));
}

// Two classes of which only one gets weights. The operator set says little about them; this is what
// ONNX Runtime does and exporters rely on. The weights decide for the second class if their sum
// exceeds 0.5, or 0 if one of them is negative.
void ImportBinary(NodeContext& node, const ClassLabels& labels, Ensemble ensemble, int32_t voted) {
  const PostTransform transform = PostTransformAttr(node);
  const bool positive = std::all_of(ensemble.leaf_weights.begin(), ensemble.leaf_weights.end(),
                                    [](double weight) { return weight >= 0; });
  const Variable x = RowsIn(node, RowType(node));
  const double least = positive ? 0.5 : 0.0;
  if (voted == 1 || ensemble.base_values.size() == 2) {
    if (ensemble.base_values.size() == 1) ensemble.base_values.push_back(0);
    const Variable scores = MakeEnsemble(node, x, ensemble);
    const Variable column = node.ConstantVar(Ints{voted});
    const Variable score =
        node.Make("gather", {{"X", {scores.name()}}, {"Index", {column.name()}}}, {{"axis", 1}});
    return SetClasses(node, labels, SecondIf(node, Greater(score, least)),
                      Transformed(node, transform, scores));
  }
  ensemble.targets = 1;
  const Variable score = MakeEnsemble(node, x, ensemble);
  const Variable first = positive ? 1.0 - score : -score;
  SetClasses(node, labels, SecondIf(node, Greater(score, least)),
             TwoColumns(node, transform, first, score));
}

void ImportClassifier(NodeContext& node) {
  const ClassLabels labels = LabelsAttr(node, "classlabels_int64s");
  const Votes votes(node, "class");
  Ensemble ensemble = ReadEnsemble(node, votes, labels.size());
  const bool one_id =
      !votes.ids.empty() && std::all_of(votes.ids.begin(), votes.ids.end(),
                                        [&](int64_t id) { return id == votes.ids[0]; });
  if (labels.size() == 2 && one_id && ensemble.base_values.size() <= 2)
    return ImportBinary(node, labels, std::move(ensemble), ToInt32(votes.ids[0], "a class"));
  if (labels.size() == 2 && ensemble.base_values.size() == 1) ensemble.base_values.push_back(0);
  RequireBaseValues(node, ensemble);
  const PostTransform transform = PostTransformAttr(node);
  const Variable scores = MakeEnsemble(node, RowsIn(node, RowType(node)), ensemble);
  SetClasses(node, labels, TopClass(node, scores), Transformed(node, transform, scores));
}

// --- TreeEnsemble ---

// A child: the leaf or the node at this index.
int32_t ChildAt(NodeContext& node, const char* name, int64_t index, bool is_leaf, size_t nodes,
                size_t leaves) {
  const auto count = static_cast<int64_t>(is_leaf ? leaves : nodes);
  node.Require(index >= 0 && index < count, fmt::format("attribute {} names {} {} of {}", name,
                                                        is_leaf ? "leaf" : "node", index, count));
  return ToInt32(is_leaf ? -1 - index : index, "an index");
}

// The sets of the nodes of mode kMemberMode, with a nan between two of them.
void AddSets(NodeContext& node, Ensemble* ensemble) {
  const auto sets = std::count(ensemble->modes.begin(), ensemble->modes.end(), kMemberMode);
  if (sets == 0) return node.attributes().Ignore("membership_values");
  ensemble->member_counts.assign(1, 0);
  for (double member : DoublesOf(TensorAttr(node, "membership_values"))) {
    if (std::isnan(member)) {
      ensemble->member_counts.push_back(0);
    } else {
      ensemble->members.push_back(member);
      ++ensemble->member_counts.back();
    }
  }
  auto& counts = ensemble->member_counts;
  if (static_cast<int64_t>(counts.size()) == sets + 1 && counts.back() == 0) counts.pop_back();
  node.Require(
      static_cast<int64_t>(counts.size()) == sets,
      fmt::format("attribute membership_values has {} sets for {} nodes", counts.size(), sets));
}

std::vector<int32_t> Narrowed(NodeContext& node, const std::string& name) {
  return ToInt32(node.Ints(name, {}), "attribute " + name);
}

void AddNodes(NodeContext& node, Ensemble* e) {
  const Ints yes = node.Ints("nodes_truenodeids", {}), no = node.Ints("nodes_falsenodeids", {});
  const Ints yes_leaf = node.Ints("nodes_trueleafs", {});
  const Ints no_leaf = node.Ints("nodes_falseleafs", {});
  e->features = Narrowed(node, "nodes_featureids");
  e->missing = Narrowed(node, "nodes_missing_value_tracks_true");
  e->splits = DoublesOf(TensorAttr(node, "nodes_splits"));
  for (double mode : DoublesOf(TensorAttr(node, "nodes_modes"))) {
    node.Require(mode >= 0 && mode <= kMemberMode,
                 fmt::format("attribute nodes_modes has the unknown mode {}", mode));
    e->modes.push_back(ToInt32(static_cast<int64_t>(mode), "a mode"));
  }
  const size_t n = e->features.size(), leaves = e->leaf_weights.size();
  for (size_t size : {yes.size(), no.size(), yes_leaf.size(), no_leaf.size(), e->splits.size(),
                      e->modes.size(), e->missing.empty() ? n : e->missing.size()})
    node.Require(size == n,
                 fmt::format("an attribute nodes_* has {} elements for {} nodes", size, n));
  for (size_t i = 0; i < n; ++i) {
    e->yes.push_back(ChildAt(node, "nodes_truenodeids", yes[i], yes_leaf[i] != 0, n, leaves));
    e->no.push_back(ChildAt(node, "nodes_falsenodeids", no[i], no_leaf[i] != 0, n, leaves));
  }
  for (int64_t root : node.Ints("tree_roots", {}))
    e->roots.push_back(ChildAt(node, "tree_roots", root, false, n, leaves));
}

void ImportEnsemble(NodeContext& node) {
  Ensemble ensemble;
  ensemble.leaf_weights = DoublesOf(TensorAttr(node, "leaf_weights"));
  ensemble.leaf_targets = Narrowed(node, "leaf_targetids");
  AddNodes(node, &ensemble);
  AddSets(node, &ensemble);
  IgnoreHitRates(node);
  const auto& ids = ensemble.leaf_targets;
  const int64_t most = ids.empty() ? 0 : *std::max_element(ids.begin(), ids.end());
  ensemble.targets = node.Int("n_targets", most + 1);
  const int64_t aggregate = node.Int("aggregate_function", 1);
  node.Require(aggregate >= 0 && aggregate <= 3,
               fmt::format("attribute aggregate_function must lie in [0, 3], got {}", aggregate));
  ensemble.aggregate = std::array{"average", "sum", "min", "max"}[static_cast<size_t>(aggregate)];
  const int64_t transform = node.Int("post_transform", 0);
  node.Require(transform >= 0 && transform <= 4,
               fmt::format("attribute post_transform must lie in [0, 4], got {}", transform));
  constexpr std::array kTransforms = {PostTransform::kNone, PostTransform::kSoftmax,
                                      PostTransform::kLogistic, PostTransform::kSoftmaxZero,
                                      PostTransform::kProbit};
  const Variable x = RowsIn(node, node.dtype(0));
  node.Set(0, Transformed(node, kTransforms[static_cast<size_t>(transform)],
                          MakeEnsemble(node, x, ensemble)));
}

}  // namespace

void AddMlTreeImporters(NodeImporters& importers) {
  const auto add = [&](const char* type, int since, const char* takes, void (*import)(NodeContext&),
                       const char* maps_to) {
    importers.Add({.op_type = type,
                   .since = since,
                   .takes = takes,
                   .import = import,
                   .maps_to = maps_to,
                   .composed = true,
                   .domain = "ai.onnx.ml"});
  };
  add("TreeEnsemble", 5, "f2", ImportEnsemble, "tree_ensemble");
  add("TreeEnsembleClassifier", 1, "n1-2", ImportClassifier,
      "tree_ensemble, arg_max or greater_than, gather, softmax or sigmoid");
  add("TreeEnsembleRegressor", 1, "n1-2", ImportRegressor, "tree_ensemble, softmax or sigmoid");
}

}  // namespace coracle::onnx
