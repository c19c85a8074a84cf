#include <coracle/convert/onnx/sort_nodes.h>
#include <coracle/framework/base/error.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/base/text.h>
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace coracle::onnx {
namespace {

using google::protobuf::RepeatedPtrField;
using proto::onnx::GraphProto;
using proto::onnx::NodeProto;

using Nodes = RepeatedPtrField<NodeProto>;
// For each node of a graph, the nodes of that graph whose results it reads.
using Edges = std::vector<std::vector<int>>;

constexpr int kMaxDepth = 64;  // of inner graphs, as in the import

std::string Label(const NodeProto& node) {
  const std::string& name =
      node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name();
  return fmt::format("{} ({})", Quote(name), PrintableLine(node.op_type()));
}

[[noreturn]] void ThrowCycle(const Nodes& nodes, std::span<const int> cycle) {
  constexpr size_t kShown = 6;
  std::string text;
  for (size_t i = 0; i < std::min(cycle.size(), kShown); ++i)
    text += Label(nodes.Get(cycle[i])) + " reads a result of ";
  if (cycle.size() > kShown) text += fmt::format("... ({} more nodes) ... ", cycle.size() - kShown);
  ThrowInvalid("nodes form a cycle: " + text + Label(nodes.Get(cycle[0])));
}

// The order in which each node follows those that it needs: a depth-first search without recursion,
// from each node in the order of the file.
std::vector<int> Order(const Nodes& nodes, const Edges& edges) {
  struct State {
    size_t next = 0;  // the edge to follow next
    bool entered = false, done = false;
  };
  std::vector<State> states(edges.size());
  std::vector<int> order, path;
  const auto enter = [&](int node) {
    states[static_cast<size_t>(node)].entered = true;
    path.push_back(node);
  };
  for (int start = 0; start < nodes.size(); ++start) {
    if (!states[static_cast<size_t>(start)].done) enter(start);
    while (!path.empty()) {
      const auto node = static_cast<size_t>(path.back());
      State& state = states[node];
      if (state.next == edges[node].size()) {
        state.done = true;
        order.push_back(path.back());
        path.pop_back();
        continue;
      }
      const int other = edges[node][state.next++];
      if (states[static_cast<size_t>(other)].done) continue;
      if (states[static_cast<size_t>(other)].entered)
        ThrowCycle(nodes, {std::find(path.begin(), path.end(), other), path.end()});
      enter(other);
    }
  }
  return order;
}

void Sort(Nodes* nodes, const Edges& edges) {
  const std::vector<int> order = Order(*nodes, edges);
  if (std::is_sorted(order.begin(), order.end())) return;
  Nodes sorted;
  sorted.Reserve(nodes->size());
  for (int i : order) sorted.Add(std::move(*nodes->Mutable(i)));
  nodes->Swap(&sorted);
}

// Visits graphs and their inner graphs. A name belongs to the innermost graph that gives it.
class ModelSorter {
 public:
  void SortGraph(GraphProto* graph) {
    if (levels_.size() >= kMaxDepth) return;  // the import refuses it
    std::vector<std::string_view> given;
    for (const auto& input : graph->input()) given.push_back(input.name());
    for (const auto& tensor : graph->initializer()) given.push_back(tensor.name());
    std::vector<std::string_view> outputs;
    for (const auto& output : graph->output()) outputs.push_back(output.name());
    SortNodesOf(graph->mutable_node(), given, outputs);
  }

  void SortFunction(proto::onnx::FunctionProto* function) {
    SortNodesOf(function->mutable_node(), {function->input().begin(), function->input().end()}, {});
  }

 private:
  // Where a name is defined: by a node of the graph at that level, or (-1) by the graph itself.
  struct Definition {
    size_t level;
    int node;
  };
  struct Level {
    Edges edges;
    int node = 0;  // the one that is being visited
  };

  // `outputs` may name values of outer graphs.
  void SortNodesOf(Nodes* nodes, const std::vector<std::string_view>& given,
                   const std::vector<std::string_view>& outputs) {
    const size_t level = levels_.size();
    levels_.push_back({Edges(static_cast<size_t>(nodes->size()))});
    std::vector<std::string_view> names;
    const auto define = [&](std::string_view name, int node) {
      std::vector<Definition>& all = definitions_[name];
      if (!all.empty() && all.back().level == level) return;  // the import refuses a second one
      all.push_back({level, node});
      names.push_back(name);
    };
    for (std::string_view name : given) define(name, -1);
    for (int i = 0; i < nodes->size(); ++i)
      for (const std::string& name : nodes->Get(i).output()) define(name, i);
    for (int i = 0; i < nodes->size(); ++i) {
      levels_[level].node = i;
      Visit(nodes->Mutable(i));
    }
    for (std::string_view name : outputs) Read(name, level);
    for (std::string_view name : names) Undefine(name);
    const Edges edges = std::move(levels_.back().edges);
    levels_.pop_back();
    Sort(nodes, edges);
  }

  void Visit(NodeProto* node) {
    if (++visited_ % 1024 == 0) CheckTimeLimit("reading an ONNX model");
    for (const std::string& name : node->input()) Read(name, levels_.size());
    for (auto& attr : *node->mutable_attribute()) {
      if (attr.has_g()) SortGraph(attr.mutable_g());
      for (GraphProto& graph : *attr.mutable_graphs()) SortGraph(&graph);
    }
  }

  // The nodes being visited need the name, if a graph above `below` gives it.
  void Read(std::string_view name, size_t below) {
    const auto found = definitions_.find(name);
    if (found == definitions_.end() || name.empty()) return;
    const auto [level, writer] = found->second.back();
    if (writer < 0 || level >= below) return;
    auto& reads = levels_[level].edges[static_cast<size_t>(levels_[level].node)];
    if (reads.empty() || reads.back() != writer) reads.push_back(writer);
  }

  void Undefine(std::string_view name) {
    const auto found = definitions_.find(name);
    found->second.pop_back();
    if (found->second.empty()) definitions_.erase(found);
  }

  std::unordered_map<std::string_view, std::vector<Definition>> definitions_;
  std::vector<Level> levels_;
  uint64_t visited_ = 0;
};

}  // namespace

void SortNodes(proto::onnx::ModelProto* model) {
  ModelSorter().SortGraph(model->mutable_graph());
  for (auto& function : *model->mutable_functions()) ModelSorter().SortFunction(&function);
}

}  // namespace coracle::onnx
