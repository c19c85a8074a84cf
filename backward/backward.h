#pragma once
// AppendBackward and Gradients: append to a program the ops that compute gradients.
//
// Gradients belong to values, not to names. A variable that is overwritten (x = relu(x) in place)
// takes several values; each has a gradient of its own. For a variable that is read before it is
// written (a parameter, a feed) x@GRAD is the gradient of the value before the run, for any other
// that of the last value; the gradients of the other values are x@GRAD@1, x@GRAD@2, ... A value
// that a gradient op reads after it was overwritten is saved first: an `assign` is put before the
// op that overwrites it. Where x@GRAD is taken (a second backward of the same program), the name is
// x@GRAD_0, x@GRAD_1, ...
//
// A variable that the program declares without element type (files may) gets what the shape rules
// say of it, in the program itself; where none does, and a gradient would pass, it is refused by
// name. Ops on the way of a gradient must be as the verifier wants them: its words are the error.
//
// The targets may lie in a sub-block. A path that leaves it is followed: what the block reads may
// be computed in the blocks around it, and the gradient ops of that are appended to the sub-block
// too. Of a loop's body, a step or a function it is the gradient of one run: where a path leads
// through other runs or through the op that runs the block it is refused, at once or by the
// verifier once that op is there (stop_gradients ends a path). A target that the sub-block
// overwrites means what the sub-block makes of it when its Variable was looked up from there.
//
// Where the gradient of a `call` is differentiated again, all calls but those with a gradient of
// their own are replaced by their ops first (InlineDerivedCalls), and stay so.

#include <coracle/framework/ir/block.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/operators.h>

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

namespace coracle {

// Recomputation: activations are thrown away after the forward pass and computed again where
// the gradient ops need them (Chen, Xu, Zhang, Guestrin: "Training deep nets with sublinear
// memory cost", 2016).

// What is kept, by name or chosen. Both empty: no recomputation.
struct RecomputeOptions {
  // The ops of the loss's block are cut into segments behind the ops that write these variables.
  // The variables, those that cross from one segment to another, and all of the last segment are
  // kept. Names of variables that no op of the block writes (feeds, parameters) have no effect.
  std::vector<std::string> checkpoints = {};
  // Without checkpoints: the cuts are chosen such that the activations that gradients need (kept
  // ones, and those of one segment) take at most so many bytes, with as little recomputation as
  // possible; when that cannot be, such that they take as few as can be.
  uint64_t memory_budget = 0;
  // What an unknown dimension counts for in that estimate.
  int64_t batch_size = 1;

  bool enabled() const { return !checkpoints.empty() || memory_budget > 0; }
};

// What Recompute did.
struct RecomputeReport {
  std::vector<std::string> checkpoints;  // a variable written by the op before each cut
  int ops = 0;                           // that run a second time
  // Bytes of the activations that gradients read, as they were and (estimated) as they are.
  uint64_t bytes_before = 0, bytes_after = 0;
};

// Rewrites the ops from `first_gradient` to the end of the block, which are the gradient ops of
// those before: a value of an earlier segment that they read is computed again, under the name
// <var>@RECOMPUTED, by copies of the ops that made it, put before the first gradient op of the
// segment that reads one. A copy computes the same bits: it reads the same values (one that is
// overwritten in between is saved first), and random ops draw the same numbers. Copies have the
// role Backward and name in the attr recomputed_from the variables of their original. What they
// write besides (running statistics) is thrown away, so that it is not updated twice.
//
// Not computed again, but kept: values of ops with sub-blocks or side effects, or that read or
// write something else than dense tensors; persistable variables; what sub-blocks of gradient
// ops read. Throws kNotFound for a checkpoint that the block does not know. Linear in the size
// of the block.
RecomputeReport Recompute(BlockDesc& block, size_t first_gradient, const RecomputeOptions& options,
                          const OpRegistry& ops);

// Gradient variable -> forward variable, of every gradient that is complete (partial contributions
// are not in it).
using GradToVar = std::unordered_map<std::string, std::string>;

// Runs after each appended gradient op, which is the last op of `block`; may append ops behind it.
using BackwardCallback = std::function<void(BlockDesc& block, const GradToVar& grad_to_var)>;

// What stands for the gradient of an input that no target depends on.
enum class Unconnected {
  kNone,  // nothing: ""
  kZero,  // zeros of the input's shape and dtype
};

// How the contributions to one gradient are added.
enum class Aggregation {
  kSum,      // one `sum` op, once all are there
  kRunning,  // each to the sum of those before it: never more than two are held at a time
};

// "none", "zero"; "sum", "running". Throw kInvalidArgument for any other text.
Unconnected UnconnectedFromText(const std::string& text);
Aggregation AggregationFromText(const std::string& text);

// A gradient rule of the caller's for the ops of a type, of those only whose op_namescope begins
// with `name_scope`. The first that fits counts.
struct GradientOverride {
  std::string op_type = {};
  GradientFn rule = {};
  std::string name_scope = {};
};

struct BackwardOptions {
  // AppendBackward: the variables whose gradients are wanted. Empty: all trainable parameters of
  // the program, and the fed variables (not persistable, written by no op) whose stop_gradient
  // is explicitly false.
  std::vector<std::string> parameter_list = {};
  // Variables that no gradient flows into, besides those with stop_gradient and those whose dtype
  // is not floating-point. Of any block.
  std::vector<std::string> no_grad_set = {};
  // Variables that count as constants: their own gradient may be asked for, but none flows on to
  // what they are computed from.
  std::vector<std::string> stop_gradients = {};
  // For each target the variable that holds the gradient which enters there (of the target's shape
  // and dtype), or "" for ones. Empty: ones for all.
  std::vector<std::string> target_gradients = {};
  Unconnected unconnected = Unconnected::kNone;
  Aggregation aggregation = Aggregation::kSum;
  // A gradient with several contributions is summed right behind the op that yields the last one.
  // With gates, it is summed behind the last op of that op's rule: nothing reads a gradient of an
  // op before all gradients of it are computed (but for callbacks, which come behind each op).
  bool gate_gradients = false;
  std::vector<BackwardCallback> callbacks = {};
  std::vector<GradientOverride> overrides = {};
  // Gradient rules by name, for ops whose attr gradient_function names one (`call`).
  std::unordered_map<std::string, GradientFn> functions = {};
  // The gradient of x is called <gradient_prefix>x@GRAD.
  std::string gradient_prefix = {};
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
  // Activations that backward computes again instead of keeping them.
  RecomputeOptions recompute = {};
};
using GradientsOptions = BackwardOptions;

struct ParamAndGrad {
  std::string param;
  std::string grad;  // "" when the loss does not depend on the parameter
  bool operator==(const ParamAndGrad&) const = default;
};

// Appends d(loss)/d(parameter) for each parameter, to the block of the loss. The loss must hold one
// element. A gradient with several contributions (kept in partial variables
// x@GRAD@RENAME@block<b>@<n>) is summed by one op, once all are there. Gradient ops get the role
// Backward and, where they complete a parameter's gradient, op_role_var = {param, grad}. Returns a
// pair for each name of parameter_list, or for each trainable parameter, in order.
//
// Throws kInvalidArgument for a program that is wrong, for a loss of another size or dtype,
// kNotFound for an unknown name, kUnimplemented for an op without gradient rule between a wanted
// variable and the loss (naming op, variable and reason), kInvalidArgument for one whose gradient
// is forbidden; the program is then as it was, but for types that were filled in and calls that
// were replaced. Linear in the size of the program.
std::vector<ParamAndGrad> AppendBackward(const Variable& loss, const BackwardOptions& options = {},
                                         GradToVar* grad_to_var = nullptr);

// Appends the gradients of the sum of all elements of all targets (each weighted by its target
// gradient) with respect to each input; "" for an input that no target depends on (or zeros, see
// Unconnected). Targets may have any shape, feed each other and occur twice; inputs too: an input
// that feeds another gets the total derivative. A target of integers is a constant. All targets
// belong to one block, and the ops are appended to it. An input with stop_gradient (as data has)
// has no gradient, which a warning says. Errors as for AppendBackward, and kInvalidArgument for an
// input that the block of the targets does not see. Costs what the ops between inputs and targets
// cost, not what the block does (but for the first call after an edit other than appending, which
// reads the block once, and for programs with sub-blocks, of which each call reads how they nest).
std::vector<std::string> Gradients(const std::vector<Variable>& targets,
                                   const std::vector<Variable>& inputs,
                                   const GradientsOptions& options = {},
                                   GradToVar* grad_to_var = nullptr);

// The op of which backward made this gradient op, found in its block, the block's forward block or
// those around it by the attr forward_op; nullptr for one that belongs to none (a sum, a seed, a
// clip), or whose forward op was removed. Works on programs read from files.
const OpDesc* FindForwardOp(const OpDesc& gradient_op);

// Sparse gradients where only dense tensors will do: an executor fetches no selected rows.

// The names, but for variables of the block that hold selected rows: those of dense tensors that
// ops appended to the block make of them. Unknown and empty names stay as they are.
std::vector<std::string> DenseNames(BlockDesc& block, std::vector<std::string> names,
                                    const OpRegistry& ops = DefaultOps());

// Second derivatives of a scalar: the whole Hessian, or its product with a vector. Both are made of
// gradients of gradients (Gradients, twice) and are ordinary ops of the program. Calls whose
// gradient is derived are replaced by their ops first (InlineDerivedCalls), and stay so.

struct HessianOptions {
  // Variables that no gradient flows into, of either order.
  std::vector<std::string> no_grad_set = {};
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
};

// Appends d2y / dx dx for each x of xs, and returns the names of the variables that hold them: of
// shape x.shape + x.shape, element [i, j] (i and j over the elements of x) being the derivative of
// dy / dx[i] by x[j]. "" for an x that y does not depend on; zeros for one on which it depends
// linearly. Derivatives by two different xs are not made.
//
// The ops that depend on the row are appended once for each element of x: meant for some thousands
// of elements at most.
//
// Throws kInvalidArgument for a y of more than one element, and for an x whose shape is not known
// when the program is built or has more than half of Shape::kMaxRank dimensions; otherwise as
// Gradients (kUnimplemented where an op on the path lacks a rule of second order). The program is
// then as it was (but see AppendBackward).
std::vector<std::string> Hessian(const Variable& y, const std::vector<Variable>& xs,
                                 const HessianOptions& options = {});

// Appends the product of the Hessian of y by all of xs with the vector that v holds, v[k] being the
// part that belongs to xs[k], and returns the names of the parts of the product: result[k] has the
// shape of xs[k] and is the sum over j of d2y / dxs[k] dxs[j] times v[j]. "" for an x that y does
// not depend on. v counts as constant, also where it is computed from xs. Costs about twice what
// the gradient costs.
//
// Throws kInvalidArgument for a y of more than one element, for as many v as not xs, and for a v of
// another shape or dtype than its x; otherwise as Gradients. The program is then as it was (but
// see AppendBackward).
std::vector<std::string> HessianVectorProduct(const Variable& y, const std::vector<Variable>& xs,
                                              const std::vector<Variable>& v,
                                              const HessianOptions& options = {});

}  // namespace coracle
