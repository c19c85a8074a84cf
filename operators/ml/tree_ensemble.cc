#include <coracle/framework/base/subnormals.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/ml/forest.h>

#include <algorithm>
#include <memory>

namespace coracle::tree_ensemble_op {

using Ints = std::vector<int32_t>;
using Doubles = std::vector<double>;

void InferEnsemble(InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  ctx.Require("C1", x.rank() == 2, x);
  Forest forest = Forest::Of(ctx);
  ctx.Require("C5", forest.targets >= 1, "targets", forest.targets);
  const ForestFault fault = forest.Check();
  if (!fault.constraint.empty()) ctx.Fail(fault.constraint, fault.got);
  ctx.Require("C8", x[1] < 0 || forest.most_feature < x[1], "feature", forest.most_feature, "X", x);
  ctx.SetOutput("Out", ctx.InputDType("X"), {x[0], forest.targets});
}

// Adds the weights of a leaf to the results of a row; `voted` says which targets have one.
template <class T>
void Vote(const Forest& forest, size_t leaf, bool* voted, T* out) {
  for (size_t i = forest.leaf_starts[leaf]; i < forest.leaf_starts[leaf + 1]; ++i) {
    const auto target = static_cast<size_t>(forest.leaf_targets[i]);
    const auto weight = static_cast<T>(forest.leaf_weights[i]);
    T& value = out[target];
    if (!voted[target])
      value = weight;
    else if (forest.aggregate == TreeAggregate::kMin)
      value = weight < value ? weight : value;
    else if (forest.aggregate == TreeAggregate::kMax)
      value = weight > value ? weight : value;
    else
      value += weight;
    voted[target] = true;
  }
}

template <class T>
KernelOf<T> EnsembleReference(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  auto made = std::make_shared<Forest>(Forest::Of(ctx));
  made->Check();
  const std::shared_ptr<const Forest> forest = std::move(made);
  const TensorArg voted = ctx.Scratch(DType::kBool, {forest->targets});
  return [=](Workspace& ws) {
    // A split next to 0 may be subnormal, and 0 is a common feature.
    const ScopedSubnormals exact(false);
    const T* row = ws.Data<const T>(x);
    T* result = ws.Data<T>(out);
    bool* has = ws.Data<bool>(voted);
    const auto trees = static_cast<T>(std::max<size_t>(forest->roots.size(), 1));
    for (int64_t i = 0; i < out.shape[0]; ++i, row += x.shape[1], result += forest->targets) {
      std::fill(has, has + forest->targets, false);
      std::fill(result, result + forest->targets, T{0});
      for (int32_t root : forest->roots) Vote(*forest, forest->LeafOfRow(root, row), has, result);
      for (size_t k = 0; k < static_cast<size_t>(forest->targets); ++k) {
        if (forest->aggregate == TreeAggregate::kAverage) result[k] /= trees;
        if (!forest->base_values.empty()) result[k] += static_cast<T>(forest->base_values[k]);
      }
    }
  };
}

Kernel EnsembleFast(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (x.dtype != DType::kFloat32 && x.dtype != DType::kFloat64) return {};
  Forest forest = Forest::Of(ctx);
  forest.Check();
  return x.dtype == DType::kFloat64 ? PrepareTreeWalk<double>(forest, x, out)
                                    : PrepareTreeWalk<float>(forest, x, out);
}

void DeclareNodes(OpDef& def) {
  def.Attr<Ints>("nodes_features", {}, "the column of X that each node compares")
      .Attr<Ints>("nodes_modes", {},
                  "0: x <= split, 1: x < split, 2: x >= split, 3: x > split, 4: x == split, "
                  "5: x != split, 6: x is in the node's set")
      .Attr<Doubles>("nodes_splits", {}, "the split of each node")
      .Attr<Ints>(
          "nodes_true", {},
          "where each node leads if its comparison is true: a node, or the leaf i as -1 - i")
      .Attr<Ints>("nodes_false", {}, "where each node leads otherwise")
      .Attr<Ints>("nodes_missing_true", {},
                  "whether (1) a nan counts as true; otherwise it is compared. Empty: zeros")
      .Attr<Ints>("roots", {}, "the root of each tree: a node, or the leaf i as -1 - i")
      .Attr<Ints>("member_counts", {}, "the size of the set of each node of mode 6")
      .Attr<Doubles>("members", {}, "the elements of these sets, one set after the other");
}

void DeclareLeaves(OpDef& def) {
  def.Attr<Ints>("leaf_counts", {}, "the number of weights of each leaf. Empty: one each")
      .Attr<Ints>("leaf_targets", {}, "the target of each weight")
      .Attr<Doubles>("leaf_weights", {}, "the weights, one leaf after the other")
      .Attr<int64_t>("targets", int64_t{1}, "the number of targets")
      .Attr<std::string>("aggregate", std::string("sum"),
                         "how the weights of a target are joined: sum, average (the sum divided "
                         "by the number of trees), min or max")
      .OneOf({"sum", "average", "min", "max"})
      .Attr<Doubles>("base_values", {}, "added to each target. Empty: zeros");
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("tree_ensemble")
          .Doc(
              "Decision trees. A row of X goes from the root of each tree to a leaf: at each node, "
              "one of its elements is compared with the node's split. Out holds, for each row and "
              "target, what the leaves' weights of that target give together; 0 without any.")
          .Constraint("C1", "X must have rank 2")
          .Constraint("C2", "the lists of nodes must have equal lengths")
          .Constraint("C3", "features must not be negative, and modes must lie in [0, 6]")
          .Constraint("C4", "the weights must have one target each and be divided into leaves")
          .Constraint("C5",
                      "targets must be at least 1, weights must name one, and base_values "
                      "must have a number for each")
          .Constraint("C6", "each node of mode 6 must have a set, and each set a node")
          .Constraint("C7", "roots and children must exist, and no node may be reached twice")
          .Constraint("C8", "X must have the column that a node compares")
          .Input("X", "[N, F]")
          .Output("Out", "[N, targets], of X's dtype")
          .Apply(DeclareNodes)
          .Apply(DeclareLeaves)
          .Infer(InferEnsemble)
          .Rows(RowRule::kEach)
          .NotDifferentiable("a tree is piecewise constant")
          .Reference(EnsembleReference<float>, EnsembleReference<double>)
          .Fast(EnsembleFast));
}

}  // namespace coracle::tree_ensemble_op
