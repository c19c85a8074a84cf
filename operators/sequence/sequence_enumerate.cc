// sequence_enumerate: lists each row together with the rows after it in its sequence.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/kernels/sequences.h>
#include <coracle/operators/rules/rows.h>

#include <limits>

namespace coracle::sequence_enumerate_op {

void InferEnumerate(InferContext& ctx) {
  VarMeta out = ctx.Input("X");
  ctx.Require("C1", out.shape.rank() == 2 && InferContext::Matches(out.shape[1], 1), out);
  out.shape[1] = ctx.Attr<int32_t>("win_size");
  ctx.SetOutput("Out", out);
}

template <class T>
KernelOf<T> Enumerate(const PrepareContext& ctx) {
  const TensorArg x = ctx.Input("X"), out = ctx.Output("Out");
  const SequencesArg sequences(ctx, "X", "C2", std::numeric_limits<size_t>::max());
  const T pad = static_cast<T>(ctx.Attr<int32_t>("pad_value"));
  const int64_t window = out.shape[1];
  return [=](Workspace& ws) {
    const Sequences s = sequences(ws);
    const T* in = ws.Data<const T>(x);
    T* to = ws.Data<T>(out);
    for (int64_t i = 0; i < s.count(); ++i) {
      for (int64_t t = s.begin(i); t < s.end(i); ++t) {
        for (int64_t k = 0; k < window; ++k) *to++ = t + k < s.end(i) ? in[t + k] : pad;
      }
    }
  };
}

void Register(OpRegistry& ops) {
  ops.Add(OpDef("sequence_enumerate")
              .Doc("Out[t][k] = X[t + k] if that row is in the sequence of row t, else pad_value.")
              .Constraint("C1", "X must be [rows, 1]")
              .Constraint("C2", "X must have LoD")
              .Input("X", "int32 or int64 tensor [rows, 1] with LoD")
              .Output("Out", "tensor [rows, win_size] with X's LoD")
              .Attr<int32_t>("win_size", "columns of Out")
              .Range(1, std::nullopt)
              .Attr<int32_t>("pad_value", 0, "value after the end of a sequence")
              .NotDifferentiable("works on integers")
              .Rows(EachBatchRow, kEachBatchRow)
              .Infer(InferEnumerate)
              .Reference(Enumerate<int32_t>, Enumerate<int64_t>));
}

}  // namespace coracle::sequence_enumerate_op
