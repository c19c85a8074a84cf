#pragma once
// OpDef: the declaration of an op type, with documentation, slots, attrs, constraints, shape rule,
// gradient rule, kernels and traits. Its methods fill an OpSpec. See docs/adding_an_op.md.

#include <coracle/framework/ir/op.h>
#include <coracle/framework/ir/var.h>
#include <coracle/framework/tensor/tensor.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace coracle {

struct OpSpec;

// --- how the rows of a batch pass through an op ---

enum class RowRule : uint8_t {
  kUndeclared,
  // A row of an output depends on the same row of the inputs only. The shape rule shows where the
  // output keeps the rows. Rows count as mixed if any of these holds: the op works along their axis
  // (OpDef::WorksAlong, OpDef::Axes); an input listed in OpDef::Tables has rows; doubling the input
  // rows does not double the output rows.
  kEach,
  kMoves,      // elements move, and rows stay together; attrs name no axis to work along
  kMixes,      // an output may depend on several rows
  kSum,        // a sum over the rows; a gradient op counts each row once, whatever gradient arrives
  kMean,       // a mean over the elements of an input
  kSame,       // equal on all machines, whatever they read
  kStatistic,  // a running statistic of batches, read only to be updated
};

// An op whose rows are asked about. The first input with rows has them at `axis` of its `rank`
// axes; a rank of 0 is unknown.
struct RowQuery {
  const OpDesc& op;
  const OpSpec& spec;
  std::string_view output;  // the slot
  int axis = 0;
  int rank = 0;
};

struct RowEffect {
  RowEffect(RowRule r, std::string_view slot = "X") : rule(r), of(slot) {}  // NOLINT: from a rule

  RowRule rule;
  // For kMean: the input whose elements the mean is over, or an output that is a sum over the rows
  // and whose value weights each rank's mean.
  std::string of;
};
using RowsFn = std::function<RowEffect(const RowQuery&)>;

// See OpDef::Rows. By it, distribute/ combines what several machines compute from their rows.
struct RowTrait {
  RowEffect effect = RowRule::kUndeclared;
  RowsFn fn;                        // if given, it decides instead of `effect`
  std::string text;                 // explains fn
  std::vector<std::string> tables;  // see OpDef::Tables
  // The op is linear in the inputs of each list, taken together, if its other inputs are constant.
  std::vector<std::vector<std::string>> linear;
};

// The declared effect on an output. Without a declaration, kEach for elementwise and gradient ops.
RowEffect RowEffectOf(const RowQuery& query);
// The inputs in which the op is linear together with `slot`, one of them; {} if it is not linear in
// it. An op that only moves elements is linear in its first input.
std::vector<std::string> LinearWith(const OpSpec& spec, std::string_view slot);

// --- kernels ---
// An op is prepared once per plan (names, attrs, shapes); its kernel then runs in every step.

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

inline namespace internal {
class CommContext;
}

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

  // For Coracle's own code: through it the ranks of a distributed run exchange tensors. nullptr if
  // one rank runs the program.
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

// --- declarations ---

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

inline namespace internal {
class ExpandContext;
class OpShapes;
}  // namespace internal
// For Coracle's own code.
using ExpandFn = std::function<void(ExpandContext&)>;
using MultiplyAddsFn = std::function<double(const OpShapes&)>;

// How an attr says which axes an op works on.
enum class AxesAttr {
  kNone,   // no attr does
  kAxes,   // a number or a list of numbers names axes
  kFrom,   // a number names the first of the axes; the others follow it
  kPairs,  // two numbers for each axis, in the order of the axes
};

// Everything that Coracle knows about an op type, as plain data. OpDef fills it; run_rules.h and
// kernel_choice.h run its functions.
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
  bool permutes = false;                  // follows a permutation of axes
  AxesAttr axes = AxesAttr::kNone;        // of the axes that it works along
  std::string axes_attr;
  std::vector<std::string> score_slots;
  std::vector<std::string> soft_label_slots;
  std::string soft_label_attr;  // "" if labels may always be mixtures
  bool each_image = false;
  bool elementwise = false, multi_tensor = false, run_time_shape = false, shape_only = false;
  bool random = false, side_effect = false, takes_any_value = false;
  bool no_lod = false, makes_lod = false, for_ranks = false;
  bool strings = false;

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
  bool TakesStrings() const;
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
  // The axes of a tensor of this rank that the op works along, by its attr.
  std::vector<int> AxesOf(const OpDesc& op, int rank) const;
  // Whether a label in this input may be a mixture of labels.
  bool TakesSoftLabels(const OpDesc& op, std::string_view input) const;
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

// A kernel for elements of type T, as returned by the functions passed to OpDef::Reference.
template <class T>
struct KernelOf {
  KernelOf() = default;
  template <class F>
  KernelOf(F f) : kernel(std::move(f)) {}             // NOLINT: what a kernel is made of
  operator Kernel() && { return std::move(kernel); }  // NOLINT: it is one
  Kernel kernel;
};

// Names in a declaration. The constructors and the destructor are out of line to keep the code of
// hundreds of declarations small.
class NameList {
 public:
  NameList(std::initializer_list<std::string_view> names);  // NOLINT: written as {"X", "Y"}
  NameList(std::vector<std::string> names);                 // NOLINT: as a list made at run time
  ~NameList();
  NameList(const NameList&) = delete;
  NameList& operator=(const NameList&) = delete;
  operator const std::vector<std::string>&() const { return names_; }  // NOLINT: it is one
  auto begin() const { return names_.begin(); }
  auto end() const { return names_.end(); }

 private:
  std::vector<std::string> names_;
};

class OpDef {
 public:
  explicit OpDef(std::string_view type);
  OpDef(const OpDef&);
  OpDef(OpDef&&) noexcept;
  OpDef& operator=(const OpDef&);
  OpDef& operator=(OpDef&&) noexcept;
  ~OpDef();

  // --- declaration; every method returns *this ---

  // One or more sentences with the formula, shown by `coracle ops NAME`.
  OpDef& Doc(std::string_view text);
  OpDef& Input(std::string_view name, std::string_view doc);
  OpDef& OptionalInput(std::string_view name, std::string_view doc);
  OpDef& VariadicInput(std::string_view name, std::string_view doc);          // one or more
  OpDef& OptionalVariadicInput(std::string_view name, std::string_view doc);  // none or more
  OpDef& Output(std::string_view name, std::string_view doc);
  OpDef& OptionalOutput(std::string_view name, std::string_view doc);
  OpDef& VariadicOutput(std::string_view name, std::string_view doc);
  OpDef& OptionalVariadicOutput(std::string_view name, std::string_view doc);
  // Optional as well, since program files may omit it.
  OpDef& IntermediateOutput(std::string_view name, std::string_view doc);

  // T is an alternative of Attribute: int32_t, float, std::string, bool, int64_t, std::vector
  // of them, ...
  template <class T>
  OpDef& Attr(std::string_view name, std::string_view doc) {
    return AddAttr(name, AttrTypeOf<T>(), nullptr, doc);
  }
  template <class T>
  OpDef& Attr(std::string_view name, const T& default_value, std::string_view doc) {
    const Attribute value(default_value);
    return AddAttr(name, AttrTypeOf<T>(), &value, doc);
  }
  // Limits of the attr declared last. A value outside them, or a nan, is refused before Infer runs.
  OpDef& Range(std::optional<double> min, std::optional<double> max);
  OpDef& OneOf(const NameList& values);
  // Adds the attrs of a type registered earlier, as a gradient op does with its forward op.
  OpDef& AttrsOf(std::string_view type);

  // A further requirement. InferContext::Require and PrepareContext::Failure refer to it by id (C1,
  // C2, ...); the error has this text and the offending values.
  OpDef& Constraint(std::string_view id, std::string_view text);
  // Repeats constraints of a type registered earlier, with their texts.
  OpDef& ConstraintsOf(std::string_view type, const NameList& ids);

  // Calls a function with declarations that several ops share: .Apply(DeclareBounds).
  template <class F, class... Args>
  OpDef& Apply(F declare, Args&&... args) {
    declare(*this, std::forward<Args>(args)...);
    return *this;
  }

  OpDef& Infer(InferFn fn);

  // Exactly one of the next four (or GradientOp); see GradientKind.
  OpDef& Gradient(GradientFn fn);
  OpDef& NotDifferentiable(std::string_view reason);
  OpDef& NoGradient(std::string_view reason);
  OpDef& ForbidGradient(std::string_view reason);  // the error adds a string attr `message`
  // The common gradient rule: an op `<type>_grad` with this op's attrs. It reads the listed forward
  // slots under their own names and the gradient of every output as `<slot>@GRAD`, and writes
  // `<slot>@GRAD` for every differentiable input. If no gradient arrived for an output, its slot is
  // left empty if `<type>_grad` declares it optional; otherwise it gets zeros.
  OpDef& GradientOp(const NameList& forward_slots);
  // Inputs that no gradient flows into.
  OpDef& NoGradientTo(const NameList& input_slots);
  // Inputs that may hold values of this kind besides dense tensors; kernels check TensorArg::type.
  // In any other input, such values are refused before the shape rule and kernels run.
  OpDef& Takes(VarType type, const NameList& input_slots);
  // Every input may hold any kind of value, as needed by an op that runs a block.
  OpDef& TakesAnyValue();
  // Outputs that may keep all or part of their previous value (a branch that is not taken, a loop
  // that runs zero times, one element of an array), so this value is an input too. Its gradient
  // goes to GradientContext::KeptGrad, unless the variable is also in an input slot. If Inplace
  // pairs the output with an input slot that the op leaves empty, the previous value is bound to
  // that slot. With `attr`, it is bound only if that bool attr of the op equals `value`.
  OpDef& KeepsOutputs(const NameList& output_slots, std::string_view attr = "", bool value = true);

  // One plain loop for each of the element types Ts, as instances of a function template:
  // .Reference(ClipReference<float>, ClipReference<double>). The element type of the slot given to
  // KernelTypeFrom selects the kernel (default: the first present input, or else the first output);
  // RunInfer refuses types without a kernel. If there is a loop for float but none for float16 or
  // bfloat16, these are computed in float32: inputs are converted before, outputs rounded after.
  template <class... Ts>
  OpDef& Reference(KernelOf<Ts> (*... prepare)(const PrepareContext&)) {
    static_assert(sizeof...(Ts) > 0);
    return SetReference({DTypeOf<Ts>()...}, {PrepareFn(prepare)...});
  }
  // For kernels that need more than the type: f.template operator()<T>(context) returns the kernel.
  template <class T, class... Ts, class F>
  OpDef& Reference(F f) {
    return SetReference({DTypeOf<T>(), DTypeOf<Ts>()...},
                        {PrepareWith<T>(f), PrepareWith<Ts>(f)...});
  }
  // One kernel for all types.
  OpDef& Reference(PrepareFn fn);
  OpDef& KernelTypeFrom(std::string_view slot);
  // A fast kernel. If `fn` returns an empty Kernel for a case, the reference kernel runs.
  OpDef& Fast(PrepareFn fn);

  // For Coracle's own code (see expansion.h), instead of kernels and a gradient: `fn` writes ops of
  // `types`, which replace this op before backward differentiates a program and before it runs.
  // The element type is float32 or float64, as with kernels; 16-bit floats are also accepted.
  OpDef& Expands(const NameList& types, ExpandFn fn);

  // --- traits ---
  // The two may share memory (same dtype and numel).
  OpDef& Inplace(std::string_view input, std::string_view output);
  // The output has the input's elements in the same order (reshape2, assign). Both may share memory
  // while both are live; the kernel must skip the copy if the addresses are equal.
  OpDef& Alias(std::string_view input, std::string_view output);
  // The string attr gives the layout of the images or volumes in these slots ("NCHW" or "NHWC",
  // "NCDHW" or "NDHWC"); the op supports both.
  OpDef& ImageLayout(std::string_view attr, const NameList& slots);
  // If all variables of the op have the same shape, element i of every output depends only on
  // element i of the inputs, so the op computes the same in any layout.
  OpDef& Elementwise();
  // If the axes of all inputs are permuted, the op computes the same with all outputs permuted in
  // the same way, after the numbers of axes in the attr are changed accordingly. See AxesAttr.
  OpDef& Axes(std::string_view attr = "", AxesAttr kind = AxesAttr::kAxes);
  // The op works along the axes of its first input that the attr names. So does the gradient op.
  OpDef& WorksAlong(std::string_view attr, AxesAttr kind = AxesAttr::kAxes);
  // These inputs and outputs have a score for each of several classes, of which one is right:
  // logits, probabilities or their logarithms. The larger the score, the likelier the class.
  OpDef& Scores(const NameList& slots);
  // The labels in each of these inputs may be mixtures of labels: the op's gradient is the same
  // mixture of the labels' gradients. With `attr`, they may be if that bool attr is true.
  OpDef& SoftLabels(const NameList& inputs, std::string_view attr = "");
  // Each image [i, ...] of the outputs depends only on image i of the inputs with several images.
  OpDef& EachImage();
  // For Coracle's own code: the number of multiply-adds of the op; `fn` gets the shapes and attrs
  // (op_shapes.h). The gradient of each of the slots in `factors` costs as many again.
  OpDef& MultiplyAdds(const NameList& factors, MultiplyAddsFn fn);
  // How the rows of a batch pass through the op (RowRule above). The second form is for ops whose
  // attrs decide; `text` explains it in docs/ops. `of`: RowEffect::of.
  OpDef& Rows(RowRule rule, std::string_view of = "X");
  OpDef& Rows(RowsFn fn, std::string_view text);
  // Inputs such as weights and tables: every output row may depend on all their rows.
  OpDef& Tables(const NameList& input_slots);
  // The op is linear in these inputs taken together; after several calls, in each list by itself.
  OpDef& Linear(const NameList& input_slots);
  // One op may do the work of several. Its slots then hold lists, whose i-th variables form an
  // *item* (all items are dense and have the same dtype); all items share the slots named here.
  // Shape rule and kernels are written for one item; see InferContext::Item and
  // PrepareContext::Item. The pass merge_updates makes such ops; they have no gradient.
  OpDef& MultiTensor(const NameList& shared_slots);
  // Output shapes may be known only at run time (elements of a tensor array, LoD): Infer may leave
  // dimensions unknown, and the kernel writes such an output through ResizeOutput.
  OpDef& RunTimeShape();
  // How LoD passes. By default, outputs with as many rows as the first declared input take its LoD,
  // and gradients take the LoD of their variables (OpSpec::LodSource). With both LodUnlessAxis and
  // MakesLod, the kernel makes the LoD if the axis is 0; otherwise the LoD passes through.
  OpDef& LodFrom(std::string_view input);  // takes the LoD of this input
  // The output has no LoD if the attr (a number or a list) names axis 0.
  OpDef& LodUnlessAxis(std::string_view attr);
  OpDef& NoLod();      // the outputs have no LoD
  OpDef& MakesLod();   // the kernel makes the LoD: Workspace::OutputLod
  OpDef& ShapeOnly();  // reads its inputs' shapes and dtypes, never their elements
  OpDef& Random();     // draws random numbers
  // The kernels take tensors of strings. Either they only move whole elements, or they are written
  // for strings. A program that gives strings to an op without this is refused.
  OpDef& Strings();
  OpDef& SideEffect();  // must run even if nothing reads its outputs (print, save)
  // The op exchanges with other ranks, depends on its rank, or sets up exchanges, so several ranks
  // need a communicator. An op with the attr ring_id of Paddle's exchanges needs no ForRanks.
  OpDef& ForRanks();
  // The op reads or writes the file that this string attr names, unless the bool attr `unless` is
  // true. Its kernels must use PrepareContext::files: programs may only access what users allow.
  OpDef& NamesFile(std::string_view attr, std::string_view unless = "");
  OpDef& Kind(OpKind kind);
  OpDef& RunsBlock(BlockTrait trait);  // how the op runs its sub-block
  // The precision of the op under mixed precision. Float32Slots stay float32 even if other inputs
  // have 16 bits: the per-channel scale, bias and statistics of a norm.
  OpDef& ComputesIn(OpPrecision precision);
  OpDef& Float32Slots(const NameList& slots);

  const std::string& type() const { return spec_.type; }
  const OpSpec& spec() const { return spec_; }

 private:
  friend class OpRegistry;

  template <class T, class F>
  static PrepareFn PrepareWith(F f) {
    return [f = std::move(f)](const PrepareContext& context) -> Kernel {
      return f.template operator()<T>(context);
    };
  }
  OpDef& SetReference(std::initializer_list<DType> dtypes,
                      std::initializer_list<PrepareFn> kernels);
  OpDef& AddAttr(std::string_view name, AttrType type, const Attribute* default_value,
                 std::string_view doc);
  SlotDef& InputNamed(std::string_view name, const char* trait);
  OpDef& AddInput(std::string_view name, std::string_view doc, bool optional, bool variadic);
  OpDef& AddOutput(std::string_view name, std::string_view doc, bool optional, bool variadic,
                   bool intermediate);

  // Fills in attrs and constraints declared by reference to other types; `find` looks these up.
  OpSpec Resolve(const std::function<const OpSpec*(const std::string&)>& find) &&;

  OpSpec spec_;
  std::vector<std::pair<size_t, std::string>> attrs_of_;  // (index in spec_.attrs, source type)
};

}  // namespace coracle
