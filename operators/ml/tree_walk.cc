// Forests in the layout of the fast kernel. All nodes are in one array, tree by tree and level by
// level, with the children of a node next to each other. The next node follows from the comparison
// without a branch. A leaf leads to itself, so that several rows (or, for few rows, several trees)
// advance together, as many steps as the deepest way has.

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/subnormals.h>
#include <coracle/operators/ml/forest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>

namespace coracle::inline internal {
namespace {

constexpr int kLanes = 8;
constexpr int64_t kBlock = 64;  // rows that pass one tree before the next

template <class T>
struct WalkNode {
  T split;           // of a leaf: nan
  uint32_t feature;  // of a leaf: 0
  // Twice the index of the child for x <= split (x < split), plus 1 if a nan goes there. The other
  // child follows it. A leaf has the index before its own.
  uint32_t child;
};

template <class T>
struct WalkForest {
  std::vector<WalkNode<T>> nodes;
  std::vector<uint32_t> roots;
  std::vector<int32_t> depths;
  std::vector<int32_t> leaves;  // of each node that is a leaf
  std::vector<T> values;        // its only weight, if each leaf has one and there is one target
  std::vector<uint32_t> leaf_starts;
  std::vector<int32_t> leaf_targets;
  std::vector<T> leaf_weights, base_values;
  int64_t targets = 1;
  T scale = 1;
  bool strict = false;        // x < split
  bool nan_to_first = false;  // at some node
  bool several = false;       // weights of a leaf, or targets
};

// A split such that x <= split (x < split) means the same for all x of type T.
template <class T>
T SplitFor(double split, bool strict) {
  const auto rounded = static_cast<T>(split);
  if (std::isnan(split) || static_cast<double>(rounded) == split) return rounded;
  const T infinity = std::numeric_limits<T>::infinity();
  const bool above = static_cast<double>(rounded) > split;
  if (strict) return above ? rounded : std::nextafter(rounded, infinity);
  return above ? std::nextafter(rounded, -infinity) : rounded;
}

bool IsStrict(int32_t mode) {
  return mode == static_cast<int32_t>(TreeMode::kLess) ||
         mode == static_cast<int32_t>(TreeMode::kGreaterOrEqual);
}

// Whether the branch of a true comparison is that of x > split or x >= split.
bool IsReversed(int32_t mode) {
  return mode == static_cast<int32_t>(TreeMode::kGreater) ||
         mode == static_cast<int32_t>(TreeMode::kGreaterOrEqual);
}

bool HasWalk(const Forest& forest) {
  if (forest.aggregate != TreeAggregate::kSum && forest.aggregate != TreeAggregate::kAverage)
    return false;
  if (3 * forest.order.size() + forest.roots.size() >= (size_t{1} << 31) ||
      forest.leaf_weights.size() >= (size_t{1} << 32))
    return false;
  const bool strict =
      !forest.order.empty() && IsStrict(forest.modes[static_cast<size_t>(forest.order[0])]);
  return std::all_of(forest.order.begin(), forest.order.end(), [&](int32_t node) {
    const int32_t mode = forest.modes[static_cast<size_t>(node)];
    return !std::isnan(forest.splits[static_cast<size_t>(node)]) &&
           mode <= static_cast<int32_t>(TreeMode::kGreater) && IsStrict(mode) == strict;
  });
}

template <class T>
class WalkBuilder {
 public:
  explicit WalkBuilder(const Forest& forest) : from_(forest) {}

  WalkForest<T> Build() {
    to_.strict = !from_.order.empty() && IsStrict(from_.modes[static_cast<size_t>(from_.order[0])]);
    AddLeafWeights();
    Add();  // so that every leaf has an index before its own
    for (int32_t root : from_.roots) AddTree(root);
    to_.depths = from_.depths;
    return std::move(to_);
  }

 private:
  uint32_t Add() {
    to_.nodes.push_back({std::numeric_limits<T>::quiet_NaN(), 0, 0});
    to_.leaves.push_back(0);
    if (!to_.several) to_.values.push_back(0);
    return static_cast<uint32_t>(to_.nodes.size() - 1);
  }

  void AddLeafWeights() {
    to_.targets = from_.targets;
    to_.several = from_.targets > 1 || from_.leaf_weights.size() != from_.NumLeaves() ||
                  !from_.leaf_counts.empty();
    if (from_.aggregate == TreeAggregate::kAverage)
      to_.scale = static_cast<T>(std::max<size_t>(from_.roots.size(), 1));
    to_.base_values.assign(from_.base_values.begin(), from_.base_values.end());
    to_.leaf_weights.assign(from_.leaf_weights.begin(), from_.leaf_weights.end());
    to_.leaf_targets = from_.leaf_targets;
    to_.leaf_starts.assign(from_.leaf_starts.begin(), from_.leaf_starts.end());
  }

  void AddTree(int32_t root) {
    struct Open {
      uint32_t at;
      int32_t child;
    };
    std::vector<Open> open = {{Add(), root}};
    to_.roots.push_back(open[0].at);
    for (size_t i = 0; i < open.size(); ++i) {
      const Open one = open[i];
      if (Forest::IsLeaf(one.child)) {
        SetLeaf(one.at, Forest::LeafOf(one.child));
        continue;
      }
      const auto node = static_cast<size_t>(one.child);
      const uint32_t first = Add();
      const uint32_t second = Add();
      const bool reversed = IsReversed(from_.modes[node]);
      const bool nan_true = !from_.missing.empty() && from_.missing[node] != 0;
      const bool nan_first = reversed != nan_true;
      to_.nan_to_first |= nan_first;
      to_.nodes[one.at] = {SplitFor<T>(from_.splits[node], to_.strict),
                           static_cast<uint32_t>(from_.features[node]), 2 * first + nan_first};
      open.push_back({first, reversed ? from_.no[node] : from_.yes[node]});
      open.push_back({second, reversed ? from_.yes[node] : from_.no[node]});
    }
  }

  void SetLeaf(uint32_t at, size_t leaf) {
    to_.nodes[at].child = 2 * (at - 1);
    to_.leaves[at] = static_cast<int32_t>(leaf);
    if (!to_.several) to_.values[at] = static_cast<T>(from_.leaf_weights[leaf]);
  }

  const Forest& from_;
  WalkForest<T> to_;
};

// One step of a lane.
template <class T, bool kStrict, bool kNan>
inline uint32_t Next(const WalkNode<T>* nodes, uint32_t at, const T* row) {
  const WalkNode<T>& node = nodes[at];
  const T x = row[node.feature];
  uint32_t first = kStrict ? x < node.split : x <= node.split;
  if constexpr (kNan) first |= static_cast<uint32_t>(x != x) & node.child;
  return (node.child >> 1) + 1 - (first & 1);
}

// All lanes to their leaves, in at most `depth` steps.
template <class T, bool kStrict, bool kNan>
inline void Walk(const WalkNode<T>* nodes, const std::array<const T*, kLanes>& rows, int32_t depth,
                 std::array<uint32_t, kLanes>& at) {
  for (int32_t step = 0; step < depth;) {
    for (const int32_t end = std::min(step + 4, depth); step < end; ++step)
      for (size_t i = 0; i < kLanes; ++i) at[i] = Next<T, kStrict, kNan>(nodes, at[i], rows[i]);
    if (step >= depth) return;
    uint32_t moving = 0;
    for (size_t i = 0; i < kLanes; ++i) moving |= (nodes[at[i]].child >> 1) + 1 - at[i];
    if (moving == 0) return;
  }
}

template <class T>
inline void AddVotes(const WalkForest<T>& forest, uint32_t at, T* out) {
  const auto leaf = static_cast<size_t>(forest.leaves[at]);
  for (uint32_t i = forest.leaf_starts[leaf]; i < forest.leaf_starts[leaf + 1]; ++i)
    out[forest.leaf_targets[i]] += forest.leaf_weights[i];
}

template <class T, bool kStrict, bool kNan>
struct Walker {
  const WalkForest<T>& forest;
  int64_t features;

  // Results of up to kBlock rows.
  void Block(const T* x, int64_t rows, T* out) const {
    std::fill(out, out + rows * forest.targets, T{0});
    const int64_t whole = rows / kLanes * kLanes;
    if (whole > 0) {
      for (size_t tree = 0; tree < forest.roots.size(); ++tree) {
        for (int64_t row = 0; row < whole; row += kLanes)
          Rows(tree, x + row * features, out + row * forest.targets);
      }
    }
    for (int64_t row = whole; row < rows; ++row)
      Trees(x + row * features, out + row * forest.targets);
    Finish(rows, out);
  }

  void Rows(size_t tree, const T* x, T* out) const {
    std::array<const T*, kLanes> rows;
    std::array<uint32_t, kLanes> at;
    for (size_t i = 0; i < kLanes; ++i) {
      rows[i] = x + static_cast<int64_t>(i) * features;
      at[i] = forest.roots[tree];
    }
    Walk<T, kStrict, kNan>(forest.nodes.data(), rows, forest.depths[tree], at);
    for (size_t i = 0; i < kLanes; ++i)
      Count(at[i], out + static_cast<int64_t>(i) * forest.targets);
  }

  // All trees for one row.
  void Trees(const T* x, T* out) const {
    std::array<const T*, kLanes> rows;
    rows.fill(x);
    const size_t trees = forest.roots.size();
    for (size_t tree = 0; tree < trees; tree += kLanes) {
      std::array<uint32_t, kLanes> at;
      int32_t depth = 0;
      const size_t lanes = std::min<size_t>(kLanes, trees - tree);
      for (size_t i = 0; i < kLanes; ++i) {
        const size_t own = std::min(tree + i, trees - 1);  // the last one fills all lanes
        at[i] = forest.roots[own];
        depth = std::max(depth, forest.depths[own]);
      }
      Walk<T, kStrict, kNan>(forest.nodes.data(), rows, depth, at);
      for (size_t i = 0; i < lanes; ++i) Count(at[i], out);
    }
  }

  void Count(uint32_t at, T* out) const {
    if (forest.several)
      AddVotes(forest, at, out);
    else
      *out += forest.values[at];
  }

  void Finish(int64_t rows, T* out) const {
    if (forest.scale != 1)
      for (int64_t i = 0; i < rows * forest.targets; ++i) out[i] /= forest.scale;
    if (forest.base_values.empty()) return;
    for (int64_t row = 0; row < rows; ++row)
      for (size_t k = 0; k < forest.base_values.size(); ++k) *out++ += forest.base_values[k];
  }
};

template <class T, bool kStrict, bool kNan>
Kernel MakeKernel(std::shared_ptr<const WalkForest<T>> forest, const TensorArg& x,
                  const TensorArg& out) {
  // About 10,000 steps for each thread.
  int64_t steps = 1;
  for (int32_t depth : forest->depths) steps += depth + 2;
  const int64_t grain = std::max<int64_t>(1, 10000 / steps / kLanes) * kLanes;
  return [=](Workspace& ws) {
    // A split next to 0 may be subnormal, and 0 is a common feature.
    const ScopedSubnormals exact(false);
    const T* in = ws.Data<const T>(x);
    T* results = ws.Data<T>(out);
    ParallelFor(out.shape[0], grain, [&](int64_t begin, int64_t end) {
      const Walker<T, kStrict, kNan> walker{*forest, x.shape[1]};
      for (int64_t row = begin; row < end; row += kBlock) {
        walker.Block(in + row * x.shape[1], std::min(kBlock, end - row),
                     results + row * forest->targets);
      }
    });
  };
}

}  // namespace

template <class T>
Kernel PrepareTreeWalk(const Forest& forest, const TensorArg& x, const TensorArg& out) {
  if (!HasWalk(forest)) return {};
  const auto walk = std::make_shared<const WalkForest<T>>(WalkBuilder<T>(forest).Build());
  if (walk->strict) {
    return walk->nan_to_first ? MakeKernel<T, true, true>(walk, x, out)
                              : MakeKernel<T, true, false>(walk, x, out);
  }
  return walk->nan_to_first ? MakeKernel<T, false, true>(walk, x, out)
                            : MakeKernel<T, false, false>(walk, x, out);
}

template Kernel PrepareTreeWalk<float>(const Forest&, const TensorArg&, const TensorArg&);
template Kernel PrepareTreeWalk<double>(const Forest&, const TensorArg&, const TensorArg&);

}  // namespace coracle::inline internal
