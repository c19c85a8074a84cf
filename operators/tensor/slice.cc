#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/rules/output_grad.h>
#include <coracle/operators/tensor/slice_range.h>

#include <algorithm>

namespace coracle::slice_op {

bool IsStrided(const OpDesc& op) { return op.type().rfind("strided_slice", 0) == 0; }

// Attr axes, each normalised to [0, rank), without duplicates.
std::vector<int> ReadAxes(const InferContext& ctx, const char* attr, const char* id, int rank) {
  std::vector<int> axes;
  for (int32_t axis : ctx.Attr<std::vector<int32_t>>(attr)) {
    axes.push_back(ctx.Axis(id, axis, rank));
    ctx.Require(id, std::count(axes.begin(), axes.end(), axes.back()) == 1, "twice", axis);
  }
  return axes;
}

// Shape of the slice before decrease_axis is applied.
Shape InferSliceShape(InferContext& ctx, const std::vector<int>& axes,
                      const std::vector<int>& dropped) {
  Shape out = ctx.InputShape("Input");
  const IntList starts = ReadIntList(ctx, "StartsTensorList", "StartsTensor", "starts");
  const IntList ends = ReadIntList(ctx, "EndsTensorList", "EndsTensor", "ends");
  IntList strides{std::vector<int64_t>(axes.size(), 1), true};
  if (IsStrided(ctx.op()))
    strides = ReadIntList(ctx, "StridesTensorList", "StridesTensor", "strides");
  const bool known = starts.known && ends.known && strides.known;
  for (const IntList* list : std::initializer_list<const IntList*>{&starts, &ends, &strides}) {
    ctx.Require("C2", list->values.size() == axes.size() || !known, list->values.size(),
                axes.size());
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    int64_t& dim = out[axes[i]];
    const bool single = std::count(dropped.begin(), dropped.end(), axes[i]) > 0;
    if (known) ctx.Require("C3", strides.values[i] != 0, strides.values);
    if (known && dim >= 0)
      dim = MakeRange(dim, starts.values[i], ends.values[i], strides.values[i], single).count;
    else
      dim = single ? 1 : -1;
  }
  return out;
}

VarMeta SliceOut(InferContext& ctx) {
  const VarMeta in = ctx.Input("Input");
  const int rank = in.shape.rank();
  const std::vector<int> dropped = ReadAxes(ctx, "decrease_axis", "C4", rank);
  const Shape sliced = InferSliceShape(ctx, ReadAxes(ctx, "axes", "C1", rank), dropped);
  VarMeta out = in;
  out.shape = Shape();
  for (int i = 0; i < rank; ++i) {
    if (std::count(dropped.begin(), dropped.end(), i) == 0)
      out.shape.Append(sliced[i]);
    else
      ctx.Require("C4", InferContext::Matches(sliced[i], 1), sliced[i]);
  }
  if (out.shape.rank() == 0 && rank > 0) out.shape.Append(1);
  return out;
}

void InferSlice(InferContext& ctx) { ctx.SetOutput("Out", SliceOut(ctx)); }

// The positions of the elements of a slice in the whole tensor.
class Window {
 public:
  Window(const PrepareContext& ctx, const TensorArg& whole, const TensorArg& part, bool into_whole)
      : whole_(whole),
        part_numel_(part.numel),
        starts_(ctx, "StartsTensorList", "StartsTensor", "starts"),
        ends_(ctx, "EndsTensorList", "EndsTensor", "ends"),
        into_whole_(into_whole),
        single_(static_cast<size_t>(whole.shape.rank()), false),
        name_(ctx.op().type()) {
    for (int32_t axis : ctx.Attr<std::vector<int32_t>>("axes")) axes_.push_back(Normal(axis));
    for (int32_t axis : ctx.Attr<std::vector<int32_t>>("decrease_axis"))
      single_[static_cast<size_t>(Normal(axis))] = true;
    if (IsStrided(ctx.op())) strides_.emplace(ctx, "StridesTensorList", "StridesTensor", "strides");
    if (starts_.size() != axes_.size() || ends_.size() != axes_.size() ||
        (strides_ && strides_->size() != axes_.size()))
      ctx.Unsupported("starts, ends and strides must be as long as axes");
    fixed_ = true;
    for (const char* slot : {"StartsTensorList", "StartsTensor", "EndsTensorList", "EndsTensor",
                             "StridesTensorList", "StridesTensor"}) {
      fixed_ = fixed_ && !ctx.HasInput(slot);
    }
  }

  bool fixed() const { return fixed_; }  // whether the bounds are attrs

  struct Plan {
    int64_t offset = 0;  // in bytes, into the whole
    StridedCopy copy;
  };
  // Reads `ws` only if the bounds are tensors.
  Plan Make(const Workspace* ws) const {
    const std::vector<int64_t> whole_strides = ContiguousStrides(whole_.shape.ToVector());
    std::vector<int64_t> dims = whole_.shape.ToVector(), strides = whole_strides;
    int64_t offset = 0, count = 1;
    for (size_t i = 0; i < axes_.size(); ++i) {
      const size_t axis = static_cast<size_t>(axes_[i]);
      const AxisRange range = MakeRange(dims[axis], Get(starts_, ws, i), Get(ends_, ws, i),
                                        strides_ ? Get(*strides_, ws, i) : 1, single_[axis]);
      offset += range.start * strides[axis];
      dims[axis] = range.count;
      strides[axis] = range.count > 1 ? strides[axis] * range.step : 0;
    }
    for (int64_t dim : dims) count *= dim;
    if (count != part_numel_) ThrowInvalid(name_ + ": the bounds do not give the inferred shape");
    const size_t size = SizeOf(whole_.dtype);
    const std::vector<int64_t> part_strides = ContiguousStrides(dims);
    return {offset * static_cast<int64_t>(size),
            StridedCopy(size, dims, into_whole_ ? part_strides : strides,
                        into_whole_ ? strides : part_strides)};
  }

 private:
  static int64_t Get(const IntListArg& list, const Workspace* ws, size_t i) {
    return ws ? list.Get(*ws, i) : list.GetFixed(i);
  }
  int Normal(int32_t axis) const {
    int normal = 0;
    whole_.shape.NormalizeAxis(axis, &normal);
    return normal;
  }

  TensorArg whole_;
  int64_t part_numel_;
  IntListArg starts_, ends_;
  std::optional<IntListArg> strides_;
  bool into_whole_;
  std::vector<int> axes_;
  std::vector<bool> single_;
  bool fixed_ = false;
  std::string name_;
};

// Calls body(ws, plan): with a plan made once if the bounds are attrs, else with a plan of
// this run.
template <class Body>
Kernel WithPlan(const Window& window, Body body) {
  if (window.fixed()) {
    const Window::Plan plan = window.Make(nullptr);
    return [=](Workspace& ws) { body(ws, plan); };
  }
  return [=](Workspace& ws) { body(ws, window.Make(&ws)); };
}

Kernel Slice(const PrepareContext& ctx) {
  const TensorArg in = ctx.Input("Input"), out = ctx.Output("Out");
  if (out.numel == 0) return [](Workspace&) {};
  return WithPlan(Window(ctx, in, out, false), [=](Workspace& ws, const Window::Plan& plan) {
    plan.copy(ws.Data<const char>(in) + plan.offset, ws.Data<void>(out));
  });
}

// Zero outside of the slice.
Kernel SliceGrad(const PrepareContext& ctx) {
  const TensorArg dout = ctx.Input("Out@GRAD"), din = ctx.Output("Input@GRAD");
  const int64_t bytes = din.nbytes();
  if (dout.numel == 0) return [=](Workspace& ws) { FillZeroBytes(ws.Data<void>(din), bytes); };
  return WithPlan(Window(ctx, din, dout, true), [=](Workspace& ws, const Window::Plan& plan) {
    FillZeroBytes(ws.Data<void>(din), bytes);
    plan.copy(ws.Data<const void>(dout), ws.Data<char>(din) + plan.offset);
  });
}

constexpr const char* kBoundSlots[] = {"StartsTensor",   "EndsTensor",    "StartsTensorList",
                                       "EndsTensorList", "StridesTensor", "StridesTensorList"};

void SliceGradGradient(GradientContext& g) {
  const char* type = IsStrided(g.op()) ? "strided_slice" : "slice";
  SlotList inputs = {{"Input", {g.OutputGrad("Input@GRAD")}}};
  for (const char* slot : kBoundSlots) {
    if (g.HasInput(slot)) inputs.push_back({slot, g.Inputs(slot)});
  }
  g.Set("Out@GRAD", g.Make(type, std::move(inputs), g.ForwardAttrs(type)));
}

void DeclareBounds(OpDef& def, bool strided) {
  std::vector<std::string> slots = {"StartsTensor", "EndsTensor", "StartsTensorList",
                                    "EndsTensorList"};
  def.OptionalInput("StartsTensor", "int32 or int64 tensor; replaces attr starts")
      .OptionalInput("EndsTensor", "int32 or int64 tensor; replaces attr ends")
      .OptionalVariadicInput("StartsTensorList", "one-element tensors; replace attr starts")
      .OptionalVariadicInput("EndsTensorList", "one-element tensors; replace attr ends")
      .Attr<std::vector<int32_t>>("axes", "the dimensions to cut")
      .Attr<std::vector<int32_t>>("starts", {}, "first element in each of the axes")
      .Attr<std::vector<int32_t>>("ends", {}, "end of the slice, exclusive")
      .Attr<std::vector<int32_t>>("infer_flags", {}, "ignored: unknown bounds are detected")
      .Attr<std::vector<int32_t>>("decrease_axis", {}, "dimensions of one element to drop");
  if (strided) {
    def.OptionalInput("StridesTensor", "int32 or int64 tensor; replaces attr strides")
        .OptionalVariadicInput("StridesTensorList", "one-element tensors; replace attr strides")
        .Attr<std::vector<int32_t>>("strides", {}, "step in each of the axes, may be negative");
    slots.insert(slots.end(), {"StridesTensor", "StridesTensorList"});
  }
  def.NoGradientTo(slots);
}

void AddPair(OpRegistry& ops, bool strided) {
  const std::string type = strided ? "strided_slice" : "slice";
  OpDef def(type);
  def.Doc("Out = the part [starts, ends) of Input in each of the axes" +
          std::string(strided ? ", every strides-th element" : "") +
          ". Negative bounds count from the end; bounds are clamped. " +
          std::string(strided ? "With a negative stride, an end of -1 means before element 0. "
                              : "") +
          "Dimensions in decrease_axis are dropped; if no dimension is left, Out is [1].")
      .Constraint("C1", "axes must be distinct axes of Input")
      .Constraint("C2", "starts, ends and strides must be as long as axes")
      .Constraint("C4",
                  "decrease_axis must be distinct axes of Input, each of one element in the slice")
      .Input("Input", "tensor of any dtype")
      .Output("Out", "the part")
      .LodUnlessAxis("axes")
      .Rows(RowRule::kEach)
      .Axes("axes")
      .Infer(InferSlice)
      .GradientOp({"Input", "StartsTensor", "EndsTensor", "StartsTensorList", "EndsTensorList",
                   "StridesTensor", "StridesTensorList"})
      .Strings()
      .Reference(Slice);
  if (strided) def.Constraint("C3", "no stride may be 0");
  ops.Add(std::move(def.Apply(DeclareBounds, strided)));
  OpDef grad(type + "_grad");
  grad.Doc("Gradient of " + type + ": Input@GRAD = Out@GRAD in the part, else 0.")
      .ConstraintsOf(type, {"C1", "C2", "C4"})
      .Constraint("C5", "Out@GRAD must have Out's shape and dtype")
      .Input("Input", "only its shape is used")
      .Input("Out@GRAD", "gradient of Out")
      .Output("Input@GRAD", "gradient of Input")
      .NoGradientTo({"Input"})
      .Infer([](InferContext& ctx) {
        RequireOutGrad(ctx, "C5", SliceOut(ctx));
        ctx.SetOutput("Input@GRAD", ctx.Input("Input"));
      })
      .Gradient(SliceGradGradient)
      .Reference(SliceGrad);
  if (strided) grad.ConstraintsOf(type, {"C3"});
  ops.Add(std::move(grad.Apply(DeclareBounds, strided)));
}

void Register(OpRegistry& ops) {
  AddPair(ops, false);
  AddPair(ops, true);
}

}  // namespace coracle::slice_op
