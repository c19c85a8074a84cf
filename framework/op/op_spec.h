#pragma once
// OpSpec: everything that Coracle knows about an op type, as plain data. OpDef (op_def.h) fills it;
// run_rules.h and kernel_choice.h run its functions.

#include <coracle/framework/ir/op.h>
#include <coracle/framework/ir/var.h>
#include <coracle/framework/op/rows.h>
#include <coracle/framework/tensor/tensor.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coracle {

// Kernels. An op is prepared once per plan (names, attrs, shapes); its kernel then runs in
// every step.
//
// One variable of a prepared op: its place in a workspace, and its static type. Converts to false
// if it is absent.
struct TensorArg {
  int32_t index = -1;
  DType dtype = DType::kFloat32;
  Shape shape;
  int64_t numel = 0;  // 0 if it is not a dense tensor
  VarType type = VarType::kLoDTensor;

  int64_t nbytes() const { return numel == 0 ? 0 : static_cast<int64_t>(ByteSize(dtype, shape)); }
  explicit operator bool() const { return index >= 0; }
};

class CommContext;

// The memory of one run of a plan, as kernels see it. To be used by one thread at a time.
class Workspace {
 public:
  virtual ~Workspace() = default;

  // The first element of a tensor (nullptr if it has none). T must be the arg's dtype, which was
  // checked when the op was prepared.
  template <class T>
  T* Data(const TensorArg& arg) const {
    return static_cast<T*>(data_[static_cast<size_t>(arg.index)]);
  }
  template <class T>
  std::span<T> Span(const TensorArg& arg) const {
    return {Data<T>(arg), static_cast<size_t>(arg.numel)};
  }
  // The variable as a value: for ops on tensor arrays and selected rows, and for ops that need a
  // Tensor (save). For a dense tensor this is a view of Data().
  virtual VarValue& ValueOf(const TensorArg& arg) = 0;
  // The LoD of an input in this run, empty if it has none. Its offsets have been
  // checked (CheckLod).
  virtual const LoD& LodOf(const TensorArg& arg) = 0;
  // The LoD of an output of an op with OpDef::MakesLod; the kernel must set it in every run.
  virtual LoD& OutputLod(const TensorArg& out) = 0;

  // Runs a sub-block once; `handle` comes from PrepareContext::SubBlock. The block reads and
  // writes variables of the enclosing blocks; its own variables start without a value. `save_to`,
  // if given, receives the values of this run that the block's gradient blocks will read. If the
  // block is a gradient block, `saved` holds the values that the corresponding forward run saved.
  // Throws kDeadlineExceeded or kCancelled if the limits of the run are exceeded, so that no loop
  // is endless.
  virtual void RunBlock(int32_t handle, StepScopes::Step* save_to, StepScopes::Step* saved);
  void RunBlock(int32_t handle) { RunBlock(handle, nullptr, nullptr); }

  // Key of random draws (see rng.h): `seed` belongs to the program; `step` counts the runs.
  uint64_t seed() const { return seed_; }
  uint64_t step() const { return step_; }

  // Through it the ranks of a distributed run exchange tensors; nullptr if one rank runs
  // the program.
  CommContext* comm() const { return comm_; }

 protected:
  void** data_ = nullptr;
  uint64_t seed_ = 0;
  uint64_t step_ = 0;
  CommContext* comm_ = nullptr;
};

// The tensor for an output whose shape is known only at run time (OpDef::RunTimeShape), resized to
// that dtype and shape. Throws InternalError if the plan relies on others.
Tensor& ResizeOutput(Workspace& ws, const TensorArg& out, DType dtype, const Shape& shape);

// A kernel only computes: it uses no names, infers no shapes and allocates nothing. It may throw
// Error for problems that shapes cannot show (an index out of range). It may run concurrently on
// different workspaces, so it must not modify what it captured.
using Kernel = std::function<void(Workspace&)>;

enum class KernelMode {
  kAuto,       // the fast kernel if there is one
  kReference,  // plain loops only
};

class GradientContext;
class InferContext;
class PrepareContext;

struct SlotDef {
  std::string name;
  std::string doc;
  bool optional = false;      // may be absent or empty ("dispensable")
  bool variadic = false;      // holds a list of variables ("duplicable")
  bool intermediate = false;  // an output that only the gradient op reads
  bool no_gradient = false;   // an input that no gradient flows into (labels, indices, shapes)
  std::vector<VarType> takes = {};  // kinds of values besides dense tensors that an input may hold

  bool Takes(VarType type) const {
    return type == VarType::kLoDTensor ||
           std::find(takes.begin(), takes.end(), type) != takes.end();
  }
};

struct AttrDef {
  std::string name;
  AttrType type;
  std::optional<Attribute> default_value;  // absent: the attr is required
  std::string doc;
  std::optional<double> min, max;   // limits of a number (of each element of a list)
  std::vector<std::string> one_of;  // the strings that are allowed
};

// A requirement on operands and attrs beyond the declarations of slots and attrs.
struct ConstraintDef {
  std::string id;    // "C1"
  std::string text;  // "min must not exceed max", for error messages and documentation
  std::string like;  // the op type whose constraint of this id is repeated, if any
};

// How an op type's gradient is declared.
enum class GradientKind {
  kRule,               // a rule appends the ops that compute it
  kNotDifferentiable,  // the derivative is zero or undefined: gradients end here, silently
  kNoRule,             // a gradient exists but is not implemented: an error if it is needed
  kForbidden,          // an error if it is needed, on purpose
};

// How the executor handles an op: run its kernel, or feed or fetch.
enum class OpKind { kCompute, kFeed, kFetch };

// The precision in which an op computes under mixed precision: Paddle's gray, white and black list.
enum class OpPrecision { kFollowsInputs, kLow, kFloat32 };

// How an op runs its sub-block.
enum class BlockRuns {
  kNone,        // it has none, or the way it runs is unknown
  kOnce,        // at most once: a branch
  kRepeatedly,  // a loop
  kFunction,    // called from several places; the block may be anywhere in the program
  kGradient,    // a gradient block, once for each run of the forward op's block
};
struct BlockTrait {
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  BlockRuns runs = BlockRuns::kNone;
  // (slot, attr): the STRINGS attr names variables of the op's block. Before a run, the op passes
  // the slot's variables to them (arguments); after the run, it receives the slot's variables from
  // them (results).
  Pairs arguments = {}, results = {};
  // (attr, attr): the end value of a variable of the first list in one run is the value of the
  // corresponding variable of the second list in the next run.
  Pairs carries = {};
  std::vector<std::string> slices = {};  // a run sees one step of these inputs, under their names
  bool replaced = false;                 // the ops of its block replace it before a program runs
};

using InferFn = std::function<void(InferContext&)>;
using GradientFn = std::function<void(GradientContext&)>;
using PrepareFn = std::function<Kernel(const PrepareContext&)>;
using SlotPairs = std::vector<std::pair<std::string, std::string>>;  // (input, output)

class ExpandContext;
using ExpandFn = std::function<void(ExpandContext&)>;
class OpShapes;
using MultiplyAddsFn = std::function<double(const OpShapes&)>;

// How an attr says which axes an op works on.
enum class AxesAttr {
  kNone,   // no attr does
  kAxes,   // a number or a list of numbers names axes
  kPairs,  // two numbers for each axis, in the order of the axes
};

struct OpSpec {
  OpSpec();
  OpSpec(const OpSpec& other);
  OpSpec(OpSpec&& other) noexcept;
  OpSpec& operator=(const OpSpec& other);
  OpSpec& operator=(OpSpec&& other) noexcept;
  ~OpSpec();

  std::string type;
  std::string doc;
  std::vector<SlotDef> inputs, outputs;
  std::vector<AttrDef> attrs;
  std::vector<ConstraintDef> constraints;

  InferFn infer;  // the shape rule, if there is one
  GradientFn gradient;
  GradientKind gradient_kind = GradientKind::kRule;
  std::string no_gradient_reason;
  PrepareFn reference, fast;
  ExpandFn expand;                      // writes the ops that the op joins, if it has no kernel
  std::vector<std::string> expands_to;  // their types
  std::string kernel_type_slot;         // the element type of its variable selects the kernel
  std::vector<DType> kernel_dtypes;     // element types of the kernels; empty: they accept any

  // Traits, explained at OpDef's methods of the same names.
  SlotPairs inplace, alias;
  std::vector<std::string> keeps_outputs;
  std::string keeps_attr;  // "" if the previous value may always be read
  bool keeps_value = true;
  std::string lod_slot;     // "": the first input
  std::string lod_axis;     // "" if there is none
  std::string layout_attr;  // "" if there is none
  std::vector<std::string> layout_slots;
  std::vector<std::string> shared_slots;  // of an op with multi_tensor
  std::string file_attr, no_file_attr;
  std::vector<std::string> float32_slots;
  OpPrecision precision = OpPrecision::kFollowsInputs;
  OpKind kind = OpKind::kCompute;
  BlockTrait block;
  RowTrait rows;
  MultiplyAddsFn multiply_adds;
  std::vector<std::string> factor_slots;  // of multiply_adds
  bool permutes = false;                  // follows a permutation of axes, with:
  AxesAttr axes = AxesAttr::kNone;
  std::string axes_attr;
  bool each_image = false;
  bool elementwise = false, multi_tensor = false, run_time_shape = false, shape_only = false;
  bool random = false, side_effect = false, takes_any_value = false;
  bool no_lod = false, makes_lod = false;

  bool HasGradient() const { return static_cast<bool>(gradient); }
  bool HasReferenceKernel() const { return static_cast<bool>(reference); }
  bool HasFastKernel() const { return static_cast<bool>(fast); }
  bool Expands() const { return static_cast<bool>(expand); }
  bool HasLoopFor(DType dtype) const;  // one of kernel_dtypes
  const SlotDef* FindInput(std::string_view name) const;
  const SlotDef* FindOutput(std::string_view name) const;
  const AttrDef* FindAttr(std::string_view name) const;
  const ConstraintDef* FindConstraint(std::string_view id) const;
  // Whether every input may hold any kind of value, as for an op that runs a block.
  bool TakesAnyValue() const;
  // Whether the input may hold a value of this kind.
  bool SlotTakes(std::string_view input, VarType type) const;
  bool IsShared(std::string_view slot) const;  // of an op with multi_tensor
  bool StaysFloat32(std::string_view slot) const;
  std::string Documentation() const;  // doc and constraints: "... C1: min must not ..."

  // The functions below apply the declaration to one op of this type.
  // Whether the variable is on both sides of one of the in-place pairs of the op.
  bool UpdatesInPlace(const OpDesc& op, std::string_view name) const;
  size_t NumItems(const OpDesc& op) const;  // 1 without multi_tensor
  // The input variable whose LoD an output variable takes; nullptr if it has none, or one that the
  // kernel makes. A gradient takes the LoD of its variable, or of another gradient if the op does
  // not read the variable.
  const std::string* LodSource(const OpDesc& op, std::string_view output, size_t i) const;
  // Whether LoD passes between variables of these shapes: both must have the same number of rows.
  bool PassesLod(const OpDesc& op, const Shape& from, const Shape& to) const;
  // The file that `op` reads or writes, if any.
  std::optional<std::string> FileOf(const OpDesc& op) const;
  // The attr of `op` as T, or its default. Throws kInvalidArgument, naming op and attr, if it is
  // required and absent, or of another type; throws InternalError for an undeclared attr.
  template <class T>
  T AttrOf(const OpDesc& op, std::string_view name) const {
    const Attribute& value = AttrValue(op, name);
    if (const T* same = std::get_if<T>(&value)) return *same;
    return std::get<T>(Converted(op, name, value, AttrTypeOf<T>()));
  }
  // The attr's value or its default, unconverted.
  const Attribute& AttrValue(const OpDesc& op, std::string_view name) const;
  // "min must not exceed max [clip.C1], got min 2, max 1". Throws InternalError for an undeclared
  // constraint. `got` may be empty.
  std::string Failure(std::string_view id, const std::string& got) const;

 private:
  Attribute Converted(const OpDesc& op, std::string_view name, const Attribute& value,
                      AttrType wanted) const;
};

// "op 7 of block 0, from lenet.pbtxt:14:9": the place of an op, for error details.
std::string Locate(const OpDesc& op);

}  // namespace coracle
