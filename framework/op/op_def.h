#pragma once
// OpDef: the declaration of an op type, with documentation, slots, attrs, constraints, shape rule,
// gradient rule, kernels and traits. Its methods fill an OpSpec. See docs/adding_an_op.md.

#include <coracle/framework/op/op_spec.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace coracle {

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

  // A further requirement, checked by the shape rule or by kernels. InferContext::Require and
  // PrepareContext::Failure refer to it by id (C1, C2, ...); the error has this text and the
  // offending values.
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
  // The common gradient rule: one op `<type>_grad`. It reads the listed forward inputs and
  // outputs under their own slot names and the gradient of every output as `<slot>@GRAD`, writes
  // `<slot>@GRAD` for every differentiable input, and has this op's attrs. If no gradient arrived
  // for an output, its slot is left empty if `<type>_grad` declares it optional; otherwise it
  // gets zeros.
  OpDef& GradientOp(const NameList& forward_slots);
  // Inputs that no gradient flows into.
  OpDef& NoGradientTo(const NameList& input_slots);
  // Inputs that may hold values of this kind besides dense tensors; the kernels check
  // TensorArg::type. Such values in any other input are refused before the shape rule and
  // kernels run.
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
  // A fast kernel. `fn` may return an empty Kernel for cases that it does not support; the
  // reference kernel then runs.
  OpDef& Fast(PrepareFn fn);

  // Instead of kernels and a gradient: `fn` writes the ops that this op joins, which have one of
  // `types` (see expansion.h). They replace the op before backward differentiates a program and
  // before a program runs. The element type is float32 or float64, as with kernels; 16-bit floats
  // are also accepted.
  OpDef& Expands(const NameList& types, ExpandFn fn);

  // --- traits ---
  // The two may share memory (same dtype and numel).
  OpDef& Inplace(std::string_view input, std::string_view output);
  // The output has the input's elements in the same order (reshape2, assign), so the planner may
  // give both the same memory while both are live. The kernel must skip the copy if the addresses
  // are equal.
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
  // Each image [i, ...] of the outputs depends only on image i of the inputs with several images.
  OpDef& EachImage();
  // The number of multiply-adds of the op; `fn` gets the shapes and attrs (op_shapes.h). The
  // gradient of each of the slots in `factors` costs as many again.
  OpDef& MultiplyAdds(const NameList& factors, MultiplyAddsFn fn);
  // How the rows of a batch pass through the op (rows.h). The second form is for ops whose attrs
  // decide; `text` explains it in docs/ops. `of`: RowEffect::of.
  OpDef& Rows(RowRule rule, std::string_view of = "X");
  OpDef& Rows(RowsFn fn, std::string_view text);
  // Inputs such as weights and tables: every output row may depend on all their rows.
  OpDef& Tables(const NameList& input_slots);
  // The op is linear in these inputs taken together. Several calls: in each list by itself (a
  // product in X, and in Y).
  OpDef& Linear(const NameList& input_slots);
  // One op may do the work of several. Its slots then hold lists, whose i-th variables form an
  // *item* (all items are dense and have the same dtype); all items share the slots named here.
  // Shape rule and kernels are written for one item; see InferContext::Item and
  // PrepareContext::Item. The pass merge_updates makes such ops; they have no gradient.
  OpDef& MultiTensor(const NameList& shared_slots);
  // Output shapes may be known only at run time (elements of a tensor array, LoD): Infer may leave
  // dimensions unknown, and the kernel writes such an output through ResizeOutput.
  OpDef& RunTimeShape();
  // How LoD passes through the op. By default, outputs with as many rows as the first declared
  // input take its LoD, and gradients take the LoD of their variables (OpSpec::LodSource). With
  // both LodUnlessAxis and MakesLod, the kernel makes the LoD if the axis is 0; otherwise the LoD
  // passes through.
  OpDef& LodFrom(std::string_view input);  // takes the LoD of this input
  // The output has no LoD if the attr (a number or a list) names axis 0.
  OpDef& LodUnlessAxis(std::string_view attr);
  OpDef& NoLod();       // the outputs have no LoD
  OpDef& MakesLod();    // the kernel makes the LoD: Workspace::OutputLod
  OpDef& ShapeOnly();   // reads its inputs' shapes and dtypes, never their elements
  OpDef& Random();      // draws random numbers
  OpDef& SideEffect();  // must run even if nothing reads its outputs (print, save)
  // The op reads or writes the file that this string attr names, unless the bool attr `unless` is
  // true. Its kernels must access the file through PrepareContext::files, since a program may only
  // access files that its user allows.
  OpDef& NamesFile(std::string_view attr, std::string_view unless = "");
  OpDef& Kind(OpKind kind);
  OpDef& RunsBlock(BlockTrait trait);  // how the op runs its sub-block
  // The precision of the op under mixed precision: the precision of its inputs (the default), 16
  // bits, or float32. Float32Slots stay float32 even if other inputs have 16 bits: the per-channel
  // scale, bias and statistics of a norm.
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
