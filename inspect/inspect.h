#pragma once
// Shows programs and results: inputs and outputs, JSON, graphs, differences between tensors and
// between programs.

#include <coracle/framework/io/tensor_io.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/ir/training_stage.h>
#include <coracle/framework/ir/var.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coracle {

// --- the inputs and outputs of a program ---

// The dense variables of the root block that a program is fed: those of its feed ops, in their
// order; without feed ops, variables that its ops read before any op writes them. Excludes
// parameters and other persistable variables.
std::vector<std::string> InputNames(const ProgramDesc& program, const OpRegistry& ops);

// The variables that its fetch ops fetch, in their order; without fetch ops, the dense variables of
// the root block that an op writes and no op reads. Excludes persistable variables and outputs that
// only a gradient op reads (SlotDef::intermediate).
std::vector<std::string> OutputNames(const ProgramDesc& program, const OpRegistry& ops);

// Whether the root block has feed ops (OpKind::kFeed), or fetch ops.
bool HasOpOfKind(const BlockDesc& root, OpKind kind, const OpRegistry& ops);

// --- a program as JSON, the output of `coracle dump --json` ---
// docs/json.md describes each field.

// Empty functions and an empty list select everything.
struct ProgramJsonOptions {
  // Leaves out attrs with the default values of their ops (IsDefaultAttr), and the attrs that every
  // op may have (op_role, op_callstack, ...), which stage, layer and origin describe.
  bool hide_default_attrs = true;
  std::vector<int> blocks = {};  // only these
  std::function<bool(const OpDesc& op)> keep_op = {};
  std::function<bool(const VarDesc& var)> keep_var = {};
};

// Writes one line for each variable and op. Linear in the size of the program; safe for unverified
// programs. If an op has two slots or attrs of one name, writes only the first.
std::string ProgramJson(const ProgramDesc& program, const OpRegistry& ops,
                        const ProgramJsonOptions& options = {});

// Pairs of a gradient and its variable, found by their names: x@GRAD, x@GRAD@1 (for another value
// of x) and x@GRAD_0 (of a second backward) belong to x if there is an x. Partial sums and clipped
// gradients are excluded. In the order of the variables, each gradient once.
std::vector<std::pair<std::string, std::string>> GradientPairs(const ProgramDesc& program);

// Draws a program as a graph in DOT, the language of Graphviz: ops are boxes, variables are the
// edges between them.

struct DotOptions {
  int block = -1;                          // only this block; -1: all
  std::vector<TrainingStage> stages = {};  // only ops of these stages; empty: all
  // Only ops near this variable; "": everything. Depth 1 shows the ops that write or read it, depth
  // 2 also the ops that write or read a variable of these, and so on. Does not continue through
  // parameters and other persistable variables.
  std::string around = {};
  int depth = 2;
};

// A box shows the op's type, its layer, and the parameters that it reads; its colour shows the
// stage. Edges show the names and shapes of their variables. If there are many long edges, as from
// forward to backward ops of a large training step, the box of the writing op shows them instead,
// because Graphviz would need hours for the labels. Ellipses are inputs and results; a dashed
// ellipse is a variable of an op that the options exclude. A sub-block is a frame around its ops; a
// dotted line connects the frame to the op that runs it. Linear in the size of the program except
// for the lookup of writers (log n); safe for unverified programs. Names are escaped, and long ones
// cut. Throws kNotFound for a block or variable that the program does not have.
std::string ProgramDot(const ProgramDesc& program, const OpRegistry& ops,
                       const DotOptions& options = {});

// The number of ops that ProgramDot shows. Graphviz needs much longer for twice as many.
size_t OpsInDot(const ProgramDesc& program, const DotOptions& options = {});

// The stage of that name; "_" or "-" may replace blanks. Throws kNotFound for other names.
TrainingStage StageFromText(const std::string& name);

// --- differences between two lists of named tensors ---
// The lists are the results of two runs, a run and its stored results, or two files of parameters.

// An element of A is within tolerance of B's if |a - b| <= absolute + relative * |b|, as in
// numpy.allclose: B is the reference. A nan is within tolerance only of a nan, an infinity only of
// the same infinity.
struct Tolerance {
  double relative = 1e-5;
  double absolute = 1e-6;
  bool same_dtype = true;      // tensors of different dtypes differ, whatever their values
  bool exact_integers = true;  // if both are integers or bools, they must be equal
};

// The element that is farthest out of tolerance, or closest to the limit if all are within. An
// element with nan or infinity on only one side is farther than all others.
struct WorstElement {
  std::vector<int64_t> index;                   // one number for each axis
  Complex a, b;                                 // imaginary part 0 for real tensors
  std::optional<int64_t> integer_a, integer_b;  // if that side has integers or bools
  // If that side has strings, the element as ElementText shows it; the digits of a uint64 that
  // int64 does not hold.
  std::string text_a, text_b;
  double absolute = 0;  // |a - b|; nan or inf if one of them is
  double relative = 0;  // |a - b| / |b|; 0 for equal elements, inf if only b is 0
};

struct TensorDifference {
  enum class Kind { kEqual, kValues, kShape, kDType, kLod, kOnlyInA, kOnlyInB };

  std::string name;
  Kind kind = Kind::kEqual;     // kEqual: within tolerance
  std::optional<VarMeta> a, b;  // types of the compared tensors; empty for a missing one
  // Set only if the shapes are equal (and there are elements).
  int64_t outside = 0;      // elements out of tolerance
  int64_t non_finite = 0;   // of these: nan or infinity on one side, or unequal ones
  double max_absolute = 0;  // over all elements with two finite values
  std::optional<WorstElement> worst;

  bool Differs() const { return kind != Kind::kEqual; }
};

// Compares numbers exactly, for any dtypes: two int64, or an int64 and a float64, may differ by
// less than doubles can represent. The sequences (LoD) must be equal.
TensorDifference CompareTensors(const std::string& name, const Tensor& a, const Tensor& b,
                                const Tolerance& tolerance);

// Formats an element with as many digits as identify it in its dtype: "3", "0.1", "1+2i"; a string
// in quotes, shortened.
std::string ElementText(const Complex& value, const std::optional<int64_t>& integer, DType dtype,
                        const std::string& text = "");

// The result for a tensor that only A has; OnlyInB is the same for B.
TensorDifference OnlyInA(const std::string& name, const Tensor& a);
TensorDifference OnlyInB(const std::string& name, const Tensor& b);

// Compares tensors of the same name: first those of A in A's order, then those that only B has.
// Throws kInvalidArgument if a list has a name twice.
std::vector<TensorDifference> CompareNamed(const NamedTensors& a, const NamedTensors& b,
                                           const Tolerance& tolerance);

// --- differences between two programs ---
// Their graphs are compared: an op that is at another position, or whose variables have other
// names, is still the same op.

// A property that differs between the two sides. Texts are those of a dump, escaped (Quote) if a
// name could control a terminal; "none" if a side lacks the property.
struct DiffChange {
  // The property. For a program: "feeds", "fetches", "random_seed", "version". For a block:
  // "parent", "forward_block", and "index" if random numbers are drawn in it. For a variable:
  // "type", "dtype", "shape", "lod_level", "persistable", "parameter", "stop_gradient",
  // "need_check_feed", "trainable", "learning_rate", "initializer", "regularizer", "gradient_clip",
  // "error_clip". For an op: "attr", "input", "output".
  std::string what;
  std::string name = {};  // of the attr, or of the slot ("X" or "X[1]")
  std::string before = {}, after = {};
};

// A variable that one side lacks, that has another name, or whose type or settings differ.
struct VarDiff {
  std::string before, after;  // its names; "" on a side that lacks it
  bool told_by_ops = false;   // a temporary on one side only; the diff of its ops already shows it
  std::vector<DiffChange> changes = {};
};

struct OpDiff {
  int before = -1, after = -1;  // positions in their blocks; -1 on a side that lacks it
  std::vector<DiffChange> changes = {};
  // A variable of which this or another op now reads or replaces another value, because this op is
  // at another position; "" if it is not, or if that has no effect.
  std::string moved_over = {};
};

struct BlockDiff {
  // Indices; -1 on a side that lacks it, and then nothing else is listed.
  int before = 0, after = 0;
  std::vector<DiffChange> changes = {};
  std::vector<VarDiff> vars = {};
  std::vector<OpDiff> ops = {};  // in the order of the programs
};

struct ProgramDiff {
  std::vector<DiffChange> changes = {};
  std::vector<BlockDiff> blocks = {};  // the blocks that differ
  // All variables with another name, (before, after). VarDiff also lists each of them.
  std::vector<std::pair<std::string, std::string>> renamed = {};
  size_t reordered = 0;  // ops at another position, without effect

  bool empty() const { return changes.empty() && blocks.empty(); }
};

// Two ops match if they have the same type and agree, in this order of weight, in the values that
// they read, the names of their outputs, and their attrs; see inspect/op_matching.h. Feed and fetch
// ops are compared by the variables that they feed and fetch. Ignores where an op was made, its
// name scope, attrs with the default value that the other side lacks, and unknown fields. The time
// is linear in the size of the programs, except for a logarithm. Safe for unverified programs.
ProgramDiff DiffPrograms(const ProgramDesc& before, const ProgramDesc& after,
                         const OpRegistry& ops);

// A persistable variable with different elements, or with a value on one side only.
struct ValueDiff {
  std::string before, after;  // names
  // "only before", "float32[2] -> float32[3]", "other sequences (LoD)", "other rows", "not
  // compared"; "" if elements differ (for selected rows, elements of their values):
  std::string problem = {};
  int64_t different = 0, elements = 0;
  double max_difference = 0;  // absolute, of the worst element; nan if only one side is nan
  int64_t worst = 0;          // the element farthest out of tolerance, in row-major order
  double worst_before = 0, worst_after = 0;  // for complex numbers, the absolute values
  // The same, for integers and bools, and for strings and large uint64 (see WorstElement).
  std::optional<int64_t> integer_before = {}, integer_after = {};
  std::string text_before = {}, text_after = {};
};

// Compares the values of the persistable variables of two programs, also of renamed ones; `after`
// is the reference of the tolerance. Without a tolerance (the default), elements must be equal bit
// by bit, so -0 differs from 0. Tensors of different dtypes differ.
std::vector<ValueDiff> DiffValues(const ProgramDiff& diff, const ProgramDesc& before,
                                  const Scope& values_before, const ProgramDesc& after,
                                  const Scope& values_after,
                                  const Tolerance& tolerance = {.relative = 0, .absolute = 0});

// A text for people: by block, one line for each variable and op that is added (+), removed (-) or
// changed (~), then a line with the counts. "" if nothing differs.
std::string DiffText(const ProgramDiff& diff, const ProgramDesc& before, const ProgramDesc& after,
                     const OpRegistry& ops, const std::vector<ValueDiff>& values = {});
// "2 ops added, 1 removed, 3 changed; 1 variable renamed"; "" if nothing differs.
std::string DiffSummary(const ProgramDiff& diff);
// The first line of DiffText that shows a difference, without its mark, for messages. Ignores seed
// and version.
std::string FirstDifference(const ProgramDesc& before, const ProgramDesc& after,
                            const OpRegistry& ops);
// A JSON object with "format": "coracle.diff"; docs/json.md describes it.
std::string DiffJson(const ProgramDiff& diff, const ProgramDesc& before, const ProgramDesc& after,
                     const std::vector<ValueDiff>& values = {});

}  // namespace coracle
