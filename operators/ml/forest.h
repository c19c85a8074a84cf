#pragma once
// Forest: decision trees, as the attrs of tree_ensemble hold them.

#include <coracle/framework/op/op_context.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace coracle::inline internal {

// The comparison x ? split at a node; the numbers are those of ONNX's TreeEnsemble.
enum class TreeMode : int32_t {
  kLessOrEqual,
  kLess,
  kGreaterOrEqual,
  kGreater,
  kEqual,
  kNotEqual,
  kMember,  // x is in the node's set
};

enum class TreeAggregate { kSum, kAverage, kMin, kMax };

// Why a forest is refused: a constraint of tree_ensemble, and the values that violate it.
struct ForestFault {
  std::string constraint = {};  // "": none
  std::string got = {};
};

struct Forest {
  template <class Context>
  static Forest Of(const Context& ctx);

  // Takes time and memory linear in the attrs. Fills in the members below the attrs.
  ForestFault Check();

  size_t NumNodes() const { return features.size(); }
  size_t NumLeaves() const { return leaf_starts.size() - 1; }
  // A child or root is a node, or the leaf -1 - child.
  static bool IsLeaf(int32_t child) { return child < 0; }
  static size_t LeafOf(int32_t child) { return static_cast<size_t>(-1 - int64_t{child}); }

  // Whether the comparison of a node is true; `x` is not a nan.
  bool Holds(size_t node, double x) const;
  // The leaf that a row reaches from a root.
  template <class T>
  size_t LeafOfRow(int32_t root, const T* row) const;

  std::vector<int32_t> features, modes, yes, no, missing, roots;
  std::vector<double> splits;
  std::vector<int32_t> member_counts, leaf_counts, leaf_targets;
  std::vector<double> members, leaf_weights, base_values;
  int64_t targets = 1;
  TreeAggregate aggregate = TreeAggregate::kSum;

  std::vector<size_t> leaf_starts;    // where the weights of each leaf begin; then their end
  std::vector<size_t> member_starts;  // of the set of each node, and their end; sets are sorted
  int32_t most_feature = -1;
  std::vector<int32_t> order;   // the nodes that roots reach, each before its children
  std::vector<int32_t> depths;  // of the trees: nodes on the longest way

 private:
  ForestFault CheckSizes() const;
  ForestFault CheckNumbers() const;
  ForestFault CheckSets();
  ForestFault CheckLeaves();
  ForestFault Walk();
};

TreeAggregate AggregateOf(const std::string& name);

template <class Context>
Forest Forest::Of(const Context& ctx) {
  using Ints = std::vector<int32_t>;
  using Doubles = std::vector<double>;
  Forest forest;
  forest.features = ctx.template Attr<Ints>("nodes_features");
  forest.modes = ctx.template Attr<Ints>("nodes_modes");
  forest.splits = ctx.template Attr<Doubles>("nodes_splits");
  forest.yes = ctx.template Attr<Ints>("nodes_true");
  forest.no = ctx.template Attr<Ints>("nodes_false");
  forest.missing = ctx.template Attr<Ints>("nodes_missing_true");
  forest.roots = ctx.template Attr<Ints>("roots");
  forest.member_counts = ctx.template Attr<Ints>("member_counts");
  forest.members = ctx.template Attr<Doubles>("members");
  forest.leaf_counts = ctx.template Attr<Ints>("leaf_counts");
  forest.leaf_targets = ctx.template Attr<Ints>("leaf_targets");
  forest.leaf_weights = ctx.template Attr<Doubles>("leaf_weights");
  forest.base_values = ctx.template Attr<Doubles>("base_values");
  forest.targets = ctx.template Attr<int64_t>("targets");
  forest.aggregate = AggregateOf(ctx.template Attr<std::string>("aggregate"));
  return forest;
}

template <class T>
size_t Forest::LeafOfRow(int32_t root, const T* row) const {
  int32_t at = root;
  while (!IsLeaf(at)) {
    const auto node = static_cast<size_t>(at);
    const auto x = static_cast<double>(row[features[node]]);
    const bool known = x == x;
    // A nan differs from every split, as in IEEE 754.
    const bool holds = known ? Holds(node, x)
                             : (!missing.empty() && missing[node] != 0) ||
                                   modes[node] == static_cast<int32_t>(TreeMode::kNotEqual);
    at = holds ? yes[node] : no[node];
  }
  return LeafOf(at);
}

// The kernel for forests with one kind of comparison and sums, in blocks of rows; empty for others.
template <class T>
Kernel PrepareTreeWalk(const Forest& forest, const TensorArg& x, const TensorArg& out);

}  // namespace coracle::inline internal
