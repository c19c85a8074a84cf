// coalesce_tensor: one tensor that holds several, one after the other.

#include <coracle/framework/base/text.h>
#include <coracle/framework/ir/block.h>
#include <coracle/framework/op/infer_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/framework/op/prepare_context.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/rules/dims.h>

#include <algorithm>
#include <limits>

namespace coracle {
namespace {

constexpr int64_t kPageBytes = 4096;

// Elements from the start of one tensor to the start of the next: `numel` rounded up. -1: unknown.
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

// Whether another op of the block writes the variable after `op` did.
bool IsRewritten(const OpDesc& op, const std::string& name) {
  const auto writers = op.block()->Uses(name).writers;
  const auto own = std::find(writers.begin(), writers.end(), &op);
  return own != writers.end() && own + 1 != writers.end();
}

// No op may see that Output and FusedOutput do not share memory.
void RequireSameElements(const InferContext& ctx) {
  const OpDesc& op = ctx.op();
  if (!op.block() || !ctx.HasOutput("FusedOutput")) return;
  const std::string& fused = op.Output("FusedOutput")[0];
  const VarUses uses = op.block()->Uses(fused);
  ctx.Require("C5", uses.writers.size() <= 1, Quote(fused));
  if (uses.readers.empty()) return;
  for (const std::string& name : op.Output("Output"))
    ctx.Require("C5", !IsRewritten(op, name), Quote(name));
}

void InferCoalesce(InferContext& ctx) {
  const DType dtype = DTypeFromAttr(ctx, "C1", "dtype");
  const size_t count = ctx.NumInputs("Input");
  ctx.Require("C2", ctx.NumOutputs("Output") == count, ctx.NumOutputs("Output"), count);
  ctx.Require("C4", !(ctx.Attr<bool>("copy_data") && ctx.Attr<bool>("set_constant")), true);
  const auto element = static_cast<int64_t>(SizeOf(dtype));
  int64_t total = 0;
  for (size_t i = 0; i < count; ++i) {
    const VarMeta& input = ctx.Input("Input", i);
    ctx.Require("C3", input.dtype == dtype, input);
    const int64_t part = Padded(NumelOf(input.shape), element, Alignment(ctx));
    total = total < 0 || part < 0 ? -1 : AddDims(total, part);
    ctx.SetOutput("Output", input, i);
  }
  const bool renames =
      ctx.Attr<bool>("check_name") && ctx.op().Input("Input") != ctx.op().Output("Output");
  ctx.Require("C6", !renames, ctx.op().Output("Output"));
  RequireSameElements(ctx);
  ctx.SetOutput("FusedOutput", dtype, {total});
}

// FusedOutput = what the parts hold, each from its offset on, with zeros between them.
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
    parts.push_back({ctx.Input("Input", i), ctx.Output("Output", i), offset * element});
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

}  // namespace

void RegisterCoalesceTensor(OpRegistry& ops) {
  ops.Add(OpDef("coalesce_tensor")
              .Doc("Output = Input, or constant in all elements with set_constant; FusedOutput = "
                   "the elements of all Output one after the other, each from a multiple of the "
                   "alignment on, with zeros between them. In Paddle Output shares the memory of "
                   "FusedOutput. Here it does not, so that programs that change one of them are "
                   "refused.")
              .Constraint("C1", "dtype must be the number of a dtype")
              .Constraint("C2", "Output must have as many variables as Input")
              .Constraint("C3", "every Input must have the dtype")
              .Constraint("C4", "copy_data and set_constant exclude each other")
              .Constraint("C5",
                          "no op may change FusedOutput, nor Output where an op reads FusedOutput")
              .Constraint("C6", "Output must name the variables of Input if check_name is set")
              .VariadicInput("Input", "tensors of dtype")
              .VariadicOutput("Output", "tensors of the shapes of Input")
              .Output("FusedOutput", "tensor of rank 1")
              .Attr<int32_t>("dtype", "dtype of all tensors")
              .Attr<bool>("copy_data", false, "as in Paddle; false copies too")
              .Attr<bool>("set_constant", false, "fill with constant")
              .Attr<float>("constant", 0.f, "the value of set_constant")
              .Attr<bool>("persist_output", false, "ignored")
              .Attr<bool>("check_name", false, "Output must name the variables of Input")
              .Attr<bool>("use_align", true, "whether tensors begin at multiples of align_size")
              .Attr<int32_t>("align_size", -1, "in bytes; -1 or 0: 4096, a page of memory")
              .NoGradient("Paddle has none either")
              .NoLod()
              .Infer(InferCoalesce)
              .Reference(Coalesce));
}

}  // namespace coracle
