// sequence_erase: removes the numbers of a list from sequences.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/rules/rows.h>

#include <algorithm>
#include <limits>

namespace coracle::sequence_erase_op {

void InferErase(InferContext& ctx) {
  VarMeta out = ctx.Input("X");
  ctx.Require("C1", out.shape.rank() == 2 && InferContext::Matches(out.shape[1], 1), out);
  out.shape = Shape{-1, 1};
  ctx.SetOutput("Out", out);
}

template <class T>
KernelOf<T> Erase(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const SequencesArg sequences(ctx, "X", "C2", std::numeric_limits<size_t>::max());
  const auto tokens = ctx.Attr<std::vector<int32_t>>("tokens");
  return [=](Workspace& ws) {
    const Sequences s = sequences(ws);
    const T* in = ws.Data<const T>(x);
    const auto kept = [&](T value) {
      return std::find(tokens.begin(), tokens.end(), value) == tokens.end();
    };
    const int64_t rows = std::count_if(in, in + x.numel, kept);
    Tensor& result = ResizeOutput(ws, out, x.dtype, {rows, 1});
    T* to = result.data<T>();
    std::vector<uint64_t> offsets{0};
    for (int64_t i = 0; i < s.count(); ++i) {
      T* end = std::copy_if(in + s.begin(i), in + s.end(i), to, kept);
      offsets.push_back(offsets.back() + static_cast<uint64_t>(end - to));
      to = end;
    }
    result.lod() = ws.LodOf(x);
    result.lod().back() = std::move(offsets);
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("sequence_erase")
              .Doc("Out = X without the rows whose number is in tokens; the sequences get shorter "
                   "accordingly.")
              .Constraint("C1", "X must be [rows, 1]")
              .Constraint("C2", "X must have LoD")
              .Input("X", "int32 or int64 tensor [rows, 1] with LoD")
              .Output("Out", "tensor with LoD")
              .Attr<std::vector<int32_t>>("tokens", "numbers to leave out")
              .RunTimeShape()
              .NotDifferentiable("works on integers")
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer(InferErase)
              .Reference(Erase<int32_t>, Erase<int64_t>));
}

}  // namespace coracle::sequence_erase_op
