#pragma once
// OpDef: the declaration of an op type: documentation, slots, attrs, constraints, shape rule,
// gradient rule, kernels, traits. Its methods fill an OpSpec. See docs/adding_an_op.md.

#include <coracle/framework/op/op_spec.h>

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace coracle {

// A kernel that computes with elements of type T: what the prepare functions return that are
// listed in OpDef::Reference.
template <class T>
struct KernelOf {
  KernelOf() = default;
  template <class F>
  KernelOf(F f) : kernel(std::move(f)) {}             // NOLINT: what a kernel is made of
  operator Kernel() && { return std::move(kernel); }  // NOLINT: it is one
  Kernel kernel;
};

class OpDef {
 public:
  explicit OpDef(std::string type) { spec_.type = std::move(type); }

  // --- declaration; every method returns *this ---

  // One or more sentences with the formula. Ends up in `coracle ops NAME`.
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

  // T is an alternative of Attribute: int32_t, float, std::string, bool, int64_t, std::vector
  // of them, ...
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
  // The attrs of a type that is registered before this one: a gradient op's of its forward op.
  OpDef& AttrsOf(std::string type);

  // What shape rule or kernels require beyond that: InferContext::Require and
  // PrepareContext::Constraint name the id, C1 and on, and fail with this text and the
  // values they got.
  OpDef& Constraint(std::string id, std::string text);
  // Constraints of a type that is registered before this one, with their texts.
  OpDef& ConstraintsOf(std::string type, std::vector<std::string> ids);

  // Declares what several ops share: .Apply(DeclareBounds).
  template <class F, class... Args>
  OpDef& Apply(F declare, Args&&... args) {
    declare(*this, std::forward<Args>(args)...);
    return *this;
  }

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
  // Every input may hold any value, as those of an op that runs a block may.
  OpDef& TakesAnyValue();
  // Outputs that may keep what they held before the op, or a part of it (a branch that is not
  // taken, a loop that runs zero times, one element of an array): the former value is an input
  // too. Its gradient goes to GradientContext::KeptGrad, unless the variable is in an input slot.
  OpDef& KeepsOutputs(std::vector<std::string> output_slots);

  // A plain loop for each of the element types Ts, from function templates of T:
  // .Reference(ClipReference<float>, ClipReference<double>). The type is that of the slot
  // given to KernelTypeFrom (default: the first input that is present, else the first output).
  // RunInfer refuses a variable there of any other type. An op that has a loop for float and
  // none for float16 or bfloat16 computes those in float32: inputs are converted first,
  // outputs rounded after.
  template <class... Ts>
  OpDef& Reference(KernelOf<Ts> (*... prepare)(const PrepareContext&)) {
    static_assert(sizeof...(Ts) > 0);
    return SetReference({DTypeOf<Ts>()...}, {PrepareFn(prepare)...});
  }
  // The same where the kernels need more than the type: f.template operator()<T>(context)
  // returns the kernel.
  template <class T, class... Ts, class F>
  OpDef& Reference(F f) {
    return SetReference({DTypeOf<T>(), DTypeOf<Ts>()...},
                        {PrepareWith<T>(f), PrepareWith<Ts>(f)...});
  }
  // One kernel that serves any type.
  OpDef& Reference(PrepareFn fn);
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
  OpDef& RunsBlock(BlockTrait trait);  // how the op runs its sub-block
  // What the op computes in under mixed precision: what its inputs are in (where nothing is
  // declared), 16 bits, or float32. Slots that stay float32 beside inputs of 16 bits are what a
  // norm holds of each channel: scale, bias, statistics.
  OpDef& ComputesIn(OpPrecision precision);
  OpDef& Float32Slots(std::vector<std::string> slots);

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
  OpDef& SetReference(std::vector<DType> dtypes, std::vector<PrepareFn> kernels);
  OpDef& AddAttr(AttrDef attr);
  SlotDef& InputNamed(const std::string& name, const char* trait);
  OpDef& AddInput(std::string name, std::string doc, bool optional, bool variadic);
  OpDef& AddOutput(std::string name, std::string doc, bool optional, bool variadic,
                   bool intermediate);

  // Replaces what is taken from other types by what `find` knows of them.
  OpSpec Resolve(const std::function<const OpSpec*(const std::string&)>& find) &&;

  OpSpec spec_;
  std::vector<std::pair<size_t, std::string>> attrs_of_;  // place in spec_.attrs, and whose
};

}  // namespace coracle
