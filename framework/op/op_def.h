#pragma once
// OpDef: everything that Coracle knows of an op type, declared in one place: documentation, slots,
// attrs, shape rule, gradient rule, kernels, traits. See docs/adding_an_op.md.

#include <coracle/framework/ir/op.h>
#include <coracle/framework/ir/var.h>
#include <coracle/framework/op/kernel.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace coracle {

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
  std::vector<VarType> takes = {};  // what an input may hold besides a dense tensor

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
  std::optional<double> min, max;   // of a number (each element of a list)
  std::vector<std::string> one_of;  // of a string
};

// What an op type says of its gradient.
enum class GradientKind {
  kRule,               // a rule appends the ops that compute it
  kNotDifferentiable,  // the outputs are constants for the inputs: gradients end here, silently
  kNoRule,             // it exists and nobody wrote it: an error where it is needed
  kForbidden,          // an error where it is needed, on purpose
};

// How the executor treats an op besides running its kernel.
enum class OpKind { kCompute, kFeed, kFetch };

using InferFn = std::function<void(InferContext&)>;
using GradientFn = std::function<void(GradientContext&)>;
using PrepareFn = std::function<Kernel(const PrepareContext&)>;

namespace internal {
DType KernelDType(const PrepareContext& context);
[[noreturn]] void ThrowNoKernel(const PrepareContext& context);
}  // namespace internal

class OpDef {
 public:
  explicit OpDef(std::string type) : type_(std::move(type)) {}

  // --- declaration; every method returns *this ---

  // One or more sentences with the formula; constraints as "C1: ...". Ends up in `coracle ops
  // NAME`.
  OpDef& Doc(std::string text);
  OpDef& Input(std::string name, std::string doc);
  OpDef& OptionalInput(std::string name, std::string doc);
  OpDef& VariadicInput(std::string name, std::string doc);          // one or more
  OpDef& OptionalVariadicInput(std::string name, std::string doc);  // none or more
  OpDef& Output(std::string name, std::string doc);
  OpDef& OptionalOutput(std::string name, std::string doc);
  OpDef& VariadicOutput(std::string name, std::string doc);
  OpDef& OptionalVariadicOutput(std::string name, std::string doc);
  OpDef& IntermediateOutput(std::string name, std::string doc);  // optional too: files leave it out

  // T is an alternative of Attribute: int32_t, float, std::string, bool, int64_t, std::vector of
  // them, ...
  template <class T>
  OpDef& Attr(std::string name, std::string doc) {
    return AddAttr({std::move(name), AttrTypeOf<T>(), std::nullopt, std::move(doc), {}, {}, {}});
  }
  template <class T>
  OpDef& Attr(std::string name, T default_value, std::string doc) {
    return AddAttr({std::move(name),
                    AttrTypeOf<T>(),
                    Attribute(std::move(default_value)),
                    std::move(doc),
                    {},
                    {},
                    {}});
  }
  // Limits of the attr declared last. A value outside (or a nan) is refused before Infer runs.
  OpDef& Range(std::optional<double> min, std::optional<double> max);
  OpDef& OneOf(std::vector<std::string> values);

  OpDef& Infer(InferFn fn);

  // Exactly one of the next four (or GradientOp); see GradientKind.
  OpDef& Gradient(GradientFn fn);
  OpDef& NotDifferentiable(std::string reason);
  OpDef& NoGradient(std::string reason);
  OpDef& ForbidGradient(std::string reason);  // a string attr `message` of the op is told too
  // The common gradient rule: one op `<type>_grad` that reads the listed forward inputs and outputs
  // under their own slot names and the gradient of every output as `<slot>@GRAD`, writes
  // `<slot>@GRAD` for every differentiable input, and has this op's attrs. An output that got no
  // gradient is left out where the slot of `<type>_grad` is optional, else filled with zeros.
  OpDef& GradientOp(std::vector<std::string> forward_slots);
  // Inputs that no gradient flows into.
  OpDef& NoGradientTo(const std::vector<std::string>& input_slots);
  // Inputs that may hold values of this kind besides dense tensors; the kernels look at
  // TensorArg::type. Any other input is refused before shape rule and kernels see it.
  OpDef& Takes(VarType type, const std::vector<std::string>& input_slots);
  // Outputs that may keep what they held before the op, or a part of it (a branch that is not
  // taken, a loop that runs zero times, one element of an array): the former value is an input
  // too. Its gradient goes to GradientContext::KeptGrad, unless the variable is in an input slot.
  OpDef& KeepsOutputs(std::vector<std::string> output_slots);

  // A plain loop for each of the element types Ts: f.template operator()<T>(context) returns the
  // kernel. The type is that of the slot given to KernelTypeFrom (default: the first input that is
  // present, else the first output). RunInfer refuses a variable there of any other type. An op
  // that has a loop for float and none for float16 or bfloat16 computes those in float32: inputs
  // are converted first, outputs rounded after.
  template <class... Ts, class F>
  OpDef& Reference(F f) {
    if constexpr (sizeof...(Ts) == 0) {
      reference_ = std::move(f);
    } else {
      kernel_dtypes_ = {DTypeOf<Ts>()...};
      reference_ = [f = std::move(f)](const PrepareContext& context) -> Kernel {
        DType dtype = internal::KernelDType(context);
        Kernel kernel;
        if (!((dtype == DTypeOf<Ts>() ? (kernel = f.template operator()<Ts>(context), true)
                                      : false) ||
              ...)) {
          internal::ThrowNoKernel(context);
        }
        return kernel;
      };
    }
    return *this;
  }
  OpDef& KernelTypeFrom(std::string slot);
  // A kernel for speed. May return an empty Kernel for a case that it does not take; the reference
  // kernel then runs.
  OpDef& Fast(PrepareFn fn);

  // --- traits ---
  OpDef& Inplace(std::string input,
                 std::string output);  // the two may share memory (same dtype and numel)
  // The output holds the input's elements in the input's order (reshape2, assign): the planner may
  // make the two the same memory while both are live. The kernel must skip its copy when the two
  // addresses are equal.
  OpDef& Alias(std::string input, std::string output);
  // The string attr says how the rank-4 tensors in these slots are laid out ("NCHW" or "NHWC"); the
  // op works in both.
  OpDef& ImageLayout(std::string attr, std::vector<std::string> slots);
  // Where all of its variables have one shape, element i of every output depends on element i of
  // the inputs alone: the op then means the same in any layout.
  OpDef& Elementwise();
  // Integer inputs whose values decide output shapes; InferContext::Value gives them when they are
  // known.
  OpDef& ValueInputs(std::vector<std::string> slots);
  // One op may do the work of several: its slots then hold lists, whose i-th variables belong
  // together as an *item* (all items of one dtype, dense), but those named here, which the items
  // share. Shape rule and kernels are written for one item; see InferContext::Item and
  // PrepareContext::Item. The pass merge_updates makes such ops; they have no gradient.
  OpDef& MultiTensor(std::vector<std::string> shared_slots);
  // Output shapes may depend on what only the run knows (elements of a tensor array, LoD): Infer
  // may leave dimensions open, and the kernel writes such an output through ResizeOutput.
  OpDef& RunTimeShape();
  OpDef& ShapeOnly();   // reads its inputs' shapes and dtypes, never their elements
  OpDef& Random();      // draws random numbers
  OpDef& SideEffect();  // must run even when nobody reads its outputs (print, save)
  // The op reads or writes the file that this string attr names, except while the bool attr
  // `unless` is true. Its kernels reach the file through PrepareContext::files alone, since a
  // program may touch only what its user allows.
  OpDef& NamesFile(std::string attr, std::string unless = "");
  OpDef& Kind(OpKind kind);

  // --- reading ---
  const std::string& type() const { return type_; }
  const std::string& doc() const { return doc_; }
  const std::vector<SlotDef>& inputs() const { return inputs_; }
  const std::vector<SlotDef>& outputs() const { return outputs_; }
  const std::vector<AttrDef>& attrs() const { return attrs_; }
  const SlotDef* FindInput(std::string_view name) const;
  // Whether the input may hold a value of this kind.
  bool SlotTakes(std::string_view input, VarType type) const;
  const SlotDef* FindOutput(std::string_view name) const;
  const AttrDef* FindAttr(std::string_view name) const;
  bool HasGradient() const { return static_cast<bool>(gradient_); }
  GradientKind gradient_kind() const { return gradient_kind_; }
  const std::string& no_gradient_reason() const { return no_gradient_reason_; }
  const GradientFn& gradient() const { return gradient_; }
  bool HasReferenceKernel() const { return static_cast<bool>(reference_); }
  bool HasFastKernel() const { return static_cast<bool>(fast_); }
  const std::vector<std::pair<std::string, std::string>>& inplace() const { return inplace_; }
  // Whether the variable is on both sides of one of the op's in-place pairs.
  bool UpdatesInPlace(const OpDesc& op, std::string_view name) const;
  const std::vector<std::pair<std::string, std::string>>& alias() const { return alias_; }
  const std::vector<std::string>& keeps_outputs() const { return keeps_outputs_; }
  const std::vector<std::string>& value_inputs() const { return value_inputs_; }
  const std::string& kernel_type_slot() const { return kernel_type_slot_; }
  // The element types of the kernels; empty when they serve any type.
  const std::vector<DType>& kernel_dtypes() const { return kernel_dtypes_; }
  bool HasLoopFor(DType dtype) const;                              // among them
  const std::string& layout_attr() const { return layout_attr_; }  // "" when there is none
  const std::vector<std::string>& layout_slots() const { return layout_slots_; }
  bool elementwise() const { return elementwise_; }
  bool multi_tensor() const { return multi_tensor_; }
  bool IsShared(std::string_view slot) const;  // of an op with MultiTensor
  // How many items the op has: 1 without MultiTensor.
  size_t NumItems(const OpDesc& op) const;
  bool shape_only() const { return shape_only_; }
  bool run_time_shape() const { return run_time_shape_; }
  bool random() const { return random_; }
  bool side_effect() const { return side_effect_; }
  bool names_file() const { return !file_attr_.empty(); }
  // The file that `op` reads or writes (OpDef::NamesFile), if any.
  std::optional<std::string> FileOf(const OpDesc& op) const;
  OpKind kind() const { return kind_; }

  // Runs the shape rule, if there is one. Throws kInvalidArgument for an operand that the op does
  // not take, or of an element type that no kernel has.
  void RunInfer(InferContext& context) const;
  void RunGradient(
      GradientContext& context) const;  // throws kUnimplemented when the op has no gradient
  Kernel Prepare(const PrepareContext& context, KernelMode mode) const;

  // The attr of `op` as T, or its default; throws kInvalidArgument naming op and attr when it is
  // required and absent, or of another type. An attr that this OpDef does not declare throws
  // InternalError.
  template <class T>
  T AttrOf(const OpDesc& op, std::string_view name) const {
    const Attribute& value = AttrValue(op, name);
    if (const T* same = std::get_if<T>(&value)) return *same;
    return ConvertAttr<T>(op, name, value);
  }
  // The value in force, unconverted.
  const Attribute& AttrValue(const OpDesc& op, std::string_view name) const;

 private:
  OpDef& AddAttr(AttrDef attr);
  SlotDef& InputNamed(const std::string& name, const char* trait);
  OpDef& AddInput(std::string name, std::string doc, bool optional, bool variadic);
  OpDef& AddOutput(std::string name, std::string doc, bool optional, bool variadic,
                   bool intermediate);
  bool ComputesInFloat(const PrepareContext& context, KernelMode mode) const;
  [[noreturn]] void ThrowAttrType(const OpDesc& op, std::string_view name, const Attribute& value,
                                  AttrType wanted) const;
  template <class T>
  T ConvertAttr(const OpDesc& op, std::string_view name, const Attribute& value) const {
    Attribute converted;
    if (!ConvertAttribute(value, AttrTypeOf<T>(), &converted))
      ThrowAttrType(op, name, value, AttrTypeOf<T>());
    return std::get<T>(std::move(converted));
  }

  std::string type_, doc_;
  std::string file_attr_, no_file_attr_;
  std::vector<SlotDef> inputs_, outputs_;
  std::vector<AttrDef> attrs_;
  InferFn infer_;
  GradientFn gradient_;
  GradientKind gradient_kind_ = GradientKind::kRule;
  std::string no_gradient_reason_;
  std::vector<std::string> keeps_outputs_;
  PrepareFn reference_, fast_;
  std::string kernel_type_slot_;
  std::vector<DType> kernel_dtypes_;  // empty: reference_ looks at dtypes itself
  std::vector<std::pair<std::string, std::string>> inplace_, alias_;
  std::vector<std::string> value_inputs_;
  std::string layout_attr_;
  std::vector<std::string> layout_slots_;
  bool elementwise_ = false, multi_tensor_ = false;
  std::vector<std::string> shared_slots_;
  bool run_time_shape_ = false, shape_only_ = false, random_ = false, side_effect_ = false;
  OpKind kind_ = OpKind::kCompute;
};

// "op 7 of block 0, from lenet.pbtxt:14:9": where an op stands, for error details.
std::string Locate(const OpDesc& op);

}  // namespace coracle
