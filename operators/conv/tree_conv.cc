// tree_conv: convolution over the nodes of trees (Mou et al., 2016).

#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/gemm.h>
#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>

namespace coracle::tree_conv_op {

// The type of Out.
VarMeta TreeOut(const InferContext& ctx) {
  const VarMeta &x = ctx.Input("NodesVector"), &edges = ctx.Input("EdgeSet");
  const VarMeta& filter = ctx.Input("Filter");
  ctx.Require("C1", x.shape.rank() == 3, x);
  ctx.Require("C2", IsIndexType(edges.dtype) && edges.shape.CompatibleWith({x.shape[0], -1, 2}),
              "EdgeSet", edges, "NodesVector", x);
  const Shape& f = filter.shape;
  ctx.Require("C3",
              filter.dtype == x.dtype && f.rank() == 4 && InferContext::Matches(f[0], x.shape[2]) &&
                  InferContext::Matches(f[1], 3),
              "Filter", filter, "NodesVector", x);
  return {VarType::kLoDTensor, x.dtype, {x.shape[0], x.shape[1], f[2], f[3]}, 0};
}

// The edges of one tree, by parent, with nodes counted from 0.
class Tree {
 public:
  explicit Tree(const RunConstraint& valid) : valid_(valid) {}
  // Reads at most `most` edges. Requires that the nodes exist, have at most one parent, and are not
  // their own ancestors.
  void Read(const IndexReader& edges, int64_t begin, int64_t most, int64_t nodes) {
    const auto num = static_cast<size_t>(nodes);
    first_.assign(num + 1, 0);
    parents_.assign(num, -1);
    int64_t count = 0;
    for (; count < most; ++count) {
      const int64_t parent = edges[2 * (begin + count)], child = edges[2 * (begin + count) + 1];
      if (parent == 0 || child == 0) break;
      valid_.Require(parent > 0 && parent <= nodes && child > 0 && child <= nodes, "edge", parent,
                     "to", child, "nodes", nodes);
      int64_t& above = parents_[static_cast<size_t>(child - 1)];
      valid_.Require(above < 0, "second parent of", child);
      above = parent - 1;
      ++first_[static_cast<size_t>(parent)];
    }
    RefuseCycles(nodes);
    size_ = std::min(nodes, count + 1);
    for (size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
    children_.resize(static_cast<size_t>(count));
    next_.assign(first_.begin(), first_.end() - 1);
    for (int64_t e = 0; e < count; ++e) {
      const auto parent = static_cast<size_t>(edges[2 * (begin + e)] - 1);
      children_[static_cast<size_t>(next_[parent]++)] = edges[2 * (begin + e) + 1] - 1;
    }
  }

  int64_t size() const { return size_; }  // upper limit of the nodes in the tree
  // visit(node, eta_l, eta_r, eta_t) for u and its descendants less than max_depth below it.
  template <class Visit>
  void ForEachBelow(int64_t u, int64_t max_depth, const Visit& visit) {
    const auto full = static_cast<double>(max_depth);
    stack_.assign(1, {u, 0, 1, 1});
    while (!stack_.empty()) {
      const At at = stack_.back();
      stack_.pop_back();
      const double top = (full - static_cast<double>(at.depth)) / full;
      const double side = at.siblings == 1 ? 0.5
                                           : static_cast<double>(at.position - 1) /
                                                 static_cast<double>(at.siblings - 1);
      const double left = (1 - top) * side;
      visit(at.node, left, (1 - top) * (1 - left), top);
      if (at.depth + 1 >= max_depth) continue;
      const auto node = static_cast<size_t>(at.node);
      const int64_t begin = first_[node], count = first_[node + 1] - begin;
      for (int64_t k = 0; k < count; ++k)
        stack_.push_back({children_[static_cast<size_t>(begin + k)], at.depth + 1, k + 1, count});
    }
  }

 private:
  struct At {
    int64_t node, depth, position, siblings;
  };

  // Walks up from each node to the first visited node. A walk that meets itself is a cycle.
  void RefuseCycles(int64_t nodes) {
    walks_.assign(parents_.size(), -1);
    for (int64_t walk = 0; walk < nodes; ++walk) {
      int64_t u = walk;
      while (u >= 0 && walks_[static_cast<size_t>(u)] < 0) {
        walks_[static_cast<size_t>(u)] = walk;
        u = parents_[static_cast<size_t>(u)];
      }
      valid_.Require(u < 0 || walks_[static_cast<size_t>(u)] != walk, "a cycle through node",
                     u + 1);
    }
  }

  std::vector<int64_t> first_, children_, next_;
  // of each node: its parent; the walk that visited it; or -1
  std::vector<int64_t> parents_, walks_;
  std::vector<At> stack_;
  const RunConstraint& valid_;
  int64_t size_ = 0;
};

class Trees {
 public:
  explicit Trees(const PrepareContext& ctx)
      : edges_(ctx.Input("EdgeSet")),
        nodes_(ctx.Input("NodesVector").shape[1]),
        max_depth_(ctx.Attr<int32_t>("max_depth")),
        valid_(ctx, "C4") {}
  int64_t nodes() const { return nodes_; }
  // Calls item(first row of the nodes, pairs) for each tree of a batch; pairs(visit) calls visit(u,
  // v, eta_l, eta_r, eta_t) for its pairs of nodes.
  template <class Item>
  void ForEach(Workspace& ws, const Item& item) const {
    const IndexReader edges(ws, edges_);
    const int64_t most = edges_.shape[1];
    Tree tree(valid_);
    for (int64_t b = 0; b < edges_.shape[0]; ++b) {
      tree.Read(edges, b * most, most, nodes_);
      item(b * nodes_, [&](const auto& visit) {
        for (int64_t u = 0; u < tree.size(); ++u) {
          if (u % 256 == 0) CheckTimeLimit("convolving trees");
          tree.ForEachBelow(u, max_depth_,
                            [&](int64_t v, double l, double r, double t) { visit(u, v, l, r, t); });
        }
      });
    }
  }

 private:
  TensorArg edges_;
  int64_t nodes_, max_depth_;
  RunConstraint valid_;
};

// patch[u, i, k] = the sum of eta_k x[v, i] over u and the nodes below it.
template <class T, class Pairs>
void ReadPatches(const T* x, int64_t nodes, int64_t features, const Pairs& pairs, T* patches) {
  std::fill_n(patches, nodes * features * 3, T(0));
  pairs([&](int64_t u, int64_t v, double left, double right, double top) {
    const T l = static_cast<T>(left), r = static_cast<T>(right), t = static_cast<T>(top);
    T* to = patches + u * features * 3;
    for (int64_t i = 0; i < features; ++i, to += 3) {
      const T value = x[v * features + i];
      to[0] += l * value;
      to[1] += r * value;
      to[2] += t * value;
    }
  });
}

// Out = patches * Filter.
template <class T>
KernelOf<T> TreeConv(const PrepareContext& ctx, KernelMode mode) {
  const TensorArg x = ctx.Input("NodesVector"), filter = ctx.Input("Filter");
  const TensorArg out = ctx.Output("Out");
  const Trees trees(ctx);
  const int64_t features = filter.shape[0], width = filter.shape[2] * filter.shape[3];
  const int64_t nodes = trees.nodes();
  const TensorArg memory = ctx.Scratch(x.dtype, {x.numel > 0 ? nodes : 0, features, 3});
  const Gemm<T> product = MakeGemm<T>({.m = nodes, .n = width, .k = features * 3}, mode);
  return [=](Workspace& ws) {
    const T *in = ws.Data<const T>(x), *f = ws.Data<const T>(filter);
    T *o = ws.Data<T>(out), *patches = ws.Data<T>(memory);
    trees.ForEach(ws, [&](int64_t row, const auto& pairs) {
      ReadPatches(in + row * features, nodes, features, pairs, patches);
      product(patches, f, o + row * width);
    });
  };
}

template <class T>
KernelOf<T> TreeConvGrad(const PrepareContext& ctx, KernelMode mode) {
  const TensorArg x = ctx.Input("NodesVector"), filter = ctx.Input("Filter");
  const TensorArg dout = ctx.Input("Out@GRAD");
  const TensorArg dx = ctx.Output("NodesVector@GRAD"), df = ctx.Output("Filter@GRAD");
  const Trees trees(ctx);
  const int64_t features = filter.shape[0], width = filter.shape[2] * filter.shape[3];
  const int64_t nodes = trees.nodes(), columns = features * 3;
  const TensorArg memory = ctx.Scratch(x.dtype, {x.numel > 0 ? nodes : 0, features, 3});
  const Gemm<T> to_filter =
      MakeGemm<T>({.m = columns, .n = width, .k = nodes, .transpose_a = true, .beta = 1}, mode);
  const Gemm<T> to_patches =
      MakeGemm<T>({.m = nodes, .n = columns, .k = width, .transpose_b = true}, mode);
  return [=](Workspace& ws) {
    const T *in = ws.Data<const T>(x), *f = ws.Data<const T>(filter);
    const T* given = ws.Data<const T>(dout);
    T* to_x = dx ? ws.Data<T>(dx) : nullptr;
    T* to_f = df ? ws.Data<T>(df) : nullptr;
    T* patches = ws.Data<T>(memory);
    if (to_x) std::fill_n(to_x, dx.numel, T(0));
    if (to_f) std::fill_n(to_f, df.numel, T(0));
    trees.ForEach(ws, [&](int64_t row, const auto& pairs) {
      const T* g = given + row * width;
      if (to_f) {
        ReadPatches(in + row * features, nodes, features, pairs, patches);
        to_filter(patches, g, to_f);
      }
      if (!to_x) return;
      to_patches(g, f, patches);
      pairs([&](int64_t u, int64_t v, double left, double right, double top) {
        const T l = static_cast<T>(left), r = static_cast<T>(right), t = static_cast<T>(top);
        const T* from = patches + u * columns;
        T* to = to_x + (row + v) * features;
        for (int64_t i = 0; i < features; ++i, from += 3)
          to[i] += l * from[0] + r * from[1] + t * from[2];
      });
    });
  };
}

void DeclareTrees(OpDef& def) {
  def.Input("NodesVector", "floating-point tensor [batch, nodes, features]")
      .Input("EdgeSet",
             "int32 or int64 tensor [batch, edges, 2]: parent and child, counted from "
             "1; a pair with a 0 ends the list")
      .Input("Filter",
             "tensor [features, 3, O, K] of NodesVector's dtype: weights of left, right "
             "and top")
      .NoGradientTo({"EdgeSet"});
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("tree_conv")
              .Doc("Out[u] = the sum over u and its descendants v at depths d < max_depth below it "
                   "of NodesVector[v] (l Filter[:, 0] + r Filter[:, 1] + t Filter[:, 2]), where t "
                   "= (max_depth - d) / max_depth, l = (1 - t) (position of v among its siblings, "
                   "from 0 to 1; 0.5 if it has none or is u), r = (1 - t) (1 - l). A tree has one "
                   "node more than edges; the remaining rows of Out are 0.")
              .Constraint("C1", "NodesVector must be [batch, nodes, features]")
              .Constraint("C2", "EdgeSet must be int32 or int64 [batch, edges, 2]")
              .Constraint("C3", "Filter must be [features, 3, O, K], of NodesVector's dtype")
              .Constraint("C4",
                          "edges must join existing nodes and form trees: no node may have two "
                          "parents or be its own ancestor")
              .Apply(DeclareTrees)
              .Output("Out", "tensor [batch, nodes, O, K]")
              .Attr<int32_t>("max_depth", 2, "depths of a window")
              .Range(2, std::nullopt)
              .NoLod()
              .Rows(EachBatchRow, kEachBatchRow)
              .Tables({"Filter"})
              .Infer([](InferContext& ctx) { ctx.SetOutput("Out", TreeOut(ctx)); })
              .GradientOp({"NodesVector", "EdgeSet", "Filter"})
              .Reference<float, double>([]<class T>(const PrepareContext& c) {
                return TreeConv<T>(c, KernelMode::kReference);
              })
              .Fast([](const PrepareContext& c) -> Kernel {
                if (c.Input("NodesVector").dtype != DType::kFloat32) return {};
                return TreeConv<float>(c, KernelMode::kAuto);
              }));
  ops.Add(OpDef("tree_conv_grad")
              .Doc("Gradients of tree_conv.")
              .ConstraintsOf("tree_conv", {"C1", "C2", "C3", "C4"})
              .Constraint("C5", "Out@GRAD must have Out's shape and dtype")
              .Apply(DeclareTrees)
              .Input("Out@GRAD", "gradient of Out")
              .OptionalOutput("NodesVector@GRAD", "gradient of NodesVector")
              .OptionalOutput("Filter@GRAD", "gradient of Filter")
              .AttrsOf("tree_conv")
              .NoGradient("second derivatives of tree_conv are not provided")
              .Infer([](InferContext& ctx) {
                const VarMeta out = TreeOut(ctx);
                const VarMeta& dout = ctx.Input("Out@GRAD");
                ctx.Require("C5", dout.dtype == out.dtype && dout.shape.CompatibleWith(out.shape),
                            "Out@GRAD", dout, "Out", out);
                ctx.SetOutput("NodesVector@GRAD", ctx.Input("NodesVector"));
                ctx.SetOutput("Filter@GRAD", ctx.Input("Filter"));
              })
              .Reference<float, double>([]<class T>(const PrepareContext& c) {
                return TreeConvGrad<T>(c, KernelMode::kReference);
              })
              .Fast([](const PrepareContext& c) -> Kernel {
                if (c.Input("NodesVector").dtype != DType::kFloat32) return {};
                return TreeConvGrad<float>(c, KernelMode::kAuto);
              }));
}

}  // namespace coracle::tree_conv_op
