#include <coracle/operators/ml/forest.h>
#include <fmt/format.h>

#include <algorithm>

namespace coracle::inline internal {
namespace {

constexpr auto kMember = static_cast<int32_t>(TreeMode::kMember);

}  // namespace

TreeAggregate AggregateOf(const std::string& name) {
  if (name == "average") return TreeAggregate::kAverage;
  if (name == "min") return TreeAggregate::kMin;
  return name == "max" ? TreeAggregate::kMax : TreeAggregate::kSum;
}

bool Forest::Holds(size_t node, double x) const {
  const double split = splits[node];
  switch (static_cast<TreeMode>(modes[node])) {
    case TreeMode::kLessOrEqual:
      return x <= split;
    case TreeMode::kLess:
      return x < split;
    case TreeMode::kGreaterOrEqual:
      return x >= split;
    case TreeMode::kGreater:
      return x > split;
    case TreeMode::kEqual:
      return x == split;
    case TreeMode::kNotEqual:
      return x != split;
    default:
      return std::binary_search(members.begin() + static_cast<int64_t>(member_starts[node]),
                                members.begin() + static_cast<int64_t>(member_starts[node + 1]), x);
  }
}

ForestFault Forest::CheckSizes() const {
  const size_t nodes = NumNodes();
  for (size_t size : {modes.size(), splits.size(), yes.size(), no.size(),
                      missing.empty() ? nodes : missing.size()}) {
    if (size != nodes)
      return {"C2", fmt::format("{} nodes_features and a list of {}", nodes, size)};
  }
  if (leaf_targets.size() != leaf_weights.size()) {
    return {"C4", fmt::format("{} leaf_targets and {} leaf_weights", leaf_targets.size(),
                              leaf_weights.size())};
  }
  if (!base_values.empty() && base_values.size() != static_cast<size_t>(targets))
    return {"C5", fmt::format("{} base_values and {} targets", base_values.size(), targets)};
  return {};
}

ForestFault Forest::CheckNumbers() const {
  for (size_t i = 0; i < NumNodes(); ++i) {
    if (features[i] < 0) return {"C3", fmt::format("feature {} at node {}", features[i], i)};
    if (modes[i] < 0 || modes[i] > kMember)
      return {"C3", fmt::format("mode {} at node {}", modes[i], i)};
  }
  for (size_t i = 0; i < leaf_targets.size(); ++i) {
    if (leaf_targets[i] < 0 || leaf_targets[i] >= targets)
      return {"C5", fmt::format("leaf_targets[{}] = {} of {}", i, leaf_targets[i], targets)};
  }
  return {};
}

// Gives the nodes of mode kMember the sets, in order, and sorts each.
ForestFault Forest::CheckSets() {
  member_starts.assign(NumNodes() + 1, 0);
  size_t set = 0;
  int64_t end = 0;
  for (size_t i = 0; i < NumNodes(); ++i) {
    const auto begin = end;
    if (modes[i] == kMember) {
      const int64_t count = set < member_counts.size() ? member_counts[set] : -1;
      if (count < 0 || count > static_cast<int64_t>(members.size()) - begin)
        return {"C6", fmt::format("set {} of {} elements", set, count)};
      end += count;
      ++set;
      std::sort(members.begin() + begin, members.begin() + end);
    }
    member_starts[i + 1] = static_cast<size_t>(end);
  }
  if (set != member_counts.size() || end != static_cast<int64_t>(members.size())) {
    return {"C6", fmt::format("{} sets for {} nodes, {} elements for {}", member_counts.size(), set,
                              members.size(), end)};
  }
  return {};
}

ForestFault Forest::CheckLeaves() {
  const size_t weights = leaf_weights.size();
  leaf_starts = {0};
  if (leaf_counts.empty()) {
    leaf_starts.resize(weights + 1);
    for (size_t i = 0; i <= weights; ++i) leaf_starts[i] = i;
    return {};
  }
  leaf_starts.reserve(leaf_counts.size() + 1);
  for (int32_t count : leaf_counts) {
    if (count < 0 || static_cast<size_t>(count) > weights - leaf_starts.back())
      return {"C4", fmt::format("{} weights of one leaf, {} in all", count, weights)};
    leaf_starts.push_back(leaf_starts.back() + static_cast<size_t>(count));
  }
  if (leaf_starts.back() == weights) return {};
  return {"C4", fmt::format("leaf_counts for {} of {} weights", leaf_starts.back(), weights)};
}

// Each node is reached at most once, so that the trees have no cycles.
ForestFault Forest::Walk() {
  const auto nodes = static_cast<int64_t>(NumNodes());
  const auto leaves = static_cast<int64_t>(NumLeaves());
  std::vector<bool> seen(NumNodes());
  order.clear();
  order.reserve(NumNodes());
  depths.clear();
  depths.reserve(roots.size());
  const auto reach = [&](int32_t child) -> ForestFault {
    if (child >= nodes || -1 - int64_t{child} >= leaves) {
      return {"C7", child < 0 ? fmt::format("leaf {} of {}", -1 - int64_t{child}, leaves)
                              : fmt::format("node {} of {}", child, nodes)};
    }
    if (IsLeaf(child)) return {};
    const auto node = static_cast<size_t>(child);
    if (seen[node]) return {"C7", fmt::format("node {} reached twice", child)};
    seen[node] = true;
    order.push_back(child);
    most_feature = std::max(most_feature, features[node]);
    return {};
  };
  for (int32_t root : roots) {
    size_t at = order.size();
    if (ForestFault fault = reach(root); !fault.constraint.empty()) return fault;
    int32_t depth = 0;
    while (at < order.size()) {  // one level of the tree
      ++depth;
      for (const size_t end = order.size(); at < end; ++at) {
        const auto node = static_cast<size_t>(order[at]);
        for (int32_t child : {yes[node], no[node]})
          if (ForestFault fault = reach(child); !fault.constraint.empty()) return fault;
      }
    }
    depths.push_back(depth);
  }
  return {};
}

ForestFault Forest::Check() {
  ForestFault fault = CheckSizes();
  if (fault.constraint.empty()) fault = CheckNumbers();
  if (fault.constraint.empty()) fault = CheckSets();
  if (fault.constraint.empty()) fault = CheckLeaves();
  if (fault.constraint.empty()) fault = Walk();
  return fault;
}

}  // namespace coracle::inline internal
