// coalesce_tensor: one tensor that holds several tensors, one after the other.

#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/program.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/rules/dims.h>

#include <algorithm>
#include <limits>

namespace coracle::coalesce_tensor_op {

constexpr int64_t kPageBytes = 4096;

// Elements from the start of one tensor to the start of the next: `numel` rounded up; -1
// if unknown.
int64_t Padded(int64_t numel, int64_t element_bytes, int64_t align_bytes) {
  if (numel < 0) return -1;
  const int64_t step = std::max<int64_t>(1, align_bytes / element_bytes);
  return numel > std::numeric_limits<int64_t>::max() - step ? numel
                                                            : (numel + step - 1) / step * step;
}

template <class Context>
int64_t Alignment(const Context& ctx) {
  if (!ctx.template Attr<bool>("use_align")) return 1;
  const int64_t given = ctx.template Attr<int32_t>("align_size");
  return given > 0 ? given : kPageBytes;
}

// Rejects persistable variables: memory is shared only within one run.
void RequireOfOneRun(const InferContext& ctx) {
  const OpDesc& op = ctx.op();
  if (!op.block() || !op.HasOutput("FusedOutput")) return;
  const VarDesc* fused = op.block()->FindVarRecursive(op.Output("FusedOutput")[0]);
  ctx.Require("C5", !fused || !fused->persistable(), Quote(op.Output("FusedOutput")[0]));
}

void InferCoalesce(InferContext& ctx) {
  const DType dtype = DTypeFromAttr(ctx, "C1", "dtype");
  const size_t count = ctx.NumInputs("Input");
  const size_t outputs = ctx.NumOutputs("Output");
  ctx.Require("C2", outputs == count || outputs == 0, outputs, count);
  ctx.Require("C4", !(ctx.Attr<bool>("copy_data") && ctx.Attr<bool>("set_constant")), true);
  const auto element = static_cast<int64_t>(SizeOf(dtype));
  int64_t total = 0;
  for (size_t i = 0; i < count; ++i) {
    const VarMeta& input = ctx.Input("Input", i);
    ctx.Require("C3", input.dtype == dtype, input);
    const int64_t part = Padded(NumelOf(input.shape), element, Alignment(ctx));
    total = total < 0 || part < 0 ? -1 : AddDims(total, part);
    if (i < outputs) ctx.SetOutput("Output", input, i);
  }
  const bool renames =
      ctx.Attr<bool>("check_name") && ctx.op().Input("Input") != ctx.op().Output("Output");
  ctx.Require("C6", !renames, ctx.op().Output("Output"));
  RequireOfOneRun(ctx);
  ctx.SetOutput("FusedOutput", dtype, {total});
}

void InferDivide(InferContext& ctx) {
  const size_t count = ctx.NumInputs("Like");
  ctx.Require("C1", ctx.NumOutputs("Out") == count, ctx.NumOutputs("Out"), count);
  const VarMeta& x = ctx.Input("X");
  const auto element = static_cast<int64_t>(SizeOf(x.dtype));
  int64_t total = 0;
  for (size_t i = 0; i < count; ++i) {
    const VarMeta& like = ctx.Input("Like", i);
    ctx.Require("C2", like.dtype == x.dtype, like, x);
    const int64_t part = Padded(NumelOf(like.shape), element, Alignment(ctx));
    total = total < 0 || part < 0 ? -1 : AddDims(total, part);
    ctx.SetOutput("Out", like, i);
  }
  ctx.Require("C2", x.shape.CompatibleWith({total}), x, total);
}

// FusedOutput = the elements of the parts, each from its offset on, with zeros between them.
struct Part {
  TensorArg input, output;
  int64_t offset;  // in bytes
};

Kernel Coalesce(const PrepareContext& ctx) {
  const TensorArg fused = ctx.Output("FusedOutput");
  const int64_t align = Alignment(ctx), element = static_cast<int64_t>(SizeOf(fused.dtype));
  std::vector<Part> parts;
  int64_t offset = 0;
  for (size_t i = 0; i < ctx.NumInputs("Input"); ++i) {
    const TensorArg output = i < ctx.NumOutputs("Output") ? ctx.Output("Output", i) : TensorArg();
    parts.push_back({ctx.Input("Input", i), output, offset * element});
    offset += Padded(parts.back().input.numel, element, align);
  }
  const Tensor constant = Tensor::Full<float>({1}, ctx.Attr<float>("constant")).Cast(fused.dtype);
  const bool fills = ctx.Attr<bool>("set_constant");
  return [=](Workspace& ws) {
    char* to = ws.Data<char>(fused);
    FillZeroBytes(to, fused.nbytes());
    for (const Part& part : parts) {
      char* out = to + part.offset;
      if (fills)
        FillElements(out, part.input.numel, constant.raw(), static_cast<size_t>(element));
      else
        CopyBytes(ws.Data<const char>(part.input), out, part.input.nbytes());
    }
    for (const Part& part : parts) {
      if (part.output)
        CopyBytes(to + part.offset, ws.Data<char>(part.output), part.output.nbytes());
    }
  };
}

Kernel Divide(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X");
  const int64_t align = Alignment(ctx), element = static_cast<int64_t>(SizeOf(x.dtype));
  std::vector<Part> parts;
  int64_t offset = 0;
  for (size_t i = 0; i < ctx.NumInputs("Like"); ++i) {
    parts.push_back({ctx.Input("Like", i), ctx.Output("Out", i), offset * element});
    offset += Padded(parts.back().input.numel, element, align);
  }
  return [=](Workspace& ws) {
    const char* from = ws.Data<const char>(x);
    for (const Part& part : parts) {
      if (part.output)
        CopyBytes(from + part.offset, ws.Data<char>(part.output), part.output.nbytes());
    }
  };
}

void DeclareAlignment(OpDef& def) {
  def.Attr<bool>("use_align", true, "whether tensors begin at multiples of align_size")
      .Attr<int32_t>("align_size", -1, "in bytes; -1 or 0: 4096, a page of memory");
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("coalesce_tensor")
          .Doc("Output = Input, or constant in all elements with set_constant; FusedOutput = the "
               "elements of all Output one after the other, each starting at a multiple of the "
               "alignment, with zeros between them. From then on, Output and FusedOutput share "
               "memory, as in Paddle: ops that read one of them see what later ops of the run "
               "write to the other.")
          .Constraint("C1", "dtype must be the number of a dtype")
          .Constraint("C2", "Output must have one variable for each Input, or none")
          .Constraint("C3", "every Input must have the dtype")
          .Constraint("C4", "copy_data and set_constant exclude each other")
          .Constraint("C5", "FusedOutput must not be persistable: memory is shared within one run")
          .Constraint("C6", "Output must name the variables of Input if check_name is set")
          .VariadicInput("Input", "tensors of dtype")
          .OptionalVariadicOutput("Output", "tensors of the shapes of Input")
          .Output("FusedOutput", "tensor of rank 1")
          .Attr<int32_t>("dtype", "dtype of all tensors")
          .Attr<bool>("copy_data", false, "as in Paddle; Input is copied even if false")
          .Attr<bool>("set_constant", false, "fill with constant")
          .Attr<float>("constant", 0.f, "the value of set_constant")
          .Attr<bool>("persist_output", false, "ignored")
          .Attr<bool>("check_name", false, "Output must name the variables of Input")
          .Apply(DeclareAlignment)
          .NoGradient("Paddle has none either")
          .NoLod()
          .Rows(RowRule::kMixes)
          .Infer(InferCoalesce)
          .Reference(Coalesce));
  ops.Add(
      OpDef("divide_coalesced")
          .Doc("Out = the parts of X, the FusedOutput of a coalesce_tensor. The compiler inserts "
               "this op where a program reads a part after the whole was written.")
          .Constraint("C1", "Out must have as many variables as Like")
          .Constraint("C2", "X must have the dtype and the elements of a coalesce_tensor of Like")
          .Input("X", "tensor of rank 1")
          .VariadicInput("Like", "tensors of the shapes of the parts; their values are not used")
          .VariadicOutput("Out", "tensors of the shapes of Like")
          .Apply(DeclareAlignment)
          .NoGradient("coalesce_tensor has no gradient either")
          .NoLod()
          .Rows(RowRule::kMixes)
          .Infer(InferDivide)
          .Reference(Divide));
}

}  // namespace coracle::coalesce_tensor_op
