// Flat shards: the elements of a tensor, in row-major order, distributed over the ranks. Each rank
// has ceil(elements / nranks) elements; the last ranks may have fewer, padded with zeros.

#include <coracle/framework/op/op_context.h>
#include <coracle/framework/op/op_registry.h>
#include <coracle/operators/collective/exchange.h>
#include <coracle/operators/kernels/copy.h>
#include <coracle/operators/rules/dims.h>

#include <algorithm>
#include <cstring>

namespace coracle::flat_shard_op {

int64_t ShardSize(int64_t numel, int64_t nranks) { return (numel + nranks - 1) / nranks; }

void InferShard(InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  const int64_t nranks = ctx.Attr<int32_t>("nranks");
  ctx.SetOutput("Out", ctx.InputDType("X"), {x.IsKnown() ? ShardSize(x.numel(), nranks) : -1});
}

void InferReduceScatter(InferContext& ctx) {
  const size_t count = ctx.NumInputs("X");
  ctx.Require("C1", ctx.NumOutputs("Out") == count, ctx.NumOutputs("Out"), count);
  for (size_t i = 0; i < count; ++i) {
    const VarMeta& x = ctx.Input("X", i);
    ctx.Require("C2", x.dtype == ctx.InputDType("X"), x, ctx.Input("X"));
    ctx.SetOutput("Out", x, i);
  }
}

void InferGather(InferContext& ctx) {
  const Shape& x = ctx.InputShape("X");
  const Shape shape = ToShape(ctx, "C1", ctx.Attr<std::vector<int64_t>>("shape"));
  const int64_t nranks = ctx.Attr<int32_t>("nranks");
  const bool fits = shape.IsKnown() && x.rank() == 1 &&
                    InferContext::Matches(x[0], ShardSize(shape.numel(), nranks));
  ctx.Require("C1", fits, x, shape);
  ctx.SetOutput("Out", ctx.InputDType("X"), shape);
}

// The elements of `whole` that each rank has.
struct Parts {
  TensorArg whole, shard;
  int nranks;
  std::string type;
  std::vector<int64_t> counts;  // by rank

  Parts(const PrepareContext& ctx, const char* whole_slot, bool whole_is_input)
      : whole(whole_is_input ? ctx.Input(whole_slot) : ctx.Output(whole_slot)),
        shard(whole_is_input ? ctx.Output("Out") : ctx.Input("X")),
        nranks(ctx.Attr<int32_t>("nranks")),
        type(ctx.op().type()) {
    for (int r = 0; r < nranks; ++r) counts.push_back(Begin(r + 1) - Begin(r));
  }

  int64_t Begin(int rank) const { return std::min(rank * shard.numel, whole.numel); }
  size_t Bytes(int64_t elements) const {
    return static_cast<size_t>(ByteSize(whole.dtype, {elements}));
  }
  // Checks the number of ranks and returns this rank.
  int Rank(Workspace& ws) const {
    RequireRanks(ws, nranks, type);
    return RankOf(ws);
  }
  void ZeroTail(Workspace& ws, int rank) const {
    const int64_t own = counts[static_cast<size_t>(rank)];
    if (own < shard.numel)
      std::memset(ws.Data<char>(shard) + Bytes(own), 0, Bytes(shard.numel - own));
  }
};

Kernel Shard(const PrepareContext& ctx) {
  return [parts = Parts(ctx, "X", true)](Workspace& ws) {
    const int rank = parts.Rank(ws);
    const int64_t begin = parts.Begin(rank), own = parts.counts[static_cast<size_t>(rank)];
    if (own > 0) {
      std::memcpy(ws.Data<char>(parts.shard), ws.Data<const char>(parts.whole) + parts.Bytes(begin),
                  parts.Bytes(own));
    }
    parts.ZeroTail(ws, rank);
  };
}

// Works in place, in Out.
Kernel ReduceScatter(const PrepareContext& ctx) {
  const std::vector<TensorArg> xs = ctx.Inputs("X"), outs = ctx.Outputs("Out");
  const int64_t nranks = ctx.Attr<int32_t>("nranks");
  return [=, exchange = Exchanger(ctx, true)](Workspace& ws) {
    RequireRanks(ws, static_cast<int>(nranks), "c_flat_reducescatter");
    Exchange all{Exchange::Kind::kReduceScatter, outs[0].dtype, {}};
    for (size_t i = 0; i < outs.size(); ++i) {
      CopyBytes(ws.Data<const void>(xs[i]), ws.Data<void>(outs[i]), outs[i].nbytes());
      const int64_t numel = outs[i].numel, size = ShardSize(numel, nranks);
      const auto begin = [&](int64_t rank) { return std::min(rank * size, numel); };
      for (int64_t r = 0; r < nranks; ++r) all.counts.push_back(begin(r + 1) - begin(r));
      const auto own = static_cast<int64_t>(ByteSize(outs[i].dtype, {begin(RankOf(ws))}));
      char* out = ws.Data<char>(outs[i]);
      if (i > 0) {
        all.more.push_back({out, out + own});
      } else {
        all.in = out;
        all.out = out + own;
      }
    }
    if (ws.comm()) exchange(ws, std::move(all));
  };
}

Kernel Gather(const PrepareContext& ctx) {
  return [parts = Parts(ctx, "Out", false), exchange = Exchanger(ctx)](Workspace& ws) {
    const void* in = ws.Data<const void>(parts.shard);
    void* out = ws.Data<void>(parts.whole);
    parts.Rank(ws);
    if (!ws.comm()) {
      if (parts.whole.numel > 0) std::memcpy(out, in, parts.whole.nbytes());
      return;
    }
    exchange(ws, {Exchange::Kind::kAllGather, parts.whole.dtype, parts.counts, in, out});
  };
}

OpDef Def(const std::string& type, const std::string& doc) {
  return OpDef(type)
      .ForRanks()
      .Doc(doc + " With one rank the shard is all of the elements.")
      .Attr<int32_t>("nranks", 1,
                     "number of ranks that run the program; any other number is an error")
      .Range(1, 1 << 20)
      .Attr<int32_t>("ring_id", 0, "which ranks take part: all, whatever the number")
      .Rows(RowRule::kMixes)
      .NoGradient("it is a part of the update of parameters");
}

void Register(OpRegistry& ops) {
  ops.Add(
      Def("c_flat_shard", "Out = this rank's part of X's elements, padded with zeros at the end.")
          .Input("X", "tensor; only this rank's part is read")
          .Output("Out", "[ceil(elements of X / nranks)]")
          .Infer(InferShard)
          .Reference(Shard));
  ops.Add(Def("c_flat_reducescatter",
              "Out[i] = X[i], except that this rank's part of the elements (see c_flat_shard) is "
              "summed over all ranks; exchanged as one message.")
              .Constraint("C1", "Out must have as many variables as X")
              .Constraint("C2", "all X must have one dtype")
              .VariadicInput("X", "tensors")
              .VariadicOutput("Out", "tensors of the shapes of X")
              .Takes(VarType::kLoDTensor, {"X"})
              .Attr<bool>(kOverlapAttr, false,
                          "the exchange runs in the background until a c_sync_comm_stream or "
                          "c_wait_comm names one of Out; no op may use Out before")
              .Inplace("X", "Out")
              .SideEffect()
              .Infer(InferReduceScatter)
              .Reference(ReduceScatter));
  ops.Add(Def("c_flat_allgather", "Out = the parts X of all ranks joined.")
              .Constraint("C1",
                          "X must be [ceil(elements / nranks)] for the elements of attr shape, "
                          "which must be known")
              .Input("X", "this rank's part")
              .Output("Out", "tensor of attr shape")
              .Attr<std::vector<int64_t>>("shape", {}, "of Out")
              .SideEffect()
              .Infer(InferGather)
              .Reference(Gather));
}

}  // namespace coracle::flat_shard_op
