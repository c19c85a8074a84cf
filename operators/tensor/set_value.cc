// set_value: replaces a part of a tensor, like `x[1:3, 0] = value`.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/tensor/complex.h>
#include <coracle/operators/kernels/broadcast.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/operators.h>
#include <coracle/operators/rules/index.h>
#include <coracle/operators/tensor/assigned_values.h>
#include <coracle/operators/tensor/slice_range.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

namespace coracle::set_value_op {

using Longs = std::vector<int64_t>;

// Attr axes or decrease_axes: distinct, each normalised to [0, rank).
std::vector<int> ReadAxes(const InferContext& ctx, const char* attr, const char* id, int rank) {
  std::vector<int> axes;
  for (int64_t axis : ctx.Attr<Longs>(attr)) {
    axes.push_back(ctx.Axis(id, axis, rank));
    ctx.Require(id, std::count(axes.begin(), axes.end(), axes.back()) == 1, "twice", axis);
  }
  return axes;
}

// The bounds are read at run time, since no shape depends on them; bounds from attrs are also
// checked here. Returns the number of elements along axes[i]; -1 if only the run knows it.
int64_t CountOf(const InferContext& ctx, size_t i, int64_t dim, bool single) {
  const Longs starts = ctx.Attr<Longs>("starts"), ends = ctx.Attr<Longs>("ends");
  const Longs steps = ctx.Attr<Longs>("steps");
  const bool lists = ctx.HasInput("StartsTensorList") || ctx.HasInput("EndsTensorList") ||
                     ctx.HasInput("StepsTensorList");
  if (!ctx.HasInput("StepsTensorList") && i < steps.size()) ctx.Require("C3", steps[i] != 0, steps);
  if (lists || dim < 0) return single ? 1 : -1;
  return MakeRange(dim, starts[i], ends[i], steps.empty() ? 1 : steps[i], single).count;
}

// The part in the shape of the value: for each of its dims the dim of Input, or -1 for a dim
// inserted by none_axes.
std::vector<int> PartDims(int rank, const std::vector<bool>& dropped, const Longs& none_axes) {
  std::vector<int> dims;
  for (int i = 0; i <= rank; ++i) {
    dims.insert(dims.end(), static_cast<size_t>(std::count(none_axes.begin(), none_axes.end(), i)),
                -1);
    if (i < rank && !dropped[static_cast<size_t>(i)]) dims.push_back(i);
  }
  return dims;
}

// Checks the bounds, and that `value` can be broadcast to the part.
void InferPart(const InferContext& ctx, const Shape& whole, const Shape& value) {
  const int rank = whole.rank();
  const std::vector<int> axes = ReadAxes(ctx, "axes", "C1", rank);
  const std::vector<int> decreased = ReadAxes(ctx, "decrease_axes", "C4", rank);
  for (const auto& [slot, attr] : {std::pair{"StartsTensorList", "starts"},
                                   {"EndsTensorList", "ends"},
                                   {"StepsTensorList", "steps"}}) {
    const size_t given = ctx.HasInput(slot) ? ctx.NumInputs(slot) : ctx.Attr<Longs>(attr).size();
    const bool ones = std::string_view(attr) == "steps" && given == 0;
    ctx.Require("C2", ones || given == axes.size(), attr, given, "axes", axes.size());
  }
  std::vector<bool> dropped(static_cast<size_t>(rank), false);
  for (int axis : decreased) dropped[static_cast<size_t>(axis)] = true;
  Longs part = whole.ToVector();
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<size_t>(axes[i]);
    part[axis] = CountOf(ctx, i, part[axis], dropped[axis]);
  }
  for (int axis : decreased) {
    const int64_t count = part[static_cast<size_t>(axis)];
    ctx.Require("C4", InferContext::Matches(count, 1), count);
  }
  const Longs none_axes = ctx.Attr<Longs>("none_axes");
  for (int64_t axis : none_axes) ctx.Require("C7", axis >= 0 && axis <= rank, axis, rank);
  const std::vector<int> dims = PartDims(rank, dropped, none_axes);
  for (int k = 1; k <= value.rank(); ++k) {
    const int64_t got = value[value.rank() - k];
    const int at = static_cast<int>(dims.size()) - k;
    const int from = at < 0 ? -1 : dims[static_cast<size_t>(at)];
    const int64_t wanted = from < 0 ? 1 : part[static_cast<size_t>(from)];
    ctx.Require("C6", got == 1 || InferContext::Matches(got, wanted), got, wanted);
  }
}

void InferSetValue(InferContext& ctx) {
  const VarMeta& input = ctx.Input("Input");
  if (ctx.HasInput("ValueTensor")) {
    const VarMeta& value = ctx.Input("ValueTensor");
    ctx.Require("C5", value.dtype == input.dtype, value, input);
    InferPart(ctx, input.shape, value.shape);
  } else {
    const auto dtype = static_cast<DType>(ctx.Attr<int32_t>("dtype"));
    ctx.Require("C5", dtype == input.dtype && HasAssignedValues(dtype), "attr dtype",
                static_cast<int64_t>(dtype), "Input", input.dtype);
    const Longs dims = ctx.Attr<Longs>("shape");
    ctx.Require("C8", dims.size() <= Shape::kMaxRank && Shape(dims).IsKnown(), "shape", dims);
    const Shape shape(dims);
    const int64_t given = AssignedValues(ctx, dtype).numel();
    ctx.Require("C8", shape.numel() == given, shape.numel(), given);
    InferPart(ctx, input.shape, shape);
  }
  ctx.SetOutput("Out", input);
}

// The positions of the elements of the part: x of the nest is the whole tensor, y the value.
class Part {
 public:
  Part(const PrepareContext& ctx, const Shape& whole, const Shape& value)
      : type_(ctx.op().type()),
        whole_(whole),
        value_(value),
        starts_(ctx, "StartsTensorList", "", "starts"),
        ends_(ctx, "EndsTensorList", "", "ends") {
    const int rank = whole.rank();
    if (ctx.HasInput("StepsTensorList") || !ctx.Attr<Longs>("steps").empty())
      steps_.emplace(ctx, "StepsTensorList", "", "steps");
    std::vector<bool> dropped(static_cast<size_t>(rank), false);
    for (int64_t axis : ctx.Attr<Longs>("decrease_axes"))
      dropped[static_cast<size_t>(axis < 0 ? axis + rank : axis)] = true;
    const Longs axes = ctx.Attr<Longs>("axes");
    if (starts_.size() != axes.size() || ends_.size() != axes.size() ||
        (steps_ && steps_->size() != axes.size()))
      ctx.Unsupported("starts, ends and steps must be as long as axes");
    value_dim_.fill(-1);
    cut_.fill(-1);
    for (size_t i = 0; i < axes.size(); ++i)
      cut_[static_cast<size_t>(axes[i] < 0 ? axes[i] + rank : axes[i])] = static_cast<int>(i);
    const std::vector<int> dims = PartDims(rank, dropped, ctx.Attr<Longs>("none_axes"));
    // number of dims that the value lacks
    const int lead = static_cast<int>(dims.size()) - value.rank();
    for (size_t k = 0; k < dims.size(); ++k) {
      const int at = static_cast<int>(k) - lead;
      if (dims[k] >= 0 && at >= 0) value_dim_[static_cast<size_t>(dims[k])] = at;
    }
    for (int i = 0; i < rank; ++i)
      single_[static_cast<size_t>(i)] = dropped[static_cast<size_t>(i)];
  }

  // Calls body(whole_offset, value_offset, count, whole_step, value_step) for each innermost row.
  template <class Body>
  void ForEach(const Workspace& ws, const Body& body) const {
    int64_t offset = 0;
    const BroadcastNest nest = Nest(ws, &offset);
    const int64_t dx = nest.x_step[nest.rank - 1], dy = nest.y_step[nest.rank - 1];
    ForEachRow(nest, 0, nest.numel, [&](int64_t x, int64_t y, int64_t, int64_t count) {
      body(offset + x, y, count, dx, dy);
    });
  }

 private:
  BroadcastNest Nest(const Workspace& ws, int64_t* offset) const {
    BroadcastNest nest;
    nest.rank = std::max(whole_.rank(), 1);
    nest.dims[0] = nest.numel = 1;
    nest.x_step[0] = nest.y_step[0] = 0;
    int64_t whole_stride = 1;
    for (int i = whole_.rank() - 1; i >= 0; --i) {
      const AxisRange range = Range(ws, i);
      const int at = value_dim_[static_cast<size_t>(i)];
      const int64_t value_dim = at < 0 ? 1 : value_[at];
      if (value_dim != 1 && value_dim != range.count) ThrowMisfit(i, value_dim, range.count);
      nest.dims[i] = range.count;
      nest.numel *= range.count;
      *offset += range.start * whole_stride;
      nest.x_step[i] = range.count > 1 ? whole_stride * range.step : 0;  // a step may be any number
      nest.y_step[i] = value_dim == 1 ? 0 : value_.Product(at + 1, value_.rank());
      whole_stride *= whole_[i];
    }
    return nest;
  }
  AxisRange Range(const Workspace& ws, int axis) const {
    const int64_t dim = whole_[axis];
    if (cut_[static_cast<size_t>(axis)] < 0) return {0, 1, dim};
    const auto i = static_cast<size_t>(cut_[static_cast<size_t>(axis)]);
    const int64_t step = steps_ ? steps_->Get(ws, i) : 1;
    if (step == 0) ThrowInvalid(type_ + ": a step must not be 0");
    const bool single = single_[static_cast<size_t>(axis)];
    const AxisRange range = MakeRange(dim, starts_.Get(ws, i), ends_.Get(ws, i), step, single);
    if (single && range.count != 1) ThrowMisfit(axis, 1, range.count);
    return range;
  }
  [[noreturn]] void ThrowMisfit(int axis, int64_t wanted, int64_t count) const {
    ThrowInvalid(
        fmt::format("{}: the bounds give {} elements along axis {} of {}, but the value has {}",
                    type_, count, axis, whole_.ToString(), wanted));
  }

  std::string type_;
  Shape whole_, value_;
  IntListArg starts_, ends_;
  std::optional<IntListArg> steps_;
  std::array<int, Shape::kMaxRank> value_dim_{};  // dim of the value, for each of the whole
  std::array<int, Shape::kMaxRank> cut_{};        // index in axes, for each dim of the whole
  std::array<bool, Shape::kMaxRank> single_{};
};

// T is any type of the elements' size.
template <class T>
Kernel SetElements(const PrepareContext& ctx) {
  const TensorArg in = ctx.Input("Input"), out = ctx.Output("Out");
  const TensorArg value = ctx.Input("ValueTensor");
  const Tensor constant = value ? Tensor() : AssignedValues(ctx, in.dtype);
  const Part part(ctx, in.shape, value ? value.shape : Shape(ctx.Attr<Longs>("shape")));
  const int64_t bytes = in.nbytes();
  return [=](Workspace& ws) {
    CopyBytes(ws.Data<const void>(in), ws.Data<void>(out), bytes);
    const T* from = value ? ws.Data<const T>(value) : static_cast<const T*>(constant.raw());
    T* to = ws.Data<T>(out);
    part.ForEach(ws, [&](int64_t x, int64_t y, int64_t count, int64_t dx, int64_t dy) {
      for (int64_t i = 0; i < count; ++i) to[x + i * dx] = from[y + i * dy];
    });
  };
}

Kernel SetValue(const PrepareContext& ctx) {
  switch (SizeOf(ctx.Input("Input").dtype)) {
    case 1:
      return SetElements<uint8_t>(ctx);
    case 2:
      return SetElements<uint16_t>(ctx);
    case 4:
      return SetElements<uint32_t>(ctx);
    case 8:
      return SetElements<uint64_t>(ctx);
    default:
      return SetElements<complex128>(ctx);
  }
}

void InferSetValueGrad(InferContext& ctx) {
  const VarMeta& dout = ctx.Input("Out@GRAD");
  if (ctx.HasInput("ValueTensor")) {
    const VarMeta& value = ctx.Input("ValueTensor");
    ctx.Require("C5", value.dtype == dout.dtype, value, dout);
    InferPart(ctx, dout.shape, value.shape);
    ctx.SetOutput("ValueTensor@GRAD", value);
  } else {
    ctx.Require("C6", !ctx.HasOutput("ValueTensor@GRAD"), "ValueTensor@GRAD without ValueTensor",
                true);
    InferPart(ctx, dout.shape, Shape());
  }
  ctx.SetOutput("Input@GRAD", dout);
}

template <class T>
KernelOf<T> SetValueGrad(const PrepareContext& ctx) {
  const TensorArg dout = ctx.Input("Out@GRAD"), din = ctx.Output("Input@GRAD");
  const TensorArg dvalue = ctx.Output("ValueTensor@GRAD");
  const Part part(ctx, dout.shape, dvalue ? dvalue.shape : Shape());
  return [=](Workspace& ws) {
    const T* from = ws.Data<const T>(dout);
    if (dvalue) {  // computed first: Input@GRAD may overwrite Out@GRAD
      T* to = ws.Data<T>(dvalue);
      std::fill_n(to, dvalue.numel, T(0));
      part.ForEach(ws, [&](int64_t x, int64_t y, int64_t count, int64_t dx, int64_t dy) {
        for (int64_t i = 0; i < count; ++i) to[y + i * dy] += from[x + i * dx];
      });
    }
    if (!din) return;
    T* to = ws.Data<T>(din);
    CopyBytes(from, to, din.nbytes());
    part.ForEach(ws, [&](int64_t x, int64_t, int64_t count, int64_t dx, int64_t) {
      for (int64_t i = 0; i < count; ++i) to[x + i * dx] = T(0);
    });
  };
}

// A linear map splits Out@GRAD into two parts; its transpose joins them.
void SetValueGradGradient(GradientContext& g) {
  // An op with only the gradient of the value inserts it into zeros.
  const Variable input =
      g.HasOutput("Input@GRAD") ? g.Grad("Input@GRAD") : ZerosLike(g.In("Out@GRAD"));
  SlotList inputs = g.ForwardInputs({"StartsTensorList", "EndsTensorList", "StepsTensorList"});
  AttrList attrs =
      g.ForwardAttrs({"axes", "starts", "ends", "steps", "decrease_axes", "none_axes"});
  inputs.push_back({"Input", {input.name()}});
  if (g.HasInput("ValueTensor") && g.HasOutputGrad("ValueTensor@GRAD")) {
    inputs.push_back({"ValueTensor", {g.OutputGrad("ValueTensor@GRAD")}});
  } else {
    attrs.push_back({"dtype", static_cast<int32_t>(input.dtype())});
    attrs.push_back({"shape", Longs{1}});
    if (input.dtype() == DType::kFloat64)
      attrs.push_back({"fp64_values", std::vector<double>{0}});
    else
      attrs.push_back({"fp32_values", std::vector<float>{0}});
  }
  g.Set("Out@GRAD", g.Make("set_value", std::move(inputs), std::move(attrs)));
}

void AddBounds(OpDef& def) {
  const std::vector<std::string> slots = {"StartsTensorList", "EndsTensorList", "StepsTensorList"};
  def.OptionalVariadicInput("StartsTensorList", "one-element tensors; replace attr starts")
      .OptionalVariadicInput("EndsTensorList", "one-element tensors; replace attr ends")
      .OptionalVariadicInput("StepsTensorList", "one-element tensors; replace attr steps")
      .NoGradientTo(slots)
      .Attr<Longs>("axes", "the dimensions to cut")
      .Attr<Longs>("starts", {}, "first element in each of the axes")
      .Attr<Longs>("ends", {}, "end of the part, exclusive")
      .Attr<Longs>("steps", {}, "step in each of the axes, may be negative; empty: 1 for all")
      .Attr<Longs>("decrease_axes", {}, "dimensions of one element that the value lacks")
      .Attr<Longs>("none_axes", {},
                   "dimensions of Input before which the value has an additional dim of 1")
      .Attr<int32_t>("dtype", static_cast<int32_t>(DType::kFloat32),
                     "shape and dtype of a value given by attrs")
      .Attr<Longs>("shape", {}, "shape and dtype of a value given by attrs");
  AddAssignedValues(def);
}

constexpr const char* kPartDoc =
    " Bounds work as in strided_slice: negative ones count from the end, and they are clamped.";

void DeclarePart(OpDef& def) {
  def.Constraint("C1", "axes must be distinct axes of Input")
      .Constraint("C2", "starts, ends and steps must be as long as axes")
      .Constraint("C3", "no step may be 0")
      .Constraint("C4",
                  "decrease_axes must be distinct axes of Input, each of one element in the part")
      .Constraint("C5",
                  "the value must have Input's dtype; a value given by attrs must be bool, int32, "
                  "int64, float32 or float64")
      .Constraint(
          "C6",
          "a dimension of the value must be 1 or the part's (additional leading dims must be 1)")
      .Constraint("C7", "none_axes must lie in [0, rank]")
      .Constraint("C8",
                  "a value given by attrs must have a shape of at most 9 dimensions, none "
                  "negative, and the matching number of elements");
}

void Register(OpRegistry& ops) {
  OpDef def("set_value");
  def.Doc(fmt::format("Out = Input with the part [starts, ends) of the axes, every steps-th "
                      "element, replaced by the value, which is broadcast to the part.{}",
                      kPartDoc))
      .Apply(DeclarePart)
      .Input("Input", "tensor of any dtype")
      .OptionalInput("ValueTensor", "the value; if absent, the attrs give it")
      .Output("Out", "tensor of Input's shape and dtype")
      .Inplace("Input", "Out")
      .Rows(RowRule::kEach)
      .WorksAlong("axes")
      .Infer(InferSetValue)
      .GradientOp({"ValueTensor", "StartsTensorList", "EndsTensorList", "StepsTensorList"})
      .Reference(SetValue);
  AddBounds(def);
  ops.Add(std::move(def));
  OpDef grad("set_value_grad");
  grad.Doc(
          "Gradient of set_value: Input@GRAD = Out@GRAD, 0 in the part; ValueTensor@GRAD = the "
          "part of Out@GRAD, summed where the value was broadcast.")
      .ConstraintsOf("set_value", {"C1", "C2", "C3", "C4", "C7"})
      .Constraint("C5", "ValueTensor must have the dtype of Out@GRAD")
      .Constraint("C6", "ValueTensor@GRAD needs a ValueTensor that can be broadcast to the part")
      .OptionalInput("ValueTensor", "only its shape is used")
      .Input("Out@GRAD", "gradient of Out")
      .OptionalOutput("Input@GRAD", "gradient of Input")
      .OptionalOutput("ValueTensor@GRAD", "gradient of ValueTensor")
      .NoGradientTo({"ValueTensor"})
      .KernelTypeFrom("Out@GRAD")
      .Inplace("Out@GRAD", "Input@GRAD")
      .Infer(InferSetValueGrad)
      .Gradient(SetValueGradGradient)
      .Reference(SetValueGrad<float>, SetValueGrad<double>, SetValueGrad<complex64>,
                 SetValueGrad<complex128>);
  AddBounds(grad);
  ops.Add(std::move(grad));
}

}  // namespace coracle::set_value_op
