#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/rules/dims.h>
#include <coracle/operators/rules/index.h>
#include <fmt/format.h>

namespace coracle::crop_op {

// The offsets known during shape inference: from attrs and, with `need_values`, from tensors. The
// default is 0.
IntList ReadOffsets(const InferContext& ctx, int rank, bool need_values) {
  const auto count = static_cast<size_t>(rank);
  const bool tensors = ctx.HasInput("OffsetsTensor") || ctx.HasInput("Offsets");
  if (tensors && !need_values) return {std::vector<int64_t>(count, -1), false};
  IntList list = ReadIntList(ctx, "OffsetsTensor", "Offsets", "offsets", count);
  if (!tensors && list.values.empty()) list.values.assign(count, 0);
  ctx.Require("C1", list.values.size() == count || !list.known, "offsets", list.values.size(),
              "rank", count);
  list.values.resize(count, -1);
  return list;
}

// C2: checks that the window [offset, offset + size) lies inside each dimension of X.
void CheckWindow(const InferContext& ctx, const Shape& x, const Shape& size,
                 const IntList& offsets) {
  for (int i = 0; i < x.rank(); ++i) {
    const int64_t dim = x[i], wanted = size[i], offset = offsets.values[static_cast<size_t>(i)];
    ctx.Require("C2", offset >= 0 || !offsets.known, "offset", offset);
    if (dim < 0 || wanted < 0) continue;
    const bool fits = wanted <= dim && (!offsets.known || offset <= dim - wanted);
    ctx.Require("C2", fits, "offset", offset, "size", wanted, "X", dim);
  }
}

void InferCrop(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  const int rank = x.shape.rank();
  Shape size;
  if (ctx.HasInput("Y")) {
    size = ctx.InputShape("Y");
    ctx.Require("C1", size.rank() == rank, "Y", size, "X", x.shape);
  } else {
    const auto dims = ctx.Attr<std::vector<int64_t>>("shape");
    ctx.Require("C1", dims.size() == static_cast<size_t>(rank), "shape", dims, "rank", rank);
    size = Shape(dims);
    for (int i = 0; i < rank; ++i) {
      ctx.Require("C2", size[i] >= 0 || (i == 0 && size[i] == -1), "shape", dims);
      if (size[i] < 0) size[i] = x.shape[i];
    }
  }
  CheckWindow(ctx, x.shape, size, ReadOffsets(ctx, rank, false));
  x.shape = size;
  ctx.SetOutput("Out", x);
}

void InferCropTensor(InferContext& ctx) {
  VarMeta x = ctx.Input("X");
  const int rank = x.shape.rank();
  const IntList wanted =
      ReadIntList(ctx, "ShapeTensor", "Shape", "shape", static_cast<size_t>(rank));
  ctx.Require("C1", wanted.values.size() == static_cast<size_t>(rank), "shape", wanted.values,
              "rank", rank);
  bool open = false;  // whether a size depends on its offset
  for (int64_t dim : wanted.values) {
    ctx.Require("C2", dim >= -1, "shape", wanted.values);
    open = open || dim < 0;
  }
  const IntList offsets = ReadOffsets(ctx, rank, open && wanted.known);
  Shape size(wanted.values);
  for (int i = 0; i < rank && wanted.known && offsets.known; ++i) {
    const int64_t offset = offsets.values[static_cast<size_t>(i)];
    if (size[i] >= 0 || x.shape[i] < 0) continue;
    ctx.Require("C2", offset >= 0 && offset <= x.shape[i], "offset", offset, "X", x.shape[i]);
    size[i] = x.shape[i] - offset;
  }
  CheckWindow(ctx, x.shape, size, offsets);
  x.shape = size;
  ctx.SetOutput("Out", x);
}

// The position of a part in a whole tensor.
class Window {
 public:
  Window(const PrepareContext& ctx, const TensorArg& whole, const TensorArg& part)
      : whole_(whole.shape),
        part_(part.shape),
        size_(static_cast<int64_t>(SizeOf(whole.dtype))),
        offsets_(ctx, "OffsetsTensor", "Offsets", "offsets"),
        failure_(ctx.Failure("C2")) {
    if (offsets_.size() != 0 && offsets_.size() != static_cast<size_t>(whole_.rank()))
      ctx.Unsupported("there must be one offset for each dimension");
    const std::vector<int64_t> dims = part_.ToVector();
    const std::vector<int64_t> inside = ContiguousStrides(whole_.ToVector());
    const std::vector<int64_t> own = ContiguousStrides(dims);
    cut_ = StridedCopy(SizeOf(whole.dtype), dims, inside, own);
    put_ = StridedCopy(SizeOf(whole.dtype), dims, own, inside);
  }
  void Cut(const Workspace& ws, const void* whole, void* part) const {
    cut_(static_cast<const char*>(whole) + Offset(ws), part);
  }
  void Put(const Workspace& ws, const void* part, void* whole) const {
    put_(part, static_cast<char*>(whole) + Offset(ws));
  }

 private:
  // The offset in bytes. Offsets from tensors may be any numbers.
  int64_t Offset(const Workspace& ws) const {
    int64_t offset = 0;
    for (int i = 0; i < whole_.rank(); ++i) {
      const int64_t at = offsets_.size() == 0 ? 0 : offsets_.Get(ws, static_cast<size_t>(i));
      if (at < 0 || at > whole_[i] - part_[i]) {
        ThrowInvalid(
            fmt::format("{}, got offset {}, size {}, X {}", failure_, at, part_[i], whole_[i]));
      }
      offset = offset * whole_[i] + at;
    }
    return offset * size_;
  }

  Shape whole_, part_;
  int64_t size_;
  IntListArg offsets_;
  std::string failure_;
  StridedCopy cut_, put_;
};

Kernel Crop(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  if (out.numel == 0) return [](Workspace&) {};
  const Window window(ctx, x, out);
  return [=](Workspace& ws) { window.Cut(ws, ws.Data<const void>(x), ws.Data<void>(out)); };
}

void CropGradient(GradientContext& g) {
  SlotList inputs = g.ForwardInputs({"X", "Offsets", "OffsetsTensor"});
  inputs.push_back({"Out@GRAD", {g.OutputGrad("Out")}});
  g.Append("crop_grad", std::move(inputs), {{"X@GRAD", {g.InputGrad("X")}}},
           g.ForwardAttrs({"offsets"}));
}

void InferCropGrad(InferContext& ctx) {
  const VarMeta &x = ctx.Input("X"), &dout = ctx.Input("Out@GRAD");
  ctx.Require("C3", x.dtype == dout.dtype && x.shape.rank() == dout.shape.rank(), x, dout);
  CheckWindow(ctx, x.shape, dout.shape, ReadOffsets(ctx, x.shape.rank(), false));
  ctx.SetOutput("X@GRAD", x);
}

Kernel CropGrad(const PrepareContext& ctx) {
  const TensorArg dout = ctx.Input("Out@GRAD"), dx = ctx.Output("X@GRAD");
  const int64_t bytes = dx.nbytes();
  if (dout.numel == 0) return [=](Workspace& ws) { FillZeroBytes(ws.Data<void>(dx), bytes); };
  const Window window(ctx, dx, dout);
  return [=](Workspace& ws) {
    FillZeroBytes(ws.Data<void>(dx), bytes);
    window.Put(ws, ws.Data<const void>(dout), ws.Data<void>(dx));
  };
}

void CropGradGradient(GradientContext& g) {
  const Variable size = g.Make("shape", {{"Input", {g.Input("Out@GRAD")}}});
  SlotList inputs = g.ForwardInputs({"Offsets", "OffsetsTensor"});
  inputs.push_back({"X", {g.OutputGrad("X@GRAD")}});
  inputs.push_back({"Shape", {size.name()}});
  g.Set("Out@GRAD", g.Make("crop_tensor", std::move(inputs), g.ForwardAttrs({"offsets"})));
}

// Windows into a constant begin at its first row on each machine.
RowEffect WindowRows(const RowQuery& query) {
  const std::vector<std::string>& x = query.op.Input("X");
  const VarDesc* var =
      query.op.block() && !x.empty() ? query.op.block()->FindVarRecursive(x[0]) : nullptr;
  const bool has_rows = var && query.axis < var->shape().rank() && var->shape()[query.axis] < 0;
  return has_rows ? RowRule::kEach : RowRule::kMixes;
}

void DeclareWindow(OpDef& def) {
  def.Constraint("C1", "there must be one size and one offset for each dimension of X")
      .Constraint("C2", "the window must lie inside X");
}

void DeclareOffsets(OpDef& def) {
  def.OptionalInput("Offsets", "int32 or int64 tensor; replaces attr offsets")
      .Attr<std::vector<int32_t>>("offsets", {}, "first element in each dimension; none: 0 in all")
      .NoGradientTo({"Offsets"});
}

void DeclareOffsetList(OpDef& def) {
  def.OptionalVariadicInput("OffsetsTensor", "one-element tensors; replace attr offsets")
      .NoGradientTo({"OffsetsTensor"});
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("crop")
              .Doc("Out = the window of X that begins at the offsets and has the shape of Y, else "
                   "of attr shape.")
              .Apply(DeclareWindow)
              .Input("X", "tensor of any dtype")
              .OptionalInput("Y", "tensor of any dtype; only its shape is used")
              .Apply(DeclareOffsets)
              .Output("Out", "the window")
              .Attr<std::vector<int32_t>>("shape", {}, "shape of Out; the first may be -1: X's")
              .NoGradientTo({"Y"})
              .Rows(WindowRows, "each by itself, if X has them; otherwise mixed")
              .Infer(InferCrop)
              .Gradient(CropGradient)
              .Reference(Crop));
  ops.Add(OpDef("crop_tensor")
              .Doc("Out = the window of X that begins at the offsets (OffsetsTensor, else Offsets, "
                   "else the attr) and has the shape of ShapeTensor, else Shape, else the attr. A "
                   "size of -1 goes to the end of X.")
              .Apply(DeclareWindow)
              .Input("X", "tensor of any dtype")
              .OptionalInput("Shape", "int32 or int64 tensor; replaces attr shape")
              .OptionalVariadicInput("ShapeTensor", "one-element tensors; replace attr shape")
              .Apply(DeclareOffsets)
              .Apply(DeclareOffsetList)
              .Output("Out", "the window")
              .Attr<std::vector<int32_t>>("shape", {}, "shape of Out")
              .NoGradientTo({"Shape", "ShapeTensor"})
              .Rows(WindowRows, "each by itself, if X has them; otherwise mixed")
              .Infer(InferCropTensor)
              .Gradient(CropGradient)
              .Reference(Crop));
  ops.Add(OpDef("crop_grad")
              .Doc("Gradient of crop and crop_tensor: X@GRAD = Out@GRAD in the window, else 0.")
              .Apply(DeclareWindow)
              .Constraint("C3", "Out@GRAD must have X's dtype and rank")
              .Input("X", "only its shape is used")
              .Input("Out@GRAD", "gradient of Out")
              .Apply(DeclareOffsets)
              .Apply(DeclareOffsetList)
              .Output("X@GRAD", "gradient of X")
              .NoGradientTo({"X"})
              .Infer(InferCropGrad)
              .Gradient(CropGradGradient)
              .Reference(CropGrad));
}

}  // namespace coracle::crop_op
