// Tensor arrays: lists of tensors that a loop writes and reads. An array variable is empty at the
// beginning of each run of its block.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/scalar_input.h>
#include <coracle/operators/rules/index.h>
#include <fmt/format.h>

#include <cstring>

namespace coracle::tensor_array_op {

// An index far beyond the end is a mistake (or a hostile file), not a list.
constexpr size_t kMaxGap = 1 << 16;

void RequireArray(const InferContext& ctx, std::string_view id, const char* slot) {
  const VarMeta& meta = ctx.Input(slot);
  ctx.Require(id, meta.type == VarType::kLoDTensorArray, meta);
}

void RequireIndex(const InferContext& ctx, std::string_view id) {
  const VarMeta& meta = ctx.Input("I");
  const bool one = !meta.shape.IsKnown() || meta.shape.numel() == 1;
  ctx.Require(id, IsIndexType(meta.dtype) && one, meta);
}

VarMeta ArrayOf(const VarMeta& element) {
  return {VarType::kLoDTensorArray, element.dtype, element.shape, 0};
}

TensorArray& ArrayAt(Workspace& ws, const TensorArg& arg) {
  VarValue& value = ws.ValueOf(arg);
  if (!std::holds_alternative<TensorArray>(value)) value = TensorArray();
  return std::get<TensorArray>(value);
}

void CopyElements(const void* from, Tensor* to) {
  if (!to->empty() && from != to->raw()) std::memcpy(to->raw(), from, to->nbytes());
}

// --- write_to_array ---

void InferWrite(InferContext& ctx) {
  RequireIndex(ctx, "C1");
  ctx.SetOutput("Out", ArrayOf(ctx.Input("X")));
}

Kernel Write(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const IndexArg index(ctx, "I");
  return [=](Workspace& ws) {
    TensorArray& array = ArrayAt(ws, out);
    const size_t i = index(ws);
    if (i > array.size() + kMaxGap) {
      throw Error(
          ErrorCode::kOutOfRange,
          fmt::format("write_to_array: I is {}, too far beyond the end of an array of {} elements",
                      i, array.size()));
    }
    const auto& tensor = std::get<Tensor>(ws.ValueOf(x));
    Tensor& element = array.Write(i, tensor.dtype(), tensor.shape());
    CopyElements(tensor.raw(), &element);
    element.lod() = tensor.lod();
  };
}

// dX is the gradient of the written element; the old element I does not affect the result.
void WriteGradient(GradientContext& g) {
  const std::string grad = g.OutputGrad("Out");
  if (g.NeedsInputGrad("X")) {
    g.Append("read_from_array", {{"X", {grad}}, {"I", {g.Input("I")}}, {"X_W", {g.Input("X")}}},
             {{"Out", {g.InputGrad("X")}}});
  }
  if (g.NeedsKeptGrad("Out")) {
    g.Append("unset_in_array", {{"X", {grad}}, {"I", {g.Input("I")}}},
             {{"Out", {g.KeptGrad("Out")}}});
  }
}

// --- read_from_array ---

void InferRead(InferContext& ctx) {
  RequireArray(ctx, "C1", "X");
  RequireIndex(ctx, "C2");
  const VarMeta& array = ctx.Input("X");
  VarMeta meta{VarType::kLoDTensor, array.dtype, array.shape, 0};
  // The element and the zeros must have one type; if only one of them is known, it gives the type.
  if (ctx.HasInput("X_W")) meta = ctx.Input("X_W");
  if (!ctx.exact() && ctx.DeclaredOutput("Out") && !ctx.HasInput("X_W")) {
    const VarMeta* declared = ctx.DeclaredOutput("Out");
    if (declared->type == VarType::kLoDTensor && declared->dtype == meta.dtype &&
        declared->shape.rank() > 0)
      meta.shape = declared->shape;
  }
  ctx.SetOutput("Out", meta);
}

Kernel Read(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), like = ctx.Input("X_W"), out = ctx.Output("Out");
  const std::string name = ctx.op().Input("X")[0];
  const IndexArg index(ctx, "I");
  return [=](Workspace& ws) {
    const TensorArray& array = ArrayAt(ws, x);
    const size_t i = index(ws);
    if (array.IsWritten(i)) {
      if (like && !(array[i].shape() == like.shape && array[i].dtype() == like.dtype)) {
        ThrowInvalid(fmt::format("read_from_array: element {} is {}, but X_W is {}{}", i,
                                 array[i].ToString(), ToString(like.dtype), like.shape.ToString()));
      }
      CheckLod(name, array[i]);
      Tensor& result = ResizeOutput(ws, out, array[i].dtype(), array[i].shape());
      CopyElements(array[i].raw(), &result);
      ws.OutputLod(out) = array[i].lod();
      return;
    }
    if (!like) {
      throw Error(
          ErrorCode::kOutOfRange,
          fmt::format("read_from_array: I is {}, but the array of {} elements has no such element",
                      i, array.size()));
    }
    Tensor& zeros = ResizeOutput(ws, out, like.dtype, like.shape);
    if (!zeros.empty()) std::memset(zeros.raw(), 0, zeros.nbytes());
    ws.OutputLod(out) = ws.LodOf(like);
  };
}

void ReadGradient(GradientContext& g) {
  g.Append("read_from_array_grad",
           {{"X", {g.Input("X")}}, {"I", {g.Input("I")}}, {"Out@GRAD", {g.OutputGrad("Out")}}},
           {{"X@GRAD", {g.InputGrad("X")}}});
}

void InferReadGrad(InferContext& ctx) {
  RequireArray(ctx, "C1", "X");
  RequireIndex(ctx, "C2");
  ctx.SetOutput("X@GRAD", ArrayOf(ctx.Input("Out@GRAD")));
}

// An array as long as X in which one element is written.
Kernel ReadGrad(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), grad = ctx.Input("Out@GRAD"), out = ctx.Output("X@GRAD");
  const IndexArg index(ctx, "I");
  return [=](Workspace& ws) {
    const size_t size = ArrayAt(ws, x).size(), i = index(ws);
    TensorArray& array = ArrayAt(ws, out);
    array.clear();
    array.resize(size);
    const auto& tensor = std::get<Tensor>(ws.ValueOf(grad));
    if (i < size) CopyElements(tensor.raw(), &array.Write(i, tensor.dtype(), tensor.shape()));
  };
}

void ReadGradGradient(GradientContext& g) {
  g.Append("read_from_array",
           {{"X", {g.OutputGrad("X@GRAD")}}, {"I", {g.Input("I")}}, {"X_W", {g.Input("Out@GRAD")}}},
           {{"Out", {g.InputGrad("Out@GRAD")}}});
}

// --- unset_in_array ---

void InferUnset(InferContext& ctx) {
  RequireArray(ctx, "C1", "X");
  RequireIndex(ctx, "C2");
  ctx.SetOutput("Out", ctx.Input("X"));
}

Kernel Unset(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const IndexArg index(ctx, "I");
  return [=](Workspace& ws) {
    CopyValue(ws.ValueOf(x), &ws.ValueOf(out));
    ArrayAt(ws, out).Unset(index(ws));
  };
}

void UnsetGradient(GradientContext& g) {
  g.Append("unset_in_array", {{"X", {g.OutputGrad("Out")}}, {"I", {g.Input("I")}}},
           {{"Out", {g.InputGrad("X")}}});
}

// --- lod_array_length ---

void InferLength(InferContext& ctx) {
  RequireArray(ctx, "C1", "X");
  ctx.SetOutput("Out", DType::kInt64, {1});
}

Kernel Length(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  return [=](Workspace& ws) {
    ws.Data<int64_t>(out)[0] = static_cast<int64_t>(ArrayAt(ws, x).size());
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("write_to_array")
              .Doc("Element I of the array Out becomes a copy of X. Out grows to hold it; its "
                   "other elements are unchanged. A run fails if I is negative, or more than "
                   "65,536 beyond the end.")
              .Constraint("C1", "I must hold one int32 or int64")
              .Input("X", "tensor of any dtype")
              .Input("I", "int32 or int64 tensor of one element: the index")
              .Output("Out", "tensor array")
              .NoGradientTo({"I"})
              .KeepsOutputs({"Out"})
              .Rows(RowRule::kEach)
              .Infer(InferWrite)
              .Gradient(WriteGradient)
              .Strings()
              .Reference(Write));
  ops.Add(OpDef("read_from_array")
              .Doc("Out = a copy of element I of the array X. If there is no such element, Out = "
                   "zeros of X_W's type; without X_W the run fails.")
              .Constraint("C1", "X must be a tensor array")
              .Constraint("C2", "I must hold one int32 or int64")
              .Input("X", "tensor array")
              .Input("I", "int32 or int64 tensor of one element: the index")
              .OptionalInput("X_W", "tensor of the type of Out")
              .Output("Out", "tensor")
              .Takes(VarType::kLoDTensorArray, {"X"})
              .NoGradientTo({"I", "X_W"})
              .RunTimeShape()
              .MakesLod()
              .Rows(RowRule::kEach)
              .Infer(InferRead)
              .Gradient(ReadGradient)
              .Strings()
              .Reference(Read));
  ops.Add(OpDef("read_from_array_grad")
              .Doc("X@GRAD = an array as long as X with element I = Out@GRAD; its other elements "
                   "are unwritten (zero).")
              .Constraint("C1", "X must be a tensor array")
              .Constraint("C2", "I must hold one int32 or int64")
              .Input("X", "tensor array")
              .Input("I", "int32 or int64 tensor of one element")
              .Input("Out@GRAD", "tensor")
              .Output("X@GRAD", "tensor array")
              .Takes(VarType::kLoDTensorArray, {"X"})
              .NoGradientTo({"X", "I"})
              .Infer(InferReadGrad)
              .Gradient(ReadGradGradient)
              .Reference(ReadGrad));
  ops.Add(
      OpDef("unset_in_array")
          .Doc("Out = X with element I unwritten: the gradient of the array before write_to_array.")
          .Constraint("C1", "X must be a tensor array")
          .Constraint("C2", "I must hold one int32 or int64")
          .Input("X", "tensor array")
          .Input("I", "int32 or int64 tensor of one element")
          .Output("Out", "tensor array")
          .Takes(VarType::kLoDTensorArray, {"X"})
          .NoGradientTo({"I"})
          .Rows(RowRule::kEach)
          .Infer(InferUnset)
          .Gradient(UnsetGradient)
          .Reference(Unset));
  ops.Add(OpDef("lod_array_length")
              .Doc("Out = the number of elements of the array X.")
              .Constraint("C1", "X must be a tensor array")
              .Input("X", "tensor array")
              .Output("Out", "int64 tensor [1]")
              .Takes(VarType::kLoDTensorArray, {"X"})
              .NoGradient("a length has no derivative")
              .Rows(RowRule::kEach)
              .Infer(InferLength)
              .Strings()
              .Reference(Length));
}

}  // namespace coracle::tensor_array_op
