#pragma once
// AppendBackward and Gradients append ops that compute gradients to a program.
//
// Gradients belong to values, not to names. A variable that is overwritten (x = relu(x) in place)
// takes several values, and each has its own gradient. If a variable is read before it is written
// (a parameter, a feed), x@GRAD is the gradient of its value before the run; otherwise it is the
// gradient of its last value. The gradients of the other values are x@GRAD@1, x@GRAD@2, ... If a
// gradient op needs a value that is overwritten, an `assign` before the overwriting op saves it. If
// the name x@GRAD is in use (a second backward of the same program), the gradient is named
// x@GRAD_0, x@GRAD_1, ...
//
// Files may declare a variable without an element type. Backward then writes the type that the
// shape rules infer into the program; if they infer none and a gradient would pass through the
// variable, backward throws and names it. Ops on the path of a gradient must satisfy the verifier;
// otherwise backward throws the verifier's error.
//
// The targets may be in a sub-block. Paths that leave it are followed: variables that the block
// reads may be computed in the enclosing blocks, and the gradient ops for those are appended to the
// sub-block too. In the body of a loop, a step or a function the result is the gradient of one run.
// A path through other runs, or through the op that runs the block, is refused, either at once or
// by the verifier when that op is appended later; stop_gradients can end such a path. If the
// sub-block overwrites a target whose Variable was looked up from there, the target is the value
// that it writes.
//
// If the gradient of a `call` is differentiated again, all calls without a gradient of their own
// are first replaced permanently by their ops (InlineDerivedCalls).

#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/tensor.h>
#include <coracle/operators/operators.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace coracle {

// --- recomputation ---
// It discards activations after the forward pass and computes them again when the
// gradient ops need them (Chen, Xu, Zhang, Guestrin: "Training deep nets with sublinear memory
// cost", 2016).

// Selects the activations to keep, by name or to fit a budget. If neither is set, nothing
// is recomputed.
struct RecomputeOptions {
  // The ops of the loss's block are cut into segments after the ops that write these variables.
  // These variables are kept, and so are variables that one segment writes and another reads, and
  // all variables of the last segment. Names that no op of the block writes (feeds, parameters)
  // have no effect.
  std::vector<std::string> checkpoints = {};
  // Without checkpoints: cuts are chosen such that the activations that gradients need (the kept
  // ones plus one segment) take at most this many bytes, with as little recomputation as possible.
  // If that is impossible, the cuts that take the fewest bytes are chosen.
  uint64_t memory_budget = 0;
  // The value used for an unknown dimension in that estimate.
  int64_t batch_size = 1;

  bool enabled() const { return !checkpoints.empty() || memory_budget > 0; }
};

// The result of Recompute.
struct RecomputeReport {
  std::vector<std::string> checkpoints;  // a variable written by the op before each cut
  int ops = 0;                           // how many ops run a second time
  // Bytes of the activations that gradients read: before, and (estimated) after.
  uint64_t bytes_before = 0, bytes_after = 0;
};

// Rewrites the gradient ops: the ops from `first_gradient` to the end of the block. A value of an
// earlier segment that they read is computed again, under the name <var>@RECOMPUTED, by copies of
// the ops that made it; the copies are inserted before the segment's first gradient op that reads
// one of them. A copy computes the same bits: it reads the same values (a value that is overwritten
// in between is saved first), and random ops draw the same numbers. Copies have the role Backward,
// and their attr recomputed_from names the variables of the original. Other outputs of a copy
// (running statistics) are discarded, so that they are not updated twice.
//
// Some values are always kept: values of ops that have sub-blocks or side effects, or that read or
// write anything but dense tensors; persistable variables; and values that sub-blocks of gradient
// ops read. Throws kNotFound for a checkpoint that the block does not know. Linear in the size of
// the block.
RecomputeReport Recompute(BlockDesc& block, size_t first_gradient, const RecomputeOptions& options,
                          const OpRegistry& ops);

// Maps gradient variable to forward variable, for every complete gradient (not for
// partial contributions).
using GradToVar = std::unordered_map<std::string, std::string>;

// Runs after each appended gradient op, which is then the last op of `block`; may append ops.
using BackwardCallback = std::function<void(BlockDesc& block, const GradToVar& grad_to_var)>;

// The gradient of an input that no target depends on.
enum class Unconnected {
  kNone,  // "": no gradient
  kZero,  // zeros of the input's shape and dtype
};

// How the contributions to one gradient are added.
enum class Aggregation {
  kSum,      // one `sum` op, once all are available
  kRunning,  // each is added to the sum so far, so at most two are in memory
};

// "none", "zero"; "sum", "running". Throw kInvalidArgument for any other text.
Unconnected UnconnectedFromText(const std::string& text);
Aggregation AggregationFromText(const std::string& text);

// A custom gradient rule for ops of one type whose op_namescope begins with `name_scope`. The first
// rule that matches an op is used.
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
  // Variables of any block that no gradient flows into, in addition to those with stop_gradient and
  // those whose dtype is neither floating-point nor complex.
  std::vector<std::string> no_grad_set = {};
  // Variables that are treated as constants: their own gradient may be requested, but no gradient
  // flows on to the variables that they are computed from.
  std::vector<std::string> stop_gradients = {};
  // For each target, the variable that holds its incoming gradient (of the target's shape and
  // dtype), or "" for ones. Empty: ones for all targets. Throws
  // kInvalidArgument for a complex target without one.
  std::vector<std::string> target_gradients = {};
  Unconnected unconnected = Unconnected::kNone;
  Aggregation aggregation = Aggregation::kSum;
  // A gradient with several contributions is summed right after the op that computes the last one.
  // With gates it is summed after the last op of that op's rule, so no op reads a gradient of an op
  // before all gradients of that op are computed (except callbacks, which run after each op).
  bool gate_gradients = false;
  std::vector<BackwardCallback> callbacks = {};
  std::vector<GradientOverride> overrides = {};
  // Gradient rules by name, for ops whose attr gradient_function names a rule (`call`).
  std::unordered_map<std::string, GradientFn> functions = {};
  // The gradient of x is named <gradient_prefix>x@GRAD.
  std::string gradient_prefix = {};
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
  // Activations that backward computes again instead of keeping them.
  RecomputeOptions recompute = {};
};
using GradientsOptions = BackwardOptions;

struct ParamAndGrad {
  std::string param;
  std::string grad;  // "" if the loss does not depend on the parameter
  bool operator==(const ParamAndGrad&) const = default;
};

// Appends d(loss)/d(parameter) for each parameter to the block of the loss. The loss must hold one
// element. The contributions to a gradient with several of them are kept in partial variables
// x@GRAD@RENAME@block<b>@<n>, which one op sums when all of them exist. Gradient ops get the role
// Backward, and an op that completes a parameter's gradient gets op_role_var = {param, grad}.
// Returns a pair for each name of parameter_list, or for each trainable parameter, in order.
//
// Throws kInvalidArgument for an invalid program, a loss of the wrong size or dtype, or an op whose
// gradient is forbidden; kNotFound for an unknown name; kUnimplemented for an op without a gradient
// rule between a wanted variable and the loss (naming op, variable and reason). The program is then
// unchanged, except for types that were filled in and calls that were replaced. Linear in the size
// of the program.
std::vector<ParamAndGrad> AppendBackward(const Variable& loss, const BackwardOptions& options = {},
                                         GradToVar* grad_to_var = nullptr);

// Appends the gradients of the sum of all elements of all targets (each weighted by its target
// gradient) with respect to each input. The result is "" for an input that no target depends on (or
// zeros, see Unconnected). Targets may have any shape, depend on each other and occur twice. So may
// inputs: an input that another depends on gets the total derivative. A target of integers is a
// constant. All targets must be in one block, to which the ops are appended. An input with
// stop_gradient (such as data) has no gradient, and a warning says so. Throws like AppendBackward,
// and kInvalidArgument for an input that is not visible from the block of the targets. The cost
// depends on the ops between inputs and targets, not on the size of the block; but the first call
// after an edit other than appending reads the whole block once, and in programs with sub-blocks
// each call reads how the blocks are nested.
std::vector<std::string> Gradients(const std::vector<Variable>& targets,
                                   const std::vector<Variable>& inputs,
                                   const GradientsOptions& options = {},
                                   GradToVar* grad_to_var = nullptr);

// The forward op for which backward made this gradient op, found by the attr forward_op in the op's
// block, the block's forward block or their enclosing blocks. nullptr for an op without a forward
// op (a sum, a seed, a clip), or whose forward op was removed. Works on programs read from files.
const OpDesc* FindForwardOp(const OpDesc& gradient_op);

// Replaces names of selected rows by the names of dense copies, which ops appended to the block
// make. Returns all other names unchanged, including unknown and empty ones. For callers that need
// dense tensors, since executors cannot fetch selected rows.
std::vector<std::string> DenseNames(BlockDesc& block, std::vector<std::string> names,
                                    const OpRegistry& ops = DefaultOps());

// Second derivatives of a scalar: the whole Hessian, or its product with a vector. Both apply
// Gradients twice and append ordinary ops to the program. Calls without a gradient of their own are
// first replaced permanently by their ops (InlineDerivedCalls).

struct HessianOptions {
  // Variables that no gradient flows into, of first or second order.
  std::vector<std::string> no_grad_set = {};
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
};

// Appends d2y / dx dx for each x of xs and returns the names of the results. A result has the shape
// x.shape + x.shape; its element [i, j] (i and j over the elements of x) is the derivative of dy /
// dx[i] with respect to x[j]. The name is "" for an x that y does not depend on; the result is
// zeros if y depends on x linearly. Mixed derivatives of two different xs are not computed.
//
// The ops that depend on the row are appended once for each element of x, so x should have at most
// a few thousand elements.
//
// Throws kInvalidArgument for a y of more than one element, and for an x whose shape is unknown
// when the program is built or has more than half of Shape::kMaxRank dimensions; otherwise throws
// like Gradients (kUnimplemented if an op on the path lacks a second-order rule). The program is
// then unchanged (except as in AppendBackward).
std::vector<std::string> Hessian(const Variable& y, const std::vector<Variable>& xs,
                                 const HessianOptions& options = {});

// Appends the product of a vector with the Hessian of y with respect to all xs. v[k] is the part of
// the vector that belongs to xs[k]. Returns the names of the parts of the product: result[k] has
// the shape of xs[k] and is the sum over j of d2y / dxs[k] dxs[j] times v[j]; it is "" for an x
// that y does not depend on. v is treated as constant, even if it is computed from xs. Costs about
// twice as much as the gradient.
//
// Throws kInvalidArgument for a y of more than one element, if v and xs differ in number, and if a
// v differs from its x in shape or dtype; otherwise throws like Gradients. The program is then
// unchanged (except as in AppendBackward).
std::vector<std::string> HessianVectorProduct(const Variable& y, const std::vector<Variable>& xs,
                                              const std::vector<Variable>& v,
                                              const HessianOptions& options = {});

// CheckGradient compares the gradients of a whole program with central differences, in double
// precision. If they disagree, it finds the first op whose own gradient is wrong.

struct CheckGradientOptions {
  // The variable to differentiate, with one element. "": the output of the op with role Loss.
  std::string loss = {};
  // The variables to differentiate with respect to. Empty: all trainable parameters.
  std::vector<std::string> wrt = {};
  // Values of fed and persistable variables. If the program declares a floating-point dtype, a
  // value may have any floating-point dtype. Missing values are random: normal numbers, scaled by
  // the fan-in for parameters (numbers between 0.5 and 1.5 for parameters with one dimension); 0 or
  // 1 for integers.
  std::map<std::string, Tensor> feeds = {};
  const Scope* scope = nullptr;
  int64_t batch_size = 2;  // for unknown dimensions
  uint64_t seed = 1;
  int directions = 1;  // random directions for each variable
  // Limit for |gradient - difference|, divided by the larger of the two. A larger difference passes
  // if it is at most a thousandth, and the measured rounding errors of the loss explain it.
  double tolerance = 1e-6;
  std::string allow_files = {};     // see CompileOptions
  const OpRegistry* ops = nullptr;  // nullptr: DefaultOps()
};

struct GradientCheck {
  std::string var;
  std::string gradient;      // "" if the loss does not depend on the variable
  double by_gradient = 0;    // gradient times direction
  double by_difference = 0;  // derivative of the loss along the direction
  double error = 0;          // relative
  // The error that passes: the tolerance, or what rounding explains. 0 if the variable is not
  // checked because the thread's ResourceLimits ended the work before.
  double allowed = 0;
  bool passed = false;
};

struct CheckGradientReport {
  double loss = 0;
  std::vector<GradientCheck> checks;
  // The first op in program order whose own gradient is wrong: "relu, op 3 of block 0, input X:
  // gradient 0.5, difference 1". "" if there is none, or if all checks of the program pass.
  std::string wrong_op;
  // If a check fails although no op is wrong by itself: the op with the largest error.
  std::string doubtful_op;
  bool passed() const;
  std::string ToString() const;  // lines of text
};

// Works on a copy of the program: removes its gradient, update and schedule ops, makes
// floating-point variables and dtype attrs float64 (complex ones complex128), and appends the
// gradients again. Random ops draw the same numbers every time. Compares with the best match among
// differences with a few step sizes, since a step may cross a kink. Throws the errors of
// AppendBackward, Executor and the ops.
CheckGradientReport CheckGradient(const ProgramDesc& program,
                                  const CheckGradientOptions& options = {});

// A copy of the program with float64 instead of all floating-point types and complex128 instead of
// all complex ones.
ProgramDesc InDouble(const ProgramDesc& program);

// --- why a variable has a gradient, or where the path to it ends: ExplainGradient ---

// One op on the path back from the differentiated variable.
struct GradientStep {
  // The gradient of the output `from` contributes to the gradient of the input `to`.
  std::string from, to;
  std::string op;         // "mul, op 3 of block 0, from net.pbtxt:7:1"
  std::string from_slot;  // "" for a variable that only the op's sub-block writes
  std::string to_slot;    // "" for a variable that only the op's sub-block reads
  std::string obstacle;   // why no gradient passes here; "" if it does
  int depth = 0;          // at least 1: inside the sub-block of the previous step
};

struct GradientExplanation {
  std::string of, wrt;
  std::string gradient;  // the name that backward gives it; "" if there is none
  bool depends = false;  // a chain of ops leads from `wrt` to `of`
  // The path from `of` to `wrt` with the fewest obstacles.
  std::vector<GradientStep> path;
  std::string reason;  // why no gradient exists: the first obstacle, or an error of backward
  // The ops and slots whose contributions are summed, "mul, op 3 of block 0, X".
  std::vector<std::string> contributions;

  std::string ToString() const;  // lines of text
};

// Explains d(of) / d(wrt); both may be of any shape. The program is not changed. Throws kNotFound
// for an unknown name.
GradientExplanation ExplainGradient(const ProgramDesc& program, const std::string& of,
                                    const std::string& wrt, const BackwardOptions& options = {});

}  // namespace coracle
