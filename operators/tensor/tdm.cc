#include <coracle/framework/base/checked.h>
#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/random/generator.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>

#include <algorithm>
#include <numeric>

namespace coracle::tdm_op {

constexpr int64_t kFixedColumns = 3;  // item, layer, parent

void InferTdmChild(InferContext& ctx) {
  VarMeta out = ctx.Input("X");
  const VarMeta& info = ctx.Input("TreeInfo");
  const int64_t children = ctx.Attr<int32_t>("child_nums");
  ctx.Require("C1", IsIndexType(out.dtype), out);
  ctx.Require("C2",
              IsIndexType(info.dtype) && info.shape.rank() == 2 && children >= 1 &&
                  InferContext::Matches(info.shape[1], kFixedColumns + children),
              "TreeInfo", info, "child_nums", children);
  const DType dtype = DTypeFromAttr(ctx, "C3", "dtype");
  ctx.Require("C3", IsIndexType(dtype), dtype);
  std::vector<int64_t> dims = out.shape.ToVector();
  dims.push_back(children);
  out.shape = ToShape(ctx, "C4", dims);
  out.dtype = dtype;
  ctx.SetOutput("Child", out);
  ctx.SetOutput("LeafMask", out);
}

// Writes `value` as element i of an int32 or int64 tensor.
void Write(void* to, DType dtype, int64_t i, int64_t value) {
  if (dtype == DType::kInt64)
    static_cast<int64_t*>(to)[i] = value;
  else
    static_cast<int32_t*>(to)[i] = static_cast<int32_t>(value);
}

Kernel TdmChild(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), info = ctx.Input("TreeInfo");
  const TensorArg child = ctx.Output("Child"), mask = ctx.Output("LeafMask");
  const int64_t children = ctx.Attr<int32_t>("child_nums");
  const int64_t nodes = info.shape[0], columns = info.shape[1];
  const std::string name = ctx.op().type();
  return [=](Workspace& ws) {
    const IndexReader ids(ws, x), tree(ws, info);
    void *to = ws.Data<void>(child), *to_mask = ws.Data<void>(mask);
    for (int64_t i = 0; i < x.numel; ++i) {
      const int64_t node = ids[i];
      if (node < 0 || node >= nodes) ThrowIndexRange(name, "X", i, node, nodes);
      const int64_t first = node * columns + kFixedColumns;
      const bool has_children = node != 0 && tree[first] != 0;
      for (int64_t c = 0; c < children; ++c) {
        const int64_t id = has_children ? tree[first + c] : 0;
        if (id < 0 || id >= nodes) ThrowIndexRange(name, "TreeInfo", first + c, id, nodes);
        const bool leaf = has_children && tree[id * columns] != 0;
        Write(to, child.dtype, i * children + c, id);
        Write(to_mask, mask.dtype, i * children + c, leaf ? 1 : 0);
      }
    }
  };
}

using Ints = std::vector<int32_t>;

void InferTdmSampler(InferContext& ctx) {
  const VarMeta &x = ctx.Input("X"), &travel = ctx.Input("Travel"), &layer = ctx.Input("Layer");
  const bool column = x.shape.rank() == 2 && InferContext::Matches(x.shape[1], 1);
  ctx.Require("C1", IsIndexType(x.dtype) && column, x);
  const auto counts = ctx.Attr<Ints>("neg_samples_num_list");
  const auto offsets = ctx.Attr<Ints>("layer_offset_lod");
  const auto layers = static_cast<int64_t>(counts.size());
  const bool rows = travel.shape.rank() == 2 && InferContext::Matches(travel.shape[1], layers);
  ctx.Require("C2", IsIndexType(travel.dtype) && rows, "Travel", travel, "layers", layers);
  const bool ascend = offsets.size() == counts.size() + 1 && offsets[0] >= 0 &&
                      std::is_sorted(offsets.begin(), offsets.end());
  ctx.Require("C3", ascend, "layer_offset_lod", offsets, "layers", layers);
  const int64_t nodes = NumelOf(layer.shape);
  ctx.Require("C3", IsIndexType(layer.dtype) && (nodes < 0 || offsets.back() <= nodes), "Layer",
              layer, "layer_offset_lod", offsets);
  int64_t columns = ctx.Attr<bool>("output_positive") ? layers : 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const bool enough =
        counts[i] >= 0 && (counts[i] == 0 || counts[i] < offsets[i + 1] - offsets[i]);
    ctx.Require("C4", enough, "neg_samples_num_list", counts, "layer_offset_lod", offsets);
    columns = CheckedAdd(columns, int64_t{counts[i]});
  }
  const DType dtype = DTypeFromAttr(ctx, "C5", "dtype");
  ctx.Require("C5", IsIndexType(dtype), dtype);
  for (const char* slot : {"Out", "Labels", "Mask"})
    ctx.SetOutput(slot, dtype, {x.shape[0], columns});
}

// Random, distinct positions of a layer: the beginning of a shuffle. Afterwards only the swapped
// positions are restored.
class DistinctPlaces {
 public:
  // `order` and `swapped` have an element for each position; order[i] = i.
  DistinctPlaces(const Philox& random, int64_t* order, int64_t* swapped)
      : random_(random), order_(order), swapped_(swapped) {}
  void Begin(int64_t places) {
    for (int64_t i = 0; i < drawn_; ++i) {
      order_[i] = i;
      order_[swapped_[i]] = swapped_[i];
    }
    drawn_ = 0;
    places_ = places;
  }
  // The next one; -1 after the last.
  int64_t Next() {
    if (drawn_ == places_) return -1;
    const int64_t other = drawn_ + UniformBelow(random_, draws_++, places_ - drawn_);
    std::swap(order_[drawn_], order_[other]);
    swapped_[drawn_] = other;
    return order_[drawn_++];
  }

 private:
  const Philox& random_;
  int64_t *order_, *swapped_;
  int64_t places_ = 0, drawn_ = 0;
  uint64_t draws_ = 0;
};

Kernel TdmSampler(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), travel = ctx.Input("Travel"), layer = ctx.Input("Layer");
  const TensorArg out = ctx.Output("Out"), labels = ctx.Output("Labels"), mask = ctx.Output("Mask");
  const auto counts = ctx.Attr<Ints>("neg_samples_num_list");
  const auto offsets = ctx.Attr<Ints>("layer_offset_lod");
  const bool positives = ctx.Attr<bool>("output_positive");
  const int64_t items = travel.shape[0], layers = static_cast<int64_t>(counts.size());
  int64_t most = 1;
  for (size_t i = 0; i < counts.size(); ++i)
    most = std::max<int64_t>(most, offsets[i + 1] - offsets[i]);
  const TensorArg order = ctx.Scratch(DType::kInt64, {most});
  const TensorArg swapped = ctx.Scratch(DType::kInt64, {most});
  const Generator generator(ctx);
  const std::string name = ctx.op().type(), failure = ctx.Failure("C4");
  return [=](Workspace& ws) {
    const IndexReader ids(ws, x), paths(ws, travel), nodes(ws, layer);
    void *to = ws.Data<void>(out), *to_mask = ws.Data<void>(mask);
    void* to_labels = labels ? ws.Data<void>(labels) : nullptr;
    int64_t at = 0;
    const auto put = [&](int64_t node, int64_t label, int64_t real) {
      Write(to, out.dtype, at, node);
      if (to_labels) Write(to_labels, labels.dtype, at, label);
      Write(to_mask, mask.dtype, at++, real);
    };
    const Philox random = generator(ws);
    auto* places = ws.Data<int64_t>(order);
    std::iota(places, places + most, int64_t{0});
    DistinctPlaces place(random, places, ws.Data<int64_t>(swapped));
    for (int64_t i = 0; i < x.numel; ++i) {
      const int64_t item = ids[i];
      if (item < 0 || item >= items) ThrowIndexRange(name, "X", i, item, items);
      CheckTimeLimit("drawing");
      for (int64_t l = 0; l < layers; ++l) {
        const int64_t positive = paths[item * layers + l], begin = offsets[static_cast<size_t>(l)];
        const bool real = positive != 0;
        if (positives) put(positive, real, real);
        place.Begin(offsets[static_cast<size_t>(l) + 1] - begin);
        for (int32_t left = counts[static_cast<size_t>(l)]; left > 0;) {
          const int64_t next = real ? place.Next() : 0;
          if (next < 0) ThrowInvalid(failure + ", got too few in layer " + std::to_string(l));
          const int64_t node = real ? nodes[begin + next] : 0;
          if (real && node == positive) continue;
          put(node, 0, real);
          --left;
        }
      }
    }
  };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("tdm_sampler")
          .Doc("Draws training samples from a tree whose leaves are items. Out has a row for each "
               "item of X. For each layer of the tree, the row has the item's node in that layer "
               "(from the item's row of Travel) if output_positive is set, followed by random "
               "other nodes of the layer, from different positions of Layer. Labels is 1 for the "
               "item's nodes, else 0. If the item's node is 0, the item has no node in that layer: "
               "node, label and mask of all samples of the layer are 0; otherwise the mask is 1. "
               "An item without a row of Travel is an error.")
          .Constraint("C1", "X must be int32 or int64, [B, 1]")
          .Constraint("C2",
                      "Travel must be an int32 or int64 matrix with a column for each number of "
                      "neg_samples_num_list")
          .Constraint(
              "C3",
              "layer_offset_lod must ascend from 0 or more to at most the number of elements of "
              "Layer; it must be int32 or int64, with one number more than neg_samples_num_list")
          .Constraint("C4", "a layer must have enough nodes besides the item's")
          .Constraint("C5", "dtype must be int32 or int64")
          .Input("X", "items, [B, 1]")
          .Input("Travel", "the nodes from the root to each item, [items, layers]; 0: none")
          .Input("Layer", "nodes, layer after layer")
          .Output("Out", "nodes, [B, samples]")
          .OptionalOutput("Labels", "1 for the item's nodes, else 0; of Out's shape")
          .Output("Mask", "1 for nodes, 0 where there are none; of Out's shape")
          .Attr<Ints>("neg_samples_num_list", Ints{}, "numbers of random nodes of the layers")
          .Attr<Ints>("layer_offset_lod", Ints{},
                      "offsets at which each layer begins in Layer, and the end")
          .Attr<bool>("output_positive", true,
                      "start the samples of each layer with the item's node")
          .Attr<int32_t>("seed", 0, "seed of this op; 0: the program's")
          .Attr<int32_t>("dtype", static_cast<int32_t>(DType::kInt32), "dtype of the outputs")
          .Random()
          .NotDifferentiable("integers have no gradient")
          .Rows(RowRule::kEach)
          .Infer(InferTdmSampler)
          .Reference(TdmSampler));
  ops.Add(OpDef("tdm_child")
              .Doc("Child = the children of each node of X in a tree, and LeafMask = 1 for "
                   "children that are items, else 0. Both are zeros for node 0 and for nodes whose "
                   "first child is 0. A node without a row of TreeInfo is an error.")
              .Constraint("C1", "X must be int32 or int64")
              .Constraint("C2",
                          "TreeInfo must be an int32 or int64 matrix of 3 + child_nums columns, "
                          "child_nums being positive")
              .Constraint("C3", "dtype must be int32 or int64")
              .Constraint("C4", "the rank of Child must be at most 9")
              .Input("X", "nodes")
              .Input("TreeInfo",
                     "a row for each node: its item (0: none), layer and parent, then its children")
              .Output("Child", "tensor of X's dims and child_nums")
              .Output("LeafMask", "tensor of Child's shape")
              .Attr<int32_t>("child_nums", "number of children of a node")
              .Attr<int32_t>("dtype", static_cast<int32_t>(DType::kInt32), "dtype of the outputs")
              .NotDifferentiable("integers have no gradient")
              .Rows(RowRule::kEach)
              .Infer(InferTdmChild)
              .Reference(TdmChild));
}

}  // namespace coracle::tdm_op
