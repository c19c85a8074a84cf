#include <coracle/framework/base/resource_limits.h>
#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/quantize/lookup_bytes.h>
#include <coracle/operators/quantize/quantized.h>
#include <coracle/operators/rules/dims.h>

namespace coracle::quantized_lookup_op {

constexpr int64_t kEntries = 256;

void InferLookup(InferContext& ctx) {
  VarMeta out = ctx.Input("X");
  const VarMeta& table = ctx.Input("Table");
  const bool taken = IsByte(table.dtype) || table.dtype == DType::kFloat32;
  ctx.Require("C1", taken && InferContext::Matches(NumelOf(table.shape), kEntries), "Table", table);
  out.dtype = table.dtype;
  ctx.SetOutput("Out", out);
}

// out[i] = the table's entry of x[i]. `flip`: entries begin with that of -128.
template <class Entry>
void LookupRange(const uint8_t* x, bool flip, const Entry* table, Entry* out, int64_t n) {
  const unsigned top = flip ? 128 : 0;
  for (int64_t i = 0; i < n; ++i) out[i] = table[x[i] ^ top];
}

struct LookupArgs {
  TensorArg x, table, out;
  bool flip;

  explicit LookupArgs(const PrepareContext& ctx)
      : x(ctx.Input("X")),
        table(ctx.Input("Table")),
        out(ctx.Output("Out")),
        flip(x.dtype == DType::kInt8) {}
};

Kernel Lookup(const PrepareContext& ctx) {
  return [a = LookupArgs(ctx)](Workspace& ws) {
    const auto* x = ws.Data<const uint8_t>(a.x);
    if (a.table.dtype == DType::kFloat32)
      LookupRange(x, a.flip, ws.Data<const float>(a.table), ws.Data<float>(a.out), a.x.numel);
    else
      LookupRange(x, a.flip, ws.Data<const uint8_t>(a.table), ws.Data<uint8_t>(a.out), a.x.numel);
  };
}

Kernel LookupFast(const PrepareContext& ctx) {
  return [a = LookupArgs(ctx)](Workspace& ws) {
    const auto* x = ws.Data<const uint8_t>(a.x);
    constexpr int64_t kGrain = 131072;
    if (a.table.dtype == DType::kFloat32) {
      const auto* table = ws.Data<const float>(a.table);
      float* out = ws.Data<float>(a.out);
      ParallelFor(a.x.numel, kGrain, [&](int64_t begin, int64_t end) {
        LookupRange(x + begin, a.flip, table, out + begin, end - begin);
      });
      return;
    }
    const ByteTable table = TableInByteOrder(ws.Data<const uint8_t>(a.table), a.flip);
    uint8_t* out = ws.Data<uint8_t>(a.out);
    ParallelFor(a.x.numel, kGrain, [&](int64_t begin, int64_t end) {
      LookupBytes(x + begin, table, out + begin, end - begin);
    });
  };
}

void Register(OpRegistry& ops) {
  ops.Add(
      OpDef("quantized_lookup")
          .Doc("Out[i] = Table[X[i] - m], where m is the least number of X's dtype: any "
               "function of one 8-bit number, such as a sigmoid between two quantised tensors.")
          .Constraint("C1", "Table must have 256 elements of int8, uint8 or float32")
          .Input("X", "int8 or uint8 tensor")
          .Input("Table", "the results for the numbers of X's dtype, least first [256]")
          .Output("Out", "tensor of X's shape and Table's dtype")
          .KernelTypeFrom("X")
          .Inplace("X", "Out")
          .Elementwise()
          .Tables({"Table"})
          .NotDifferentiable("integers have no gradient")
          .Infer(InferLookup)
          .Reference<int8_t, uint8_t>([]<class>(const PrepareContext& ctx) { return Lookup(ctx); })
          .Fast(LookupFast));
}

}  // namespace coracle::quantized_lookup_op
